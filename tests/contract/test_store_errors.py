"""Goal: what the database says about one statement is not taken for a lost connection, and a lost one is.

Method: statements of the test's own, run as the store runs its own.
"""

from collections.abc import Callable

import pytest
import sqlalchemy as sa
from journal_kit import attach, driven, event, head, write
from psycopg import AsyncConnection
from psycopg import errors as postgres_errors
from sqlalchemy import exc

from lantern_journal.adapters import sql_store
from lantern_journal.adapters.postgres import PostgresStore
from lantern_journal.adapters.schema import runs
from lantern_journal.adapters.sql_events import Transaction
from lantern_journal.adapters.sql_store import SqlStore
from lantern_journal.ports import Disconnected, Store
from lantern_kernel import reasons
from lantern_kernel.errors import LanternError


async def tried(store: Store, function: Callable[[Transaction], object]) -> tuple[int, BaseException | None]:
    """How often a transaction was tried, and its error."""
    tries = 0

    def counted(tx: Transaction) -> object:
        nonlocal tries
        tries += 1
        return function(tx)

    assert isinstance(store, SqlStore)
    try:
        await store._write(counted)  # pyright: ignore[reportPrivateUsage]
    except Exception as error:
        return tries, error
    return tries, None


async def test_a_statement_that_the_database_does_not_take_is_not_sent_again(store: Store) -> None:
    before = store.generation
    too_many = 70_000 if isinstance(store, PostgresStore) else 300_000
    query = sa.select(runs.c.run_id).where(runs.c.run_id.in_(map(str, range(too_many))))
    tries, error = await tried(store, lambda tx: tx.connection.execute(query).all())
    assert (tries, type(error)) == (1, exc.OperationalError)
    assert store.generation == before, "no connection was lost"
    await attach(store)


@pytest.mark.parametrize("store", ["postgres"], indirect=True)
async def test_a_statement_that_takes_too_long_is_answered_at_once(store: Store) -> None:
    before = store.generation

    def slow(tx: Transaction) -> None:
        tx.connection.exec_driver_sql("SET LOCAL statement_timeout = '20ms'")
        tx.connection.exec_driver_sql("SELECT pg_sleep(10)")

    tries, error = await tried(store, slow)
    assert isinstance(error, LanternError)
    assert (tries, error.reason, store.generation) == (1, reasons.UNAVAILABLE, before)


@pytest.mark.parametrize("store", ["postgres"], indirect=True)
async def test_a_transaction_whose_connection_is_lost_is_tried_again(store: Store) -> None:
    before = store.generation
    killed: list[bool] = []

    def die(tx: Transaction) -> None:
        if not killed:
            killed.append(True)
            tx.connection.exec_driver_sql("SELECT pg_terminate_backend(pg_backend_pid())")

    assert await tried(store, die) == (2, None)
    assert store.generation == before + 1


@pytest.mark.parametrize("store", ["postgres"], indirect=True)
async def test_the_connection_of_the_groups_is_dropped_only_when_it_is_lost(store: Store) -> None:
    assert isinstance(store, PostgresStore)
    started, _ = await driven(store)
    before = store.generation

    async def send(statement: bytes) -> None:
        async def use(connection: AsyncConnection[object]) -> None:
            await connection.execute(statement)

        await store._direct(use)  # pyright: ignore[reportPrivateUsage]

    await send(b"SET statement_timeout = '20ms'")
    with pytest.raises(LanternError, match=reasons.UNAVAILABLE):
        await send(b"SELECT pg_sleep(10)")
    with pytest.raises(postgres_errors.ObjectNotInPrerequisiteState):
        await send(b"SELECT lastval()")
    assert store.generation == before
    with pytest.raises(Disconnected):
        await send(b"SELECT pg_terminate_backend(pg_backend_pid())")
    assert store.generation == before + 1
    await write(store, started.run.run_id, event())
    assert (await head(store, started.run.run_id)).seq == 3


@pytest.mark.parametrize("store", ["postgres"], indirect=True)
@pytest.mark.parametrize("code", ["40001", "40P01", "55P03"])
async def test_who_is_to_give_way_begins_anew_a_bounded_number_of_times(
    store: Store, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_store, "BACKOFF_MS_FIRST", 1)
    monkeypatch.setattr(sql_store, "BACKOFF_MS_MAX", 1)
    giving_way = 2
    seen: list[int] = []

    def give_way(tx: Transaction) -> None:
        # What an earlier try wrote is gone: the whole transaction begins anew.
        seen.append(tx.connection.exec_driver_sql("SELECT count(*) FROM journal_marks").scalar_one())
        tx.connection.exec_driver_sql("INSERT INTO journal_marks (name, value) VALUES ('give way', 1)")
        if len(seen) <= giving_way:
            tx.connection.exec_driver_sql(f"DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '{code}'; END $$")

    assert await tried(store, give_way) == (3, None)
    assert set(seen) == {0}
    tries, error = await tried(
        store, lambda tx: tx.connection.exec_driver_sql(f"DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '{code}'; END $$")
    )
    assert isinstance(error, LanternError)
    assert (tries, error.reason) == (sql_store.TRIES, reasons.UNAVAILABLE)
