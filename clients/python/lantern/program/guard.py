"""The guard that watches over workflow code while it runs: clocks, chance and the outside are refused at once.

It is installed once in a process that has workflows and stays: the functions of `refusals.FUNCTIONS` are wrapped in
their modules, and an audit hook (PEP 578) sees files, sockets and processes. They act only on a thread where the loop
of a guarded workflow runs at that moment; steps, side effects and everything else are let through.
"""

import asyncio
import functools
import os
import sys
from collections.abc import Callable, Iterator
from types import FrameType, ModuleType
from typing import Any

from lantern.program import refusals
from lantern.program.failures import is_ours, part_of_stdlib

_HARMLESS = frozenset(
    {"logging", "importlib", "traceback", "linecache", "warnings", "inspect", "tokenize", "zipimport"}
)
"""Parts of the standard library that read clocks and files on their own account: to stamp a record, to find a line."""

_running: Callable[[], Any] = asyncio._get_running_loop
_installed: set[str] = set()


def install() -> None:
    """Installs it; repeats do nothing."""
    if _installed:
        return
    _installed.add("installed")
    for module, functions in refusals.FUNCTIONS.items():
        for name, why in functions.items():
            if hasattr(module, name):
                setattr(module, name, _wrapped(module, name, why, always=True))
    for module, functions in refusals.WITHOUT_ARGUMENTS.items():
        for name, why in functions.items():
            setattr(module, name, _wrapped(module, name, why, always=False))
    _guard_environment()
    sys.addaudithook(_audit)


def original_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """What stands behind a wrapper; anything else as it is."""
    return getattr(function, "__lantern_original__", function)


def is_watching() -> bool:
    """Whether guarded workflow code runs on this thread right now."""
    return getattr(_running(), "is_guarded", False)


def _wrapped(module: ModuleType, name: str, why: str, *, always: bool) -> Callable[..., Any]:
    original: Callable[..., Any] = getattr(module, name)
    what = f"{module.__name__}.{name}"

    @functools.wraps(original)
    def guarded(*args: Any, **named: Any) -> Any:
        if (always or not args) and getattr(_running(), "is_guarded", False):
            _refuse(what, why)
        return original(*args, **named)

    guarded.__lantern_original__ = original  # pyright: ignore[reportAttributeAccessIssue] - read by `original_of`
    return guarded


def _guard_environment() -> None:
    environment: Any = type(os.environ)
    read, iterate = environment.__getitem__, environment.__iter__

    def guarded_read(self: Any, key: Any) -> Any:
        if getattr(_running(), "is_guarded", False):
            _refuse("os.environ", refusals.ENVIRONMENT)
        return read(self, key)

    def guarded_iterate(self: Any) -> Iterator[Any]:
        if getattr(_running(), "is_guarded", False):
            _refuse("os.environ", refusals.ENVIRONMENT)
        return iterate(self)

    environment.__getitem__, environment.__iter__ = guarded_read, guarded_iterate


def _audit(event: str, args: tuple[Any, ...]) -> None:
    del args
    why = refusals.EVENTS.get(event)
    if why is not None and getattr(_running(), "is_guarded", False):
        _refuse(event, why)


def _refuse(what: str, why: str) -> None:
    """Raises NotReplayable, naming the line of the user's, unless a harmless part of the standard library asks."""
    frame: FrameType | None = sys._getframe(2)  # pyright: ignore[reportPrivateUsage] - who asks
    while frame is not None:
        filename = frame.f_code.co_filename
        part = part_of_stdlib(filename)
        if part in _HARMLESS or (is_ours(filename) and filename != __file__):
            return  # on its own account
        if not part and filename != __file__:
            raise refusals.refuse(what, why, f"{filename}:{frame.f_lineno}")
        frame = frame.f_back
    raise refusals.refuse(what, why, "")
