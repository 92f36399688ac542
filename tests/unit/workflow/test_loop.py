"""Goal: whatever cannot be replayed in order is refused at once and names its replacement; the rest of asyncio works.

Method: each asyncio function is called in a workflow; the message that the run fails with is compared.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from host_kit import done, host_of, ids

import lantern
from lantern.program.host import RunInfo, WorkflowHost
from lantern.program.loop import WorkflowLoop
from lantern.registry import define
from lantern_kernel.commands import Command, Fail, StartTimer, Succeed, Withdraw


def end_of(function: Callable[..., Any]) -> Succeed | Fail:
    host = WorkflowHost(define(function), b"null", RunInfo(run_id="r", workflow_id=""))
    end = host.advance()[-1]
    assert isinstance(end, Succeed | Fail)
    host.close()
    return end


async def _thread(ctx: lantern.Context) -> None:
    await asyncio.to_thread(print)


async def _socket(ctx: lantern.Context) -> None:
    await asyncio.open_connection("localhost", 1)


async def _process(ctx: lantern.Context) -> None:
    await asyncio.create_subprocess_exec("true")


async def _wait(ctx: lantern.Context) -> None:
    await asyncio.wait([asyncio.create_task(ctx.step("a", print))])


async def _wait_gathered(ctx: lantern.Context) -> None:
    await asyncio.wait([asyncio.gather(ctx.step("a", print))])


async def _as_completed(ctx: lantern.Context) -> None:
    for each in asyncio.as_completed([ctx.step("a", print), ctx.step("b", print)]):
        await each


async def _as_completed_futures(ctx: lantern.Context) -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    for each in asyncio.as_completed([future]):
        await each


@pytest.mark.parametrize(
    ("function", "replacement"),
    [
        (_thread, "ctx.step"),
        (_socket, "ctx.http"),
        (_process, "ctx.step"),
        (_wait, "asyncio.gather"),
        (_wait_gathered, "asyncio.gather"),
        (_as_completed, "asyncio.gather"),
        (_as_completed_futures, "asyncio.gather"),
    ],
)
def test_what_has_no_order_is_refused(function: Callable[..., Any], replacement: str) -> None:
    end = end_of(function)
    assert isinstance(end, Fail)
    assert end.error.message.startswith("lantern.program.failures.NotReplayable: ")
    assert replacement in end.error.message
    assert end.error.details is not None
    assert end.error.details["source"].startswith("test_loop.py:")


def started(commands: Sequence[Command]) -> list[tuple[str, int]]:
    return [(each.step_id, each.duration_us) for each in commands if isinstance(each, StartTimer)]


def test_time_moves_only_when_a_timer_fires() -> None:
    async def program(ctx: lantern.Context) -> Any:
        loop = asyncio.get_running_loop()
        times = [loop.time()]
        await ctx.step("a", print)
        times.append(loop.time())
        await asyncio.sleep(1.5)
        times.append(loop.time())
        await ctx.sleep(2)
        times.append(loop.time())
        return times

    host = host_of(program)
    host.advance()
    host.resolve(done("a"))
    (timer,) = host.advance()
    assert isinstance(timer, StartTimer)
    assert timer.source.startswith("test_loop.py:")
    assert started([timer]) == [("timeout", 1_500_000)]
    host.resolve(done("timeout", None))
    host.advance()
    host.resolve(done("sleep", None))
    assert host.advance() == [Succeed(result=b"[0.0,0.0,1.5,3.5]")]


def test_a_time_out_that_is_not_needed_is_withdrawn() -> None:
    async def program(ctx: lantern.Context) -> Any:
        async with asyncio.timeout(5):
            await ctx.step("a", print)
        return await asyncio.wait_for(ctx.step("b", print), 7)

    host = host_of(program)
    commands = host.advance()
    assert (started(commands), ids(commands)) == ([("timeout", 5_000_000)], ["timeout", "a"])
    host.resolve(done("a"))
    commands = host.advance()
    assert commands[0] == Withdraw(step_id="timeout")
    assert started(commands) == [("timeout[1]", 7_000_000)]
    host.resolve(done("b", b"1"))
    assert host.advance() == [Withdraw(step_id="timeout[1]"), Succeed(result=b"1")]


def test_a_time_out_withdraws_the_step() -> None:
    async def program(ctx: lantern.Context) -> Any:
        try:
            async with asyncio.timeout(5):
                await ctx.step("a", print)
        except TimeoutError:
            pass
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.gather(ctx.step("b", print), ctx.step("c", print)), 1)
        return asyncio.get_running_loop().time()

    host = host_of(program)
    host.advance()
    host.resolve(done("timeout", None))
    assert Withdraw(step_id="a") in host.advance()
    host.resolve(done("timeout[1]", None))
    host.resolve(done("a"))  # told in spite of all: ignored
    assert host.advance() == [Withdraw(step_id="b"), Withdraw(step_id="c"), Succeed(result=b"6.0")]


def test_callbacks_at_a_time_come_in_the_order_of_the_journal() -> None:
    async def program(ctx: lantern.Context) -> Any:
        loop, seen = asyncio.get_running_loop(), list[Any]()
        loop.call_later(2, seen.append, "two")
        loop.call_at(1, seen.append, "one")
        loop.call_later(0, seen.append, "now")
        never = loop.call_later(3, seen.append, "never")
        await ctx.step("a", print)
        never.cancel()
        never.cancel()
        await ctx.sleep(9)
        return [*seen, loop.time()]

    host = host_of(program)
    assert started(host.advance()) == [("timeout", 2_000_000), ("timeout[1]", 1_000_000), ("timeout[2]", 3_000_000)]
    host.resolve(done("a"))
    assert host.advance()[0] == Withdraw(step_id="timeout[2]")
    for step_id in ("timeout", "timeout[1]", "sleep"):
        host.resolve(done(step_id, None))
    assert host.advance() == [Succeed(result=b'["now","two","one",9.0]')]


def test_every_part_of_an_event_loop_is_either_there_or_refused() -> None:
    inherited = {
        name
        for name in dir(asyncio.AbstractEventLoop)
        if not name.startswith("_") and getattr(WorkflowLoop, name) is getattr(asyncio.AbstractEventLoop, name)
    }
    # These raise NotImplementedError as asyncio's own; nothing that users call in a coroutine leads there.
    assert inherited <= {"set_exception_handler", "set_task_factory", "stop"}


def test_what_has_an_order_works() -> None:
    async def program(ctx: lantern.Context) -> list[Any]:
        seen: list[Any] = []
        lock, event, queue = asyncio.Lock(), asyncio.Event(), asyncio.Queue[int](1)

        async def produce() -> None:
            for number in range(3):
                await queue.put(number)
            event.set()

        async def consume() -> None:
            for _ in range(3):
                async with lock:
                    seen.append(await queue.get())

        async with asyncio.TaskGroup() as group:
            group.create_task(produce())
            group.create_task(consume())
        await event.wait()
        async with asyncio.timeout(None):
            seen.append(await asyncio.wait_for(asyncio.sleep(0, "waited"), None))
        seen.append(await asyncio.shield(asyncio.sleep(0, "shielded")))
        seen.append(await asyncio.gather(asyncio.sleep(0, 1), _raise(), return_exceptions=False) if not seen else 0)
        return seen

    assert end_of(program) == Succeed(result=b'[0,1,2,"waited","shielded",0]')


async def _raise() -> None:
    raise ValueError


def test_cancelling_a_group_goes_by_the_order_of_its_tasks() -> None:
    order: list[int] = []

    async def wait(ctx: lantern.Context, number: int) -> None:
        try:
            await ctx.step(f"step-{number}", print)
        finally:
            order.append(number)

    async def program(ctx: lantern.Context) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(50):
                group.create_task(wait(ctx, number))
            await asyncio.sleep(0)
            raise ValueError("stop")

    assert isinstance(end_of(program), Fail)
    assert sorted(order) == list(range(50))
    first, order[:] = list(order), []
    keep = [object() for _ in range(10_000)]
    assert isinstance(end_of(program), Fail)
    assert order == first, f"the same in another corner of memory ({len(keep)})"


def test_tasks_live_without_references() -> None:
    import gc

    async def program(ctx: lantern.Context) -> str:
        event = asyncio.Event()

        async def later() -> None:
            for _ in range(300):
                await asyncio.sleep(0)
            event.set()

        asyncio.create_task(later())  # noqa: RUF006 - nobody keeps it: that is the case
        for _ in range(200):
            asyncio.create_task(asyncio.sleep(0))  # noqa: RUF006 - nobody keeps it: that is the case
            await asyncio.sleep(0)
        gc.collect()
        await event.wait()
        return "alive"

    assert end_of(program) == Succeed(result=b'"alive"')
