"""The whole of `ctx` in the environment: three hours of waits in under a second, and under every fault.

Method: workflows as users write them, with approvals, signals, children, time-outs, sagas, updates and queries.
"""

import asyncio
import time
from dataclasses import dataclass
from typing import Any

import pytest

import lantern
from lantern.testing import Environment, FaultKind, check_every_fault

HOUR_S = 3600.0
RETRIED = lantern.RetryPolicy(max_attempts=3, backoff_ms=100)

ALL_BUT_CLOCKS = [kind for kind in FaultKind if kind is not FaultKind.CLOCK_JUMP]
"""A clock that jumps an hour ends the time-outs of these workflows, and is meant to."""


def work(*args: Any) -> Any:
    return list(args)


@lantern.workflow
async def packing(ctx: lantern.Context, item: str) -> str:
    await ctx.sleep(HOUR_S)
    return f"packed {item}"


@lantern.workflow
async def selling(ctx: lantern.Context, order: dict[str, Any]) -> dict[str, Any]:
    """A sleep, a child, an approval, a signal, and a wait that is given up: three hours in all."""
    stage = ["reserved"]
    ctx.on_query("stage", lambda: stage[-1])

    def note(text: str) -> int:
        stage.append(text)
        return len(stage)

    ctx.on_update("note", note)
    await ctx.step("reserve", work, order["item"], retry=RETRIED)
    await ctx.sleep(HOUR_S)
    parcel = await ctx.child("pack", packing, order["item"])
    decided = await ctx.approval("ship", title="Ship it?", timeout_s=2 * HOUR_S)
    paid = await ctx.wait_signal("paid")
    try:
        async with asyncio.timeout(HOUR_S):
            await ctx.wait_signal("complaint")
    except TimeoutError:
        stage.append("no complaint")
    return {"parcel": parcel, "by": decided.by, "paid": paid, "stage": stage[-1]}


def sell(env: Environment) -> Any:
    env.offer(packing)
    run = env.start(selling, {"item": "lantern"}, workflow_id="order-1")
    env.skip(60)
    assert run.query("stage") == "reserved"
    assert run.update("note", "called") == 2
    assert run.query("stage") == "called"
    run.approve("ship", by="ann")
    run.signal("paid", {"pence": 4000})
    return run.result()


def test_three_hours_pass_in_under_a_second():
    began = time.monotonic()
    with Environment() as env:
        begun_us = env.now_us
        assert sell(env) == {
            "parcel": "packed lantern",
            "by": "ann",
            "paid": {"pence": 4000},
            "stage": "no complaint",
        }
        assert (env.now_us - begun_us) / 1e6 == pytest.approx(3 * HOUR_S, abs=10)
    assert time.monotonic() - began < 1.0


def test_it_notices_no_fault():
    assert len(check_every_fault(sell, kinds=ALL_BUT_CLOCKS)) > 70


@lantern.workflow
async def booking(ctx: lantern.Context, fails: bool) -> str:
    async with ctx.saga() as saga:
        hotel = await ctx.step("hotel", work, "room", retry=RETRIED)
        saga.add(ctx.step, "cancel-hotel", work, hotel, retry=RETRIED)
        await ctx.step("flight", work, "seat", retry=RETRIED)
        saga.add(ctx.step, "cancel-flight", work, "seat", retry=RETRIED)
        await ctx.sleep(HOUR_S)
        if fails:
            raise ValueError("sold out")
    return "booked"


DONE = ["hotel", "flight"]
UNDONE = [*DONE, "cancel-flight", "cancel-hotel"]


def names_of(env: Environment) -> list[str]:
    """The steps in the order in which they were first executed."""
    return list(dict.fromkeys(attempt.name for attempt in env.attempts))


def test_what_fails_is_undone_under_every_fault():
    def scenario(env: Environment) -> None:
        with pytest.raises(lantern.RunFailed, match="sold out"):
            env.start(booking, True).result()
        assert names_of(env) == UNDONE

    assert len(check_every_fault(scenario)) > 40


def test_a_cancel_is_compensated_under_every_fault():
    def scenario(env: Environment) -> None:
        run = env.start(booking, False)
        env.skip(60)
        run.cancel()
        assert run.finish().state == "CANCELLED"
        assert names_of(env) == UNDONE

    assert len(check_every_fault(scenario, kinds=ALL_BUT_CLOCKS)) > 40


def test_what_succeeds_is_not_undone():
    def scenario(env: Environment) -> None:
        assert env.start(booking, False).result() == "booked"
        assert names_of(env) == DONE

    check_every_fault(scenario)


@lantern.workflow
async def counting(ctx: lantern.Context, number: int) -> int:
    await ctx.step("count", work, number)
    if number < 3:
        ctx.continue_as_new(number + 1)
    return number


def test_runs_go_on_as_new_ones_under_every_fault():
    def scenario(env: Environment) -> None:
        assert env.start(counting, 1, workflow_id="count").result() == 3
        assert [run.state for run in env.runs] == ["SUCCEEDED"] * 3

    check_every_fault(scenario)


@lantern.workflow(name="patching")
async def before(ctx: lantern.Context) -> str:
    await ctx.step("one", work)
    await ctx.sleep(HOUR_S)
    await ctx.step("two", work)
    return "before"


@lantern.workflow(name="patching")
async def after(ctx: lantern.Context) -> str:
    if ctx.patched("check-first"):
        await ctx.step("check", work)
    await ctx.step("one", work)
    await ctx.sleep(HOUR_S)
    await ctx.step("two", work)
    return "after"


def test_a_patch_agrees_with_runs_in_flight_and_new_ones():
    with Environment() as env:
        old = env.start(before)
        env.skip(60)
        env.deploy(after)
        new = env.start(after)
        assert (old.result(), new.result()) == ("after", "after")
        assert [attempt.name for attempt in env.attempts].count("check") == 1


@dataclass(frozen=True)
class Order:
    """What is sold."""

    item: str
    quantity: int


def price(order: Order) -> int:
    return order.quantity * len(order.item)


@lantern.workflow
async def typed(ctx: lantern.Context, order: Order) -> Order:
    total = await ctx.step("price", price, order)
    return Order(item=ctx.info.agent_name, quantity=total)


def test_typed_inputs_and_results_are_those_of_a_client():
    with Environment() as env:
        assert env.start(typed, Order(item="lantern", quantity=2)).result() == {"item": "typed", "quantity": 14}
