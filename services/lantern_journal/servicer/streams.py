"""The open streams of this process, so that a stop can end them at once, and page tokens."""

import asyncio
import base64
import binascii
from collections.abc import Generator
from contextlib import contextmanager

from lantern_kernel.errors import InvalidField


class OpenStreams:
    """Tasks of streaming calls. Cancelling one ends its call as UNAVAILABLE (the error interceptor sees to it)."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[object]] = set()
        self._leaving: set[asyncio.Task[object]] = set()

    @contextmanager
    def registered(self, *, leaves_by_itself: bool = False) -> Generator[None]:
        """Around the body of a streaming handler; `leaves_by_itself`: its client was asked to go elsewhere."""
        task = asyncio.current_task()
        assert task is not None, "handlers run in tasks"
        tasks = self._leaving if leaves_by_itself else self._tasks
        tasks.add(task)
        try:
            yield
        finally:
            tasks.discard(task)

    async def end(self, within_s: float) -> None:
        """Ends streams at once, those that leave by themselves after a while."""
        for task in list(self._tasks):
            task.cancel()
        if self._leaving:
            await asyncio.wait(self._leaving, timeout=within_s)
        for task in list(self._leaving):
            task.cancel()


def page_token(*position: str | int) -> str:
    """An opaque token for a position."""
    return base64.urlsafe_b64encode("\n".join(map(str, position)).encode()).decode()


def position_of(token: str, parts: int) -> list[str] | None:
    """The position that a token names; None for the empty one. Raises InvalidField where it is none of ours."""
    if not token:
        return None
    try:
        position = base64.b64decode(token.encode(), altchars=b"-_", validate=True).decode().split("\n")
    except (binascii.Error, UnicodeError):
        position = []
    if len(position) != parts or any("\0" in part for part in position):
        raise InvalidField("page_token", "is none that this service has given")
    return position


def number_of(token: str, default: int) -> int:
    """The number that a token names; `default` for the empty one."""
    position = position_of(token, 1)
    if position is None:
        return default
    if not (position[0].isascii() and position[0].isdigit() and len(position[0]) < 19):
        raise InvalidField("page_token", "is none that this service has given")
    return int(position[0])
