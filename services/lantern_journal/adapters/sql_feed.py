"""The feed over all runs in SQL: pages between two snapshots, dropping what is old, the cursors of named consumers.

On SQLite a row's id stands for its transaction: there is one writer, so ids are in the order of the commits.
"""

import json
import zlib
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

import sqlalchemy as sa

from lantern_journal.adapters.schema import EVENT_COLUMNS, feed_consumers, journal_marks
from lantern_journal.adapters.sql_events import Transaction
from lantern_journal.domain import feed, feed_cursor
from lantern_journal.domain.appends import Row, event_of
from lantern_journal.domain.feed import FeedEvents, FeedFilter, FeedPage, Found, Span
from lantern_journal.domain.feed_cursor import Cursor, Floor, Snapshot
from lantern_kernel import reasons
from lantern_kernel.bounds import PAGE_BYTES_MAX, PAGE_ROWS_MAX
from lantern_kernel.errors import LanternError

ROWS_MAX = 256
"""Rows of the feed in a page."""

TERMINAL_ROWS_MAX = 4_096
"""Where only the events that end runs are wanted: few of the rows hold one."""

FLOOR_XID, FLOOR_ID = "feed_floor_xid", "feed_floor_id"
"""Marks: how far the feed has been dropped."""

_NONE = 2**63 - 1
"""No transaction has an id that high."""

_POSTGRES_ROUND = sa.text(
    # `id + 0`: by the index on xid, which begins at what is new, not by that on id, which begins at the oldest row.
    "SELECT pg_current_snapshot()::text AS now, (SELECT max(id) FROM journal_feed) AS upto_id,"
    " CASE WHEN :begin <= coalesce((SELECT value FROM journal_marks WHERE name = 'feed_floor_xid'), 0) THEN 1"
    " ELSE (SELECT min(id + 0) FROM journal_feed WHERE xid >= :begin) END AS from_id"
)
_SQLITE_ROUND = sa.text(
    "SELECT (SELECT max(id) FROM journal_feed) AS upto_id, value AS floor_id"
    " FROM (SELECT 1) LEFT JOIN journal_marks ON name = 'feed_floor_id'"
)
_POSTGRES_ROWS = sa.text(
    # Two parts, an index for each: those that were under way at the base, and those that had not begun.
    "SELECT id, entries FROM ("
    "(SELECT id, entries FROM journal_feed WHERE xid = ANY(CAST(:late AS bigint[])) AND id > :after"
    " ORDER BY id LIMIT :most) UNION ALL "
    "(SELECT id, entries FROM journal_feed WHERE id > greatest(:after, :from_id) AND id <= :upto_id"
    " AND xid + 0 >= :begin AND xid + 0 < :end AND xid <> ALL(CAST(:under_way AS bigint[])) ORDER BY id LIMIT :most)"
    ") AS found ORDER BY id LIMIT :most"
)
_SQLITE_ROWS = sa.text(
    "SELECT id, entries FROM journal_feed WHERE id > :after AND id >= :begin AND id < :end ORDER BY id LIMIT :most"
)
_POSTGRES_SIZES = sa.text(
    "SELECT s.number - 1 AS number, r.tenant_id, e.seq, e.size"
    " FROM unnest(CAST(:runs AS text[]), CAST(:firsts AS bigint[]), CAST(:lasts AS bigint[]))"
    " WITH ORDINALITY AS s(run_id, first_seq, last_seq, number)"
    " LEFT JOIN LATERAL (SELECT tenant_id FROM runs WHERE runs.run_id = s.run_id LIMIT 1) r ON true"
    " LEFT JOIN LATERAL (SELECT seq, length(payload) AS size FROM journal_events e WHERE e.run_id = s.run_id"
    " AND e.seq BETWEEN s.first_seq AND s.last_seq ORDER BY e.seq) e ON true"
    " WHERE :tenant = '' OR r.tenant_id = :tenant"
)
_SPANS = (
    "SELECT key AS number, json_extract(value, '$[0]') AS run_id, json_extract(value, '$[1]') AS first_seq,"
    " json_extract(value, '$[2]') AS last_seq FROM json_each(:spans)"
)
_SQLITE_SIZES = sa.text(
    f"SELECT s.number, r.tenant_id, e.seq, length(e.payload) AS size FROM ({_SPANS}) s"
    " LEFT JOIN runs r ON r.run_id = s.run_id"
    " LEFT JOIN journal_events e ON e.run_id = s.run_id AND e.seq BETWEEN s.first_seq AND s.last_seq"
    " WHERE :tenant = '' OR r.tenant_id = :tenant"
)
_NAMES = ", ".join(f"e.{name}" for name in EVENT_COLUMNS)
_POSTGRES_EVENTS = sa.text(
    f"SELECT s.number - 1 AS number, {_NAMES}"
    " FROM unnest(CAST(:runs AS text[]), CAST(:firsts AS bigint[]), CAST(:lasts AS bigint[]))"
    " WITH ORDINALITY AS s(run_id, first_seq, last_seq, number)"
    " CROSS JOIN LATERAL (SELECT * FROM journal_events e WHERE e.run_id = s.run_id"
    " AND e.seq BETWEEN s.first_seq AND s.last_seq ORDER BY e.seq) e ORDER BY s.number, e.seq"
)
_SQLITE_EVENTS = sa.text(
    f"SELECT s.number, {_NAMES} FROM ({_SPANS}) s CROSS JOIN journal_events e"
    " ON e.run_id = s.run_id AND e.seq BETWEEN s.first_seq AND s.last_seq ORDER BY s.number, e.seq"
)


def database_id(connection: sa.Connection) -> int:
    """Tells this PostgreSQL database from others, as long as it may be asked; 0 where it may not, and on SQLite."""
    if not _is_postgres(connection):
        return 0
    may_ask = "SELECT has_function_privilege('pg_control_system()', 'EXECUTE')"
    if not connection.execute(sa.text(may_ask)).scalar():
        return 0
    ask = "SELECT system_identifier, (SELECT oid FROM pg_database WHERE datname = current_database())"
    server, oid = connection.execute(sa.text(f"{ask} FROM pg_control_system()")).one()
    return zlib.crc32(f"{server}/{oid}".encode())


def snapshot_of(text: str) -> Snapshot:
    """What PostgreSQL writes as xmin:xmax:xip,..."""
    _, end, under_way = text.split(":")
    return Snapshot(end=int(end), under_way=tuple(sorted(map(int, filter(None, under_way.split(","))))))


def begin_feed(connection: sa.Connection, of_database: int, *, at_beginning: bool) -> Cursor:
    """A cursor before everything that is still there, or after everything that is there now."""
    if at_beginning:
        return feed_cursor.beginning(of_database, _floor(connection))
    now, _, _ = _look(connection, _NONE)
    return Cursor(database_id=of_database, base=now)


def read_feed(
    connection: sa.Connection, of_database: int, cursor: Cursor, wanted: FeedFilter, until: Snapshot | None
) -> FeedPage:
    """The page after a cursor; a new round goes up to `until`, where that is later than what the cursor has seen."""
    now, upto_id, from_id = _look(connection, cursor.base.end if cursor.target is None else _NONE)
    given = cursor
    if cursor.target is None:
        target = until if until is not None and until.is_later_than(cursor.base) else now
        cursor = cursor.within(target, from_id=max(0, from_id - 1), upto_id=upto_id)
    most = TERMINAL_ROWS_MAX if wanted.terminal_only else ROWS_MAX
    rows = _rows(connection, cursor, most)
    # Looked at after the rows: whatever had been dropped before they were read is known by now.
    feed_cursor.check(given, of_database, now, _floor(connection))
    is_all = len(rows) < most
    kept = _with_room(rows, terminal_only=wanted.terminal_only)
    is_all = is_all and len(kept) == len(rows)
    spans = feed.spans_of(kept, cursor, terminal_only=wanted.terminal_only)
    found = _sizes(connection, spans, wanted.tenant_id) if spans else {}
    taken, end = feed.cut(spans, found, cursor, PAGE_BYTES_MAX, feed.EVENT_BYTES)
    if end is None:
        end = cursor.after_round() if is_all else cursor.at(kept[-1][0])
    return FeedPage(entries=_read(connection, taken, found), cursor=end, is_end=end.target is None)


def read_rows(connection: sa.Connection, of_database: int, cursor: Cursor) -> tuple[list[tuple[int, bytes]], Cursor]:
    """The rows after a cursor, id and entries, without their events; and where they end."""
    now, upto_id, from_id = _look(connection, cursor.base.end if cursor.target is None else _NONE)
    within = cursor
    if cursor.target is None:
        within = cursor.within(now, from_id=max(0, from_id - 1), upto_id=upto_id)
    rows = list(_rows(connection, within, TERMINAL_ROWS_MAX))
    feed_cursor.check(cursor, of_database, now, _floor(connection))
    return rows, within.at(rows[-1][0]) if len(rows) == TERMINAL_ROWS_MAX else within.after_round()


def _is_postgres(connection: sa.Connection) -> bool:
    return connection.dialect.name == "postgresql"


def _look(connection: sa.Connection, begin: int) -> tuple[Snapshot, int, int]:
    """What is visible now, the last id of that, and the first id that transactions from `begin` on have written."""
    if _is_postgres(connection):
        found = connection.execute(_POSTGRES_ROUND, {"begin": begin}).one()
        upto_id = found.upto_id or 0
        return snapshot_of(found.now), upto_id, upto_id + 1 if found.from_id is None else found.from_id
    found = connection.execute(_SQLITE_ROUND).one()
    upto_id = max(found.upto_id or 0, found.floor_id or 0)
    return Snapshot(end=upto_id + 1), upto_id, begin


def _floor(connection: sa.Connection) -> Floor:
    query = sa.select(journal_marks.c.name, journal_marks.c.value).where(
        journal_marks.c.name.in_([FLOOR_XID, FLOOR_ID])
    )
    marks: dict[str, int] = {row.name: row.value for row in connection.execute(query)}
    return Floor(xid=marks.get(FLOOR_XID, 0), id=marks.get(FLOOR_ID, 0))


def _rows(connection: sa.Connection, cursor: Cursor, most: int) -> Sequence[tuple[int, bytes]]:
    """The rows of a round after a cursor: id and entries."""
    target = cursor.target
    assert target is not None, "rows are read within a round"
    values: dict[str, Any] = {"after": cursor.after_id, "begin": cursor.base.end, "end": target.end, "most": most}
    if not _is_postgres(connection):
        return [(row.id, row.entries) for row in connection.execute(_SQLITE_ROWS, values)]
    values |= {
        "late": [xid for xid in cursor.base.under_way if target.saw(xid)],
        "from_id": cursor.from_id,
        "upto_id": cursor.upto_id,
        "under_way": list(target.under_way),
    }
    return [(row.id, row.entries) for row in connection.execute(_POSTGRES_ROWS, values)]


def _with_room(rows: Sequence[tuple[int, bytes]], *, terminal_only: bool) -> Sequence[tuple[int, bytes]]:
    """The first rows that hold no more events than a page may, but at least one."""
    if terminal_only:
        return rows
    total = 0
    for index, (_, packed) in enumerate(rows):
        total += sum(entry.events for entry in feed.unpack(packed))
        if index and total > PAGE_ROWS_MAX:
            return rows[:index]
    return rows


def _values(connection: sa.Connection, spans: Sequence[Span]) -> dict[str, Any]:
    if _is_postgres(connection):
        return {
            "runs": [span.run_id for span in spans],
            "firsts": [span.first_seq for span in spans],
            "lasts": [span.last_seq for span in spans],
        }
    return {"spans": json.dumps([(span.run_id, span.first_seq, span.last_seq) for span in spans])}


def _sizes(connection: sa.Connection, spans: Sequence[Span], tenant_id: str) -> dict[int, Found]:
    query = _POSTGRES_SIZES if _is_postgres(connection) else _SQLITE_SIZES
    owners: dict[int, str] = {}
    sizes: dict[int, dict[int, int]] = {}
    for row in connection.execute(query, {**_values(connection, spans), "tenant": tenant_id}):
        owners[row.number] = row.tenant_id or ""
        of_span = sizes.setdefault(row.number, {})
        if row.seq is not None:
            of_span[row.seq] = row.size
    return {number: Found(tenant_id=owners[number], sizes=sizes[number]) for number in owners}


def _read(connection: sa.Connection, spans: Sequence[Span], found: dict[int, Found]) -> tuple[FeedEvents, ...]:
    """The events of spans; those of other tenants were not found."""
    wanted = [index for index in range(len(spans)) if index in found]
    if not wanted:
        return ()
    query = _POSTGRES_EVENTS if _is_postgres(connection) else _SQLITE_EVENTS
    rows: dict[int, list[Row]] = {}
    for row in connection.execute(query, _values(connection, [spans[index] for index in wanted])):
        rows.setdefault(row[0], []).append(Row(*row[1:]))
    return tuple(
        FeedEvents(
            run_id=spans[index].run_id,
            tenant_id=found[index].tenant_id,
            first_seq=spans[index].first_seq,
            written=spans[index].last_seq - spans[index].first_seq + 1,
            events=tuple(map(event_of, rows.get(number, ()))),
        )
        for number, index in enumerate(wanted)
    )


def trim_feed(tx: Transaction, before_us: int, most: int) -> int:
    """Drops the oldest rows of the feed, those before a time, at most so many; how many."""
    connection = tx.connection
    ended = snapshot_of(connection.execute(_SNAPSHOT).scalar_one()).begin if _is_postgres(connection) else None
    oldest = connection.execute(_OLDEST, {"most": most}).all()
    if (
        ended is not None
        and oldest
        and oldest[0].xid == 0
        and connection.execute(_RESTORED_US).scalar_one() >= before_us
    ):
        # They share one id, below which the floor lies or above: only all of them can be dropped.
        return 0
    old = list(takewhile(lambda row: row.time_us < before_us and (ended is None or row.xid < ended), oldest))
    if not old:
        return 0
    xid = max(row.xid for row in old) + 1 if ended is not None else old[-1].id + 1
    for name, value in ((FLOOR_XID, xid), (FLOOR_ID, old[-1].id)):
        connection.execute(_RAISE_MARK, {"name": name, "value": value})
    connection.execute(_DROP, {"last": old[-1].id, "xid": xid})
    return len(old)


_RESTORED_US = sa.text("SELECT max(time_us) FROM journal_feed WHERE xid = 0")
_SNAPSHOT = sa.text("SELECT pg_current_snapshot()::text")
_OLDEST = sa.text("SELECT id, xid, time_us FROM journal_feed ORDER BY id LIMIT :most")
_DROP = sa.text("DELETE FROM journal_feed WHERE id <= :last AND xid < :xid")
_RAISE_MARK = sa.text(
    "INSERT INTO journal_marks (name, value) VALUES (:name, :value)"
    " ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE excluded.value > journal_marks.value"
)


def feed_consumer(connection: sa.Connection, name: str) -> str:
    """The cursor that a consumer has committed; empty where it has not yet."""
    return connection.execute(sa.select(feed_consumers.c.cursor).where(feed_consumers.c.name == name)).scalar() or ""


def commit_feed_consumer(tx: Transaction, name: str, before: str, after: str) -> None:
    """Moves a consumer's cursor from where it believes it to be; done before is done."""
    changed = tx.connection.execute(_FIRST if not before else _NEXT, _cursor_values(tx, name, before, after)).rowcount
    if changed:
        return
    stands_at = feed_consumer(tx.connection, name)
    if stands_at != after:
        raise LanternError(
            reasons.FEED_CURSOR_MOVED,
            f"the cursor of {name!r} is not where the request says: somebody else goes on from another one",
            field="expected_cursor",
            cursor=stands_at,
        )


_FIRST = sa.text(
    "INSERT INTO feed_consumers (name, cursor, updated_us) VALUES (:name, :after, :now) ON CONFLICT (name) DO NOTHING"
)
_NEXT = sa.text("UPDATE feed_consumers SET cursor = :after, updated_us = :now WHERE name = :name AND cursor = :before")


def _cursor_values(tx: Transaction, name: str, before: str, after: str) -> dict[str, Any]:
    values: dict[str, Any] = {"name": name, "after": after, "now": tx.now_us}
    return {**values, "before": before} if before else values
