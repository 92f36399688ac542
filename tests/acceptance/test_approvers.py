"""Goal: of those who decide at once one wins, all are told how it was decided, and the run goes by that (SPEC G5).

Method: real services on both databases; a run asks many times at once, and two clients with connections of their own
decide each at the same moment: approve and approve, approve against deny, approve around the moment of expiry.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from conftest import DATABASES
from system import System

from lantern.client import Client
from lantern.client.approval import Approval
from lantern.client.run import Run
from lantern_kernel import kinds, reasons
from lantern_kernel.errors import LanternError
from lantern_kernel.event import find_chain_fault
from lantern_kernel.payloads import unpack

COUNT = 40
WAIT_S = 40.0
TIMEOUT_S = 2.0
AROUND_S = (-0.6, -0.05, 0.0, 0.03, 0.1, 2.0)
"""When somebody decides, counted from the expiry: surely before, about then, surely after."""

Answer = tuple[str, str]
"""What an approver was told: the recorded state, and whether he won, repeated what was decided, or lost."""


@pytest.fixture(scope="module", params=DATABASES)
def system(
    request: pytest.FixtureRequest,
    make_database: Callable[[str, Path, str], str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[System]:
    folder = tmp_path_factory.mktemp("approvers")
    with System(folder, make_database(request.param, folder, "approvers")) as started:
        started.add_recovery().start()
        module = str(Path(__file__).with_name("asking_flows.py"))
        started.await_worker(started.add_executor("executor", {"LANTERN_MODULES": module}).start())
        yield started


@asynccontextmanager
async def _approvers(system: System) -> AsyncGenerator[tuple[Client, Client]]:
    async with Client(system.journal_address) as ann, Client(system.journal_address) as bob:
        yield ann, bob


async def _asked(client: Client, **wanted: float) -> tuple[Run, list[Approval]]:
    """A run and all that it asks for."""
    run = await client.start("asking", {"count": COUNT, **wanted})
    async with asyncio.timeout(WAIT_S):
        while True:
            approvals = (await client.approvals(run_id=run.run_id)).approvals
            if len(approvals) == COUNT:
                return run, list(approvals)
            await asyncio.sleep(0.02)


async def _decide(client: Client, approval: Approval, who: str, *, approve: bool) -> Answer:
    try:
        decision = await client.decide(approval.run_id, approval.approval_id, who, approve=approve, comment={"of": who})
    except LanternError as error:
        if error.reason != reasons.APPROVAL_DECIDED:
            raise
        return str(error.details["state"]), "lost"
    return decision.approval.state, "repeated" if decision.already_decided else "won"


async def _check(client: Client, run: Run, told: dict[str, list[Answer]]) -> Counter[str]:
    """One decision each, told to all alike, and the run went by it; how often each came about."""
    async with asyncio.timeout(WAIT_S):
        ended = await client.wait(run.run_id)
    assert ended.state == "SUCCEEDED", ended
    events = await client.events(run.run_id)
    assert find_chain_fault(run.run_id, events) is None
    decided = [event for event in events if event.kind == kinds.APPROVAL_DECIDED]
    assert Counter(event.step_id for event in decided) == dict.fromkeys(told, 1)
    recorded = {event.step_id: unpack(event.payload).facts for event in decided}
    listed = {each.approval_id: each for each in (await client.approvals(states=(), run_id=run.run_id)).approvals}
    for number, (decision, by, data) in enumerate(ended.result_value):
        approval_id = f"ask[{number}]" if number else "ask"
        answers = told[approval_id]
        assert {state for state, _ in answers} == {decision.upper()}, f"{approval_id}: {answers}, but {decision}"
        winners = [how for _, how in answers].count("won")
        assert winners == (0 if decision == "expired" else 1), f"{approval_id}: {answers}"
        assert (decision, by) == (recorded[approval_id]["decision"], recorded[approval_id]["by"])
        assert (decision.upper(), by) == (listed[approval_id].state, listed[approval_id].decided_by)
        assert data == (None if decision == "expired" else {"of": by})
    return Counter(decision for decision, _, _ in ended.result_value)


@pytest.mark.parametrize("contrary", [False, True])
async def test_two_approvers_at_once(system: System, contrary: bool) -> None:
    async with _approvers(system) as (ann, bob):
        run, approvals = await _asked(ann)

        async def both(approval: Approval) -> list[Answer]:
            answers = await asyncio.gather(
                _decide(ann, approval, "ann", approve=True), _decide(bob, approval, "bob", approve=not contrary)
            )
            return list(answers)

        told = {each.approval_id: await both(each) for each in approvals}
        came = await _check(ann, run, told)
    assert came["expired"] == 0
    losers = Counter(how for answers in told.values() for _, how in answers)
    assert losers["lost" if contrary else "repeated"] == COUNT


async def test_approval_against_expiry(system: System) -> None:
    chance = random.Random(7)
    async with _approvers(system) as (ann, bob):
        run, approvals = await _asked(ann, timeoutSeconds=TIMEOUT_S)
        begun_s = asyncio.get_running_loop().time()

        async def around(number: int, approval: Approval) -> list[Answer]:
            assert approval.expire_us is not None
            left_s = (approval.expire_us - approval.request_us) / 1e6
            at_s = begun_s + left_s + AROUND_S[number % len(AROUND_S)]
            await asyncio.sleep(max(0.0, at_s - asyncio.get_running_loop().time()))
            client, who = chance.choice([(ann, "ann"), (bob, "bob")])
            return [await _decide(client, approval, who, approve=True)]

        answers = await asyncio.gather(*(around(number, each) for number, each in enumerate(approvals)))
        came = await _check(ann, run, {each.approval_id: said for each, said in zip(approvals, answers, strict=True)})
    assert came["approved"]
    assert came["expired"]
