"""User data as JSON bytes: encoding and checking, strict at the edge and exact ever after (RFC 8259, SPEC J4).

Refused, with the path of the fault: NaN and infinities, lone surrogates, nesting deeper than 64, keys that are not
strings, integers of more than 4,300 digits, more than the bytes allowed. Kept exactly: NUL, integers over 2^53, any
Unicode, the bytes themselves.
"""

import json
import re
from typing import Any

from lantern_kernel import reasons
from lantern_kernel.bounds import JSON_DEPTH_MAX, PAYLOAD_INLINE_BYTES_MAX
from lantern_kernel.errors import InvalidField

_INTEGER_BITS_MAX = 14_284
"""Just under 4,300 digits, what Python reads and writes by default (a bound against attacks by conversion time)."""

_PATH_CHARACTERS_MAX = 120
"""Of the path of a fault: its beginning says where to look."""

LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def encode(value: Any, field: str, *, bytes_max: int = PAYLOAD_INLINE_BYTES_MAX) -> bytes:
    """The compact JSON bytes of a Python value.

    Dataclass instances, tuples and other non-JSON types are the caller's to convert: what comes back from the journal
    is what JSON can say, so what goes in must be too (tuples become arrays).

    Raises:
        InvalidField: `field` + JSON path of the first thing that JSON cannot say, or the size.
    """
    _check(value, field, 0)
    raw = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    return _sized(raw, field, bytes_max)


def decode(raw: bytes, field: str, *, bytes_max: int = PAYLOAD_INLINE_BYTES_MAX) -> Any:
    """The Python value of JSON bytes from outside; raises InvalidField as `encode` does."""
    _sized(raw, field, bytes_max)
    # A cheap bound before the parser recurses: more opening brackets than allowed is not yet deep, so parse then.
    if raw.count(b"[") + raw.count(b"{") > JSON_DEPTH_MAX and _depth(raw) > JSON_DEPTH_MAX:
        raise _invalid(field, f"nested deeper than {JSON_DEPTH_MAX}")
    try:
        # Not json.loads(raw): it would take UTF-16 and UTF-32, too (RFC 8259, 8.1: UTF-8 alone).
        value = json.loads(raw.decode(), parse_constant=_refuse_constant)
    except _Constant as error:
        raise _invalid(_path_of_constant(raw, field), f"{error} is no JSON value") from None
    except UnicodeDecodeError as error:
        raise _invalid(field, f"no UTF-8 at byte {error.start}") from None
    except ValueError as error:
        raise _invalid(field, f"no JSON: {error}") from None
    _check(value, field, 0)
    return value


def decode_recorded(raw: bytes) -> Any:
    """The Python value of bytes that `encode` made or `check` let through: the fast way, without looking again."""
    return json.loads(raw)


def check(raw: bytes, field: str, *, bytes_max: int = PAYLOAD_INLINE_BYTES_MAX) -> bytes:
    """Returns `raw` unchanged where it is acceptable JSON; raises InvalidField as `decode` does."""
    decode(raw, field, bytes_max=bytes_max)
    return raw


class _Constant(Exception):
    """NaN, Infinity or -Infinity stood where a value belongs."""


def _refuse_constant(name: str) -> Any:
    raise _Constant(name)


def _path_of_constant(raw: bytes, field: str) -> str:
    """The path of the first NaN or infinity, found by parsing once more with the constants let through as floats."""
    try:
        _check(json.loads(raw), field, 0)
    except InvalidField as error:
        return error.details["field"]
    return field


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


def _depth(raw: bytes) -> int:
    """How deep the brackets outside strings nest, without recursion."""
    depth = deepest = 0
    in_string = escaped = False
    for byte in raw:
        if in_string:
            if escaped:
                escaped = False
            elif byte == 0x5C:
                escaped = True
            elif byte == 0x22:
                in_string = False
        elif byte == 0x22:
            in_string = True
        elif byte in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b"]}":
            depth -= 1
    return deepest


def _check(value: Any, path: str, depth: int) -> None:
    """Raises InvalidField with the path of the first thing in `value` that JSON cannot say."""
    match value:
        case None | bool():
            return
        case int():
            if value.bit_length() > _INTEGER_BITS_MAX:
                raise _invalid(path, "an integer of more than 4300 digits")
        case str():
            if LONE_SURROGATE.search(value):
                raise _invalid(path, "a lone surrogate is no Unicode text")
        case float():
            if value - value != 0.0:
                raise _invalid(path, f"{value} is no JSON value")
        case list() | tuple():
            _check_depth(path, depth)
            for index, item in enumerate(value):
                _check(item, f"{path}[{index}]", depth + 1)
        case dict():
            _check_depth(path, depth)
            for key, item in value.items():
                if not isinstance(key, str):
                    raise _invalid(path, f"the key {key!r} is no string")
                if LONE_SURROGATE.search(key):
                    raise _invalid(path, "a key holds a lone surrogate")
                _check(item, f"{path}.{key}", depth + 1)
        case _:
            raise _invalid(path, f"a {type(value).__name__} is nothing that JSON can say")


def _check_depth(path: str, depth: int) -> None:
    if depth >= JSON_DEPTH_MAX:
        raise _invalid(path, f"nested deeper than {JSON_DEPTH_MAX}")


def _invalid(path: str, message: str) -> InvalidField:
    shown = path if len(path) <= _PATH_CHARACTERS_MAX else path[: _PATH_CHARACTERS_MAX - 3] + "..."
    return InvalidField(shown, message, reason=reasons.INVALID_JSON)
