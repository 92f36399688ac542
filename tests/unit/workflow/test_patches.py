"""Goal: `ctx.patched` leads old runs the old way and new runs the new way, on every replay the same.

Method: code of one name is deployed over other code while runs are in flight, in the environment in memory.
"""

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import lantern
from lantern.registry import workflow
from lantern.testing import Environment

Flow = Callable[[lantern.Context], Coroutine[Any, Any, Any]]


def note(what: str) -> str:
    return what


async def before(ctx: lantern.Context) -> Any:
    seen = [await ctx.step("pack", note, "packed")]
    await ctx.sleep(60)
    seen.append(await ctx.step("post", note, "post"))
    await ctx.sleep(60)
    return seen


async def between(ctx: lantern.Context) -> Any:
    seen: list[Any] = []
    if ctx.patched("weigh"):
        seen.append(await ctx.step("weigh", note, "weighed"))
    seen.append(await ctx.step("pack", note, "packed"))
    await ctx.sleep(60)
    name = "courier" if ctx.patched("courier") else "post"
    seen.append(await ctx.step(name, note, name))
    await ctx.sleep(60)
    assert ctx.patched("courier") == (name == "courier"), "one answer for the whole run"
    return seen


async def after(ctx: lantern.Context) -> Any:
    ctx.deprecate_patch("weigh")
    seen = [await ctx.step("weigh", note, "weighed"), await ctx.step("pack", note, "packed")]
    await ctx.sleep(60)
    ctx.deprecate_patch("courier")
    seen.append(await ctx.step("courier", note, "courier"))
    await ctx.sleep(60)
    return seen


async def without(ctx: lantern.Context) -> Any:
    seen = [await ctx.step("weigh", note, "weighed"), await ctx.step("pack", note, "packed")]
    await ctx.sleep(60)
    seen.append(await ctx.step("courier", note, "courier"))
    await ctx.sleep(60)
    return seen


for _each in (before, between, after, without):
    workflow(name="send")(_each)


def _named(flow: Flow) -> Any:
    """The function as the agent `send`."""
    from dataclasses import replace

    from lantern.registry import define
    from lantern.testing.programs import Agent

    return Agent.of(replace(define(flow, name="send"), digest=flow.__name__.ljust(64, "0")))


@pytest.mark.parametrize(
    ("deployed_s", "result"),
    [
        (30, ["packed", "courier"]),  # past the first place, not at the second
        (90, ["packed", "post"]),  # past both
    ],
)
def test_a_run_in_flight_goes_the_old_way_where_it_came_past(deployed_s: float, result: list[str]) -> None:
    with Environment() as env:
        env.offer(_named(before))
        run = env.start("send")
        env.skip(deployed_s)
        env.deploy(_named(between))
        assert run.result() == result
        env.check_replays()


@pytest.mark.parametrize("deployed_s", [30, 90])
def test_new_runs_go_the_new_way_and_the_old_way_can_be_removed(deployed_s: float) -> None:
    for later in (between, after):
        with Environment() as env:
            env.offer(_named(between))
            run = env.start("send")
            env.skip(deployed_s)
            env.deploy(_named(later))
            assert run.result() == ["weighed", "packed", "courier"]
            env.check_replays()


def test_a_run_that_never_saw_a_patch_does_not_need_its_name() -> None:
    with Environment() as env:
        env.offer(_named(after))
        run = env.start("send")
        env.skip(30)
        env.deploy(_named(without))
        assert run.result() == ["weighed", "packed", "courier"]
