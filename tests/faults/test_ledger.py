"""Goal: the ledger notices whatever can be wrong with a database after a fault.

Method: a short load on a sound journal, whose database is then damaged in one place at a time.
"""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import ledger
from rig import Load
from system import Process

AN_EVENT = "(SELECT max(rowid) FROM journal_events WHERE kind = 'step_started')"
DAMAGES = (
    ("lost", f"DELETE FROM journal_events WHERE rowid = {AN_EVENT}"),
    ("another event stands there", f"UPDATE journal_events SET digest = zeroblob(32) WHERE rowid = {AN_EVENT}"),
    ("its digest does not follow", f"UPDATE journal_events SET payload = x'7b7d20' WHERE rowid = {AN_EVENT}"),
    ("the grants are", "UPDATE runs SET epoch = epoch + 1 WHERE rowid = 1"),
    (
        "is stuck",
        "DELETE FROM journal_events WHERE rowid = (SELECT max(rowid) FROM journal_events WHERE kind = 'run_succeeded')",
    ),
    ("did not end so", "UPDATE runs SET state = 'RUNNING' WHERE rowid = 1"),
    (" started ", "UPDATE runs SET request_id = (SELECT min(request_id) FROM runs)"),
    ('["entry"', "DELETE FROM run_inbox WHERE rowid = 1"),
    ('["claim"', "DELETE FROM side_effect_receipts WHERE rowid = 1"),
    ('["settled"', "UPDATE side_effect_receipts SET state = 'claimed' WHERE rowid = 1"),
    ("the feed", "DELETE FROM journal_feed WHERE rowid = (SELECT max(rowid) FROM journal_feed)"),
)


def test_every_damage_is_noticed(start_journal: Callable[..., Process], tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = start_journal("journal", f"sqlite:{path}")
    with Load([journal], tmp_path) as load:
        load.await_progress(least_bytes=20_000)
        load.check(f"sqlite:{path}")
    journal.terminate()
    for expected, damage in DAMAGES:
        damaged = tmp_path / "damaged.db"
        damaged.write_bytes(path.read_bytes())
        with sqlite3.connect(damaged) as connection:
            connection.execute("DROP INDEX runs_request")
            assert connection.execute(damage).rowcount > 0, f"nothing was damaged by {damage}"
        connection.close()
        faults = ledger.find_faults(load.promises, ledger.read(f"sqlite:{damaged}"))
        assert any(expected in fault for fault in faults), f"{damage} was not noticed: {faults[:5]}"
