"""Goal: whoever races for a run, one wins, the other is told, and nothing is lost or done twice, on both databases.

Method: the application layers of a journal over the real store; drivers, operators and senders that begin at moments of
a seed, some dozens at once. LANTERN_TEST_SEED repeats a run of it, LANTERN_TEST_RACES=10 makes ten times as many.
"""

import asyncio
import random
from collections import Counter

import pytest
from journal_kit import LIMITS, attach, event, new_run, start_new, succeeded, write
from race_rig import AT_ONCE, SCALE, SEED, Driver, Rig, waver

from lantern_journal.domain import run_state
from lantern_journal.domain.approvals import ApprovalFilter, ApprovalState, Decision
from lantern_journal.domain.records import RunFilter, SentEntry, StartedRun, StartSignal, WorkflowIdPolicy
from lantern_journal.domain.run_state import FINAL, RunState
from lantern_journal.ports import Store
from lantern_kernel import kinds, payloads, reasons
from lantern_kernel.errors import LanternError
from lantern_kernel.event import Event, NewEvent, find_chain_fault
from lantern_kernel.payloads import ApprovalFacts

CANCELS = int(5_000 * SCALE)
PARKS = int(5_000 * SCALE)
DECISIONS = int(1_000 * SCALE)
ROUNDS = 25
"""Parks of one run."""

SIGNALS_PER_PARK = 4

TOLD = frozenset({reasons.INBOX_AHEAD, reasons.CANCEL_REQUESTED, reasons.RUN_CLOSED, reasons.LEASE_LOST})
"""What a driver can be refused for that has lost against a cancel."""

pytestmark = [pytest.mark.timeout(900)]


def say(what: str) -> None:
    print(f"LANTERN_TEST_SEED={SEED}: {what}")


async def complete(driver: Driver, chance: random.Random) -> list[str]:
    """Ends or parks the run as a seed says, and goes by what it is refused for; the refusals."""
    await waver(chance)
    way = chance.choice([kinds.RUN_SUCCEEDED] * 3 + [kinds.RUN_FAILED, "park", "park with nothing to compensate"])
    refusals: list[str] = []
    if way in kinds.TERMINAL:
        refusals.append(await driver.append(driver.ended(way)))
    else:
        refusals.append(await driver.append(driver.parked("signal", nothing=way != "park")))
    if refusals[-1] != reasons.INBOX_AHEAD:
        return refusals
    asked = await driver.taken_in()
    if chance.random() < 0.3:
        # A driver that will not hear of it.
        refusals.append(await driver.append(*asked, driver.ended(kinds.RUN_SUCCEEDED)))
        assert refusals[-1] == reasons.CANCEL_REQUESTED
    refusals.append(await driver.append(*asked, driver.ended(kinds.RUN_CANCELLED)))
    return refusals


async def race_cancel(rig: Rig, driver: Driver, number: int) -> tuple[list[str], SentEntry]:
    chance = random.Random(SEED * 1_000_003 + number)

    async def cancel() -> SentEntry:
        await waver(chance)
        return await rig.cancel(driver.run_id, "c")

    refusals, answer = await asyncio.gather(complete(driver, chance), cancel())
    if answer.woken:
        assert await driver.again()
        assert await driver.append(*(await driver.taken_in()), driver.ended(kinds.RUN_CANCELLED)) == ""
    return refusals, answer


def check_cancel(driver: Driver, number: int, refusals: list[str], answer: SentEntry, events: list[Event]) -> RunState:
    """One end; who lost was told who won. The state that the events say."""
    ends = [each.kind for each in events if each.kind in kinds.TERMINAL]
    assert len(ends) == 1, f"seed {number}: {ends}"
    assert events[-1].kind == ends[0]
    assert find_chain_fault(driver.run_id, events) is None
    state = run_state.next_state(RunState.RUNNING, ends[0])
    assert state is not None
    asked = [each for each in events if each.kind == kinds.CANCEL_REQUESTED]
    if answer.already_ended:
        assert (answer.state, answer.number, asked) == (state, 0, []), f"seed {number}"
        assert refusals == [""], "the driver was first, and heard nothing of a cancel"
    else:
        assert state is RunState.CANCELLED, f"seed {number}: an accepted cancel never loses"
        assert (answer.number, len(asked)) == (1, 1)
        assert answer.ended or answer.woken or refusals[0] in TOLD, f"seed {number}: the driver was not told"
    return state


async def test_cancel_against_complete(store: Store) -> None:
    say(f"{CANCELS} cancels against the end of their runs")
    rig = Rig(store)
    for first in range(0, CANCELS, AT_ONCE):
        drivers = await rig.begin(first, min(AT_ONCE, CANCELS - first))
        raced = await asyncio.gather(*(race_cancel(rig, driver, first + i) for i, driver in enumerate(drivers)))
        events = await rig.events_of_all([driver.run_id for driver in drivers])
        said = {
            driver.run_id: check_cancel(driver, first + i, *raced[i], events[driver.run_id])
            for i, driver in enumerate(drivers)
        }
        listed, _ = await store.list_runs(RunFilter(tenant_id="default"), "", len(drivers), 1 << 20)
        assert {run.run_id: run.state for run in listed} == said, "the rows say what the events say"


SIGNALS = ("paid", "shipped")


async def race_park(rig: Rig, driver: Driver, number: int) -> None:
    """A run that parks again and again while it is sent signals; some of them it does not wait for by name."""
    chance = random.Random(SEED * 1_000_033 + number)
    named = chance.random() < 0.5
    sent: list[str] = []

    async def send(name: str) -> None:
        number = len(sent)
        sent.append(name)
        await waver(chance)
        await rig.runs.send(f"s{number}", driver.run_id, "signal", name, b"1")

    async def park() -> None:
        await waver(chance)
        waits = driver.parked("signal", SIGNALS if named else ())
        taken: list[NewEvent] = []
        while (refused := await driver.append(*taken, waits)) != "":
            assert refused == reasons.INBOX_AHEAD, f"run {number}: {refused}"
            taken += await driver.taken_in()

    for _ in range(ROUNDS):
        names = [chance.choice([*SIGNALS, "nobody-asked"]) if named else "any" for _ in range(SIGNALS_PER_PARK)]
        await asyncio.gather(park(), *map(send, names))
        if not await driver.again():
            # It sleeps: then whatever it has not taken in is none that it waits for.
            run = await rig.store.get_run(driver.run_id)
            assert run.state is RunState.WAITING
            rest = await driver.unread()
            assert not [e for e in rest if run_state.wakes(e.kind, e.name, "signal", SIGNALS if named else ())], number
            await send(SIGNALS[0])
            assert await driver.again(), f"run {number}: a signal that it waits for did not wake it"
    assert await driver.append(*(await driver.taken_in()), succeeded()) == ""
    events = await rig.events(driver.run_id)
    received = [payloads.unpack(e.payload).facts["number"] for e in events if e.kind == kinds.SIGNAL_RECEIVED]
    assert received == list(range(1, len(sent) + 1)), f"run {number}: each entry once, in order"


async def test_signals_sent_while_a_run_parks(store: Store) -> None:
    say(f"{PARKS} signals against parks")
    rig = Rig(store)
    count = PARKS // (ROUNDS * SIGNALS_PER_PARK)
    for first in range(0, count, AT_ONCE):
        drivers = await rig.begin(first, min(AT_ONCE, count - first))
        await asyncio.gather(*(race_park(rig, driver, first + i) for i, driver in enumerate(drivers)))


async def race_decision(rig: Rig, run_id: str, approval_id: str, number: int, *, expires: bool) -> None:
    chance = random.Random(SEED * 1_000_037 + number)
    # Approve and deny at once, approve twice, or approve against the expiry.
    wanted = [ApprovalState.APPROVED, chance.choice([ApprovalState.APPROVED, ApprovalState.DENIED])]
    answers: list[tuple[ApprovalState, str]] = []

    async def decide(state: ApprovalState, who: str) -> None:
        await waver(chance)
        decision = Decision(
            request_id=who, run_id=run_id, approval_id=approval_id, state=state, by=who, comment=b'{"why":1}'
        )
        try:
            decided = await rig.approvals.decide(decision)
        except LanternError as error:
            if error.reason != reasons.APPROVAL_DECIDED:
                raise
            answers.append((ApprovalState(error.details["state"]), "lost"))
        else:
            answers.append((decided.approval.state, "repeated" if decided.already_decided else "won"))

    async def expire() -> None:
        await waver(chance)
        await rig.approvals.expire()

    await asyncio.gather(*(decide(state, f"p{i}") for i, state in enumerate(wanted)), *([expire()] if expires else []))
    final = {state for state, _ in answers}
    assert len(final) == 1, f"seed {number}: {answers}"
    (state,) = final
    won = [how for _, how in answers].count("won")
    assert won == (0 if state is ApprovalState.EXPIRED else 1), f"seed {number}: {answers}"
    for asked, (_, how) in zip(sorted(wanted), sorted(answers, key=lambda each: each[1]), strict=True):
        assert how != "repeated" or wanted[0] is wanted[1], f"seed {number}: {asked}"


async def test_decisions_that_meet(store: Store) -> None:
    say(f"{DECISIONS} approvals")
    rig = Rig(store)
    per_run = 10
    count = DECISIONS // per_run
    for first in range(0, count, AT_ONCE // per_run):
        drivers = await rig.begin(first, min(AT_ONCE // per_run, count - first))
        now_us = await store.ping()
        races = []
        for at, driver in enumerate(drivers):
            for i in range(per_run):
                number = (first + at) * per_run + i
                # Every third expires within the race.
                due_us = now_us + 3_000 if number % 3 == 0 else None
                facts = ApprovalFacts(approval_id=f"ask[{i}]", assignee="ann", expires_us=due_us)
                assert await driver.append(event(kinds.APPROVAL_REQUESTED, facts.pack(b"1"), f"ask[{i}]", 0)) == ""
                races.append(race_decision(rig, driver.run_id, facts.approval_id, number, expires=due_us is not None))
        await asyncio.gather(*races)
        for driver in drivers:
            entries = await driver.unread()
            assert Counter(entry.name for entry in entries) == {f"ask[{i}]": 1 for i in range(per_run)}
            listed = await store.list_approvals(
                ApprovalFilter(tenant_id="default", run_id=driver.run_id), (0, "", ""), 100
            )
            by_id = {approval.approval_id: approval for approval in listed}
            for entry in entries:
                facts = payloads.unpack(entry.payload).facts
                assert facts["decision"] == by_id[entry.name].state.value.lower()
                assert facts["by"] == by_id[entry.name].decided_by


@pytest.mark.parametrize("policy", WorkflowIdPolicy)
@pytest.mark.parametrize("there", ["none", "open", "closed"])
async def test_twenty_starts_with_one_workflow_id(store: Store, policy: WorkflowIdPolicy, there: str) -> None:
    target = await attach(store)
    before = ""
    if there != "none":
        before = (await start_new(store, new_run("first", workflow_id="w", target=target))).run.run_id
        if there == "closed":
            await write(store, before, succeeded())
    signal = StartSignal(name="go", payload=b"1")
    news = [new_run(f"r{i}", workflow_id="w", target=target, policy=policy, signal=signal) for i in range(20)]
    answers = await asyncio.gather(*(store.start_runs([new], LIMITS) for new in news))
    outcomes = [answer[0] for answer in answers]
    started = [each for each in outcomes if isinstance(each, StartedRun)]
    refused = [each.reason for each in outcomes if isinstance(each, LanternError)]
    created = [each for each in started if each.created]
    runs, _ = await store.list_runs(RunFilter(tenant_id="default", workflow_id="w"), "", 100, 1 << 20)
    open_runs = [run.run_id for run in runs if run.state not in FINAL]
    assert set(refused) <= {reasons.WORKFLOW_ID_IN_USE}
    match policy, there:
        case (WorkflowIdPolicy.TERMINATE_EXISTING, _):
            assert (len(created), len(open_runs)) == (20, 1)
            ended = Counter(each.terminated.run_id for each in created if each.terminated is not None)
            assert ended == {run.run_id: 1 for run in runs if run.state is RunState.CANCELLED}
            assert len(ended) == (20 if there == "open" else 19)
        case (WorkflowIdPolicy.USE_EXISTING, "open"):
            assert {each.run.run_id for each in started} == {before}
            assert (len(started), created, open_runs) == (20, [], [before])
        case (WorkflowIdPolicy.USE_EXISTING, _):
            assert (len(started), len(created)) == (20, 1)
            assert {each.run.run_id for each in started} == {*open_runs}
        case (WorkflowIdPolicy.ALLOW_AFTER_CLOSE, "open") | (WorkflowIdPolicy.REJECT, "open" | "closed"):
            assert len(refused) == 20
        case _:
            assert (len(created), len(refused), len(open_runs)) == (1, 19, 1)
    for run_id in {each.run.run_id for each in started}:
        entries, _ = await store.list_inbox(run_id, 0, 100, 1 << 20)
        takers = sum(each.run.run_id == run_id for each in started)
        assert [entry.number for entry in entries] == list(range(1, takers + 1)), "each signal once"
    again = await asyncio.gather(*(store.start_runs([new], LIMITS) for new in news))
    for first, second in zip(outcomes, (answer[0] for answer in again), strict=True):
        if isinstance(first, StartedRun):
            assert isinstance(second, StartedRun)
            assert second.run.run_id == first.run.run_id, "the same request, the same run"
    after = await store.list_runs(RunFilter(tenant_id="default", workflow_id="w"), "", 100, 1 << 20)
    assert len(after[0]) == len(runs) or policy is WorkflowIdPolicy.ALLOW_AFTER_CLOSE
