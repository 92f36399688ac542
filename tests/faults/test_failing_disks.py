"""Goal: a disk whose sync fails costs no promised event, and the service goes on by itself (SQLite) or with PostgreSQL.

Method: strace lets fsync and fdatasync of the journal over SQLite, or of PostgreSQL's processes, end with EIO under
load. What was not on the disk for certain must not have been promised; what was promised must be there.
"""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from disks import failing_syncs
from rig import KillablePostgres, Load, scaled
from system import Process

FAILING_S = 1.5
PANICS = scaled(3)
WAIT_S = 30.0


def await_log(journal: Process, word: str, load: Load) -> None:
    deadline = time.monotonic() + WAIT_S
    while word not in journal.log_text():
        assert time.monotonic() < deadline, f"{word} is not in the log\n{load.tails()}"
        time.sleep(0.05)


@pytest.mark.timeout(120)
def test_some_syncs_of_sqlite_fail(start_journal: Callable[..., Process], tmp_path: Path) -> None:
    database = f"sqlite:{tmp_path / 'journal.db'}"
    journal = start_journal("journal", database)
    with Load([journal], tmp_path) as load:
        load.await_progress()
        with failing_syncs([journal.pid], "2+3"):
            # It is promised on meanwhile: what a failed sync left open is written again.
            load.await_progress()
            await_log(journal, "disk_failed", load)
        load.await_progress()
        load.check(database)
    assert journal.is_alive()


@pytest.mark.timeout(120)
def test_all_syncs_of_sqlite_fail_and_the_journal_is_killed(
    start_journal: Callable[..., Process], tmp_path: Path
) -> None:
    database = f"sqlite:{tmp_path / 'journal.db'}"
    journal = start_journal("journal", database)
    with Load([journal], tmp_path) as load:
        for _ in range(scaled(3)):
            load.await_progress()
            with failing_syncs([journal.pid], "1+1"):
                time.sleep(FAILING_S / 2)
                before = load.promised()
                time.sleep(FAILING_S)
                assert load.promised() == before, "nothing is promised that no sync has confirmed"
                journal.kill()
            journal.start()
        load.await_progress()
        load.check(database)


@pytest.mark.timeout(120)
def test_syncs_of_postgres_fail(
    own_postgres: KillablePostgres, start_journal: Callable[..., Process], tmp_path: Path
) -> None:
    database = own_postgres.create_database("syncs")
    journals = [start_journal(name, database) for name in ("one", "two")]
    log = own_postgres.folder / "log"

    def panics() -> int:
        return log.read_text(errors="replace").count("PANIC:")

    with Load(journals, tmp_path) as load:
        load.await_progress()
        deadline = time.monotonic() + WAIT_S
        with failing_syncs(own_postgres.process_ids(), "40"):
            while panics() < PANICS:
                assert time.monotonic() < deadline, f"{panics()} panics\n{load.tails()}"
                time.sleep(0.05)
        if not own_postgres.is_up():
            own_postgres.start()
        load.await_progress()
        load.check(database)
    assert all(journal.is_alive() for journal in journals)
