"""Fills a journal's database with events of the past, by SQL: what bench_journal finds already there.

Runs of 43 events (20 steps) whose ids are spread over the last eight weeks. Nearly all have ended, up to 5,000 are
open: half wait for a signal, a quarter for a timer, a quarter are driven. Rows have the sizes of real ones; digests and
hashes are of no real chain. The feed over all runs is left empty: of events that old its rows would have been trimmed.
"""

import itertools
import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from lantern_journal.adapters import migrate, sql_partitions
from lantern_journal.adapters.engines import postgres_sync_engine, sqlite_engine, sqlite_path
from lantern_journal.adapters.schema import journal_events, run_locks, runs
from lantern_journal.adapters.sql_events import Transaction
from lantern_journal.domain.partitions import WEEK_US, week_of
from lantern_journal.domain.run_state import RunState
from lantern_kernel import kinds

STEPS = 20
EVENTS_PER_RUN = 2 * STEPS + 3
WEEKS = 8
OPEN_MAX = 5_000
YEAR_US = 365 * 86_400 * 1_000_000
RUNS_AT_ONCE = 25_000

_LOADED = sa.Table(
    "loaded",
    sa.MetaData(),
    sa.Column("number", sa.BigInteger),
    sa.Column("run_id", sa.Text),
    sa.Column("time_us", sa.BigInteger),
    sa.Column("state", sa.Text),
    sa.Column("waiting_on", sa.Text),
    sa.Column("due_us", sa.BigInteger),
    prefixes=["TEMPORARY"],
)
_PLACES = sa.Table(
    "places",
    sa.MetaData(),
    sa.Column("seq", sa.BigInteger),
    sa.Column("kind", sa.Text),
    sa.Column("step_id", sa.Text),
    sa.Column("attempt", sa.Integer),
    sa.Column("epoch", sa.BigInteger),
    sa.Column("payload", sa.LargeBinary),
    sa.Column("salt", sa.LargeBinary),
    sa.Column("digest", sa.LargeBinary),
    sa.Column("hash", sa.LargeBinary),
    prefixes=["TEMPORARY"],
)


def fill(url: str, events: int, *, is_open_only: bool = False) -> None:
    """Brings an empty database to about that many events; or to those alone of them whose runs are open."""
    path = sqlite_path(url)
    engine = postgres_sync_engine(url) if path is None else sqlite_engine(path, begin="BEGIN")
    migrate.migrate(engine)
    count = events // EVENTS_PER_RUN
    with engine.connect() as connection:
        _prepare(connection, path)
        with connection.begin():
            _LOADED.create(connection)
            _PLACES.create(connection)
            connection.execute(_PLACES.insert(), list(_places()))
        rows = (
            run
            for run in _runs(count, time.time_ns() // 1000)
            if not (is_open_only and run["state"] == RunState.SUCCEEDED.value)
        )
        while chunk := list(itertools.islice(rows, RUNS_AT_ONCE)):
            with connection.begin():
                connection.execute(_LOADED.delete())
                _insert(connection, chunk)
        _settle(connection, path)
    engine.dispose()


def _prepare(connection: sa.Connection, path: Path | None) -> None:
    if path is not None:
        # What is loaded need not survive anything until it is there.
        _driver(connection).execute("PRAGMA synchronous=OFF")
        return
    with connection.begin():
        connection.exec_driver_sql("SET statement_timeout = 0")
        now_us = time.time_ns() // 1000
        for ago in range(WEEKS + 1):
            tx = Transaction(connection=connection, now_us=now_us)
            sql_partitions.make_partition(tx, week_of(now_us - ago * WEEK_US))
        # make_partition sets bounds of its own for the transaction.
    connection.exec_driver_sql("SET statement_timeout = 0")
    connection.commit()


def _settle(connection: sa.Connection, path: Path | None) -> None:
    """Leaves the database as one that has been running: statistics made, nothing left to be written behind it."""
    if path is not None:
        _driver(connection).execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return
    connection.execution_options(isolation_level="AUTOCOMMIT")
    for statement in ("VACUUM (ANALYZE)", "CHECKPOINT"):
        connection.exec_driver_sql(statement)


def _driver(connection: sa.Connection) -> Any:
    """Past SQLAlchemy, which would begin a transaction."""
    return connection.connection.driver_connection


def _places() -> Iterator[dict[str, Any]]:
    """The events that every run has."""
    content = b'{"data":"' + os.urandom(100).hex()[:189].encode() + b'"}'
    events = [(kinds.RUN_STARTED, "", 0, 0, content), (kinds.LEASE_GRANTED, "", 0, 1, b'{"worker":"loaded"}')]
    for step in range(STEPS):
        events.append((kinds.STEP_STARTED, f"s{step}", 1, 1, b"{}"))
        events.append((kinds.STEP_COMPLETED, f"s{step}", 1, 1, content))
    events.append((kinds.RUN_SUCCEEDED, "", 0, 1, b'{"data":1}'))
    for seq, (kind, step_id, attempt, epoch, payload) in enumerate(events, start=1):
        yield {
            "seq": seq,
            "kind": kind,
            "step_id": step_id,
            "attempt": attempt,
            "epoch": epoch,
            "payload": payload,
            "salt": os.urandom(16),
            "digest": os.urandom(32),
            "hash": os.urandom(32),
        }


def _runs(count: int, now_us: int) -> Iterator[dict[str, Any]]:
    """Runs in order of their ids, the open ones spread among them."""
    span_us = WEEKS * WEEK_US
    open_every = max(4, count // OPEN_MAX)
    for number in range(count):
        time_us = now_us - span_us + span_us * number // max(count, 1)
        value = (time_us // 1000) << 80 | 7 << 76 | int.from_bytes(os.urandom(1)) << 64 | 0b10 << 62
        run = {
            "number": number,
            "run_id": str(uuid.UUID(int=value | int.from_bytes(os.urandom(7)))),
            "time_us": time_us,
            "state": RunState.SUCCEEDED.value,
            "waiting_on": "",
            "due_us": None,
        }
        if number % open_every == open_every - 1:
            run |= (
                {"state": "WAITING", "waiting_on": "signal"},
                {"state": "WAITING", "waiting_on": "timer", "due_us": now_us + YEAR_US},
                {"state": "WAITING", "waiting_on": "signal"},
                {"state": "RUNNING"},
            )[number // open_every % 4]
        yield run


def _insert(connection: sa.Connection, chunk: list[dict[str, Any]]) -> None:
    connection.execute(_LOADED.insert(), chunk)
    run, place = _LOADED.c, _PLACES.c
    is_open = run.state != "SUCCEEDED"
    _insert_from(
        connection,
        journal_events,
        {**{column.name: column for column in place}, "run_id": run.run_id, "time_us": run.time_us + place.seq * 1000},
        # An open run lacks the last event.
        sa.or_(place.seq < EVENTS_PER_RUN, sa.not_(is_open)),
        (run.run_id, place.seq),
    )
    ended_us = sa.case((is_open, None), else_=run.time_us + EVENTS_PER_RUN * 1000)
    _insert_from(
        connection,
        runs,
        {
            "run_id": run.run_id,
            "tenant_id": sa.literal("default"),
            "request_id": run.run_id,
            "request_digest": sa.literal(os.urandom(32)),
            "agent_name": sa.literal("loaded"),
            "agent_version": sa.literal(1),
            "agent_digest": sa.literal("c" * 64),
            "state": run.state,
            "waiting_on": run.waiting_on,
            "due_us": run.due_us,
            "wake_reason": sa.literal("start"),
            "created_us": run.time_us,
            "updated_us": run.time_us + EVENTS_PER_RUN * 1000,
            "ended_us": ended_us,
            "end_seq": sa.case((is_open, None), else_=EVENTS_PER_RUN),
            "traceparent": sa.literal("00-" + "a" * 32 + "-" + "b" * 16 + "-01"),
            "epoch": sa.literal(1),
        },
        sa.true(),
        (run.run_id,),
    )
    _insert_from(
        connection,
        run_locks,
        {
            "run_id": run.run_id,
            "worker_id": sa.case((run.state == "RUNNING", "loaded"), else_=""),
            "session_number": sa.literal(1),
            "epoch": sa.literal(1),
            "acquired_us": run.time_us,
            "expires_us": run.time_us + 2 * YEAR_US,
            "opened": sa.true(),
        },
        sa.true(),
        (run.run_id,),
    )


def _insert_from(
    connection: sa.Connection,
    table: sa.Table,
    values: dict[str, Any],
    where: sa.ColumnElement[bool],
    order: tuple[sa.ColumnElement[Any], ...],
) -> None:
    """INSERT ... SELECT; a column that is not named is NULL where it may be, else empty or 0."""
    columns = {column.name: values.get(column.name, _nothing(column)) for column in table.columns}
    query = sa.select(*(value.label(name) for name, value in columns.items())).where(where).order_by(*order)
    if table is journal_events:
        query = query.select_from(_LOADED.join(_PLACES, sa.true()))
    connection.execute(table.insert().from_select(list(columns), query))


def _nothing(column: sa.Column[Any]) -> sa.ColumnElement[Any]:
    if column.nullable:
        return sa.cast(sa.null(), column.type)
    return sa.literal({int: 0, str: "", bytes: b"", bool: False}[column.type.python_type])
