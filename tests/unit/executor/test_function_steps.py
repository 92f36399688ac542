"""Goal: a function of the user's, async or not, always ends its attempt, whatever it does.

Method: the step runner alone, on an ordinary loop with threads; each odd way to end is tried both ways.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import lantern
from lantern.program.calls import FunctionCall
from lantern_executor.adapters.steps import LocalStepRunner
from lantern_executor.domain.step import StepContext
from lantern_kernel import reasons
from lantern_kernel.retry import Failure
from lantern_kernel.step_ends import Completed

CONTEXT = StepContext(run_id="run", workflow_id="wf", step_id="a", attempt=2, key_attempt=1, key="k", epoch=3)


async def _run(function: Callable[..., Any], *args: Any) -> Completed | Failure:
    def no_http() -> Any:
        raise AssertionError("no requests here")

    return await LocalStepRunner(no_http).run(FunctionCall(fn=function, args=args), CONTEXT)


def _plain(error: BaseException) -> Any:
    raise error


async def _async(error: BaseException) -> Any:
    raise error


@pytest.mark.parametrize("function", [_plain, _async])
@pytest.mark.parametrize(
    "error",
    [
        ValueError("no"),
        StopIteration("no"),
        StopAsyncIteration(),
        SystemExit(1),
        KeyboardInterrupt(),
        GeneratorExit(),
        asyncio.CancelledError(),
        ExceptionGroup("several", [ValueError("no")]),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_everything_raised_is_a_failure(function: Callable[..., Any], error: BaseException) -> None:
    async with asyncio.timeout(5):
        end = await _run(function, error)
    assert isinstance(end, Failure)
    assert (end.code, end.outcome) == (reasons.STEP_FAILED, "unknown")


def _info_plain() -> list[Any]:
    info = lantern.step_info()
    return [info.run_id, info.workflow_id, info.step_id, info.attempt, info.key_attempt, info.key, info.epoch]


async def _info_async() -> list[Any]:
    return _info_plain()


def _info_awaitable() -> Any:
    return _info_async()


@pytest.mark.parametrize("function", [_info_plain, _info_async, _info_awaitable])
async def test_a_step_knows_itself(function: Callable[..., Any]) -> None:
    assert await _run(function) == Completed(output=b'["run","wf","a",2,1,"k",3]')


async def test_our_own_cancellation_is_passed_on() -> None:
    async def forever() -> None:
        await asyncio.Event().wait()

    task = asyncio.create_task(_run(forever))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_only_a_function_that_is_not_async_needs_a_thread() -> None:
    def no_http() -> Any:
        raise AssertionError("no requests here")

    runner = LocalStepRunner(no_http, threads=1)
    plain, not_plain = FunctionCall(fn=_plain, args=()), FunctionCall(fn=_async, args=())
    async with runner.room(plain):
        async with asyncio.timeout(5), runner.room(not_plain), runner.room(not_plain):
            pass
        waiting = asyncio.ensure_future(runner.room(plain).__aenter__())
        await asyncio.sleep(0)
        assert not waiting.done()
    async with asyncio.timeout(5):
        await waiting
