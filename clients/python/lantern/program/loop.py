"""The event loop of workflow code: one first-in-first-out queue, no sockets, no threads, a time of its own.

It is driven from outside, a stretch at a time, on the thread and often inside the running loop of an executor. Whatever
would make the order of things depend on anything but the journal is refused at once, naming the replacement. Its time
starts at 0 and moves only when a durable timer fires; time-outs and `asyncio.sleep` are such timers.
"""

import asyncio
import contextvars
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from typing import Any, NoReturn, Protocol, TypeVar

from lantern.program.failures import NotReplayable

CALLBACKS_PER_STRETCH_MAX = 1_000_000
"""Code that goes on for longer without waiting for anything is taken to spin."""

_CLOSES_MAX = 100
_T = TypeVar("_T")

_THREAD = "threads cannot be replayed: do such work in a step, `await ctx.step(id, function)`"
_IO = (
    "the outside world cannot be replayed: reach it in a step, `await ctx.step(id, function)` or `await ctx.http(...)`"
)

_REFUSED = {
    "call_soon_threadsafe": _THREAD,
    "run_in_executor": _THREAD,
    "set_default_executor": _THREAD,
    "add_signal_handler": _IO,
    "remove_signal_handler": _IO,
    "add_reader": _IO,
    "remove_reader": _IO,
    "add_writer": _IO,
    "remove_writer": _IO,
    "connect_accepted_socket": _IO,
    "connect_read_pipe": _IO,
    "connect_write_pipe": _IO,
    "create_connection": _IO,
    "create_datagram_endpoint": _IO,
    "create_server": _IO,
    "create_unix_connection": _IO,
    "create_unix_server": _IO,
    "getaddrinfo": _IO,
    "getnameinfo": _IO,
    "sendfile": _IO,
    "sock_accept": _IO,
    "sock_connect": _IO,
    "sock_recv": _IO,
    "sock_recv_into": _IO,
    "sock_recvfrom": _IO,
    "sock_recvfrom_into": _IO,
    "sock_sendall": _IO,
    "sock_sendfile": _IO,
    "sock_sendto": _IO,
    "start_tls": _IO,
    "subprocess_exec": _IO,
    "subprocess_shell": _IO,
    "run_forever": "the loop of a workflow is run by Lantern: just await",
    "run_until_complete": "the loop of a workflow is run by Lantern: just await",
}
"""What an asyncio loop can do and this one must not, and why."""

_BY_SETS = frozenset({"_wait", "as_completed", "_AsCompletedIterator.__init__"})
"""The parts of asyncio.tasks that go through sets, whose order differs from process to process."""


def _refuse_sets() -> None:
    caller = sys._getframe(2)  # pyright: ignore[reportPrivateUsage] - the only way to know asyncio.wait from asyncio.gather
    if caller.f_code.co_qualname in _BY_SETS and caller.f_globals.get("__name__") == "asyncio.tasks":
        name = "wait" if caller.f_code.co_name == "_wait" else "as_completed"
        raise NotReplayable(
            f"asyncio.{name} goes through sets, whose order cannot be replayed: use `await asyncio.gather(...)`"
        )


class OrderedFuture(asyncio.Future[_T]):
    """A future of this loop."""

    def add_done_callback(self, fn: Callable[..., object], /, *, context: contextvars.Context | None = None) -> None:
        """As asyncio's; refuses the functions that go through sets."""
        _refuse_sets()
        super().add_done_callback(fn, context=context)


class OrderedTask(asyncio.Task[_T]):
    """A task of this loop; its hash is its number, so that sets of tasks (asyncio.TaskGroup) keep one order."""

    def __init__(self, coro: Any, *, loop: "WorkflowLoop", number: int, **named: Any) -> None:
        # asyncio puts every task of the process into one set, where the first tasks of all runs would collide.
        self._number = id(self)
        super().__init__(coro, loop=loop, **named)
        self._number = number

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other

    def add_done_callback(self, fn: Callable[..., object], /, *, context: contextvars.Context | None = None) -> None:
        """As asyncio's; refuses the functions that go through sets."""
        _refuse_sets()
        super().add_done_callback(fn, context=context)

    def abandon(self) -> None:
        """Ends its coroutine where it stands, without the loop; errors out of its `finally` blocks are dropped."""
        self._log_destroy_pending = False
        if self.done():
            return
        coroutine = self.get_coro()
        for _ in range(_CLOSES_MAX):
            # The run is given up: what its code says to that changes nothing. A coroutine that awaits again in a
            # `finally` block raises RuntimeError and must be closed once more.
            with suppress(Exception, asyncio.CancelledError, SystemExit, KeyboardInterrupt):
                coroutine.close()
                return


class _Ready(asyncio.Handle):
    """A callback in the queue."""

    __slots__ = ()

    def run(self) -> None:
        self._context.run(self._callback, *self._args)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]


class _Timer(asyncio.TimerHandle):
    """A callback that waits for a durable timer."""

    __slots__ = ("due_us", "timer_id")

    timer_id: str
    due_us: int

    def run(self) -> None:
        self._context.run(self._callback, *self._args)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]


class Timers(Protocol):
    """The durable timers behind a loop."""

    def start_timer(self, duration_us: int) -> str:
        """Starts one; its id."""
        ...

    def withdraw(self, step_id: str) -> None:
        """Forgets one."""
        ...


class WorkflowLoop(asyncio.AbstractEventLoop):
    """See the module.

    Attributes:
        is_guarded: Whether `guard` watches over what runs on it.
        now_us: Its time, microseconds from the begin of the run.
    """

    def __init__(self, timers: Timers, *, is_guarded: bool = True) -> None:
        self.is_guarded = is_guarded
        self.now_us = 0
        self._timers = timers
        self._scheduled: dict[str, _Timer] = {}
        self._ready: deque[_Ready | _Timer] = deque()
        self._tasks: list[OrderedTask[Any]] = []
        self._tasks_made = 0
        self._prune_at = 64
        self._is_closed = False

    @property
    def tasks(self) -> list[OrderedTask[Any]]:
        """All that have not ended, and some that have."""
        return self._tasks

    # What asyncio's futures, tasks and functions need.

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """Puts a callback at the end of the queue."""
        handle = _Ready(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def time(self) -> float:
        """Seconds from the begin of the run, as far as timers have told."""
        return self.now_us / 1_000_000

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """Calls back after so many seconds; a durable timer."""
        return self._call_in(round(delay * 1_000_000), callback, args, context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """Calls back at a time of this loop; a durable timer."""
        return self._call_in(round(when * 1_000_000) - self.now_us, callback, args, context)

    def _call_in(
        self, delay_us: int, callback: Callable[..., object], args: Any, context: contextvars.Context | None
    ) -> asyncio.TimerHandle:
        due_us = self.now_us + delay_us
        handle = _Timer(due_us / 1_000_000, callback, args, self, context)
        handle.due_us, handle.timer_id = due_us, ""
        if delay_us <= 0:
            self._ready.append(handle)
        else:
            handle.timer_id = self._timers.start_timer(delay_us)
            self._scheduled[handle.timer_id] = handle
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Asyncio tells here that a timer is not wanted any more."""
        if isinstance(handle, _Timer) and self._scheduled.pop(handle.timer_id, None) is not None:
            self._timers.withdraw(handle.timer_id)

    def fire(self, timer_id: str) -> None:
        """A timer of this loop has fired: time moves on, its callback is ready."""
        handle = self._scheduled.pop(timer_id)
        self.move_on(handle.due_us)
        self._ready.append(handle)

    def move_on(self, now_us: int) -> None:
        """A timer has fired that was due at this time of the loop."""
        self.now_us = max(self.now_us, now_us)

    def create_future(self) -> asyncio.Future[Any]:
        """A new future."""
        _refuse_sets()
        return OrderedFuture(loop=self)

    def create_task(self, coro: Generator[Any, None, _T] | Coroutine[Any, Any, _T], **named: Any) -> asyncio.Task[_T]:
        """A new task, run from the end of the queue on."""
        self._tasks_made += 1
        named.setdefault("name", f"task-{self._tasks_made}")
        task: OrderedTask[_T] = OrderedTask(coro, loop=self, number=self._tasks_made, **named)
        # asyncio keeps weak references only; a task must not end because a collector came by.
        if len(self._tasks) >= self._prune_at:
            self._tasks = [kept for kept in self._tasks if not kept.done()]
            self._prune_at = max(64, 2 * len(self._tasks))
        self._tasks.append(task)
        return task

    def get_debug(self) -> bool:
        """Never: debugging asks clocks."""
        return False

    def set_debug(self, enabled: bool) -> None:
        """Ignored."""

    def is_running(self) -> bool:
        """Whether code is running on it right now."""
        return asyncio._get_running_loop() is self

    def is_closed(self) -> bool:
        """Whether it has been closed."""
        return self._is_closed

    def get_task_factory(self) -> None:
        """There is none."""

    def get_exception_handler(self) -> None:
        """There is none."""

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """As call_exception_handler."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Ignored: asyncio tells here of tasks that were thrown away with an error, whenever the collector comes by."""

    async def shutdown_asyncgens(self) -> None:
        """Nothing to do."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - asyncio's signature
        """Nothing to do."""

    # What its driver needs.

    def run_until_waiting(self, main: asyncio.Future[Any]) -> None:
        """Runs callbacks in order until there is none, or `main` is done.

        Raises:
            NotReplayable: The code goes on without ever waiting.
            Exception: A callback that belongs to no task raised it.
        """
        with self.running():
            for _ in range(CALLBACKS_PER_STRETCH_MAX):
                if not self._ready or main.done():
                    return
                handle = self._ready.popleft()
                if not handle.cancelled():
                    handle.run()
        raise NotReplayable(f"the workflow ran {CALLBACKS_PER_STRETCH_MAX} callbacks without waiting for anything")

    def close(self) -> None:
        """Ends all tasks where they stand, in the order of their creation."""
        if self._is_closed:
            return
        self._is_closed = True
        with self.running():
            for task in self._tasks:
                task.abandon()
        self._ready.clear()
        self._tasks.clear()

    def running(self) -> "_Running":
        """Makes this the running loop of the thread, in place of the one that its driver runs on; for a `with`."""
        return _Running(self)


class _Running:
    """A class, since a generator takes three times as long and this is entered for every step."""

    __slots__ = ("_hooks", "_loop", "_outer", "_outer_task")

    def __init__(self, loop: WorkflowLoop) -> None:
        self._loop = loop

    def __enter__(self) -> None:
        self._outer = outer = asyncio._get_running_loop()
        self._outer_task = outer_task = None if outer is None else asyncio.current_task(outer)
        self._hooks = sys.get_asyncgen_hooks()
        if outer is not None and outer_task is not None:
            asyncio.tasks._leave_task(outer, outer_task)
        asyncio._set_running_loop(self._loop)
        # The driver's loop must not adopt async generators of the workflow, nor finish them in its own time.
        sys.set_asyncgen_hooks(firstiter=_ignore, finalizer=_ignore)

    def __exit__(self, *_: object) -> None:
        sys.set_asyncgen_hooks(*self._hooks)
        asyncio._set_running_loop(self._outer)
        if self._outer is not None and self._outer_task is not None:
            asyncio.tasks._enter_task(self._outer, self._outer_task)


def _ignore(generator: Any) -> None:
    """Neither notes nor finishes an async generator."""
    del generator


def _refusal(name: str, why: str) -> Callable[..., NoReturn]:
    def refuse(self: WorkflowLoop, *args: Any, **named: Any) -> NoReturn:
        del self, args, named
        raise NotReplayable(f"loop.{name} in a workflow: {why}")

    return refuse


for _name, _why in _REFUSED.items():
    setattr(WorkflowLoop, _name, _refusal(_name, _why))
