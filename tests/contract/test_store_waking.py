"""Goal: no run waits for what is there already, whichever of the two came first, on both databases.

Method: the Store port is driven directly, in the order in which the two would miss each other. A limit of zero makes
every session look silent, as it does after the database was away.
"""

import asyncio

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

from lantern_journal.adapters.clock import CarriedClock
from lantern_journal.adapters.schema import run_inbox, runs
from lantern_journal.adapters.sql_store import SqlStore
from lantern_journal.application.announcements import Hub
from lantern_journal.application.committer import GroupCommitter
from lantern_journal.domain.appends import Append, Row, rows_of
from lantern_journal.domain.records import Attach, Claim, LeaseTarget, Settlement, SideEffectState, Tending
from lantern_journal.domain.run_state import RunState, change_of
from lantern_journal.ports import Store
from lantern_kernel import kinds, payloads, reasons
from lantern_kernel.bounds import INBOX_ENTRIES_MAX, INBOX_RESERVE
from lantern_kernel.event import NewEvent
from lantern_kernel.payloads import ApprovalFacts, ParkFacts, RunErrorFacts

NOBODY_HEARD = limits(silence_us=0)
THIRD_DIGEST = "c" * 64


async def stands(store: Store, run_id: str) -> tuple[RunState, str]:
    run = await store.get_run(run_id)
    return run.state, run.waiting_on


async def test_no_run_waits_for_capacity_beside_a_worker_that_was_only_not_heard(store: Store) -> None:
    target = await attach(store)
    queued = (await start(store)).run.run_id
    sleeper, _ = await driven(store, "r2")
    await park(store, sleeper.run.run_id, "timer", due_us=1)
    for run_id in (queued, sleeper.run.run_id):
        await store.defer_run(run_id, None, SOURCES.salt(), NOBODY_HEARD)
    await store.adopt_sessions()
    await store.tend_sessions(Tending(seen=(("w1", target.session_number),)), LIMITS)
    assert await stands(store, queued) == (RunState.QUEUED, "")
    run = await store.get_run(sleeper.run.run_id)
    assert (run.state, run.waiting_on, run.due_us) == (RunState.WAITING, "timer", 1)
    assert await store.find_orphans(10, LIMITS) == [], "set aside for a moment"
    due_us = await store.next_due_us(await store.ping())
    assert due_us is not None
    assert due_us <= await store.ping() + 1_000_000


@pytest.mark.parametrize("case", ["closed", "draining", "another tenant", "another agent", "a longer name"])
async def test_a_session_that_takes_nothing_is_no_capacity(store: Store, case: str) -> None:
    target = await attach(store)
    run_id = (await start(store)).run.run_id
    await store.close_session("w1", target.session_number)
    if case == "draining":
        await attach(store, "w2", draining=True)
    elif case == "another tenant":
        await store.attach(
            Attach(worker_id="w2", address="h:1", capacity=1, offers=(offer(),), tenant_id="b", draining=False)
        )
    elif case == "another agent":
        await attach(store, "w2", offer("another"))
    elif case == "a longer name":
        await attach(store, "w2", offer("order-b"), offer("b.order"))
    await store.defer_run(run_id, None, SOURCES.salt(), LIMITS)
    assert await stands(store, run_id) == (RunState.WAITING, "capacity")


async def test_an_attach_wakes_more_runs_than_a_statement_takes_parameters(store: Store) -> None:
    target = await attach(store)
    count = 70_000
    template = (await start(store)).run.run_id
    await store.close_session("w1", target.session_number)
    await store.defer_run(template, None, SOURCES.salt(), LIMITS)
    assert isinstance(store, SqlStore)

    def copy(connection: sa.Connection) -> None:
        numbers = (
            "generate_series(1, :count) AS n(i)"
            if connection.dialect.name == "postgresql"
            else "(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :count) SELECT i FROM n) n"
        )
        names = [column.name for column in runs.columns]
        chosen = ["i || run_id" if n == "run_id" else "i || request_id" if n == "request_id" else n for n in names]
        connection.execute(
            sa.text(f"INSERT INTO runs ({', '.join(names)}) SELECT {', '.join(chosen)} FROM runs, {numbers}"),
            {"count": count},
        )

    await store._transact(lambda tx: copy(tx.connection))  # pyright: ignore[reportPrivateUsage]
    attached = await store.attach(
        Attach(worker_id="w2", address="h:1", capacity=1, offers=(offer(),), tenant_id="default", draining=False)
    )
    assert attached.woken == count + 1
    assert await stands(store, template) == (RunState.QUEUED, "")


async def test_a_fix_that_came_before_the_park_wakes_the_run(store: Store) -> None:
    started, _ = await driven(store)
    run_id = started.run.run_id
    await attach(store, "w2", offer(digest=OTHER_DIGEST))
    assert await _park_group(store, run_id, "code_fix", DIGEST) == (run_id,)
    assert await stands(store, run_id) == (RunState.QUEUED, "")
    (orphan,) = await store.find_orphans(10, LIMITS)
    assert (orphan.reason, orphan.agent_digest, orphan.failed_digest) == ("upgrade", DIGEST, DIGEST)


async def test_the_committer_announces_a_run_that_its_own_park_woke(store: Store) -> None:
    started, _ = await driven(store)
    run_id = started.run.run_id
    await attach(store, "w2", offer(digest=OTHER_DIGEST))
    top, hub = await head(store, run_id), Hub()
    error = RunErrorFacts(code=reasons.NONDETERMINISM, message="m", details={"digest": DIGEST})
    parked = event("run_parked", ParkFacts(waiting_on="code_fix", error=error).pack(), "", 0)
    append = Append(run_id=run_id, epoch=top.epoch, first_seq=top.seq + 1, previous_digest=top.digest, events=(parked,))
    assert await GroupCommitter(store, CarriedClock(), hub).append(append) == top.seq + 1
    assert hub.sent == {"woken": 1}


async def _park_group(store: Store, run_id: str, on: str, failed: str = "") -> tuple[str, ...]:
    """Parks as the committer does; the runs that were woken by it."""
    top = await head(store, run_id)
    error = None
    if failed:
        error = RunErrorFacts(code=reasons.NONDETERMINISM, message="m", details={"digest": failed})
    parked = event("run_parked", ParkFacts(waiting_on=on, error=error).pack(), "", 0)
    rows: list[Row] = []
    after = rows_of(run_id, top, top.epoch, top.time_us + 1, [parked], rows)
    change = change_of(run_id, top.seq + 1, [parked], 0, after.time_us)
    assert change is not None
    return (await store.insert_group(rows, [change])).queued


async def test_a_run_is_not_given_to_the_code_that_failed_it(store: Store) -> None:
    started, target = await driven(store)
    run_id = started.run.run_id
    fixed = await attach(store, "w2", offer(digest=OTHER_DIGEST))
    await park(store, run_id, "code_fix", failed=DIGEST)
    assert await store.acquire_lease(grant(run_id, target), LIMITS) == 0
    assert await store.acquire_lease(grant(run_id, fixed), LIMITS) == 2


@pytest.mark.parametrize("gone", ["closed", "draining"])
async def test_with_only_the_code_that_failed_a_run_waits_for_a_fix(store: Store, gone: str) -> None:
    started, _ = await driven(store)
    run_id = started.run.run_id
    fixed = await attach(store, "w2", offer(digest=OTHER_DIGEST))
    await park(store, run_id, "code_fix", failed=DIGEST)
    if gone == "closed":
        await store.close_session("w2", fixed.session_number)
    else:
        await attach(store, "w2", offer(digest=OTHER_DIGEST), draining=True)
    await store.defer_run(run_id, None, SOURCES.salt(), LIMITS)
    assert await stands(store, run_id) == (RunState.WAITING, "code_fix")
    run = await store.get_run(run_id)
    assert run.error is not None
    assert (run.error.code, run.error.details) == (reasons.NONDETERMINISM, {"digest": DIGEST})
    await attach(store, "w1")
    assert await stands(store, run_id) == (RunState.WAITING, "code_fix"), "the same code is no fix"
    await attach(store, "w2", offer(digest=OTHER_DIGEST))
    assert await stands(store, run_id) == (RunState.QUEUED, "")


async def test_a_run_that_waits_for_capacity_is_not_woken_by_the_code_that_failed_it(store: Store) -> None:
    started, target = await driven(store)
    run_id = started.run.run_id
    fixed = await attach(store, "w2", offer(digest=OTHER_DIGEST))
    await park(store, run_id, "code_fix", failed=DIGEST)
    await store.close_session("w1", target.session_number)
    await store.close_session("w2", fixed.session_number)
    await store.defer_run(run_id, None, SOURCES.salt(), LIMITS)
    assert await stands(store, run_id) == (RunState.WAITING, "capacity")
    await attach(store, "w1")
    assert await stands(store, run_id) == (RunState.WAITING, "capacity")
    await attach(store, "w3", offer(), offer(digest=THIRD_DIGEST))
    assert await stands(store, run_id) == (RunState.QUEUED, "")


async def test_two_bad_versions_do_not_pass_a_run_to_and_fro(store: Store) -> None:
    started, first = await driven(store)
    run_id = started.run.run_id
    second = await attach(store, "w2", offer(digest=OTHER_DIGEST))
    await park(store, run_id, "code_fix", failed=DIGEST)
    assert await store.acquire_lease(grant(run_id, second), LIMITS) == 2
    assert await _park_group(store, run_id, "code_fix", OTHER_DIGEST) == ()
    assert await stands(store, run_id) == (RunState.WAITING, "code_fix")
    await attach(store, first.worker_id)
    await attach(store, "w2", offer(digest=OTHER_DIGEST))
    assert await stands(store, run_id) == (RunState.WAITING, "code_fix")
    await attach(store, "w3", offer(digest=THIRD_DIGEST))
    (orphan,) = await store.find_orphans(10, LIMITS)
    assert orphan.failed_digest == OTHER_DIGEST


async def test_a_fix_and_a_park_at_once_never_miss_each_other(store: Store) -> None:
    target = await attach(store)
    made = [(await start(store, f"r{i}", target=target)).run.run_id for i in range(10)]
    await asyncio.gather(
        *(park(store, run_id, "code_fix", failed=DIGEST) for run_id in made[:5]),
        attach(store, "w2", offer(digest=OTHER_DIGEST)),
        *(park(store, run_id, "code_fix", failed=DIGEST) for run_id in made[5:]),
    )
    assert {await stands(store, run_id) for run_id in made} == {(RunState.QUEUED, "")}


def claim(run_id: str, key: str = "k", epoch: int = 1, worker_id: str = "w1", nonce: bytes = b"n" * 16) -> Claim:
    return Claim(key=key, run_id=run_id, step_id="s", epoch=epoch, sink="mail", worker_id=worker_id, nonce=nonce)


def settlement(run_id: str, key: str = "k") -> Settlement:
    return Settlement(key=key, run_id=run_id, state=SideEffectState.DELIVERED, result=b"1", worker_id="w1")


def undecided(key: str = "k", step_id: str = "s") -> NewEvent:
    return event("step_waiting", payloads.pack({"on": "operator", "key": key}), step_id)


async def _driven_by_the_next(store: Store) -> tuple[str, LeaseTarget]:
    """A run whose first worker claimed `k` and died, and whose second found that claim undecided."""
    started, target = await driven(store)
    run_id = started.run.run_id
    assert (await store.claim_side_effect(claim(run_id)))[0]
    await store.close_session("w1", target.session_number)
    second = await attach(store, "w2")
    assert await store.acquire_lease(grant(run_id, second), LIMITS) == 2
    await store.open_run(run_id, 2, second, LIMITS)
    got, _ = await store.claim_side_effect(claim(run_id, epoch=2, worker_id="w2", nonce=b"m" * 16))
    assert not got
    await write(store, run_id, undecided())
    return run_id, second


async def test_a_claim_that_is_settled_before_the_park_wakes_the_run(store: Store) -> None:
    run_id, _ = await _driven_by_the_next(store)
    _, woken = await store.settle_side_effect(settlement(run_id))
    assert not woken, "it is driven"
    assert await _park_group(store, run_id, "operator") == (run_id,)
    assert await stands(store, run_id) == (RunState.QUEUED, "")
    assert [o.reason for o in await store.find_orphans(10, LIMITS)] == ["signal"]


async def test_a_run_waits_for_an_operator_while_its_claim_is_open(store: Store) -> None:
    run_id, _ = await _driven_by_the_next(store)
    assert await _park_group(store, run_id, "operator") == ()
    assert await stands(store, run_id) == (RunState.WAITING, "operator")
    assert (await store.settle_side_effect(settlement(run_id)))[1]
    assert await stands(store, run_id) == (RunState.QUEUED, "")


async def test_what_an_earlier_drive_left_undecided_does_not_keep_a_run_going(store: Store) -> None:
    run_id, second = await _driven_by_the_next(store)
    await _park_group(store, run_id, "operator")
    await store.settle_side_effect(settlement(run_id))
    assert await store.acquire_lease(grant(run_id, second), LIMITS) == 3
    await store.claim_side_effect(claim(run_id, "other", 3, "w2"))
    await write(store, run_id, undecided("other", "t"))
    assert await _park_group(store, run_id, "operator") == ()
    assert await stands(store, run_id) == (RunState.WAITING, "operator")


@pytest.mark.parametrize(
    "payload", [b"", b"\xff", b"[" * 100_000, b'{"on":"operator"}', b'{"on":"operator","key":"\\u0000"}']
)
async def test_a_step_that_waits_for_nothing_known_waits(store: Store, payload: bytes) -> None:
    started, _ = await driven(store)
    run_id = started.run.run_id
    await write(store, run_id, event("step_waiting", payload))
    assert await _park_group(store, run_id, "operator") == ()
    assert await stands(store, run_id) == (RunState.WAITING, "operator")


async def test_one_of_two_settled_before_the_park_wakes_the_run(store: Store) -> None:
    run_id, _ = await _driven_by_the_next(store)
    await store.claim_side_effect(claim(run_id, "other", 2, "w2"))
    await write(store, run_id, undecided("other", "t"))
    await store.settle_side_effect(settlement(run_id))
    assert await _park_group(store, run_id, "operator") == (run_id,)


@pytest.mark.parametrize("order", ["settled first", "parked first"])
async def test_a_claim_of_an_earlier_run_of_the_workflow_id_wakes_the_one_that_waits_for_it(
    store: Store, order: str
) -> None:
    """With a key of the workflow's scope the claim may be an earlier run's."""
    target = await attach(store)
    first = (await start_new(store, new_run("r1", workflow_id="w", target=target))).run.run_id
    assert (await store.claim_side_effect(claim(first)))[0]
    await write(store, first, succeeded())
    second = (await start_new(store, new_run("r2", workflow_id="w", target=target))).run.run_id
    stranger = (await start(store, "r3", target=target)).run.run_id
    for run_id in (second, stranger):
        await write(store, run_id, undecided("k" if run_id == second else "x"))
    await store.claim_side_effect(claim(stranger, "x"))
    await park(store, stranger, "operator")
    if order == "settled first":
        assert not (await store.settle_side_effect(settlement(first)))[1]
        assert await _park_group(store, second, "operator") == (second,)
    else:
        assert await _park_group(store, second, "operator") == (), "no hot loop while it is open"
        assert (await store.settle_side_effect(settlement(first)))[1]
    assert await stands(store, second) == (RunState.QUEUED, "")
    assert await stands(store, stranger) == (RunState.WAITING, "operator")


async def test_a_settlement_and_a_park_at_once_never_miss_each_other(store: Store) -> None:
    target = await attach(store)
    made = [(await start(store, f"r{i}", target=target)).run.run_id for i in range(8)]
    for run_id in made:
        await store.claim_side_effect(claim(run_id, run_id))
        await write(store, run_id, undecided(run_id))
    await asyncio.gather(
        *(_park_group(store, run_id, "operator") for run_id in made),
        *(store.settle_side_effect(settlement(run_id, run_id)) for run_id in made),
    )
    assert {await stands(store, run_id) for run_id in made} == {(RunState.QUEUED, "")}


async def test_an_approval_expires_although_the_inbox_is_full(store: Store) -> None:
    full, _ = await driven(store, "r1", "w1")
    other, _ = await driven(store, "r2", "w2")
    for run_id in (full.run.run_id, other.run.run_id):
        facts = ApprovalFacts(approval_id="ask", assignee="ann", expires_us=1)
        await write(store, run_id, event(kinds.APPROVAL_REQUESTED, facts.pack(b"1"), "ask", 0))
        await park(store, run_id, "approval")
    assert isinstance(store, SqlStore)
    number = INBOX_ENTRIES_MAX + INBOX_RESERVE
    fill = runs.update().where(runs.c.run_id == full.run.run_id)
    values = fill.values(inbox_number=number, consumed_inbox=number)
    await store._transact(lambda tx: tx.connection.execute(values))  # pyright: ignore[reportPrivateUsage]
    expired = await store.expire_approvals(10)
    assert {one.run_id: one.woken for one in expired} == {full.run.run_id: True, other.run.run_id: True}
    assert await store.next_expiry_us() is None
    await store._transact(  # pyright: ignore[reportPrivateUsage] - as it was, for whoever checks the whole afterwards
        lambda tx: (
            tx.connection.execute(fill.values(inbox_number=1, consumed_inbox=0)),
            tx.connection.execute(run_inbox.update().where(run_inbox.c.number > 1).values(number=1)),
        )
    )
