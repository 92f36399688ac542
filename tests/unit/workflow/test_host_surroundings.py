"""Goal: hosts live inside an executor's loop without touching it, end cleanly, and step functions know where they are.

Method: small workflows driven inside tasks of asyncio and uvloop; what stands around them is compared before and after.
"""

import asyncio
import contextvars
import gc
import json
import sys
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import uvloop
from host_kit import INFO, done, host_of, ids

import lantern
from lantern.program.calls import FunctionCall, StepInfo
from lantern_kernel.commands import Command, Succeed
from lantern_kernel.errors import InvalidField


def test_closing_runs_finally_blocks_and_refuses_what_they_ask() -> None:
    seen: list[str] = []

    async def child(ctx: lantern.Context) -> None:
        try:
            await ctx.step("child", print)
        finally:
            seen.append("child")
            await ctx.step("more", print)

    async def program(ctx: lantern.Context) -> Any:
        task = asyncio.create_task(child(ctx))
        try:
            await ctx.step("a", print)
        except BaseException as error:
            seen.append(type(error).__name__)
            raise
        finally:
            seen.append("finally")
            await task

    host = host_of(program)
    assert ids(host.advance()) == ["a", "child"]
    host.close()
    assert seen == ["GeneratorExit", "finally", "child"]
    assert host.advance() == []
    host.close()
    gc.collect()


def test_closing_before_the_start_leaves_no_coroutine_behind() -> None:
    async def program(ctx: lantern.Context) -> Any:
        asyncio.create_task(ctx.step("a", print))  # noqa: RUF006 - nobody keeps it: that is the case
        return 1

    host = host_of(program)
    assert host.advance() == [Succeed(result=b"1")]
    host.close()
    host_of(program).close()
    gc.collect()


def test_ctx_is_refused_outside_its_workflow() -> None:
    kept: list[lantern.Context] = []

    async def program(ctx: lantern.Context) -> Any:
        kept.append(ctx)
        await ctx.step("a", print)

    host = host_of(program)
    host.advance()
    with pytest.raises(lantern.NotReplayable, match="only in the workflow function itself"):
        asyncio.run(kept[0].step("b", print))


async def test_inside_a_task_of_another_loop_everything_is_put_back() -> None:
    await _drive_inside_a_task()


def test_inside_a_task_of_uvloop_everything_is_put_back() -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_drive_inside_a_task())


async def _drive_inside_a_task() -> None:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=1)
    inside: list[Any] = []

    async def generate() -> AsyncGenerator[int]:
        for number in range(9):
            yield number

    async def program(ctx: lantern.Context) -> Any:
        inside.append(asyncio.current_task())
        assert asyncio.get_running_loop() is not outer
        variable.set(2)
        async for _ in generate():
            break  # left half-way: the outer loop must not take care of it
        await ctx.step("a", print)
        assert asyncio.current_task() is inside[0]
        return asyncio.all_tasks() == {inside[0]}

    outer, task, hooks = asyncio.get_running_loop(), asyncio.current_task(), sys.get_asyncgen_hooks()
    host = host_of(program)

    def assert_put_back() -> None:
        assert asyncio.get_running_loop() is outer
        assert asyncio.current_task() is task
        assert sys.get_asyncgen_hooks() == hooks
        assert variable.get() == 1

    host.advance()
    assert_put_back()
    await asyncio.sleep(0)
    host.resolve(done("a"))
    assert host.advance() == [Succeed(result=b"true")]
    assert_put_back()
    host.close()
    assert_put_back()
    gc.collect()
    await asyncio.sleep(0)
    assert inside[0] not in asyncio.all_tasks(outer)


def test_many_hosts_on_one_loop_do_not_meet() -> None:
    async def program(ctx: lantern.Context, name: str) -> Any:
        first = await ctx.step("a", print, name)
        return [name, first, await ctx.step("b", print, name)]

    async def drive() -> list[list[Command]]:
        hosts = [host_of(program, json.dumps(name).encode()) for name in "xyz"]
        for host in hosts:
            host.advance()
        for host in reversed(hosts):
            host.resolve(done("a", b"1"))
        for host in hosts:
            host.advance()
            host.resolve(done("b", b"2"))
        return [host.advance() for host in hosts]

    assert asyncio.run(drive()) == [
        [Succeed(result=json.dumps([n, 1, 2], separators=(",", ":")).encode())] for n in "xyz"
    ]


INFO_OF_STEP = StepInfo(run_id=INFO.run_id, workflow_id="w", step_id="a", attempt=2, key_attempt=1, key="k", epoch=3)


async def test_step_functions_know_their_attempt() -> None:
    def plain(value: int) -> list[Any]:
        return [value, lantern.step_info().key, lantern.step_info().attempt]

    async def awaited(value: int) -> list[Any]:
        await asyncio.sleep(0)
        return plain(value)

    def returns_awaitable(value: int) -> Any:
        return awaited(value)

    for function in (plain, awaited, returns_awaitable):
        assert await FunctionCall(fn=function, args=(7,)).run(INFO_OF_STEP) == b'[7,"k",2]'
    with pytest.raises(RuntimeError, match="inside a step"):
        lantern.step_info()


async def test_a_step_result_that_is_no_json_is_refused() -> None:
    with pytest.raises(InvalidField) as caught:
        await FunctionCall(fn=lambda: {"a": float("nan")}, args=()).run(INFO_OF_STEP)
    assert caught.value.details["field"] == "result.a"
