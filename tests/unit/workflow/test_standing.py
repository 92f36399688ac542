"""Goal: the host knows whether a cancel would have the user's code do anything: it decides how a cancel ends the run.

Method: workflows that stand at one place each; what the host says is compared with what a cancel then does.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from host_kit import done, host_of

import lantern
from lantern_kernel.commands import Cancelled
from lantern_kernel.outcomes import Notice


async def _plain(ctx: lantern.Context) -> None:
    await ctx.step("a", print)


async def _nested(ctx: lantern.Context) -> None:
    await asyncio.gather(_plain(ctx), ctx.sleep(1), ctx.wait_signal("go"))


async def _behind_a_try(ctx: lantern.Context) -> None:
    try:
        pass
    finally:
        await ctx.step("before", print)
    await ctx.step("a", print)


async def _in_an_except(ctx: lantern.Context) -> None:
    try:
        raise ValueError
    except ValueError:
        await ctx.step("a", print)


async def _finally(ctx: lantern.Context) -> None:
    try:
        await ctx.step("a", print)
    finally:
        await ctx.step("undo", print)


async def _except(ctx: lantern.Context) -> None:
    try:
        await ctx.step("a", print)
    except asyncio.CancelledError:
        await ctx.step("undo", print)
        raise


async def _outer(ctx: lantern.Context) -> None:
    try:
        await _nested(ctx)
    finally:
        await ctx.step("undo", print)


async def _inner_task(ctx: lantern.Context) -> None:
    await asyncio.gather(_plain(ctx), _finally(ctx))


@asynccontextmanager
async def _held(ctx: lantern.Context) -> AsyncGenerator[None]:
    yield
    await ctx.step("undo", print)


async def _with(ctx: lantern.Context) -> None:
    async with _held(ctx):
        await ctx.step("a", print)


async def _generator(ctx: lantern.Context) -> None:
    async def generate() -> AsyncGenerator[int]:
        try:
            await ctx.step("a", print)
            yield 1
        finally:
            await ctx.step("undo", print)

    async for _ in generate():
        pass


async def _saga(ctx: lantern.Context) -> None:
    saga = ctx.saga()
    await saga.__aenter__()
    saga.add(ctx.step, "undo", print)
    await ctx.step("a", print)


async def _shield(ctx: lantern.Context) -> None:
    await ctx.shield(_plain(ctx))


@pytest.mark.parametrize("function", [_plain, _nested, _in_an_except])
def test_nothing_is_to_be_done_where_a_cancel_just_ends_the_code(function: Callable[..., Any]) -> None:
    host = host_of(function)
    host.advance()
    assert not host.has_compensation
    host.resolve(Notice(kind="cancel"))
    commands = host.advance()
    assert isinstance(commands[-1], Cancelled)
    assert not host.has_compensation


@pytest.mark.parametrize("function", [_finally, _except, _outer, _inner_task, _with, _generator, _saga, _shield])
def test_something_may_be_to_be_done_inside_a_try_or_with(function: Callable[..., Any]) -> None:
    host = host_of(function)
    host.advance()
    assert host.has_compensation


def test_what_lies_behind_does_not_count() -> None:
    host = host_of(_behind_a_try)
    host.advance()
    host.resolve(done("before"))
    host.advance()
    assert not host.has_compensation
    host.close()
    assert not host.has_compensation
