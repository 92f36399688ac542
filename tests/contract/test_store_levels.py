"""Goal: a run is driven only by code that knows every kind of event in its history (SPEC L4, J6), on both databases.

Method: the Store port is driven directly, with sessions of different event levels.
"""

import pytest
import sqlalchemy as sa
from journal_kit import (
    DIGEST,
    LIMITS,
    OTHER_DIGEST,
    SOURCES,
    attach,
    driven,
    event,
    grant,
    limits,
    offer,
    park,
    start,
    write,
)

from lantern_journal.adapters.schema import runs
from lantern_journal.adapters.sql_store import SqlStore
from lantern_journal.domain.records import Orphan, ReleaseCause
from lantern_journal.domain.run_state import RunState
from lantern_journal.ports import Store
from lantern_kernel import reasons


async def stands(store: Store, run_id: str) -> tuple[RunState, str]:
    run = await store.get_run(run_id)
    return run.state, run.waiting_on


async def level_of(store: Store, run_id: str) -> int:
    assert isinstance(store, SqlStore)
    query = sa.select(runs.c.event_level).where(runs.c.run_id == run_id)
    level: int = await store._transact(  # pyright: ignore[reportPrivateUsage]
        lambda tx: tx.connection.execute(query).scalar_one()
    )
    return level


async def orphan_of(store: Store) -> Orphan:
    (orphan,) = await store.find_orphans(10, LIMITS)
    return orphan


async def test_a_run_that_nobody_has_driven_is_of_level_one(store: Store) -> None:
    await attach(store, level=3)
    run_id = (await start(store)).run.run_id
    assert await level_of(store, run_id) == 1
    assert (await orphan_of(store)).event_level == 1


async def test_a_run_started_with_its_lease_has_the_level_of_that_session(store: Store) -> None:
    target = await attach(store, level=2)
    run_id = (await start(store, target=target)).run.run_id
    assert await level_of(store, run_id) == 2
    await store.release_lease(run_id, 1, "w1", ReleaseCause.DRAIN)
    assert (await orphan_of(store)).event_level == 2


async def test_a_grant_raises_the_level_and_lower_sessions_get_nothing_after_it(store: Store) -> None:
    started, low = await driven(store)
    run_id = started.run.run_id
    middle, high = await attach(store, "w2", level=2), await attach(store, "w3", level=3)
    await store.release_lease(run_id, 1, "w1", ReleaseCause.DRAIN)
    assert await store.acquire_lease(grant(run_id, middle), LIMITS) == 2
    assert await level_of(store, run_id) == 2
    await store.release_lease(run_id, 2, "w2", ReleaseCause.DRAIN)
    assert await store.acquire_lease(grant(run_id, low), LIMITS) == 0
    assert await level_of(store, run_id) == 2
    assert await store.acquire_lease(grant(run_id, high), LIMITS) == 3
    await store.release_lease(run_id, 3, "w3", ReleaseCause.DRAIN)
    assert await store.acquire_lease(grant(run_id, middle), LIMITS) == 0
    assert (await orphan_of(store)).event_level == 3


async def test_workers_are_listed_with_the_level_of_their_last_session(store: Store) -> None:
    await attach(store, "w1")
    await attach(store, "w2", level=2)
    await attach(store, "w2", level=4)
    assert {w.worker_id: w.event_level for w in await store.find_workers(limits())} == {"w1": 1, "w2": 4}


async def test_a_run_waits_for_a_worker_of_its_level_and_is_woken_by_one_only(store: Store) -> None:
    target = await attach(store, "w2", level=2)
    run_id = (await start(store, target=target)).run.run_id
    await store.release_lease(run_id, 1, "w2", ReleaseCause.DRAIN)
    await store.close_session("w2", target.session_number)
    await attach(store, "w1")
    await store.defer_run(run_id, None, SOURCES.salt(), LIMITS)
    assert await stands(store, run_id) == (RunState.WAITING, "capacity"), "not set aside for the older worker"
    run = await store.get_run(run_id)
    assert run.error is not None
    assert run.error.code == reasons.NO_CAPACITY
    assert "order@1 at event level 2" in run.error.message
    await attach(store, "w3")
    assert await stands(store, run_id) == (RunState.WAITING, "capacity")
    await attach(store, "w4", level=2)
    assert await stands(store, run_id) == (RunState.QUEUED, "")


@pytest.mark.parametrize(("level", "expected"), [(1, RunState.WAITING), (2, RunState.QUEUED), (3, RunState.QUEUED)])
async def test_other_code_is_a_fix_only_where_it_knows_the_level(store: Store, level: int, expected: RunState) -> None:
    target = await attach(store, "w2", level=2)
    run_id = (await start(store, target=target)).run.run_id
    await park(store, run_id, "code_fix", failed=DIGEST)
    await attach(store, "w1", offer(digest=OTHER_DIGEST), level=level)
    assert (await store.get_run(run_id)).state is expected


async def test_code_below_the_level_that_came_before_the_park_does_not_wake_the_run(store: Store) -> None:
    target = await attach(store, "w2", level=2)
    run_id = (await start(store, target=target)).run.run_id
    await attach(store, "w1", offer(digest=OTHER_DIGEST))
    await park(store, run_id, "code_fix", failed=DIGEST)
    assert await stands(store, run_id) == (RunState.WAITING, "code_fix")


async def test_a_kind_that_the_journal_does_not_know_is_kept_and_shown(store: Store) -> None:
    started, _ = await driven(store)
    run_id = started.run.run_id
    await write(store, run_id, event("from_the_future", b'{"x":1}'))
    events, _ = await store.list_events(run_id, 2, 10, 1 << 20)
    assert [(e.kind, e.payload) for e in events] == [("from_the_future", b'{"x":1}')]
