"""The event loop of the simulation: its own time, a seeded choice among processes, no sockets, no threads.

Whatever runs belongs to a simulated process, told by a context variable. Within one, callbacks run in their order, as
asyncio promises; which process goes on next is the seed's choice. Time jumps to the next timer when nobody can go on.
"""

import asyncio
import contextvars
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from hashlib import sha256
from random import Random
from typing import Any

CALLBACKS_AT_ONE_TIME_MAX = 50_000
"""More without time passing is a busy loop."""


class BusyLoop(AssertionError):
    """Something goes round without waiting for anything."""


class Process:
    """A simulated process: what is ready to run in it, and whether it runs."""

    def __init__(self, name: str, loop: "SimulatedLoop") -> None:
        self.name, self.loop = name, loop
        self.is_alive = True
        self.is_frozen = False
        self.ready: deque[asyncio.Handle] = deque()
        # Strong: tasks of a process that died must not run their `finally` blocks when the collector comes by.
        self.tasks: list[asyncio.Task[Any]] = []
        self.context = contextvars.copy_context()
        self.context.run(PROCESS.set, self)
        # Called when it dies, in the loop's own context.
        self.on_death: list[Callable[[], None]] = []

    def spawn(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Begins a task in it."""
        return self.context.copy().run(self.loop.create_task, work)

    def soon(self, callback: Callable[..., object], *args: Any) -> None:
        """Runs something in it, in turn."""
        self.loop.call_soon(callback, *args, context=self.context)

    def kill(self) -> None:
        """It is gone, wherever it stood."""
        self.is_alive = False
        self.ready.clear()
        for tell in self.on_death:
            tell()


PROCESS: contextvars.ContextVar[Process] = contextvars.ContextVar("process")


class Trace:
    """What happened: always as a hash, as text where somebody wants to read it."""

    def __init__(self, write: Callable[[str], None] | None = None) -> None:
        self._hash = sha256()
        self._write = write

    def add(self, line: str) -> None:
        """Notes what happened."""
        self._hash.update(line.encode())
        if self._write is not None:
            self._write(line)

    @property
    def digest(self) -> str:
        """Of all so far."""
        return self._hash.hexdigest()


class SimulatedLoop(asyncio.BaseEventLoop):
    """See the module."""

    def __init__(self, seed: int, write: Callable[[str], None] | None = None) -> None:
        super().__init__()
        self.random = Random(seed)
        self.now_s = 0.0
        self.callbacks = 0
        self.processes: list[Process] = []
        self.faults: list[str] = []
        self.over = False
        self._trace = Trace(write)
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._order = itertools.count()
        self._since_time_moved = 0
        self.world = self.process("world")

    def process(self, name: str) -> Process:
        """A new process."""
        made = Process(name, self)
        self.processes.append(made)
        return made

    def note(self, what: str) -> None:
        """Adds a line to the trace."""
        self._trace.add(f"{self.now_s:.6f} {what}")

    @property
    def digest(self) -> str:
        """Of the whole trace."""
        self._trace.add(f"{self.callbacks}")
        return self._trace.digest

    # What asyncio needs.

    def time(self) -> float:
        return self.now_s

    def call_soon(
        self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        context = contextvars.copy_context() if context is None else context
        handle = asyncio.Handle(callback, args, self, context)
        process = context.get(PROCESS, self.world)
        if process.is_alive and not self.over:
            process.ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        context = contextvars.copy_context() if context is None else context
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        if not self.over:
            heapq.heappush(self._timers, (max(when, self.now_s), next(self._order), handle))
        return handle

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.now_s + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        del handle

    def create_task(self, coro: Any, **named: Any) -> "asyncio.Task[Any]":
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, **named)
        tasks = PROCESS.get(self.world).tasks
        if len(tasks) > 256:
            tasks[:] = [kept for kept in tasks if not kept.done()]
        tasks.append(task)
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.over and "was never retrieved" not in str(context.get("message")):
            self.faults.append(f"{context.get('message')}: {context.get('exception')!r}")

    def _write_to_self(self) -> None:
        """Nobody sleeps."""

    def _process_events(self, event_list: Any) -> None:
        del event_list

    def _run_once(self) -> None:
        runnable = [each for each in self.processes if each.ready and each.is_alive and not each.is_frozen]
        if not runnable:
            self._move_time()
            return
        chosen = runnable[self.random.randrange(len(runnable))] if len(runnable) > 1 else runnable[0]
        # One turn of its loop: what is ready now, as asyncio does it.
        for _ in range(len(chosen.ready)):
            if not chosen.ready:
                return  # it was killed by what it ran
            handle = chosen.ready.popleft()
            self.callbacks += 1
            self._since_time_moved += 1
            if not handle.cancelled():
                handle._run()
        if self._since_time_moved > CALLBACKS_AT_ONE_TIME_MAX:
            raise BusyLoop(f"{chosen.name} goes round at {self.now_s}")

    def _move_time(self) -> None:
        if not self._timers:
            raise AssertionError("nothing is left that could ever happen")
        if self._timers[0][0] > self.now_s:  # else whoever sets timers for now goes round as well
            self.now_s = self._timers[0][0]
            self._since_time_moved = 0
        while self._timers and self._timers[0][0] <= self.now_s:
            handle = heapq.heappop(self._timers)[2]
            if handle.cancelled():
                continue
            process = handle._context.get(PROCESS, self.world)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
            if process.is_alive:
                process.ready.append(handle)

    def finish(self) -> None:
        """Ends everything where it stands: nothing runs on, and nobody complains."""
        self.over = True
        self._timers.clear()
        asyncio._set_running_loop(self)
        try:
            for process in self.processes:
                process.ready.clear()
                for task in process.tasks:
                    task._log_destroy_pending = False  # pyright: ignore[reportAttributeAccessIssue]
                    if not task.done():
                        _close(task.get_coro())
        finally:
            asyncio._set_running_loop(None)


def _close(coroutine: Any) -> None:
    """Ends a coroutine where it stands; what its `finally` blocks want to wait for is not waited for."""
    for _ in range(20):
        with suppress(BaseException):
            coroutine.close()
            return
