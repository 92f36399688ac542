"""Events in SQL: inserting rows, reading heads and pages. Functions over an open transaction (or a reader)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from lantern_journal.adapters.postgres_arrays import byteas, int4s, int8s, texts
from lantern_journal.adapters.schema import EVENT_COLUMNS, journal_events, run_archives, runs
from lantern_journal.domain import feed
from lantern_journal.domain.appends import Head, Row, Top, event_of, genesis, not_found, rows_of
from lantern_journal.domain.archives import archived_error
from lantern_journal.ports import Collision
from lantern_kernel.event import Event, NewEvent

_NAMES = ", ".join(EVENT_COLUMNS)
SQLITE_INSERT = f"INSERT INTO journal_events ({_NAMES}) VALUES ({', '.join('?' * len(EVENT_COLUMNS))})"
_COLUMNS = (
    *(("text", texts), ("bigint", int8s), ("text", texts), ("text", texts), ("int", int4s), ("bigint", int8s)),
    *(("bigint", int8s), ("bytea", byteas), ("bytea", byteas), ("bytea", byteas), ("bytea", byteas)),
)
"""Of each column of EVENT_COLUMNS the type on PostgreSQL, and what makes an array of its values."""

POSTGRES_EVENT_ARRAYS = ", ".join(f"%b::{kind}[]" for kind, _ in _COLUMNS)
POSTGRES_INSERT = (
    "WITH feed AS (INSERT INTO journal_feed (xid, time_us, entries)"
    " VALUES (pg_current_xact_id()::text::bigint, %b::bigint, %b::bytea))"
    f" INSERT INTO journal_events ({_NAMES}) SELECT * FROM unnest({POSTGRES_EVENT_ARRAYS})"
)
"""One statement for any number of rows and their entries in the feed, so that one prepared plan serves all groups."""

POSTGRES_CHECKED_INSERT = (
    "WITH top AS (SELECT bool_and(coalesce((SELECT e.digest FROM journal_events e"
    " WHERE e.run_id = t.run_id AND e.seq = t.seq) = t.digest, false)) AS stands"
    " FROM unnest(%b::text[], %b::bigint[], %b::bytea[]) AS t(run_id, seq, digest)),"
    " feed AS (INSERT INTO journal_feed (xid, time_us, entries)"
    " SELECT pg_current_xact_id()::text::bigint, %b::bigint, %b::bytea FROM top WHERE top.stands)"
    f" INSERT INTO journal_events ({_NAMES}) SELECT u.* FROM unnest({POSTGRES_EVENT_ARRAYS}) AS u, top WHERE top.stands"
)
"""The same for a database that may have lost commits: nothing goes in, and no error, unless every top stands."""

SQLITE_FEED = "INSERT INTO journal_feed (xid, time_us, entries) VALUES (0, ?, ?)"

POSTGRES_HEADS = (
    "SELECT r.run_id, e.seq, e.digest, e.hash, e.epoch, e.time_us, e.kind FROM unnest(%b::text[]) AS r(run_id) "
    "CROSS JOIN LATERAL (SELECT seq, digest, hash, epoch, time_us, kind FROM journal_events e "
    "WHERE e.run_id = r.run_id ORDER BY seq DESC LIMIT 1) e"
)

ROW_OVERHEAD_BYTES = 320
"""What an event takes in a message besides its payload, at most nearly always: ids, hashes, tags."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Transaction:
    """An open transaction."""

    # Its connection.
    connection: sa.Connection
    # The database's time at its start, microseconds.
    now_us: int


def insert_rows(connection: sa.Connection, rows: Sequence[Row]) -> None:
    """Inserts rows, sorted by run id by the caller, with their feed row; an occupied place is an IntegrityError.

    The only way for an event into the database: what is inserted past it no follower of all runs would ever see.
    """
    if not rows:
        return
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(POSTGRES_INSERT, tuple(insert_parameters(rows)))
    else:
        connection.exec_driver_sql(SQLITE_INSERT, list(rows))
        connection.exec_driver_sql(SQLITE_FEED, feed_values(rows))


def insert_parameters(rows: Sequence[Row]) -> list[object]:
    """What POSTGRES_INSERT takes: the feed row's values, then one array per column."""
    columns = zip(*rows, strict=True)
    return [*feed_values(rows), *(array(column) for (_, array), column in zip(_COLUMNS, columns, strict=True))]


def top_parameters(tops: Sequence[Top]) -> list[object]:
    """What POSTGRES_CHECKED_INSERT takes before the rest."""
    run_ids, seqs, digests = zip(*tops, strict=True)
    return [texts(run_ids), int8s(seqs), byteas(digests)]


def check_tops(connection: sa.Connection, tops: Sequence[Top]) -> None:
    """Raises Collision where the database does not hold what a group is put on top of."""
    events = journal_events
    found = {
        (row.run_id, row.seq): row.digest
        for row in connection.execute(
            sa.select(events.c.run_id, events.c.seq, events.c.digest).where(
                sa.tuple_(events.c.run_id, events.c.seq).in_([(top.run_id, top.seq) for top in tops])
            )
        )
    }
    for top in tops:
        if found.get((top.run_id, top.seq)) != top.digest:
            raise Collision(f"event {top.seq} of run {top.run_id} does not stand in the database as named")


def feed_values(rows: Sequence[Row]) -> tuple[int, bytes]:
    """Time and entries of the feed row of these rows."""
    return max([row.time_us for row in rows]), feed.pack(feed.entries_of(rows))


_HEAD = sa.select(*(journal_events.c[name] for name in ("seq", "digest", "hash", "epoch", "time_us", "kind")))


def head_of(connection: sa.Connection, run_id: str) -> Head:
    """The head of one run; `genesis` where it has no event."""
    found = connection.execute(
        _HEAD.where(journal_events.c.run_id == run_id).order_by(journal_events.c.seq.desc()).limit(1)
    ).one_or_none()
    return Head(*found) if found else genesis(run_id)


def heads_of(connection: sa.Connection, run_ids: Sequence[str]) -> dict[str, Head]:
    """The heads of runs; runs without events are left out."""
    heads = {run_id: head_of(connection, run_id) for run_id in run_ids}
    return {run_id: head for run_id, head in heads.items() if head.seq}


def write_events(
    transaction: Transaction, run_id: str, head: Head, epoch: int, events: Sequence[NewEvent]
) -> tuple[Head, list[Row]]:
    """Appends events that the journal itself makes; the new head and the rows."""
    rows: list[Row] = []
    after = rows_of(run_id, head, epoch, transaction.now_us, events, rows)
    insert_rows(transaction.connection, rows)
    return after, rows


_WHERE = sa.select(runs.c.archived, run_archives.c.file).select_from(
    runs.outerjoin(run_archives, run_archives.c.run_id == runs.c.run_id)
)


def rows_within(sizes: Iterable[int], bytes_max: int, overhead: int) -> int:
    """How many rows of these sizes a page holds: at least one, where there is one."""
    total = taken = 0
    for size in sizes:
        total += size + overhead
        if taken and total > bytes_max:
            break
        taken += 1
    return taken


def list_events(
    connection: sa.Connection, run_id: str, after_seq: int, limit: int, bytes_max: int
) -> tuple[list[Event], bool]:
    """A page of a run's events; RUN_NOT_FOUND where there is no such run, and where to look for an archived one."""
    page, has_more = page_of(connection, run_id, after_seq, limit, bytes_max)
    if not page:
        row = connection.execute(_WHERE.where(runs.c.run_id == run_id)).one_or_none()
        if row is None:
            raise not_found(run_id)
        if row.archived:
            raise archived_error(run_id, row.file)
    return page, has_more


def page_of(
    connection: sa.Connection, run_id: str, after_seq: int, limit: int, bytes_max: int
) -> tuple[list[Event], bool]:
    """A page of events, cut by rows and bytes in the database, so that no more than a page is ever read."""
    events = journal_events
    window = (
        sa.select(events.c.seq, sa.func.length(events.c.payload).label("size"))
        .where(events.c.run_id == run_id, events.c.seq > after_seq)
        .order_by(events.c.seq)
        .limit(limit + 1)
    )
    sizes = connection.execute(window).all()
    taken = rows_within((size for _, size in sizes[:limit]), bytes_max, ROW_OVERHEAD_BYTES)
    if not taken:
        return [], False
    last = sizes[taken - 1][0]
    found = connection.execute(
        sa.select(*(events.c[name] for name in EVENT_COLUMNS))
        .where(events.c.run_id == run_id, events.c.seq > after_seq, events.c.seq <= last)
        .order_by(events.c.seq)
    )
    return [event_of(Row(*row)) for row in found], len(sizes) > taken
