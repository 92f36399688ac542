"""What the doctor reads, and how a run's rows are rebuilt, in SQL. It reads in short snapshots, and holds up nobody."""

from typing import Any

import sqlalchemy as sa

from lantern_journal.adapters import migrate, postgres_restored, sql_parks, sql_sessions
from lantern_journal.adapters.schema import (
    approvals,
    journal_blob_refs,
    journal_blobs,
    journal_events,
    run_archives,
    run_inbox,
    run_locks,
    runs,
    worker_sessions,
)
from lantern_journal.adapters.sql_events import Transaction, page_of
from lantern_journal.domain import projection, run_state
from lantern_journal.domain.approvals import ApprovalState
from lantern_journal.domain.diagnosis import DatabaseFacts, RunFacts
from lantern_journal.domain.leases import Limits
from lantern_journal.domain.projection import COLUMNS, LockRow, RunFold, RunRow
from lantern_journal.domain.run_state import RunState
from lantern_kernel.bounds import PAGE_BYTES_MAX, PAGE_ROWS_MAX
from lantern_kernel.event import Event

DAMAGE_LINES_MAX = 20
SILENT_WORKERS_MAX = 100
SILENT_US = 60_000_000
"""Longer than the silence after which a session is closed, for whoever closes it to come to it."""


def list_run_ids(connection: sa.Connection, after: str, limit: int) -> list[str]:
    """Runs after one, by id, also those of which there are only events, a lock or an inbox."""
    parts: list[sa.Select[tuple[str]]] = []
    for table in (runs, run_locks, journal_events, run_inbox):
        part = sa.select(table.c.run_id).where(table.c.run_id > after).distinct().order_by(table.c.run_id)
        parts.append(sa.select(part.limit(limit).subquery().c.run_id))
    return [row.run_id for row in connection.execute(sa.union(*parts).order_by("run_id").limit(limit))]


def read_run(tx: Transaction, run_id: str, after_seq: int) -> tuple[list[Event], RunFacts | None]:
    """The next events of a run, and with the last of them what else is kept of it, all of one moment."""
    events, has_more = page_of(tx.connection, run_id, after_seq, PAGE_ROWS_MAX, PAGE_BYTES_MAX)
    return events, None if has_more else _facts(tx, run_id)


def _facts(tx: Transaction, run_id: str) -> RunFacts:
    connection = tx.connection
    row = connection.execute(sa.select(runs).where(runs.c.run_id == run_id)).one_or_none()
    lock = _lock(connection, run_id)
    session = sql_sessions.find(connection, lock.worker_id) if lock is not None and lock.worker_id else None
    inbox_last = connection.execute(sa.select(sa.func.max(run_inbox.c.number)).where(run_inbox.c.run_id == run_id))
    consumed: int = row.consumed_inbox if row is not None else 0
    unconsumed = connection.execute(
        sa.select(run_inbox.c.kind).where(run_inbox.c.run_id == run_id, run_inbox.c.number > consumed).distinct()
    )
    needs_offers = row is not None and row.state == RunState.WAITING and row.waiting_on in projection.RETARGETED
    offers = (
        sql_sessions.find_offers(tx, row.tenant_id, row.agent_name, row.event_level)
        if row is not None and needs_offers
        else []
    )
    return RunFacts(
        row=_row(row) if row is not None else None,
        is_archived=row is not None and row.archived,
        lock=lock,
        session=session.session if session is not None else None,
        inbox_last=inbox_last.scalar() or 0,
        unconsumed=frozenset(unconsumed.scalars()),
        failed_digests=row.failed_digests if row is not None else "",
        offers=tuple(offers),
        now_us=tx.now_us,
        **_belongings(connection, run_id, row),
    )


def _belongings(connection: sa.Connection, run_id: str, row: Any) -> dict[str, Any]:
    """What else is kept of a run."""
    asked = sa.select(approvals.c.approval_id, approvals.c.requested_seq, approvals.c.state)
    names, kept = journal_blob_refs.c, journal_blobs.c
    blobs = sa.select(kept.sha256).join_from(
        journal_blob_refs, journal_blobs, sa.and_(kept.tenant_id == names.tenant_id, kept.sha256 == names.sha256)
    )
    archive = sa.select(run_archives.c.event_count).where(run_archives.c.run_id == run_id)
    events = sa.select(journal_events.c.seq).where(journal_events.c.run_id == run_id).limit(1)
    waits = row is not None and row.state == RunState.WAITING and row.waiting_on == sql_parks.OPERATOR
    return {
        "approvals": {
            found.approval_id: (found.requested_seq, found.state == ApprovalState.PENDING)
            for found in connection.execute(asked.where(approvals.c.run_id == run_id))
        },
        "blobs": frozenset(connection.execute(blobs.where(names.run_id == run_id)).scalars()),
        "is_settled": waits and sql_parks.is_settled(connection, run_id),
        "is_left": _is_left(connection, row),
        "archived_events": connection.execute(archive).scalar(),
        "has_events": connection.execute(events).scalar() is not None,
    }


def _is_left(connection: sa.Connection, row: Any) -> bool:
    """Whether it is open, its parent has ended, and no cancel says so."""
    if row is None or not row.parent_run_id or row.abandoned or row.ended_us is not None:
        return False
    ended = sa.select(runs.c.ended_us).where(runs.c.run_id == row.parent_run_id)
    if connection.execute(ended).scalar() is None:
        return False
    told = sa.select(run_inbox.c.number).where(run_inbox.c.run_id == row.run_id, run_inbox.c.kind == run_state.CANCEL)
    return connection.execute(told.limit(1)).scalar() is None


def _row(row: Any) -> RunRow:
    return RunRow(**{column: getattr(row, column) for column in COLUMNS})


def _lock(connection: sa.Connection, run_id: str, *, to_change: bool = False) -> LockRow | None:
    query = sa.select(run_locks).where(run_locks.c.run_id == run_id)
    row = connection.execute(query.with_for_update() if to_change else query).one_or_none()
    if row is None:
        return None
    return LockRow(
        worker_id=row.worker_id,
        session_number=row.session_number,
        epoch=row.epoch,
        expires_us=row.expires_us,
        opened=row.opened,
    )


def rebuild_run(tx: Transaction, run_id: str) -> dict[str, tuple[object, object]]:
    """Sets right what does not follow from a run's events, under its lock: by column what was and what is.

    Nothing where nothing is wrong, where the events themselves are, or where there is no row to set right.
    """
    connection = tx.connection
    found = connection.execute(sa.select(runs).where(runs.c.run_id == run_id).with_for_update()).one_or_none()
    if found is None or found.archived:
        return {}
    row, lock = _row(found), _lock(connection, run_id, to_change=True)
    fold = RunFold(run_id)
    has_more = True
    while has_more:
        events, has_more = page_of(connection, run_id, fold.seq, PAGE_ROWS_MAX, PAGE_BYTES_MAX)
        for event in events:
            fold.add(event)
        if fold.faults:
            return {}
    if not fold.seq:
        return {}
    last = connection.execute(sa.select(sa.func.max(run_inbox.c.number)).where(run_inbox.c.run_id == run_id)).scalar()
    good_lock = projection.rebuilt_lock(fold, lock)
    good = projection.rebuilt(fold, row, good_lock, last or 0)
    changes: dict[str, tuple[object, object]] = {
        column: (getattr(row, column), getattr(good, column))
        for column in COLUMNS
        if getattr(row, column) != getattr(good, column)
    }
    if changes:
        values: dict[str, Any] = {column: after for column, (_, after) in changes.items()}
        if "state" in changes:
            values |= {"updated_us": good.ended_us or max(tx.now_us, fold.time_us), "recover_after_us": 0}
            if good.state == RunState.QUEUED.value:
                values["wake_reason"] = run_state.CRASHED
        connection.execute(runs.update().where(runs.c.run_id == run_id).values(values))
    if good_lock != lock:
        _set_lock(connection, run_id, good_lock, is_new=lock is None, now_us=tx.now_us)
        changes["lock"] = (_told(lock), _told(good_lock))
    return changes


def _told(lock: LockRow | None) -> str | None:
    return None if lock is None else f"epoch {lock.epoch}, {lock.worker_id or 'released'}"


def _set_lock(connection: sa.Connection, run_id: str, lock: LockRow | None, *, is_new: bool, now_us: int) -> None:
    assert lock is not None, "a lock that is there is set, not taken away"
    values: dict[str, Any] = {
        "worker_id": lock.worker_id,
        "session_number": lock.session_number,
        "epoch": lock.epoch,
        "expires_us": lock.expires_us,
        "opened": lock.opened,
    }
    if is_new:
        connection.execute(run_locks.insert().values(run_id=run_id, acquired_us=now_us, **values))
    else:
        connection.execute(run_locks.update().where(run_locks.c.run_id == run_id).values(values))


_OLDEST = sa.text(
    "SELECT (extract(epoch FROM clock_timestamp() - xact_start) * 1000000)::bigint AS us,"
    " coalesce(nullif(application_name, ''), 'process') || ' ' || pid AS who FROM pg_stat_activity"
    " WHERE xact_start IS NOT NULL AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
    " AND datname = current_database() ORDER BY xact_start LIMIT 1"
)
_XMIN = sa.text(
    "SELECT age, who FROM ("
    "SELECT age(backend_xmin) AS age, coalesce(nullif(application_name, ''), 'process') || ' ' || pid AS who"
    " FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid()"
    " UNION ALL SELECT greatest(age(xmin), age(catalog_xmin)), 'replication slot ' || slot_name"
    " FROM pg_replication_slots WHERE xmin IS NOT NULL OR catalog_xmin IS NOT NULL"
    " UNION ALL SELECT age(transaction), 'prepared transaction ' || gid FROM pg_prepared_xacts"
    ") AS held ORDER BY age DESC LIMIT 1"
)


def read_database(tx: Transaction, limits: Limits) -> DatabaseFacts:
    """How the database itself is."""
    connection = tx.connection
    standing = migrate.standing_of(connection)
    at = ", ".join(standing.found) or "none"
    silent = connection.execute(
        sa.select(worker_sessions.c.worker_id)
        .where(sa.not_(worker_sessions.c.closed), worker_sessions.c.seen_us < tx.now_us - limits.silence_us - SILENT_US)
        .limit(SILENT_WORKERS_MAX)
    )
    facts: dict[str, Any] = {
        "missing_revisions": ""
        if standing.is_expanded
        else f"the database is at revision {at}, this release needs more",
        "pending_revisions": "" if standing.is_contracted else "post revisions are pending: lantern-journal migrate",
        "differences": tuple(map(str, migrate.differences(connection))) if not standing.is_newer else (),
        "silent_workers": tuple(silent.scalars()),
    }
    if connection.dialect.name != "postgresql":
        damage = connection.exec_driver_sql(f"PRAGMA integrity_check({DAMAGE_LINES_MAX})").scalars().all()
        return DatabaseFacts(**facts, damage=() if damage == ["ok"] else tuple(damage))
    oldest = connection.execute(_OLDEST).one_or_none()
    xmin = connection.execute(_XMIN).one_or_none()
    return DatabaseFacts(
        **facts,
        oldest_transaction_us=oldest.us if oldest is not None else 0,
        oldest_transaction_of=oldest.who if oldest is not None else "",
        xmin_age=xmin.age if xmin is not None else 0,
        xmin_of=xmin.who if xmin is not None else "",
        feed_ahead=postgres_restored.count(connection),
    )
