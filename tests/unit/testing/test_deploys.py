"""Other code in the place of a run's: what agrees goes on, what does not waits, a fix or a reset lets it go on.

Method: versions of one workflow in one file, deployed one after the other under runs in flight.
"""

from typing import Any

import pytest
from scripted import Script, agent

import lantern
from lantern.testing import Environment, Stuck
from lantern_kernel import kinds, reasons
from lantern_kernel.commands import Fail, RunStep, Succeed
from lantern_kernel.errors import InvalidField
from lantern_kernel.outcomes import Outcome
from lantern_kernel.retry import RetryPolicy


def work(*_: Any) -> str:
    return "worked"


@lantern.workflow(name="order")
async def first(ctx: lantern.Context) -> str:
    await ctx.step("reserve", work)
    await ctx.sleep(3600)
    await ctx.step("ship", work)
    return "first"


@lantern.workflow(name="order")
async def agrees(ctx: lantern.Context) -> str:
    await ctx.step("reserve", work)
    await ctx.sleep(7200)
    await ctx.step("wrap", work)
    return "agrees"


@lantern.workflow(name="order")
async def differs(ctx: lantern.Context) -> str:
    await ctx.step("check", work)
    await ctx.step("reserve", work)
    return "differs"


@pytest.fixture
def env():
    with Environment() as environment:
        yield environment


@pytest.mark.parametrize("after_s", [0.0, 60.0])
def test_code_that_agrees_goes_on(env: Environment, after_s: float):
    run = env.start(first)
    env.skip(after_s)
    env.deploy(agrees)
    assert run.result() == "agrees"
    assert [attempt.name for attempt in env.attempts] == ["reserve", "wrap"]


def test_code_that_differs_waits_for_a_fix(env: Environment):
    run = env.start(first)
    env.skip(60)
    env.deploy(differs)
    with pytest.raises(Stuck, match=r"waits for fixed code.*step reserve.*step check"):
        run.result()
    assert (run.waiting_on, run.error and run.error.code) == ("code_fix", reasons.NONDETERMINISM)
    assert [event.kind for event in run.events].count(kinds.NONDETERMINISM_DETECTED) == 1
    env.deploy(first)
    assert run.result() == "first"


def test_a_reset_lets_it_go_on_from_an_event(env: Environment):
    run = env.start(first)
    env.skip(60)
    with pytest.raises(InvalidField, match="only a run that waits on code_fix"):
        run.redrive(2)
    env.deploy(differs)
    env.skip(3600)
    with pytest.raises(InvalidField, match="none of the events"):
        run.redrive(99)
    run.redrive(2)
    assert run.result() == "differs"
    # The first `reserve` is passed over, so it is done again.
    assert [attempt.name for attempt in env.attempts] == ["reserve", "check", "reserve"]


def bounded(content: bytes) -> Script:
    del content
    retry = RetryPolicy(max_attempts=9, backoff_ms=100, multiplier=1.0)
    command = RunStep(
        step_id="s",
        name="s",
        type="function",
        input=b"[]",
        source="s.py:1",
        timeout_ms=4_000,
        total_timeout_ms=10_000,
        retry=retry,
    )
    told = yield [command]
    assert isinstance(told, Outcome)
    assert told.error is not None
    yield [Fail(error=told.error)]
    yield [Succeed(result=b"1")]


def test_a_total_time_out_bounds_all_attempts(env: Environment):
    env.offer(agent("bounded", bounded))
    env.fake("s", 1, takes_s=5)
    begun_us = env.now_us
    run = env.start("bounded").finish()
    assert (run.state, len(env.attempts)) == ("FAILED", 3), "4 s, 4 s, and what is left"
    assert (env.now_us - begun_us) / 1e6 == pytest.approx(10, abs=0.2)
