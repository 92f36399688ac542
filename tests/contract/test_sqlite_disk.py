"""Goal: a full disk is told as one, and the write-ahead log survives being written anew, whatever its size.

Method: SQLite's own bound on a database's pages stands for the disk; the log is a file of random bytes.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from journal_kit import attach, driven, event, head, write

from lantern_journal.adapters.clock import CarriedClock
from lantern_journal.adapters.postgres import PostgresStore
from lantern_journal.adapters.sql_events import Transaction
from lantern_journal.adapters.sql_store import SqlStore
from lantern_journal.adapters.sqlite import SqliteStore
from lantern_journal.adapters.sqlite_files import COPY_BYTES, settle_log
from lantern_journal.ports import Store
from lantern_kernel import reasons
from lantern_kernel.errors import LanternError

BIG = b'{"data":"' + b"x" * 300_000 + b'"}'


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
async def test_sqlite_tells_of_a_full_disk_at_once_and_goes_on_when_there_is_room(store: Store) -> None:
    assert isinstance(store, SqlStore)
    started, _ = await driven(store)

    def bound(pages: int) -> Callable[[Transaction], None]:
        def use(tx: Transaction) -> None:
            tx.connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")

        return use

    await store._transact(bound(1))  # pyright: ignore[reportPrivateUsage]
    before = await head(store, started.run.run_id)
    with pytest.raises(LanternError) as refused:
        await write(store, started.run.run_id, event(payload=BIG))
    assert (refused.value.reason, refused.value.details) == (reasons.UNAVAILABLE, {"cause": "disk_full"})
    assert await head(store, started.run.run_id) == before
    await store._transact(bound(1_000_000))  # pyright: ignore[reportPrivateUsage]
    await write(store, started.run.run_id, event(payload=BIG))
    assert (await head(store, started.run.run_id)).seq == before.seq + 1


@pytest.mark.parametrize("store", ["postgres"], indirect=True)
async def test_postgres_tells_of_a_full_disk(store: Store) -> None:
    assert isinstance(store, PostgresStore)
    full = "DO $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$"
    before = store.generation
    with pytest.raises(LanternError) as refused:
        await store._write(lambda tx: tx.connection.exec_driver_sql(full))  # pyright: ignore[reportPrivateUsage]
    assert (refused.value.reason, refused.value.details) == (reasons.UNAVAILABLE, {"cause": "disk_full"})
    assert store.generation == before, "no connection was lost"


@pytest.mark.parametrize("size", [0, 1, COPY_BYTES, 3 * COPY_BYTES + 7])
def test_a_log_is_written_anew_as_it_was(tmp_path: Path, size: int) -> None:
    content = os.urandom(size)
    log = tmp_path / "journal.db-wal"
    log.write_bytes(content)
    settle_log(tmp_path / "journal.db")
    assert log.read_bytes() == content


def test_where_there_is_no_log_none_is_made(tmp_path: Path) -> None:
    settle_log(tmp_path / "journal.db")
    assert not list(tmp_path.iterdir())


async def test_what_a_killed_journal_left_in_its_log_is_there_at_the_next_start(tmp_path: Path) -> None:
    """The log is copied as a crash leaves it, while the store is open."""
    path, after = tmp_path / "journal.db", tmp_path / "after.db"
    store = await SqliteStore.open(path, CarriedClock())
    await attach(store)
    started, _ = await driven(store)
    await write(store, started.run.run_id, event(payload=BIG))
    expected = await head(store, started.run.run_id)
    after.write_bytes(path.read_bytes())
    after.with_name("after.db-wal").write_bytes(path.with_name("journal.db-wal").read_bytes())
    await store.close()
    again = await SqliteStore.open(after, CarriedClock())
    assert await head(again, started.run.run_id) == expected
    await again.close()
