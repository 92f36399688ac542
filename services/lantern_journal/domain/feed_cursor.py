"""Where a reader of the feed stands, and why it misses nothing (docs/adr/0013-the-feed-is-read-by-snapshots.md).

Positions do not do: the row with the lower id may be committed later. A cursor therefore names two snapshots of the
database. Rows that the target saw and the base did not are read in the order of their ids; after the last one the
target becomes the base, and a new target is taken. What is committed later than the target, whatever its id, comes in
the next round. On SQLite, which has one writer, the ids themselves stand for transactions, and none is ever under way.
"""

import base64
import binascii
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

from lantern_kernel import reasons
from lantern_kernel.bounds import SEQ_MAX
from lantern_kernel.errors import LanternError

TOKEN_LENGTH_MAX = 65_536
"""Of a cursor as text: room for several thousand transactions under way."""

_VERSION = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """Which transactions had ended at a moment."""

    # Transactions from this id on had not begun.
    end: int
    # Those below that were still under way, ascending.
    under_way: tuple[int, ...] = ()

    @property
    def begin(self) -> int:
        """All transactions below this id had ended."""
        return self.under_way[0] if self.under_way else self.end

    def saw(self, xid: int) -> bool:
        """Whether what that transaction wrote was visible, where it was committed at all."""
        return xid < self.end and xid not in self.under_way

    def is_later_than(self, other: "Snapshot") -> bool:
        """Whether it saw more than another of the same database."""
        return self.end > other.end or (self.end == other.end and len(self.under_way) < len(other.under_way))


@dataclass(frozen=True, kw_only=True, slots=True)
class Cursor:
    """Where a reader stands. All rows of the feed that `base` saw lie behind it."""

    # Which database: the ids of another one's transactions mean nothing here. 0 where it does not say.
    database_id: int
    # What it has read whole.
    base: Snapshot
    # What it is reading up to; None between two rounds. The fields below matter only within a round.
    target: Snapshot | None = None
    # The rows of the round that are new since the base have ids above this one.
    from_id: int = 0
    # No row of the round has an id above this one.
    upto_id: int = 0
    # The last row of the round that it has read whole.
    after_id: int = 0
    # How many events of the next row it has read.
    skip: int = 0

    def within(self, target: Snapshot, *, from_id: int, upto_id: int, after_id: int = 0) -> "Cursor":
        """At the beginning of a round."""
        return replace(self, target=target, from_id=from_id, upto_id=upto_id, after_id=after_id, skip=0)

    def at(self, after_id: int, skip: int = 0) -> "Cursor":
        """Further on in its round."""
        return replace(self, after_id=after_id, skip=skip)

    def after_round(self) -> "Cursor":
        """At the end of its round."""
        assert self.target is not None, "a round has a target"
        return Cursor(database_id=self.database_id, base=self.target)


def to_token(cursor: Cursor) -> str:
    """A cursor as an opaque text."""
    raw = bytearray([_VERSION])
    _put(raw, cursor.database_id)
    _put_snapshot(raw, cursor.base)
    raw.append(cursor.target is not None)
    if cursor.target is not None:
        _put_snapshot(raw, cursor.target)
        for number in (cursor.from_id, cursor.upto_id, cursor.after_id, cursor.skip):
            _put(raw, number)
    raw += zlib.crc32(raw).to_bytes(4, "big")
    return base64.urlsafe_b64encode(raw).decode()


def from_token(token: str) -> Cursor:
    """The cursor that a text names; FEED_CURSOR_INVALID where it is none of ours."""
    try:
        raw = base64.b64decode(token.encode(), altchars=b"-_", validate=True)
        if len(token) > TOKEN_LENGTH_MAX or zlib.crc32(raw[:-4]).to_bytes(4, "big") != raw[-4:] or raw[0] != _VERSION:
            raise ValueError
        content = iter(raw[1:-4])
        cursor = Cursor(database_id=_take(content), base=_take_snapshot(content))
        if next(content):
            target = _take_snapshot(content)
            from_id, upto_id, after_id, skip = (_take(content) for _ in range(4))
            cursor = cursor.within(target, from_id=from_id, upto_id=upto_id).at(after_id, skip)
        if next(content, None) is not None:
            raise ValueError
    except (binascii.Error, UnicodeError, ValueError, IndexError, StopIteration, RuntimeError):
        raise invalid("it is none that this service has given") from None
    return cursor


@dataclass(frozen=True, kw_only=True, slots=True)
class Floor:
    """How far the feed has been dropped: its oldest rows, in the order of their ids."""

    # No transaction from this id on has been dropped.
    xid: int = 0
    # The last row that has been dropped.
    id: int = 0


def check(cursor: Cursor, database_id: int, now: Snapshot, floor: Floor) -> None:
    """Refuses a cursor of another database, of a future that this one never had, or of a past that it has dropped.

    Args:
        cursor: What a reader brought.
        database_id: Of this database; 0 where it does not say.
        now: What is visible now.
        floor: What has been dropped.
    """
    if database_id and cursor.database_id and cursor.database_id != database_id:
        raise invalid("it belongs to another database")
    furthest = cursor.target or cursor.base
    if furthest.end > now.end:
        raise invalid("it is ahead of this database, which was set back or is another one")
    if cursor.base.begin < floor.xid and cursor.after_id < floor.id:
        raise LanternError(
            reasons.FEED_CURSOR_EXPIRED,
            "what follows this cursor has been dropped from the feed; begin at the beginning, or with what is new now",
            field="cursor",
        )


def invalid(why: str) -> LanternError:
    """A cursor that this database cannot go on from."""
    return LanternError(
        reasons.FEED_CURSOR_INVALID,
        f"this cursor cannot be followed: {why}; begin at the beginning and pass over what you have",
        field="cursor",
    )


def beginning(database_id: int, floor: Floor) -> Cursor:
    """Where a reader begins that wants everything that is still there."""
    return Cursor(database_id=database_id, base=Snapshot(end=floor.xid))


def _put(raw: bytearray, number: int) -> None:
    """LEB128: seven bits a byte, the lowest first."""
    while number >= 128:
        raw.append(number & 127 | 128)
        number >>= 7
    raw.append(number)


def _take(content: Iterator[int]) -> int:
    number = shift = 0
    while True:
        byte = next(content)
        number |= (byte & 127) << shift
        if number > SEQ_MAX:
            raise ValueError
        if byte < 128:
            return number
        shift += 7


def _put_snapshot(raw: bytearray, snapshot: Snapshot) -> None:
    _put(raw, snapshot.end)
    _put(raw, len(snapshot.under_way))
    for xid in snapshot.under_way:
        _put(raw, snapshot.end - xid)


def _take_snapshot(content: Iterator[int]) -> Snapshot:
    end = _take(content)
    under_way = tuple(end - _take(content) for _ in range(_take(content)))
    if list(under_way) != sorted(set(under_way)) or (under_way and not 0 <= under_way[0] <= under_way[-1] < end):
        raise ValueError
    return Snapshot(end=end, under_way=under_way)
