"""Compensation: what undoes, in reverse order, the part of a piece of work that was done before it failed."""

import asyncio
import inspect
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from lantern.program.failures import ContinueAsNewRequest
from lantern.program.scopes import shielded


class Saga:
    """Remembers how to undo: `async with ctx.saga() as saga`.

    If the block is left by an exception, a cancel of the run included, what was added is called, the last one first,
    each to its end whatever cancels come; then the exception goes on. If some of it fails, the rest is still done, and
    the block ends with an ExceptionGroup of the exception and the failures.
    """

    def __init__(self, opened: "Callable[[Saga], None]", closed: "Callable[[Saga], None]") -> None:
        self._opened = opened
        self._closed = closed
        self._to_undo: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = []

    @property
    def holds_something(self) -> bool:
        """Whether there is something to undo."""
        return bool(self._to_undo)

    def add(self, function: Callable[..., Any], /, *args: Any, **named: Any) -> None:
        """Remembers a call to make: `saga.add(ctx.step, "refund", refund, charge_id)`, or workflow code of yours.

        Args:
            function: Async or not; workflow code.
            args: Its arguments.
            named: Its named arguments.
        """
        self._to_undo.append((function, args, named))

    def clear(self) -> None:
        """Forgets all: from here on there is no way back."""
        self._to_undo.clear()

    async def compensate(self) -> None:
        """Undoes all that was added, now; raises an ExceptionGroup of what failed."""
        failures = await shielded(self._undo())
        if failures:
            raise ExceptionGroup("the compensation failed", failures)

    async def __aenter__(self) -> Self:
        self._opened(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None or isinstance(error, GeneratorExit | ContinueAsNewRequest):
                return
            failures: list[Exception] = await shielded(self._undo())
        finally:
            self._closed(self)
        if failures and isinstance(error, Exception):
            raise ExceptionGroup("the work failed, and so did its compensation", [error, *failures]) from None
        if failures:
            raise ExceptionGroup("the compensation failed", failures) from error

    async def _undo(self) -> list[Exception]:
        failures: list[Exception] = []
        while self._to_undo:
            function, args, named = self._to_undo.pop()
            try:
                value = function(*args, **named)
                if inspect.isawaitable(value):
                    await value
            except asyncio.CancelledError as error:
                failures.append(RuntimeError(f"the compensation was cancelled: {error}"))
            except Exception as error:
                failures.append(error)
        return failures
