"""Whether suspended code has something to do when it is cancelled: it stands inside a `try` or `with` of the user's."""

import asyncio
import dis
import types
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from lantern.program.failures import is_ours, part_of_stdlib
from lantern.program.scopes import shielded

_HANDLES = dis.opmap["PUSH_EXC_INFO"]
"""The instruction that begins what `except`, `finally` and `with` do with an exception."""

_SHIELDED = shielded.__code__
"""What is awaited in it goes on through a cancel."""


def stands_protected(tasks: Iterable[asyncio.Task[Any]]) -> bool:
    """Whether any of the tasks that have not ended stands where a cancel would run code of the user's."""
    return any(_is_protected(task.get_coro()) for task in tasks if not task.done())


def _is_protected(awaitable: Any) -> bool:
    while awaitable is not None:
        frame, following = _suspended(awaitable)
        if frame is None:
            # A future is the end of the chain. What else cannot be looked into (an async generator) may hold a `try`.
            return not isinstance(awaitable, asyncio.Future) and type(awaitable).__name__ not in {
                "FutureIter",
                "coroutine_wrapper",
                "NoneType",
                "list_iterator",
            }
        code = frame.f_code
        is_user = not is_ours(code.co_filename) and not part_of_stdlib(code.co_filename)
        if code is _SHIELDED or (is_user and frame.f_lasti >= 0 and _is_covered(code, frame.f_lasti)):
            return True
        awaitable = following
    return False


def _suspended(awaitable: Any) -> tuple[types.FrameType | None, Any]:
    """Its frame, and what it waits for in turn."""
    match awaitable:
        case types.CoroutineType():
            return awaitable.cr_frame, awaitable.cr_await
        case types.GeneratorType():
            return awaitable.gi_frame, awaitable.gi_yieldfrom
        case _:
            return None, None


@lru_cache(maxsize=4096)
def _is_covered(code: types.CodeType, at: int) -> bool:
    handlers = [target for begin, end, target in _exception_table(code) if begin <= at < end]
    return any(code.co_code[target] == _HANDLES for target in handlers)


def _exception_table(code: types.CodeType) -> Iterator[tuple[int, int, int]]:
    """Begin, end and handler of each range, as offsets into `co_code` (CPython, exception_handling_notes.txt)."""
    content = iter(code.co_exceptiontable)
    for first in content:
        begin = _number(first, content) * 2
        length = _number(next(content), content) * 2
        target = _number(next(content), content) * 2
        _number(next(content), content)
        yield begin, begin + length, target


def _number(first: int, content: Iterator[int]) -> int:
    value = first & 63
    while first & 64:
        first = next(content)
        value = value << 6 | first & 63
    return value
