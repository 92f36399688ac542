"""What a row of the feed over all runs holds: which events one transaction wrote. Layout final; see feed.json.

Per run, in the order of the rows: run id (16 bytes, the UUID) | first seq u32 | events u16 | flags u8, big-endian.
Bit 0 of the flags: the last of these events ended the run.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from lantern_journal.domain.appends import Row
from lantern_journal.domain.feed_cursor import Cursor
from lantern_kernel import kinds
from lantern_kernel.event import Event

_ENTRY = struct.Struct(">16sIHB")
_TERMINAL = 1
ENTRY_BYTES = _ENTRY.size


class FeedEntry(NamedTuple):
    """Events of one run that went in together."""

    # The run.
    run_id: str
    # The place of the first.
    first_seq: int
    # How many.
    events: int
    # Whether the last one ended the run.
    is_terminal: bool


def entries_of(rows: Sequence[Row]) -> list[FeedEntry]:
    """The entries of rows whose runs stand together, each run's events dense and in order."""
    entries: list[FeedEntry] = []
    start = 0
    for end in range(1, len(rows) + 1):
        first = rows[start]
        if end < len(rows) and rows[end].run_id == first.run_id:
            continue
        assert rows[end - 1].seq - first.seq == end - 1 - start, "the events of a run are dense"
        entries.append(FeedEntry(first.run_id, first.seq, end - start, rows[end - 1].kind in kinds.TERMINAL))
        start = end
    return entries


def pack(entries: Sequence[FeedEntry]) -> bytes:
    """Entries as a feed row keeps them."""
    return b"".join(
        _ENTRY.pack(bytes.fromhex(run_id.replace("-", "")), first_seq, events, _TERMINAL if is_terminal else 0)
        for run_id, first_seq, events, is_terminal in entries
    )


def unpack(packed: bytes) -> Iterator[FeedEntry]:
    """The entries that a feed row keeps. Unknown flags are for readers to come."""
    for raw, first_seq, events, flags in _ENTRY.iter_unpack(packed):
        text = raw.hex()
        run_id = f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
        yield FeedEntry(run_id, first_seq, events, bool(flags & _TERMINAL))


@dataclass(frozen=True, kw_only=True, slots=True)
class FeedFilter:
    """What a reader wants of the feed."""

    # Only runs of this tenant; empty is all.
    tenant_id: str = ""
    # Only the events that end runs.
    terminal_only: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class FeedEvents:
    """Events of one run, in order of seq, as a reader of the feed gets them."""

    # The run.
    run_id: str
    # Its owner; empty where the run is no longer there.
    tenant_id: str
    # The place of the first.
    first_seq: int
    # How many were written; more than `events` holds where they are no longer in the database.
    written: int
    # Those that are.
    events: tuple[Event, ...]


@dataclass(frozen=True, kw_only=True, slots=True, weakref_slot=True, eq=False)
class FeedPage:
    """What came next, for all readers that stood at the same place."""

    # In the order of the feed; within a run dense, from page to page as well.
    entries: tuple[FeedEvents, ...]
    # Where the reader stands after it.
    cursor: Cursor
    # Whether nothing more was there.
    is_end: bool

    @property
    def size(self) -> int:
        """About how many bytes it holds."""
        return sum(EVENT_BYTES + len(event.payload) for entry in self.entries for event in entry.events)


EVENT_BYTES = 320
"""What an event takes besides its payload, at most nearly always."""


def chosen(page: FeedPage, wanted: FeedFilter) -> FeedPage:
    """What a reader wants of a page; the page itself where that is all of it."""
    entries = page.entries
    if wanted.tenant_id:
        entries = tuple(entry for entry in entries if entry.tenant_id == wanted.tenant_id)
    if wanted.terminal_only:
        entries = tuple(
            replace(entry, first_seq=entry.events[-1].seq, written=1, events=entry.events[-1:])
            for entry in entries
            if entry.events and entry.events[-1].kind in kinds.TERMINAL
        )
    return page if len(entries) == len(page.entries) and not wanted.terminal_only else replace(page, entries=entries)


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """Events of one run that a page is to hold."""

    # The run.
    run_id: str
    # The places of the first and of the last.
    first_seq: int
    last_seq: int
    # The row of the feed before that of this span; where that is the first, what the reader had read before.
    after_id: int
    # How many events of its row stand before this span.
    before: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """What the journal holds of a span."""

    # The run's owner.
    tenant_id: str
    # The sizes of its events by seq, bytes.
    sizes: Mapping[int, int]


def spans_of(rows: Sequence[tuple[int, bytes]], cursor: Cursor, *, terminal_only: bool) -> list[Span]:
    """What stands in feed rows, given as id and entries, that follow a cursor."""
    spans: list[Span] = []
    after_id, skip = cursor.after_id, cursor.skip
    for row_id, packed in rows:
        before = 0
        for run_id, first_seq, events, is_terminal in unpack(packed):
            last_seq = first_seq + events - 1
            from_seq = first_seq + max(0, skip - before)
            if terminal_only:
                from_seq = last_seq if is_terminal and from_seq <= last_seq else last_seq + 1
            if from_seq <= last_seq:
                at = before + from_seq - first_seq
                spans.append(Span(run_id=run_id, first_seq=from_seq, last_seq=last_seq, after_id=after_id, before=at))
            before += events
        after_id, skip = row_id, 0
    return spans


def cut(
    spans: Sequence[Span], found: Mapping[int, Found], cursor: Cursor, bytes_max: int, overhead: int
) -> tuple[list[Span], Cursor | None]:
    """The spans that a page has room for, the last one perhaps shortened, and where it ends; None: it holds them all.

    Args:
        spans: What is to be read.
        found: By index of the span, what is there of it; without an entry nothing is.
        cursor: Where the reader stands.
        bytes_max: Of a page, which holds at least one event all the same.
        overhead: What an event takes besides its payload.
    """
    taken: list[Span] = []
    total = 0
    for index, span in enumerate(spans):
        sizes = found[index].sizes if index in found else {}
        for seq in sorted(sizes):
            total += sizes[seq] + overhead
            if total > bytes_max and total > sizes[seq] + overhead:
                if seq > span.first_seq:
                    taken.append(replace(span, last_seq=seq - 1))
                return taken, cursor.at(span.after_id, span.before + seq - span.first_seq)
        taken.append(span)
    return taken, None
