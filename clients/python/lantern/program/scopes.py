"""Parts of a workflow that are cancelled on their own, and parts that no cancel reaches."""

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar

_T = TypeVar("_T")


class CancelScope:
    """A block whose code can be cancelled without cancelling what is around it: `async with ctx.scope() as scope`.

    Attributes:
        cancelled: Whether `cancel` was called before the block ended.
    """

    def __init__(self) -> None:
        self.cancelled = False
        self._task: asyncio.Task[Any] | None = None
        self._before = 0
        self._has_ended = False

    def cancel(self) -> None:
        """Cancels what the block waits for; the block then ends quietly. Repeats do nothing."""
        if self.cancelled or self._has_ended:
            return
        self.cancelled = True
        if self._task is not None:
            self._task.cancel()

    async def __aenter__(self) -> Self:
        self._task = asyncio.current_task()
        assert self._task is not None, "workflow code runs in a task"
        self._before = self._task.cancelling()
        if self.cancelled:
            self._task.cancel()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        assert self._task is not None, "entered before"
        self._has_ended = True
        if not self.cancelled:
            return False
        if error is None:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0)  # a cancel from inside that nothing was awaited after is still to come
        # As asyncio.timeout does: whoever else cancelled the task is not to be swallowed with our own.
        if self._task.uncancel() > self._before:
            if error is None:
                raise asyncio.CancelledError
            return False
        return isinstance(error, asyncio.CancelledError)


async def shielded(awaitable: Awaitable[_T]) -> _T:
    """Awaits to the end whatever cancels come; then raises the cancel, if one came."""
    task = asyncio.ensure_future(awaitable)
    cancel: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if not task.done():
                cancel = error
        except BaseException:  # it is told below
            break
    if cancel is None or task.cancelled():
        return task.result()
    task.exception()  # the cancel weighs more
    raise cancel
