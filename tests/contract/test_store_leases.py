"""Goal: a run has one driver, a dead one is replaced, a live one is left alone, on both databases.

Method: the Store port is driven directly. Expiry needs no waiting: a limit of zero makes a grant expired or a session
silent at once.
"""

import asyncio
import threading

import pytest
from journal_kit import (
    LIMITS,
    OTHER_DIGEST,
    SOURCES,
    attach,
    driven,
    event,
    grant,
    head,
    limits,
    new_run,
    offer,
    park,
    start,
    start_new,
    succeeded,
    write,
)

from lantern_journal.adapters.schema import runs
from lantern_journal.adapters.sql_events import Transaction
from lantern_journal.adapters.sqlite import SqliteStore
from lantern_journal.domain.records import LeaseTarget, ReleaseCause, Tending
from lantern_journal.domain.run_state import RunState
from lantern_journal.ports import Collision, Store
from lantern_kernel import reasons
from lantern_kernel.errors import LanternError
from lantern_kernel.event import find_chain_fault

NOBODY_FRESH = limits(silence_us=0)


async def orphans(store: Store, under: object = None) -> list[str]:
    return [o.run_id for o in await store.find_orphans(100, LIMITS if under is None else NOBODY_FRESH)]


async def test_a_grant_is_an_event_and_a_lock_and_a_state(store: Store) -> None:
    target = await attach(store)
    run_id = (await start(store)).run.run_id
    assert await store.acquire_lease(grant(run_id, target, "start"), LIMITS) == 1
    run = await store.get_run(run_id)
    assert (run.state, run.epoch) == (RunState.RUNNING, 1)
    top = await head(store, run_id)
    assert (top.seq, top.kind, top.epoch) == (2, "lease_granted", 1)
    events, _ = await store.list_events(run_id, 0, 10, 1 << 20)
    assert find_chain_fault(run_id, events) is None
    assert await orphans(store) == []


async def test_racing_grants_have_one_winner(store: Store) -> None:
    targets = [await attach(store, f"w{i}") for i in range(8)]
    run_id = (await start(store)).run.run_id
    epochs = await asyncio.gather(*(store.acquire_lease(grant(run_id, target), LIMITS) for target in targets))
    assert sorted(epochs) == [0] * 7 + [1]
    assert (await head(store, run_id)).seq == 2


async def test_a_grant_repeated_by_the_very_same_call_is_held(store: Store) -> None:
    target = await attach(store)
    run_id = (await start(store)).run.run_id
    wanted = grant(run_id, target)
    assert await store.acquire_lease(wanted, LIMITS) == 1
    assert await store.acquire_lease(wanted, LIMITS) == 1
    assert await store.acquire_lease(grant(run_id, target), LIMITS) == 0


async def test_a_stale_writer_collides_with_the_grant(store: Store) -> None:
    started, target = await driven(store)
    run_id = started.run.run_id
    before = await head(store, run_id)
    assert await store.close_session("w1", target.session_number) == 1
    other = await attach(store, "w2")
    assert await store.acquire_lease(grant(run_id, other), LIMITS) == 2
    with pytest.raises(Collision):
        await write(store, run_id, succeeded(), on=before)
    assert (await store.get_run(run_id)).state is RunState.RUNNING


async def test_an_opened_lease_is_protected_by_its_session_alone(store: Store) -> None:
    target = await attach(store, "w1")
    other = await attach(store, "w2")
    run_id = (await start(store)).run.run_id
    await store.acquire_lease(grant(run_id, target), LIMITS)
    await store.open_run(run_id, 1, target, limits(lease_us=0))
    assert await orphans(store) == [], "expired, but its session is alive"
    assert await store.acquire_lease(grant(run_id, other), LIMITS) == 0
    assert await orphans(store, NOBODY_FRESH) == [run_id]
    assert await store.close_session("w1", target.session_number) == 0, "it had expired before"
    assert await orphans(store) == [run_id]
    assert await store.acquire_lease(grant(run_id, other), LIMITS) == 2


async def test_a_grant_that_nobody_opens_expires_though_its_session_is_alive(store: Store) -> None:
    target = await attach(store, "w1")
    other = await attach(store, "w2")
    run_id = (await start(store)).run.run_id
    assert await store.acquire_lease(grant(run_id, target, "start"), limits(grant_us=0)) == 1
    assert [o.reason for o in await store.find_orphans(10, LIMITS)] == ["start"], "it has not been driven yet"
    with pytest.raises(LanternError, match=reasons.LEASE_LOST):
        await store.open_run(run_id, 1, target, LIMITS)
    assert await store.acquire_lease(grant(run_id, other), LIMITS) == 2
    with pytest.raises(LanternError, match=reasons.LEASE_LOST):
        await store.open_run(run_id, 1, target, LIMITS)
    assert (await store.open_run(run_id, 2, other, LIMITS)).head_seq == 3
    assert (await store.open_run(run_id, 2, other, LIMITS)).head_seq == 3, "repeating is harmless"


async def test_a_lease_created_with_its_run_counts_as_opened_once_it_is_used(store: Store) -> None:
    target = await attach(store)
    run_id = (await start_new(store, new_run(target=target), limits(grant_us=0))).run.run_id
    assert await orphans(store) == [run_id]
    await store.tend_sessions(Tending(), LIMITS)
    assert await orphans(store) == [run_id], "nothing was appended under it"
    await write(store, run_id, event())
    await store.tend_sessions(Tending(), LIMITS)
    assert await orphans(store) == []


@pytest.mark.parametrize(("used", "reason"), [(False, "start"), (True, "crash")])
async def test_an_orphan_says_whether_it_was_driven_before(store: Store, used: bool, reason: str) -> None:
    target = await attach(store)
    run_id = (await start(store, target=target)).run.run_id
    if used:
        await write(store, run_id, event())
    await store.close_session("w1", target.session_number)
    assert [(o.run_id, o.reason) for o in await store.find_orphans(10, LIMITS)] == [(run_id, reason)]


async def test_a_full_lease_is_not_stolen(store: Store) -> None:
    started, _ = await driven(store)
    other = await attach(store, "w2")
    assert await store.acquire_lease(grant(started.run.run_id, other), LIMITS) == 0
    assert await orphans(store, NOBODY_FRESH) == [], "not even from a silent worker before it expires"


async def test_renewal_lengthens_opened_leases_only(store: Store) -> None:
    target = await attach(store)
    opened, granted = (await start(store, "r1")).run.run_id, (await start(store, "r2")).run.run_id
    for run_id in (opened, granted):
        await store.acquire_lease(grant(run_id, target), limits(grant_us=0 if run_id == granted else 5_000_000))
    await store.open_run(opened, 1, target, limits(lease_us=0))
    assert sorted(await orphans(store, NOBODY_FRESH)) == sorted([opened, granted])
    await store.tend_sessions(Tending(renew=("w1",)), LIMITS)
    assert await orphans(store, NOBODY_FRESH) == [granted]


async def test_release_queues_the_run_and_is_idempotent(store: Store) -> None:
    started, target = await driven(store)
    run_id = started.run.run_id
    with pytest.raises(LanternError, match=reasons.LEASE_LOST):
        await store.release_lease(run_id, 1, "somebody")
    assert await store.release_lease(run_id, 1, "w1") == 0
    assert await store.release_lease(run_id, 1, "w1") == 0
    assert (await store.get_run(run_id)).state is RunState.QUEUED
    assert [o.reason for o in await store.find_orphans(10, LIMITS)] == ["upgrade"]
    assert await store.acquire_lease(grant(run_id, target), LIMITS) == 2
    with pytest.raises(LanternError, match=reasons.LEASE_LOST):
        await store.release_lease(run_id, 1, "w1")


async def test_a_faulty_drive_rests_its_run_longer_each_time_unless_it_got_somewhere(store: Store) -> None:
    target = await attach(store)
    run_id = (await start(store)).run.run_id

    async def drive(*, progress: bool = False) -> int:
        """A drive that fails; how many seconds its run rests."""
        await store.defer_run(run_id, 0, SOURCES.salt(), LIMITS)
        epoch = await store.acquire_lease(grant(run_id, target, "crash"), LIMITS)
        await store.open_run(run_id, epoch, target, LIMITS)
        if progress:
            await write(store, run_id, event())
        before_us = await store.ping()
        until_us = await store.release_lease(run_id, epoch, "w1", ReleaseCause.FAULT)
        assert until_us is not None
        assert await orphans(store) == [], "it rests"
        assert await store.next_due_us(before_us) == until_us
        return (until_us - before_us) // 1_000_000

    assert [await drive() for _ in range(4)] == [1, 2, 4, 8]
    assert await drive(progress=True) == 1
    assert [await drive() for _ in range(7)] == [2, 4, 8, 16, 32, 60, 60]
    await store.defer_run(run_id, 0, SOURCES.salt(), LIMITS)
    assert [o.reason for o in await store.find_orphans(10, LIMITS)] == ["crash"]
    epoch = await store.acquire_lease(grant(run_id, target), LIMITS)
    await park(store, run_id, "timer", due_us=1)
    assert await store.acquire_lease(grant(run_id, target), LIMITS) == epoch + 1
    assert await store.release_lease(run_id, epoch + 1, "w1", ReleaseCause.FAULT) is not None
    run = await store.get_run(run_id)
    assert run.state is RunState.QUEUED, "the fault of a timer's drive"


@pytest.mark.parametrize("reason", ["start", "crash", "timer", "signal", "upgrade"])
async def test_a_run_that_a_worker_refused_is_offered_at_once_for_the_same_reason(store: Store, reason: str) -> None:
    target = await attach(store)
    run_id = (await start(store)).run.run_id
    assert await store.acquire_lease(grant(run_id, target, reason), LIMITS) == 1
    assert await store.release_lease(run_id, 1, "w1", ReleaseCause.REFUSED) == 0
    assert await store.release_lease(run_id, 1, "w1", ReleaseCause.REFUSED) == 0
    assert [(o.run_id, o.reason) for o in await store.find_orphans(10, LIMITS)] == [(run_id, reason)]
    assert await store.acquire_lease(grant(run_id, target, reason), LIMITS) == 2


async def test_a_session_closes_by_compare_and_set(store: Store) -> None:
    started, first = await driven(store)
    second = await attach(store)
    assert second.session_number == first.session_number + 1
    assert await store.close_session("w1", first.session_number) is None, "it has re-attached"
    assert await orphans(store) == []
    assert await store.close_session("w1", second.session_number) == 1
    assert await store.close_session("w1", second.session_number) is None
    assert await orphans(store) == [started.run.run_id]
    third = await attach(store)
    with pytest.raises(LanternError, match=reasons.SESSION_NOT_ATTACHED):
        await store.open_run(
            started.run.run_id, 1, LeaseTarget(worker_id="w1", session_number=third.session_number + 1), LIMITS
        )
    assert (await store.open_run(started.run.run_id, 1, third, LIMITS)).run.state is RunState.RUNNING


async def test_a_silent_session_is_reaped_and_a_seen_one_is_not(store: Store) -> None:
    started, target = await driven(store)
    await attach(store, "w2")
    assert (await store.tend_sessions(Tending(seen=(("w1", target.session_number),)), LIMITS)).closed == ()
    assert (await store.tend_sessions(Tending(), NOBODY_FRESH)).closed == ("w1", "w2")
    assert (await store.tend_sessions(Tending(), NOBODY_FRESH)).closed == ()
    assert await orphans(store) == [started.run.run_id]
    assert await store.find_workers(LIMITS) == []
    await store.tend_sessions(Tending(seen=(("w1", target.session_number),)), LIMITS)
    assert await store.find_workers(LIMITS) == [], "a reaped session comes back by attaching only"


async def test_what_comes_after_a_session_closed_revives_no_lease(store: Store) -> None:
    """A late append, or the renewal of a journal that has not heard of it, would strand the run for a whole lease."""
    target = await attach(store)
    created, opened = await start(store, "r1", target=target), await start(store, "r2", target=target)
    await store.open_run(opened.run.run_id, 1, target, LIMITS)
    assert await store.close_session("w1", target.session_number) == 2
    await write(store, created.run.run_id, event())
    await write(store, opened.run.run_id, event())
    tended = await store.tend_sessions(Tending(seen=(("w1", target.session_number),), renew=("w1",)), LIMITS)
    assert tended.gone == (("w1", target.session_number),), "who hears the worker is told to let it attach anew"
    assert sorted(await orphans(store)) == sorted([created.run.run_id, opened.run.run_id])


async def test_adopted_sessions_get_a_moment_to_come_back(store: Store) -> None:
    await driven(store)
    await store.adopt_sessions()
    assert [w.lease_count for w in await store.find_workers(LIMITS)] == [1]
    assert (await store.tend_sessions(Tending(), LIMITS)).closed == ()


async def test_missed_inbox_entries_are_told_of(store: Store) -> None:
    from journal_kit import entry

    started, _ = await driven(store)
    await store.send(entry(started.run.run_id), LIMITS)
    tended = await store.tend_sessions(Tending(inbox_of=("w1",)), LIMITS)
    assert tended.inbox == (("w1", started.run.run_id, 1),)


async def test_orphans_are_fair_over_tenants_oldest_first_and_capped(store: Store) -> None:
    from dataclasses import replace

    from lantern_journal.domain.records import Attach

    for tenant in ("a", "b"):
        await store.attach(
            Attach(
                worker_id=f"w-{tenant}",
                address="h:1",
                capacity=1,
                offers=(offer(),),
                tenant_id=tenant,
                draining=False,
            )
        )
    made: dict[str, list[str]] = {"a": [], "b": []}
    for number, tenant in enumerate(["a", "a", "a", "a", "b", "b"]):
        started = await start_new(store, replace(new_run(f"r{number}"), tenant_id=tenant))
        made[tenant].append(started.run.run_id)
    found = [o.run_id for o in await store.find_orphans(4, LIMITS)]
    assert found == [made["a"][0], made["b"][0], made["a"][1], made["b"][1]]
    everything = [o.run_id for o in await store.find_orphans(100, LIMITS)]
    assert everything[4:] == made["a"][2:]


async def test_waiting_runs_are_orphans_once_they_are_due(store: Store) -> None:
    started, target = await driven(store)
    run_id = started.run.run_id
    now_us = await store.ping()
    await park(store, run_id, "timer", due_us=now_us + 3_600_000_000)
    assert await orphans(store) == []
    assert await store.next_due_us(now_us) == now_us + 3_600_000_000
    assert await store.acquire_lease(grant(run_id, target), LIMITS) == 0, "it is not due"
    second, _ = await driven(store, "r2")
    await park(store, second.run.run_id, "timer", due_us=now_us - 1)
    assert [(o.run_id, o.reason) for o in await store.find_orphans(10, LIMITS)] == [(second.run.run_id, "timer")]
    target = await attach(store)
    assert await store.acquire_lease(grant(second.run.run_id, target, "timer"), LIMITS) == 2
    run = await store.get_run(second.run.run_id)
    assert (run.state, run.waiting_on, run.due_us) == (RunState.RUNNING, "", None)


async def test_a_park_and_an_end_release_the_lease(store: Store) -> None:
    started, _ = await driven(store, "r1")
    ended, _ = await driven(store, "r2")
    await park(store, started.run.run_id, "signal")
    await write(store, ended.run.run_id, succeeded())
    assert [w.lease_count for w in await store.find_workers(LIMITS)] == [0]


async def test_a_run_is_set_aside_for_a_time_or_until_there_is_capacity(store: Store) -> None:
    target = await attach(store)
    run_id = (await start(store)).run.run_id
    await store.defer_run(run_id, 3_600_000_000, SOURCES.salt(), LIMITS)
    assert await orphans(store) == []
    assert (await store.get_run(run_id)).state is RunState.QUEUED
    waiting = (await start(store, "r2")).run.run_id
    await store.defer_run(waiting, None, SOURCES.salt(), LIMITS)
    assert (await store.get_run(waiting)).state is RunState.QUEUED, "a live worker offers it after all"
    await store.close_session("w1", target.session_number)
    await store.defer_run(waiting, None, SOURCES.salt(), LIMITS)
    run = await store.get_run(waiting)
    assert (run.state, run.waiting_on) == (RunState.WAITING, "capacity")
    assert run.error is not None
    assert (run.error.code, "order@1" in run.error.message) == (reasons.NO_CAPACITY, True)
    events, _ = await store.list_events(waiting, 0, 10, 1 << 20)
    assert [e.kind for e in events] == ["run_started", "run_parked"]
    assert find_chain_fault(waiting, events) is None
    await attach(store, "w2", offer("another"))
    assert (await store.get_run(waiting)).state is RunState.WAITING
    await attach(store, "w3", offer("order", OTHER_DIGEST))
    assert (await store.get_run(waiting)).state is RunState.QUEUED
    assert waiting in await orphans(store)


async def test_a_driven_run_is_not_set_aside(store: Store) -> None:
    started, _ = await driven(store)
    await store.defer_run(started.run.run_id, None, SOURCES.salt(), LIMITS)
    assert (await store.get_run(started.run.run_id)).state is RunState.RUNNING


async def test_fixed_code_wakes_the_runs_that_wait_for_it(store: Store) -> None:
    started, _ = await driven(store)
    run_id = started.run.run_id
    await park(store, run_id, "code_fix")
    await attach(store, "w1")
    assert (await store.get_run(run_id)).state is RunState.WAITING, "the same code is no fix"
    await attach(store, "w2", offer("order", OTHER_DIGEST), draining=True)
    assert (await store.get_run(run_id)).state is RunState.WAITING, "a draining worker takes nothing"
    await attach(store, "w2", offer("order", OTHER_DIGEST))
    assert (await store.get_run(run_id)).state is RunState.QUEUED
    assert [o.reason for o in await store.find_orphans(10, LIMITS)] == ["upgrade"]


@pytest.mark.parametrize("case", ["unknown", "another agent", "draining", "old session"])
async def test_a_worker_that_cannot_drive_a_run_is_granted_nothing(store: Store, case: str) -> None:
    await attach(store, "w0")
    run_id = (await start(store)).run.run_id
    target = LeaseTarget(worker_id="nobody", session_number=1)
    if case == "another agent":
        target = await attach(store, "w1", offer("another"))
    elif case == "draining":
        target = await attach(store, "w1", draining=True)
    elif case == "old session":
        target = await attach(store, "w1")
        await attach(store, "w1")
    assert await store.acquire_lease(grant(run_id, target), LIMITS) == 0
    assert (await head(store, run_id)).seq == 1, "nothing has changed"


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
async def test_looking_for_orphans_does_not_wait_for_a_write(store: Store) -> None:
    await attach(store)
    run_id = (await start(store)).run.run_id
    looked = threading.Event()

    def write_slowly(tx: Transaction) -> bool:
        tx.connection.execute(runs.update().values(recover_after_us=1))
        return looked.wait(10)

    assert isinstance(store, SqliteStore)
    writing = asyncio.create_task(store._transact(write_slowly))  # pyright: ignore[reportPrivateUsage]
    assert await orphans(store) == [run_id]
    assert [w.worker_id for w in await store.find_workers(LIMITS)] == ["w1"]
    looked.set()
    assert await writing
