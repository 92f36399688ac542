"""What a row of the feed over all runs holds: which events one transaction wrote. Layout final; see feed.json.

Per run, in the order of the rows: run id (16 bytes, the UUID) | first seq u32 | events u16 | flags u8, big-endian.
Bit 0 of the flags: the last of these events ended the run.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from lantern_journal.domain.appends import Row
from lantern_kernel import kinds

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
