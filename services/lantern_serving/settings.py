"""Reading `LANTERN_*` settings: each service has one frozen object, read once in its `__main__`.

A value that cannot be read is an error that names the variable; a variable that no setting has is a warning with the
nearest known name.
"""

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from lantern_kernel import durations
from lantern_kernel.errors import InvalidField

PREFIX = "LANTERN_"

T = TypeVar("T")


def duration_s(environment: Mapping[str, str], name: str, default_s: float) -> float:
    """Seconds of a Go duration (`45s`); `default_s` where it is not set."""
    return _read(environment, name, default_s, durations.parse_duration_s)


def integer(environment: Mapping[str, str], name: str, default: int) -> int:
    """A whole number; `default` where it is not set."""
    return _read(environment, name, default, int)


def text(environment: Mapping[str, str], name: str, default: str) -> str:
    """A text; `default` where it is not set."""
    return _read(environment, name, default, str)


def flag(environment: Mapping[str, str], name: str) -> bool:
    """True for 1, true, yes, on; false for 0, false, no, off and where it is not set."""
    return _read(environment, name, False, _flag)


def unknown_settings(environment: Mapping[str, str], known: Iterable[str]) -> list[str]:
    """A sentence for each `LANTERN_*` variable that is not known."""
    names = sorted(known)
    found = sorted(name for name in environment if name.startswith(PREFIX) and name not in names)
    return [_hint(name, names) for name in found]


def _hint(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"{name} is no setting" + (f"; did you mean {near[0]}?" if near else "")


def _flag(raw: str) -> bool:
    lowered = raw.strip().lower()
    if lowered in {"1", "true", "yes", "on"}:
        return True
    if lowered in {"0", "false", "no", "off", ""}:
        return False
    raise ValueError(f"{raw!r} is neither true nor false")


def _read(environment: Mapping[str, str], name: str, default: T, parse: Callable[[str], T]) -> T:
    raw = environment.get(name)
    if raw is None or not raw.strip():
        return default
    try:
        return parse(raw)
    except ValueError as error:
        raise InvalidField(name, str(error)) from None
