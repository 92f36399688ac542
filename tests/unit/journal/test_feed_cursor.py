"""Goal: cursors survive their way through a token, garbled ones are refused; pages are cut where they must be.

Method: hypothesis over cursors and feed rows; a reader that goes on from every place where a page may end.
"""

import base64
import zlib
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lantern_journal.domain import feed, feed_cursor
from lantern_journal.domain.appends import Row
from lantern_journal.domain.feed import FeedEntry, Found
from lantern_journal.domain.feed_cursor import Cursor, Floor, Snapshot
from lantern_kernel import reasons
from lantern_kernel.errors import LanternError

NUMBERS = st.integers(0, 2**63 - 1)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    end = draw(NUMBERS)
    under_way = draw(st.sets(st.integers(max(0, end - 50), end - 1), max_size=9)) if end else set[int]()
    return Snapshot(end=end, under_way=tuple(sorted(under_way)))


@st.composite
def cursors(draw: st.DrawFn) -> Cursor:
    cursor = Cursor(database_id=draw(st.integers(0, 2**32 - 1)), base=draw(snapshots()))
    if draw(st.booleans()):
        return cursor
    begun = cursor.within(draw(snapshots()), from_id=draw(NUMBERS), upto_id=draw(NUMBERS))
    return begun.at(draw(NUMBERS), draw(st.integers(0, 2**20)))


@given(cursors())
def test_a_token_brings_its_cursor_back(cursor: Cursor) -> None:
    assert feed_cursor.from_token(feed_cursor.to_token(cursor)) == cursor


@given(cursors(), st.data())
def test_a_garbled_token_is_refused(cursor: Cursor, data: st.DataObject) -> None:
    raw = bytearray(base64.urlsafe_b64decode(feed_cursor.to_token(cursor)))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(LanternError) as refused:
        feed_cursor.from_token(base64.urlsafe_b64encode(raw).decode())
    assert refused.value.reason == reasons.FEED_CURSOR_INVALID


@given(st.binary(max_size=60))
def test_no_content_breaks_the_reader_of_tokens(content: bytes) -> None:
    raw = b"\x01" + content
    token = base64.urlsafe_b64encode(raw + zlib.crc32(raw).to_bytes(4, "big")).decode()
    try:
        cursor = feed_cursor.from_token(token)
    except LanternError:
        return
    assert feed_cursor.from_token(feed_cursor.to_token(cursor)) == cursor


@pytest.mark.parametrize("token", ["", "x", "=", "AQ==", "é", "A" * 100_000, "a b"])
def test_nonsense_is_refused(token: str) -> None:
    with pytest.raises(LanternError):
        feed_cursor.from_token(token)


def test_a_number_that_the_database_cannot_take_is_refused() -> None:
    with pytest.raises(LanternError) as refused:
        feed_cursor.from_token(feed_cursor.to_token(Cursor(database_id=1, base=Snapshot(end=2**63))))
    assert refused.value.reason == reasons.FEED_CURSOR_INVALID


def test_snapshots_are_ordered_by_what_they_saw() -> None:
    early, late = Snapshot(end=10, under_way=(7, 8)), Snapshot(end=10, under_way=(8,))
    assert late.is_later_than(early)
    assert not early.is_later_than(late)
    assert not late.is_later_than(late)
    assert Snapshot(end=11, under_way=(7, 8)).is_later_than(late)
    assert (early.begin, Snapshot(end=4).begin) == (7, 4)
    assert [early.saw(xid) for xid in (6, 7, 9, 10)] == [True, False, True, False]


def test_what_has_been_dropped_matters_only_to_those_who_had_not_read_it() -> None:
    now, floor = Snapshot(end=100), Floor(xid=50, id=500)
    before = Cursor(database_id=1, base=Snapshot(end=60, under_way=(49,)))
    reading = before.within(now, from_id=400, upto_id=900)
    feed_cursor.check(replace(before, base=Snapshot(end=50)), 1, now, floor)
    feed_cursor.check(reading.at(500), 1, now, floor)
    feed_cursor.check(feed_cursor.beginning(1, floor), 1, now, floor)
    for expired in (before, reading, reading.at(499)):
        with pytest.raises(LanternError) as refused:
            feed_cursor.check(expired, 1, now, floor)
        assert refused.value.reason == reasons.FEED_CURSOR_EXPIRED


def run_id(number: int) -> str:
    return f"0190b5f0-7e1a-7c3d-9a2b-{number:012x}"


def row(run: int, seq: int, kind: str = "step_started") -> Row:
    return Row(run_id(run), seq, kind, "", 0, 1, 0, b"", b"", b"", b"")


def test_entries_tell_runs_apart() -> None:
    rows = [row(1, 4), row(1, 5, "run_failed"), row(2, 1), row(3, 7, "run_parked")]
    assert feed.entries_of(rows) == [
        FeedEntry(run_id(1), 4, 2, is_terminal=True),
        FeedEntry(run_id(2), 1, 1, is_terminal=False),
        FeedEntry(run_id(3), 7, 1, is_terminal=False),
    ]
    assert feed.entries_of([]) == []


FEED_ROWS = st.lists(st.lists(st.tuples(st.integers(1, 4), st.booleans()), min_size=1, max_size=3), max_size=5)


@given(FEED_ROWS, st.integers(1, 60), st.booleans())
def test_pages_joined_are_the_whole(drawn: list[list[tuple[int, bool]]], bytes_max: int, terminal_only: bool) -> None:
    """Whatever a page has room for, going on from its end gives exactly the rest."""
    heads: dict[int, int] = {}
    rows: list[tuple[int, bytes]] = []
    expected: list[tuple[str, int]] = []
    for index, entries in enumerate(drawn, start=1):
        packed: list[FeedEntry] = []
        for run, (events, is_terminal) in enumerate(entries):
            first = heads.get(run, 0) + 1
            heads[run] = first + events - 1
            packed.append(FeedEntry(run_id(run), first, events, is_terminal))
            last = range(heads[run], heads[run] + is_terminal)
            expected += [(run_id(run), seq) for seq in (last if terminal_only else range(first, heads[run] + 1))]
        rows.append((index * 10, feed.pack(packed)))
    end = Snapshot(end=9)
    cursor: Cursor | None = Cursor(database_id=0, base=end).within(end, from_id=0, upto_id=99)
    read: list[tuple[str, int]] = []
    places: list[tuple[int, int]] = [(-1, 0)]
    while cursor is not None:
        here = cursor
        left = [(row_id, packed) for row_id, packed in rows if row_id > here.after_id]
        spans = feed.spans_of(left, cursor, terminal_only=terminal_only)
        found = {
            i: Found(tenant_id="t", sizes={seq: seq % 7 for seq in range(span.first_seq, span.last_seq + 1)})
            for i, span in enumerate(spans)
        }
        taken, cursor = feed.cut(spans, found, here, bytes_max, 10)
        assert taken or not spans
        read += [(span.run_id, seq) for span in taken for seq in range(span.first_seq, span.last_seq + 1)]
        if cursor is not None:
            places.append((cursor.after_id, cursor.skip))
    assert read == expected
    assert all(before < after for before, after in pairwise(places))
