"""Goal: no lease outlives its session, none is taken from a live one, and journals do not wait for each other.

Method: the Store port is driven directly. Where two transactions meet, the second one runs inside the first, at the
point in question, on a connection of its own that does not wait.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
import sqlalchemy as sa
from journal_kit import (
    LIMITS,
    attach,
    driven,
    event,
    grant,
    limits,
    new_run,
    offer,
    start,
    start_new,
    succeeded,
    write,
)
from sqlalchemy import exc

from lantern_journal.adapters import sql_leases, sql_runs, sql_sessions, sql_starts
from lantern_journal.adapters.engines import IDLE_IN_TRANSACTION_S, postgres_engine, postgres_sync_engine
from lantern_journal.adapters.schema import run_locks, worker_sessions
from lantern_journal.adapters.sql_events import Transaction
from lantern_journal.adapters.sql_store import SqlStore
from lantern_journal.domain.leases import Limits
from lantern_journal.domain.records import Tended, Tending
from lantern_journal.domain.run_state import RunState, change_of
from lantern_journal.ports import Store
from lantern_kernel import reasons
from lantern_kernel.errors import LanternError

NOBODY_HEARD = limits(silence_us=0)
ON_POSTGRES = pytest.mark.parametrize("store", ["postgres"], indirect=True)


@pytest.fixture
def other(postgres_url: str) -> Iterator[sa.Engine]:
    """The database as another journal process sees it."""
    engine = postgres_sync_engine(postgres_url)
    yield engine
    engine.dispose()


def now_us(connection: sa.Connection) -> int:
    return connection.exec_driver_sql("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint").scalar_one()


def is_held(engine: sa.Engine, worker_id: str) -> bool:
    """Whether another journal that wants to close this worker's session would have to wait."""
    try:
        with engine.begin() as connection:
            connection.exec_driver_sql("SET LOCAL lock_timeout = '50ms'")
            sql_sessions.close_session(Transaction(connection=connection, now_us=now_us(connection)), worker_id, 1)
    except exc.OperationalError as error:
        return "lock timeout" in str(error.orig)
    return False


@ON_POSTGRES
@pytest.mark.parametrize("use", ["open", "acquire", "start", "renew", "open used"])
async def test_a_session_cannot_close_while_its_lease_is_being_made_longer(
    store: Store, other: sa.Engine, monkeypatch: pytest.MonkeyPatch, use: str
) -> None:
    target = await attach(store)
    run_id = (await start(store, target=target if use in ("renew", "open used") else None)).run.run_id
    if use == "open":
        await store.acquire_lease(grant(run_id, target), LIMITS)
    elif use == "renew":
        await store.open_run(run_id, 1, target, LIMITS)
    elif use == "open used":
        await write(store, run_id, event())
    held: list[bool] = []

    def before(module: ModuleType, name: str) -> None:
        real: Callable[..., Any] = getattr(module, name)

        def hooked(*args: Any, **kwargs: Any) -> Any:
            held.append(is_held(other, "w1"))
            return real(*args, **kwargs)

        monkeypatch.setattr(module, name, hooked)

    match use:
        case "open":
            before(sql_leases, "find_lock")
            await store.open_run(run_id, 1, target, LIMITS)
        case "acquire":
            before(sql_leases, "write_events")
            assert await store.acquire_lease(grant(run_id, target), LIMITS) == 1
        case "start":
            before(sql_starts, "insert_rows")
            assert (await start(store, "r2", target=target)).epoch == 1
        case "renew":
            before(sql_sessions, "_silent")
            await store.tend_sessions(Tending(renew=("w1",)), LIMITS)
        case _:
            before(sql_sessions, "_forget_closed")
            await store.tend_sessions(Tending(), LIMITS)
    monkeypatch.undo()
    assert held == [True]
    assert await store.close_session("w1", target.session_number) == 1
    assert run_id in [o.run_id for o in await store.find_orphans(10, LIMITS)]


async def test_a_grant_is_not_opened_once_its_session_closed(store: Store) -> None:
    target = await attach(store)
    run_id = (await start(store)).run.run_id
    await store.acquire_lease(grant(run_id, target), LIMITS)
    await store.close_session("w1", target.session_number)
    with pytest.raises(LanternError, match=f"{reasons.SESSION_NOT_ATTACHED}|{reasons.LEASE_LOST}"):
        await store.open_run(run_id, 1, target, LIMITS)
    assert [o.run_id for o in await store.find_orphans(10, LIMITS)] == [run_id]


def tend_elsewhere(engine: sa.Engine, tending: Tending, under: Limits) -> Tended:
    with engine.begin() as connection:
        return sql_sessions.tend_sessions(Transaction(connection=connection, now_us=now_us(connection)), tending, under)


@ON_POSTGRES
async def test_two_journals_that_tend_after_a_stall_neither_wait_nor_close_each_others_sessions(
    store: Store, other: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for worker_id in ("w1", "w2"):
        await driven(store, worker_id, worker_id)
    with other.begin() as connection:
        connection.execute(worker_sessions.update().values(seen_us=1))
    both = threading.Barrier(2)
    real: Callable[[Transaction, Limits, int], list[str]] = sql_sessions._silent  # pyright: ignore[reportPrivateUsage]

    def after_both_were_heard(tx: Transaction, under: Limits, as_of_us: int) -> list[str]:
        both.wait(10)
        found = real(tx, under, as_of_us)
        both.wait(10)
        return found

    monkeypatch.setattr(sql_sessions, "_silent", after_both_were_heard)
    outcomes: dict[str, Tended | Exception] = {}

    def tend(mine: str) -> None:
        try:
            outcomes[mine] = tend_elsewhere(other, Tending(seen=((mine, 1),), renew=(mine,)), LIMITS)
        except Exception as error:
            outcomes[mine] = error

    threads = [threading.Thread(target=tend, args=(worker_id,)) for worker_id in ("w1", "w2")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    found = {who: (each.closed, each.gone) if isinstance(each, Tended) else each for who, each in outcomes.items()}
    assert found == {"w1": ((), ()), "w2": ((), ())}
    assert len(await store.find_workers(LIMITS)) == 2


async def test_a_used_lease_is_not_given_away_though_nobody_has_opened_it(store: Store) -> None:
    """After a restart or an outage longer than a grant, before anybody tended the sessions."""
    target = await attach(store)
    second = await attach(store, "w2")
    run_id = (await start_new(store, new_run(target=target), limits(grant_us=0))).run.run_id
    await write(store, run_id, event())
    for under in (LIMITS, NOBODY_HEARD):
        assert await store.find_orphans(10, under) == []
    assert await store.acquire_lease(grant(run_id, second), LIMITS) == 0
    await store.defer_run(run_id, None, b"s" * 16, LIMITS)
    assert (await store.get_run(run_id)).state is RunState.RUNNING
    assert (await store.open_run(run_id, 1, target, LIMITS)).head_seq == 3, "its driver may still open it"


async def test_adopting_writes_down_which_leases_are_used(store: Store) -> None:
    target = await attach(store)
    used = (await start_new(store, new_run("r1", target=target), limits(grant_us=0))).run.run_id
    unused = (await start_new(store, new_run("r2", target=target), limits(grant_us=0))).run.run_id
    await write(store, used, event())
    await store.adopt_sessions()
    assert isinstance(store, SqlStore)
    query = sa.select(run_locks.c.run_id, run_locks.c.opened)
    found = await store._look(lambda c: {row.run_id: row.opened for row in c.execute(query)})  # pyright: ignore[reportPrivateUsage]
    assert found == {used: True, unused: False}
    assert [o.run_id for o in await store.find_orphans(10, LIMITS)] == [unused]


async def test_a_used_lease_goes_with_its_session(store: Store) -> None:
    target = await attach(store)
    second = await attach(store, "w2")
    run_id = (await start_new(store, new_run(target=target), limits(grant_us=0))).run.run_id
    await write(store, run_id, event())
    await store.close_session("w1", target.session_number)
    assert [(o.run_id, o.reason) for o in await store.find_orphans(10, LIMITS)] == [(run_id, "crash")]
    assert await store.acquire_lease(grant(run_id, second), LIMITS) == 2


async def test_sessions_that_closed_long_ago_are_forgotten_unless_they_hold_a_lease(store: Store) -> None:
    assert isinstance(store, SqlStore)
    targets = {worker_id: await attach(store, worker_id) for worker_id in ("open", "old", "holder", "recent")}
    await start(store, target=targets["holder"])
    for worker_id in ("old", "holder", "recent"):
        await store.close_session(worker_id, 1)

    def age(tx: Transaction) -> None:
        long_ago = tx.now_us - sql_sessions.CLOSED_KEPT_US - 1
        tx.connection.execute(
            worker_sessions.update().where(worker_sessions.c.worker_id.in_(["old", "holder"])).values(seen_us=long_ago)
        )

    await store._transact(age)  # pyright: ignore[reportPrivateUsage]
    await store.tend_sessions(Tending(), LIMITS)
    query = sa.select(worker_sessions.c.worker_id).order_by(worker_sessions.c.worker_id)
    left = await store._look(lambda c: list(c.execute(query).scalars()))  # pyright: ignore[reportPrivateUsage]
    assert left == ["holder", "open", "recent"]
    assert (await attach(store, "old")).session_number == 1


@ON_POSTGRES
async def test_a_group_that_ends_drives_takes_their_locks_in_order(store: Store, other: sa.Engine) -> None:
    """While it waits for the first, which a renewal holds, it has taken no other."""
    made = sorted([(await driven(store, f"r{i}"))[0].run.run_id for i in range(3)])
    ends = [change_of(run_id, 3, [succeeded()], 0, 1) for run_id in reversed(made)]
    lock = sa.select(run_locks).with_for_update(nowait=True)

    def end() -> None:
        with other.begin() as connection:
            sql_runs.apply_changes(connection, [change for change in ends if change is not None], ())

    ending = threading.Thread(target=end)
    with other.begin() as holder:
        holder.execute(lock.where(run_locks.c.run_id == made[0]))
        ending.start()
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        while not holder.exec_driver_sql(waiting).scalar():
            holder.exec_driver_sql("SELECT pg_stat_clear_snapshot(), pg_sleep(0.01)")
        assert len(holder.execute(lock.where(run_locks.c.run_id.in_(made[1:]))).all()) == 2
    ending.join(10)
    assert [w.lease_count for w in await store.find_workers(LIMITS)] == [0]


async def test_an_offer_is_found_by_its_exact_name(store: Store) -> None:
    await attach(store, "w1", offer("order"), offer("order-b"))
    assert isinstance(store, SqlStore)
    for name, count in (("order", 1), ("order-b", 1), ("orde", 0), ("b", 0), ("code", 0)):
        found = await store._transact(  # pyright: ignore[reportPrivateUsage]
            lambda tx, name=name: sql_sessions.find_offers(tx, "default", name, 1)
        )
        assert [o.name for o in found] == [name] * count


async def test_silence_is_judged_as_of_the_moment_that_is_named(store: Store) -> None:
    await driven(store)
    seen = (await store.tend_sessions(Tending(seen=(("w1", 1),)), LIMITS)).now_us
    at_once = limits(silence_us=1)
    assert (await store.tend_sessions(Tending(as_of_us=seen), at_once)).closed == ()
    assert (await store.tend_sessions(Tending(as_of_us=2**62), at_once)).closed == ("w1",), "but not of the future"


async def test_a_session_that_was_followed_is_gone(store: Store) -> None:
    first = await attach(store)
    assert await store.is_open_session("w1", first.session_number)
    second = await attach(store)
    found = [await store.is_open_session("w1", number) for number in (0, 1, 2, 3)]
    assert found == [False, False, True, False]
    assert not await store.is_open_session("w2", 1)
    seen = (("w1", first.session_number), ("w1", second.session_number), ("w2", 1))
    tended = await store.tend_sessions(Tending(seen=seen), LIMITS)
    assert (tended.closed, tended.gone) == ((), (("w1", 1), ("w2", 1)))
    await store.close_session("w1", second.session_number)
    assert not await store.is_open_session("w1", second.session_number)


@ON_POSTGRES
async def test_a_journal_that_stands_still_in_a_transaction_holds_nobody_up_for_long(
    store: Store, postgres_url: str
) -> None:
    await attach(store)
    still = postgres_engine(postgres_url)
    try:
        async with still.connect() as connection:
            await connection.execute(sa.select(worker_sessions).with_for_update())
            async with asyncio.timeout(IDLE_IN_TRANSACTION_S + 4):
                target = await attach(store)
            assert target.session_number == 2
            with pytest.raises(exc.DBAPIError, match="idle-in-transaction"):
                await connection.execute(sa.select(worker_sessions))
            await connection.invalidate()
    finally:
        await still.dispose()
