"""Starts of runs with their leases, as one autocommit statement on PostgreSQL.

Nearly all starts come from a worker that offers the agent, for the first time, under a workflow id that nobody used.
For those the statement makes rows and events in one go; in any other case it does nothing, and `sql_starts` answers. So
the conditions here need not be exact, but they must never let pass what that would answer otherwise.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import sqlalchemy as sa

from lantern_journal.adapters import sql_first_rows
from lantern_journal.adapters.postgres_arrays import column, int8s, texts
from lantern_journal.adapters.schema import EVENT_COLUMNS, runs
from lantern_journal.adapters.sql_events import POSTGRES_EVENT_ARRAYS, insert_parameters
from lantern_journal.domain.appends import Row, event_of
from lantern_journal.domain.leases import Limits
from lantern_journal.domain.records import Attach, NewRun, StartedRun
from lantern_kernel.errors import LanternError

SESSIONS_MAX = 10_000
"""Sessions that are remembered; the one that attached first goes first."""

_TYPES: tuple[tuple[type[sa.types.TypeEngine[Any]], str], ...] = (
    *((sa.BigInteger, "bigint"), (sa.Integer, "int"), (sa.Boolean, "bool"), (sa.LargeBinary, "bytea")),
    (sa.Text, "text"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Pin:
    """What a run pins that is started with a lease for a session."""

    # The agent's version.
    version: int
    # Its digest.
    digest: str
    # Of the session.
    event_level: int


@dataclass(frozen=True, kw_only=True, slots=True)
class _Offered:
    """A session that attached here; what it offers does not change while its number is the last."""

    # Its number.
    number: int
    # What it offers by name: the digest.
    digests: dict[str, str]
    # The event level that it knows.
    event_level: int
    # By agent: the version that a run pinned.
    versions: dict[str, int] = field(default_factory=dict[str, int])


class Pins:
    """What runs pin that are started for the sessions that attached here."""

    def __init__(self) -> None:
        self._offered: dict[str, _Offered] = {}

    def forget_versions(self) -> None:
        """The database may have lost which digest has which version."""
        for offered in self._offered.values():
            offered.versions.clear()

    def attached(self, request: Attach, number: int) -> None:
        """A session stands."""
        self._offered.pop(request.worker_id, None)
        if len(self._offered) >= SESSIONS_MAX:
            del self._offered[next(iter(self._offered))]
        self._offered[request.worker_id] = _Offered(
            number=number,
            digests={offer.name: offer.digest for offer in request.offers},
            event_level=request.event_level,
        )

    def learn(self, new: NewRun, outcome: StartedRun | LanternError) -> None:
        """What a run pinned that was started the common way."""
        if isinstance(outcome, LanternError) or not outcome.events or new.target is None:
            return
        offered, run = self._offered.get(new.target.worker_id), outcome.run
        # Only what is offered by its name; what is published may change its version at any time.
        if offered is not None and offered.digests.get(run.agent_name) == run.agent_digest:
            offered.versions[run.agent_name] = run.agent_version

    def of(self, new: NewRun) -> Pin | None:
        """What it pins, if that is known and the start is a plain one."""
        if new.target is None or new.signal is not None or new.input_blob is not None or not new.asked_us:
            return None
        if new.parent is not None:
            return None
        offered = self._offered.get(new.target.worker_id)
        if offered is None or offered.number != new.target.session_number:
            return None
        version = offered.versions.get(new.agent_name)
        if version is None:
            return None
        return Pin(version=version, digest=offered.digests[new.agent_name], event_level=offered.event_level)


@dataclass(frozen=True, kw_only=True, slots=True)
class Statement:
    """A group of starts as the database takes it."""

    # With placeholders.
    sql: bytes
    # What they stand for.
    parameters: list[Any]
    # What the starts come to, should it go in.
    outcomes: list[StartedRun | LanternError]


def statement(starts: Sequence[NewRun], pins: Sequence[Pin], limits: Limits, now_sql: str) -> Statement:
    """The statement that starts these runs; each pins what the other list says."""
    rows: list[Row] = []
    values: list[dict[str, Any]] = []
    outcomes: list[StartedRun | LanternError] = []
    for new, pin in zip(starts, pins, strict=True):
        mine = sql_first_rows.first_rows(new.asked_us, new, pin.version, pin.digest, granted=True)
        rows += mine
        run = sql_first_rows.run_of(new.asked_us, new, pin.version, pin.digest, granted=True)
        values.append(sql_first_rows.row_of_run(new, run, pin.event_level))
        outcomes.append(StartedRun(run=run, created=True, events=tuple(map(event_of, mine))))
    rows.sort(key=lambda row: (row.run_id, row.seq))
    names = tuple(values[0])
    targets = [new.target for new in starts if new.target is not None]
    workers = [target.worker_id for target in targets]
    return Statement(
        sql=_sql(names, now_sql),
        parameters=[
            texts(workers),
            int8s([target.session_number for target in targets]),
            *(texts([getattr(new, name) for new in starts]) for name in ("tenant_id", "request_id", "workflow_id")),
            texts([new.run_id for new in starts]),
            texts(sorted(set(workers))),
            limits.silence_us,
            *(column(_type_of(name), [each[name] for each in values]) for name in names),
            limits.grant_us,
            *insert_parameters(rows),
        ],
        outcomes=outcomes,
    )


def _type_of(name: str) -> str:
    return next(kind for type_, kind in _TYPES if isinstance(runs.c[name].type, type_))


@lru_cache(maxsize=16)
def _sql(names: tuple[str, ...], now_sql: str) -> bytes:
    arrays = ", ".join(f"%b::{_type_of(name)}[]" for name in names)
    # The session is locked before the runs are made (`sql_sessions.hold`).
    return (
        f"WITH clock AS MATERIALIZED (SELECT ({now_sql}) AS us),"
        " wanted AS MATERIALIZED (SELECT * FROM"
        " unnest(%b::text[], %b::bigint[], %b::text[], %b::text[], %b::text[], %b::text[])"
        " AS w(worker_id, session_number, tenant_id, request_id, workflow_id, run_id)),"
        " session AS MATERIALIZED (SELECT s.worker_id, s.session_number, s.tenant_id FROM worker_sessions s, clock"
        " WHERE s.worker_id = ANY(%b::text[]) AND NOT s.closed AND NOT s.draining"
        " AND s.seen_us > clock.us - %b::bigint ORDER BY s.worker_id FOR SHARE OF s),"
        " verdict AS MATERIALIZED (SELECT bool_and("
        " EXISTS (SELECT 1 FROM session WHERE session.worker_id = wanted.worker_id"
        " AND session.session_number = wanted.session_number AND session.tenant_id = wanted.tenant_id)"
        " AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.tenant_id = wanted.tenant_id"
        " AND r.request_id = wanted.request_id)"
        " AND NOT EXISTS (SELECT 1 FROM start_requests r WHERE r.tenant_id = wanted.tenant_id"
        " AND r.request_id = wanted.request_id)"
        " AND (wanted.workflow_id = '' OR NOT EXISTS (SELECT 1 FROM runs r WHERE r.tenant_id = wanted.tenant_id"
        " AND r.workflow_id = wanted.workflow_id))) AS fits FROM wanted),"
        f" made AS (INSERT INTO runs ({', '.join(names)}) SELECT u.* FROM unnest({arrays}) AS u, verdict"
        " WHERE verdict.fits),"
        " granted AS (INSERT INTO run_locks"
        " (run_id, worker_id, session_number, epoch, acquired_us, expires_us, opened)"
        " SELECT wanted.run_id, wanted.worker_id, wanted.session_number, 1, clock.us, clock.us + %b::bigint, false"
        " FROM wanted, clock, verdict WHERE verdict.fits),"
        " feed AS (INSERT INTO journal_feed (xid, time_us, entries)"
        " SELECT pg_current_xact_id()::text::bigint, %b::bigint, %b::bytea FROM verdict WHERE verdict.fits)"
        f" INSERT INTO journal_events ({', '.join(EVENT_COLUMNS)})"
        f" SELECT u.* FROM unnest({POSTGRES_EVENT_ARRAYS}) AS u, verdict WHERE verdict.fits"
    ).encode()
