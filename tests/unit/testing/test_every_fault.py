"""Faults at every position: sound workflows notice none of them, unsound ones are found, and the fault is named.

Method: workflows that each break one rule, and one that breaks none, through `check_every_fault`.
"""

import asyncio
from typing import Any

import pytest

import lantern
from lantern.testing import Environment, Fault, FaultKind, FaultNoticed, Injector, check_every_fault
from lantern_kernel import kinds

RETRIED = lantern.RetryPolicy(max_attempts=3, backoff_ms=100)


class Shop:
    """Takes each key once."""

    def __init__(self) -> None:
        self.charges: dict[str, int] = {}
        self.requests = 0

    def charge(self, amount: int) -> dict[str, int]:
        self.requests += 1
        return {"charged": self.charges.setdefault(lantern.step_info().key, amount)}


async def charge(amount: int) -> Any:
    raise AssertionError("the test puts a shop in its place")


@lantern.workflow
async def sound(ctx: lantern.Context, order: dict[str, Any]) -> Any:
    first = await ctx.step("charge", charge, order["amount"], retry=RETRIED, timeout_s=2.0)
    option = await ctx.side_effect("option", object().__hash__)
    await ctx.sleep(60)
    others = await asyncio.gather(*(ctx.step("part", charge, n, retry=RETRIED) for n in range(3)))
    return [first, option, *others]


def shopping(env: Environment) -> Shop:
    shop = Shop()
    for step in ("charge", "part"):
        env.fake(step, shop.charge)
    run = env.start(sound, {"amount": 40})
    run.result()
    return shop


def test_a_sound_workflow_notices_no_fault():
    def scenario(env: Environment) -> None:
        assert len(shopping(env).charges) == 4

    faults = check_every_fault(scenario)
    assert {fault.kind for fault in faults} == set(FaultKind)
    with Environment() as env:
        shopping(env)
        (run,) = env.runs
        own = sum(event.kind not in kinds.JOURNAL_OWN for event in run.events)
    crashes = [fault.position for fault in faults if fault.kind is FaultKind.CRASH_AFTER_COMMIT]
    assert crashes == list(range(1, own + 1)), "each event that drivers append is a position"


@pytest.mark.parametrize(
    ("kind", "requests"),
    [
        # The first event is the step_started of `charge`.
        (FaultKind.CRASH_BEFORE_COMMIT, 4),
        (FaultKind.CRASH_AFTER_COMMIT, 4),
        (FaultKind.LOST_ANSWER, 4),
        (FaultKind.LOST_REPLY, 5),
        (FaultKind.DUPLICATE_DELIVERY, 5),
        (FaultKind.SECOND_DRIVER, 5),
        (FaultKind.CLOCK_JUMP, 4),
    ],
)
def test_each_fault_does_what_it_says(kind: FaultKind, requests: int):
    with Environment(faults=Injector(Fault(kind=kind, position=1))) as env:
        shop = shopping(env)
        (run,) = env.runs
        assert (shop.requests, len(shop.charges), run.state) == (requests, 4, "SUCCEEDED")
        grants = [event for event in run.events if event.kind == kinds.LEASE_GRANTED]
        has_new_driver = "crash" in kind.value or kind is FaultKind.SECOND_DRIVER
        assert len(grants) == 2 + has_new_driver, "one start, one timer, and the fault's"


def test_a_crash_between_reply_and_commit_repeats_the_request():
    with Environment(faults=Injector(Fault(kind=FaultKind.CRASH_BEFORE_COMMIT, position=2))) as env:
        shop = shopping(env)
        assert (shop.requests, len(shop.charges)) == (5, 4)
        first = [(each.attempt, each.epoch) for each in env.attempts if each.name == "charge"]
        assert first == [(1, 1), (1, 2)], "the same attempt, under a later lease"


def test_what_ignores_its_key_is_found():
    def scenario(env: Environment) -> None:
        made: list[int] = []
        env.fake("charge", made.append)
        env.fake("part", 1)
        env.start(sound, {"amount": 40}).finish()
        assert len(made) == 1

    with pytest.raises(FaultNoticed, match=r"crash-before-commit at event 2 \(step_completed charge\)"):
        check_every_fault(scenario, kinds=["crash-before-commit", "crash-after-commit"])


seen: list[int] = []


@lantern.workflow
async def remembers(ctx: lantern.Context) -> int:
    """Keeps what it knows in the process instead of the journal."""
    seen.append(1)
    await ctx.step("charge", charge, 1)
    return len(seen)


def test_what_a_process_remembers_is_found():
    def scenario(env: Environment) -> None:
        seen.clear()
        env.fake("charge", 1)
        env.start(remembers).finish()

    with pytest.raises(AssertionError, match="Succeed"):
        check_every_fault(scenario)


@lantern.workflow
async def hurried(ctx: lantern.Context) -> str:
    try:
        await ctx.step("charge", charge, 1, timeout_s=2.0)
    except lantern.StepError as error:
        return error.code
    return "charged"


def test_a_workflow_alone_is_a_scenario():
    def real(env: Environment) -> None:
        env.fake("charge", 1)
        assert env.start(hurried).result() == "charged"

    assert FaultKind.LOST_REPLY not in {fault.kind for fault in check_every_fault(real)}, "nothing is tried again"
    with pytest.raises(AssertionError, match="the test puts a shop"):
        check_every_fault(hurried)


def test_a_repeat_needs_only_what_the_message_says():
    fault = Fault(kind=FaultKind("crash-before-commit"), position=2)
    with Environment(faults=Injector(fault)) as env:
        shopping(env)
        assert sum(event.kind == kinds.LEASE_GRANTED for run in env.runs for event in run.events) == 3
