"""Columns as PostgreSQL arrays in the binary format, made by hand.

The driver looks at each value for its type and size; here the column says them. For a group of steps that is a sixth of
what the journal's process has to do. Format (array_recv in arrayfuncs.c): dimensions, whether there are NULLs, the
elements' type, length, lower bound; then each element's length and bytes; all integers big-endian.
"""

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import psycopg
from psycopg.adapt import Dumper
from psycopg.pq import Format

_HEADER = struct.Struct(">iiIii")
_LENGTHS = tuple(struct.pack(">i", length) for length in range(1024))
_TEXT, _BYTEA, _INT4, _INT8, _BOOL = 25, 17, 23, 20, 16
"""Types as pg_type numbers them."""

_TYPES: dict[str, tuple[int, Callable[[Any], bytes]]] = {
    "text": (_TEXT, str.encode),
    "bytea": (_BYTEA, bytes),
    "int": (_INT4, struct.Struct(">i").pack),
    "bigint": (_INT8, struct.Struct(">q").pack),
    "bool": (_BOOL, struct.Struct(">?").pack),
}
_NULL = struct.pack(">i", -1)


class BinaryArray(bytes):
    """An array as the server takes it; the statement says its type by a cast."""


class _AsItIs(Dumper):
    format = Format.BINARY

    def dump(self, obj: Any) -> bytes:
        return obj


# For every connection, since the pool and the groups' own one insert events alike.
psycopg.adapters.register_dumper(BinaryArray, _AsItIs)


def texts(values: Sequence[str]) -> BinaryArray:
    """text[]."""
    return _of_bytes(_TEXT, [value.encode() for value in values])


def byteas(values: Sequence[bytes]) -> BinaryArray:
    """bytea[]."""
    return _of_bytes(_BYTEA, values)


def int4s(values: Sequence[int]) -> BinaryArray:
    """int4[]; raises struct.error where one does not fit."""
    return _of_integers(_INT4, 4, values)


def int8s(values: Sequence[int]) -> BinaryArray:
    """int8[]; raises struct.error where one does not fit."""
    return _of_integers(_INT8, 8, values)


def column(kind: str, values: Sequence[object]) -> BinaryArray:
    """An array of any of the types that the tables have, with NULLs where there are any; slower than the others."""
    number, encode = _TYPES[kind]
    parts = [_HEADER.pack(1, int(None in values), number, len(values), 1)]
    for value in values:
        if value is None:
            parts.append(_NULL)
        else:
            encoded = encode(value)
            parts += [struct.pack(">i", len(encoded)), encoded]
    return BinaryArray(b"".join(parts))


def _of_bytes(kind: int, values: Sequence[bytes]) -> BinaryArray:
    parts = [_HEADER.pack(1, 0, kind, len(values), 1)] * (2 * len(values) + 1)
    parts[1::2] = [_LENGTHS[n] if (n := len(value)) < 1024 else struct.pack(">i", n) for value in values]
    parts[2::2] = values
    return BinaryArray(b"".join(parts))


def _of_integers(kind: int, size: int, values: Sequence[int]) -> BinaryArray:
    fields = [size] * (2 * len(values))
    fields[1::2] = values
    return BinaryArray(_HEADER.pack(1, 0, kind, len(values), 1) + _elements(size, len(values)).pack(*fields))


@lru_cache(maxsize=2048)
def _elements(size: int, count: int) -> struct.Struct:
    return struct.Struct(">" + ("ii" if size == 4 else "iq") * count)
