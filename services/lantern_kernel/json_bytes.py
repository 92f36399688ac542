"""User data as JSON bytes: encoding and checking, strict at the edge and exact ever after (RFC 8259, SPEC J4).

Refused, with the path of the fault: NaN and infinities, lone surrogates, nesting deeper than 64, keys that are not
strings, integers of more than 4,300 digits, more than the bytes allowed. Kept exactly: NUL, integers over 2^53, any
Unicode, repeated keys, the bytes themselves.

The path is told twice: `field` continues the name of the request's field (`input.items[3].price`), `path` begins at the
root of the JSON text (`$.items[3].price`).
"""

import json
import re
from typing import Any

from lantern_kernel import reasons
from lantern_kernel.bounds import JSON_DEPTH_MAX, PAYLOAD_BYTES_MAX
from lantern_kernel.errors import InvalidField

_INTEGER_BITS_MAX = 14_284
"""Just under 4,300 digits, what Python reads and writes by default (a bound against attacks by conversion time)."""

_PATH_CHARACTERS_MAX = 120
"""Of the path of a fault: its beginning says where to look."""

_SMALL = 2**63
LONE_SURROGATE = re.compile("[\ud800-\udfff]")

# Made once: `json.dumps` and `json.loads` with arguments would make them anew at each call, at a third of its cost.
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)

_Fault = tuple[str, str]
"""The path below where the search began, and what is wrong there."""

_TOO_DEEP: _Fault = ("", f"nested deeper than {JSON_DEPTH_MAX}")


def encode(value: Any, field: str, *, bytes_max: int = PAYLOAD_BYTES_MAX) -> bytes:
    """The compact JSON bytes of a Python value.

    Dataclass instances, tuples and other non-JSON types are the caller's to convert: what comes back from the journal
    is what JSON can say, so what goes in must be too (tuples become arrays).

    Raises:
        InvalidField: `field` + JSON path of the first thing that JSON cannot say, or the size.
    """
    _check(value, field)
    raw = _ENCODER.encode(value).encode()
    return _sized(raw, field, bytes_max)


def decode(raw: bytes, field: str, *, bytes_max: int = PAYLOAD_BYTES_MAX) -> Any:
    """The Python value of JSON bytes from outside; raises InvalidField as `encode` does."""
    _sized(raw, field, bytes_max)
    try:
        # Not json.loads(raw): it would take UTF-16 and UTF-32, too (RFC 8259, 8.1: UTF-8 alone).
        value = _STRICT.decode(_without_mark(raw.decode()))
    except _Constant as error:
        raise _invalid(field, (_path_of_constant(raw), f"{error} is no JSON value")) from None
    except UnicodeDecodeError as error:
        raise _invalid(field, ("", f"no UTF-8 at byte {error.start}")) from None
    except RecursionError:
        # The parser's own bound, far above ours.
        raise _invalid(field, _TOO_DEEP) from None
    except ValueError as error:
        raise _invalid(field, ("", f"no JSON: {error}")) from None
    _check(value, field)
    return value


def decode_recorded(raw: bytes) -> Any:
    """The Python value of bytes that `encode` made or `check` let through: the fast way, without looking again."""
    return json.loads(raw)


def check(raw: bytes, field: str, *, bytes_max: int = PAYLOAD_BYTES_MAX) -> bytes:
    """Returns `raw` unchanged where it is acceptable JSON; raises InvalidField as `decode` does."""
    decode(raw, field, bytes_max=bytes_max)
    return raw


def check_value(value: Any, field: str) -> None:
    """Raises InvalidField where a value that was parsed elsewhere holds what JSON cannot say."""
    _check(value, field)


class _Constant(Exception):
    """NaN, Infinity or -Infinity stood where a value belongs."""


class _TooDeep(Exception):
    """Arrays and objects are nested deeper than they may be."""


def _refuse_constant(name: str) -> Any:
    raise _Constant(name)


_STRICT = json.JSONDecoder(parse_constant=_refuse_constant)


def _without_mark(text: str) -> str:
    """As it is; `json.loads` refuses a byte order mark, and so do we."""
    if text.startswith("\ufeff"):
        raise ValueError("Unexpected UTF-8 BOM")
    return text


def _path_of_constant(raw: bytes) -> str:
    """The path of the first NaN or infinity, found by parsing once more with the constants let through as floats."""
    try:
        fault = _fault(json.loads(raw), 0)
    except _TooDeep:
        return ""
    return fault[0] if fault is not None else ""


def _sized(raw: bytes, field: str, bytes_max: int) -> bytes:
    if len(raw) > bytes_max:
        raise InvalidField(
            field,
            f"{len(raw)} bytes are more than the {bytes_max} allowed",
            reason=reasons.PAYLOAD_TOO_LARGE,
            size=len(raw),
            limit=bytes_max,
        )
    return raw


def _check(value: Any, field: str) -> None:
    try:
        fault = _fault(value, 0)
    except _TooDeep:
        # At the root: a path of 64 names would say less.
        raise _invalid(field, _TOO_DEEP) from None
    if fault is not None:
        raise _invalid(field, fault)


def _fault(value: Any, depth: int) -> _Fault | None:
    """The first thing in `value` that JSON cannot say; no path is put together where there is none."""
    match value:
        case None | bool():
            return None
        case int():
            if value.bit_length() > _INTEGER_BITS_MAX:
                return "", "an integer of more than 4300 digits"
        case str():
            if not value.isascii() and LONE_SURROGATE.search(value):
                return "", "a lone surrogate is no Unicode text"
        case float():
            if value - value != 0.0:
                return "", f"{value} is no JSON value"
        case list() | tuple():
            if depth >= JSON_DEPTH_MAX:
                raise _TooDeep
            return _fault_of_items(value, depth + 1)
        case dict():
            if depth >= JSON_DEPTH_MAX:
                raise _TooDeep
            return _fault_of_members(value, depth + 1)
        case _:
            return "", f"a {type(value).__name__} is nothing that JSON can say"
    return None


def _is_plain(item: Any) -> bool:
    """Whether an item is one of the many that need no closer look."""
    kind = type(item)
    return (kind is str and item.isascii()) or (kind is int and -_SMALL < item < _SMALL)


def _fault_of_items(items: "list[Any] | tuple[Any, ...]", depth: int) -> _Fault | None:
    for index, item in enumerate(items):
        if _is_plain(item):
            continue
        fault = _fault(item, depth)
        if fault is not None:
            return f"[{index}]{fault[0]}", fault[1]
    return None


def _fault_of_members(members: "dict[Any, Any]", depth: int) -> _Fault | None:
    for key, item in members.items():
        if not isinstance(key, str):
            return "", f"the key {key!r} is no string"
        if not key.isascii() and LONE_SURROGATE.search(key):
            return "", "a key holds a lone surrogate"
        if _is_plain(item):
            continue
        fault = _fault(item, depth)
        if fault is not None:
            return f".{key}{fault[0]}", fault[1]
    return None


def _invalid(field: str, fault: _Fault) -> InvalidField:
    path, message = fault
    at = _shortened("$" + path)
    return InvalidField(_shortened(field + path), f"{message} (at {at})", reason=reasons.INVALID_JSON, path=at)


def _shortened(path: str) -> str:
    return path if len(path) <= _PATH_CHARACTERS_MAX else path[: _PATH_CHARACTERS_MAX - 3] + "..."
