"""Leases in SQL: grant, open, release, defer, and finding the runs that need one."""

from typing import Any

import sqlalchemy as sa

from lantern_journal.adapters import sql_agents, sql_archives, sql_inbox, sql_runs, sql_sessions
from lantern_journal.adapters.schema import journal_events, run_locks, runs
from lantern_journal.adapters.sql_events import Transaction, head_of, list_events, write_events
from lantern_journal.adapters.sql_sessions import USED
from lantern_journal.domain import leases, run_state
from lantern_journal.domain.appends import not_found
from lantern_journal.domain.leases import Limits, Lock
from lantern_journal.domain.records import Grant, LeaseTarget, OpenedRun, Orphan, ReleaseCause
from lantern_journal.domain.run_state import RunState
from lantern_kernel import kinds, reasons
from lantern_kernel.bounds import PAGE_BYTES_MAX, PAGE_ROWS_MAX
from lantern_kernel.errors import LanternError
from lantern_kernel.event import NewEvent
from lantern_kernel.payloads import ParkFacts, RunErrorFacts

DEFER_WHERE_OFFERED_US = 1_000_000
"""A run that was to wait for capacity, while a worker offers its agent by now, is looked at again after this."""

_SHELTERED = (
    "EXISTS (SELECT 1 FROM worker_sessions s WHERE s.worker_id = run_locks.worker_id AND NOT s.closed"
    f" AND CASE WHEN run_locks.opened THEN s.seen_us > :fresh ELSE {USED} END)"
)
"""See `leases.is_free`."""

_UPSERT = sa.text(
    "INSERT INTO run_locks (run_id, worker_id, session_number, epoch, acquired_us, expires_us, opened)"
    " VALUES (:run_id, :worker_id, :session_number, :epoch, :now, :until, false)"
    " ON CONFLICT (run_id) DO UPDATE SET worker_id = excluded.worker_id, session_number = excluded.session_number,"
    " epoch = excluded.epoch, acquired_us = excluded.acquired_us, expires_us = excluded.expires_us,"
    " opened = excluded.opened"
    " WHERE run_locks.epoch = excluded.epoch - 1"
    f" AND (run_locks.worker_id = '' OR (run_locks.expires_us <= :now AND NOT {_SHELTERED}))"
    " RETURNING epoch"
)
_KIND = (
    "(SELECT a.program_kind FROM agents a WHERE a.tenant_id = runs.tenant_id AND a.name = runs.agent_name"
    " AND a.version = runs.agent_version)"
)
_RUN = sa.select(
    runs.c.state,
    runs.c.due_us,
    runs.c.epoch,
    runs.c.tenant_id,
    runs.c.agent_name,
    runs.c.agent_version,
    runs.c.waiting_on,
    runs.c.failed_digests,
    runs.c.drive_faults,
    runs.c.recover_after_us,
    runs.c.nothing_to_compensate,
    runs.c.event_level,
    sa.literal_column(_KIND, sa.Text()).label("program_kind"),
)


def acquire_lease(tx: Transaction, grant: Grant, limits: Limits) -> int:
    """Grants a lease: the lock's UPSERT, its lease_granted event and RUNNING, or nothing (0)."""
    found = sql_sessions.hold(tx.connection, [grant.target.worker_id]).get(grant.target.worker_id)
    row = tx.connection.execute(_RUN.where(runs.c.run_id == grant.run_id).with_for_update()).one_or_none()
    if row is None:
        raise not_found(grant.run_id)
    head = head_of(tx.connection, grant.run_id)
    if _granted_by_this_call(tx, grant, head.seq):
        return head.epoch
    state = RunState(row.state)
    is_due = row.due_us is not None and row.due_us <= tx.now_us
    needs_driver = state in (RunState.QUEUED, RunState.RUNNING) or (state is RunState.WAITING and is_due)
    if not needs_driver or found is None or found.event_level < row.event_level:
        return 0
    if not leases.may_receive(found.session, grant.target.session_number, tx.now_us, limits.silence_us):
        return 0
    failed_last = leases.failed_last(row.failed_digests)
    offers = leases.offers_of(found.offers, row.agent_name, row.program_kind)
    if found.tenant_id != row.tenant_id or not leases.can_drive(offers, failed_last):
        return 0
    epoch = row.epoch + 1
    granted = tx.connection.execute(
        _UPSERT,
        {
            "run_id": grant.run_id,
            "worker_id": grant.target.worker_id,
            "session_number": grant.target.session_number,
            "epoch": epoch,
            "now": tx.now_us,
            "until": tx.now_us + limits.grant_us,
            "fresh": tx.now_us - limits.silence_us,
        },
    ).one_or_none()
    if granted is None:
        return 0
    payload = leases.grant_payload(grant.target.worker_id, grant.target.session_number, grant.reason)
    event = NewEvent(kind=kinds.LEASE_GRANTED, payload=payload, salt=grant.salt)
    after, _ = write_events(tx, grant.run_id, head, epoch, [event])
    tx.connection.execute(
        runs.update()
        .where(runs.c.run_id == grant.run_id)
        .values(
            state=RunState.RUNNING.value,
            epoch=epoch,
            event_level=found.event_level,
            waiting_on="",
            due_us=None,
            error=None,
            awaited_signals="",
            nothing_to_compensate=False,
            wake_reason=grant.reason,
            updated_us=after.time_us,
        )
    )
    return epoch


def _granted_by_this_call(tx: Transaction, grant: Grant, head_seq: int) -> bool:
    """Whether the head is the event of this very call, made before its connection was lost."""
    found = tx.connection.execute(
        sa.select(journal_events.c.kind, journal_events.c.salt).where(
            journal_events.c.run_id == grant.run_id, journal_events.c.seq == head_seq
        )
    ).one_or_none()
    return found is not None and (found.kind, found.salt) == (kinds.LEASE_GRANTED, grant.salt)


def open_run(tx: Transaction, run_id: str, epoch: int, target: LeaseTarget, limits: Limits) -> OpenedRun:
    """Makes a grant a full lease.

    The session is held first: were it closed meanwhile, the lease would outlive it by its whole length.
    """
    found = sql_sessions.hold(tx.connection, [target.worker_id]).get(target.worker_id)
    held = sa.select(runs.c.archived).where(runs.c.run_id == run_id).with_for_update()
    archived = tx.connection.execute(held).scalar()
    if archived is None:
        raise not_found(run_id)
    if archived:
        raise sql_archives.refusal(tx.connection, run_id)
    lock = find_lock(tx.connection, run_id)
    if lock is None or (lock.worker_id, lock.epoch) != (target.worker_id, epoch):
        raise lease_lost(run_id, epoch)
    if not (lock.opened or lock.used) and lock.expires_us <= tx.now_us:
        raise lease_lost(run_id, epoch)
    if found is None or found.session.closed or target.session_number > found.session.number:
        raise LanternError(
            reasons.SESSION_NOT_ATTACHED, f"worker {target.worker_id} has no open session", worker=target.worker_id
        )
    tx.connection.execute(
        run_locks.update()
        .where(run_locks.c.run_id == run_id)
        .values(opened=True, expires_us=tx.now_us + limits.lease_us)
    )
    run = sql_runs.get_run(tx.connection, run_id)
    events, _ = list_events(tx.connection, run_id, 0, PAGE_ROWS_MAX, PAGE_BYTES_MAX)
    inbox, _ = sql_inbox.list_inbox(tx.connection, run_id, run.consumed_inbox, PAGE_ROWS_MAX, PAGE_BYTES_MAX)
    head = head_of(tx.connection, run_id)
    return OpenedRun(run=run, events=tuple(events), head_seq=head.seq, inbox=tuple(inbox))


def find_lock(connection: sa.Connection, run_id: str) -> Lock | None:
    """The lock row of a run."""
    query = sa.select(run_locks, sa.literal_column(USED, sa.Boolean()).label("used"))
    row = connection.execute(query.where(run_locks.c.run_id == run_id)).one_or_none()
    if row is None:
        return None
    return Lock(worker_id=row.worker_id, epoch=row.epoch, expires_us=row.expires_us, opened=row.opened, used=row.used)


def lease_lost(run_id: str, epoch: int) -> LanternError:
    """The lease is not, or no longer, the caller's."""
    return LanternError(reasons.LEASE_LOST, f"the lease of epoch {epoch} is not held by this worker", run_id=run_id)


def release_lease(
    tx: Transaction, run_id: str, epoch: int, worker_id: str, cause: ReleaseCause = ReleaseCause.DRAIN
) -> int:
    """Clears the holder and queues the run; when it may go on, also where it was released before."""
    row = tx.connection.execute(_RUN.where(runs.c.run_id == run_id).with_for_update()).one_or_none()
    if row is None:
        raise not_found(run_id)
    if row.epoch != epoch:
        raise lease_lost(run_id, epoch)
    lock = find_lock(tx.connection, run_id)
    set_aside_until_us: int = row.recover_after_us
    if lock is None or not lock.worker_id:
        # Perhaps by this very call, before its connection was lost: what follows may not have been told.
        return set_aside_until_us
    if lock.worker_id != worker_id:
        raise lease_lost(run_id, epoch)
    tx.connection.execute(
        run_locks.update().where(run_locks.c.run_id == run_id).values(worker_id="", expires_us=0, opened=False)
    )
    queued = run_state.next_state(RunState(row.state), run_state.RELEASED)
    if queued is None:
        return set_aside_until_us
    values: dict[str, Any] = {"state": queued.value, "recover_after_us": 0, "updated_us": tx.now_us}
    if cause is ReleaseCause.DRAIN:
        values["wake_reason"] = run_state.UPGRADED
    elif cause is ReleaseCause.FAULT:
        # Its drive got somewhere unless its grant is still on top.
        faults = 1 if lock.used else row.drive_faults + 1
        values["wake_reason"] = run_state.CRASHED
        values["drive_faults"] = faults
        values["recover_after_us"] = tx.now_us + leases.fault_pause_us(faults)
    # REFUSED: it was not driven, and needs a driver for the reason that the grant was made for.
    tx.connection.execute(runs.update().where(runs.c.run_id == run_id).values(values))
    recover_after_us: int = values["recover_after_us"]
    return recover_after_us


def defer_run(tx: Transaction, run_id: str, delay_us: int | None, salt: bytes, limits: Limits) -> None:
    """Sets a run aside that found no taker; one that is driven, ended or waits already is left alone."""
    sql_agents.lock(tx.connection)
    row = tx.connection.execute(_RUN.where(runs.c.run_id == run_id).with_for_update()).one_or_none()
    if row is None:
        raise not_found(run_id)
    state = RunState(row.state)
    if state in run_state.FINAL or not _is_free(tx, run_id, limits):
        return
    waiting_on, error = "capacity", no_capacity(row.agent_name, row.agent_version, row.event_level)
    if delay_us is None:
        failed_last = leases.failed_last(row.failed_digests)
        offers = sql_sessions.find_offers(tx, row.tenant_id, row.agent_name, row.event_level)
        if leases.can_drive(offers, failed_last):
            delay_us = DEFER_WHERE_OFFERED_US
        elif offers:
            waiting_on, error = "code_fix", only_failed_code(row.agent_name, failed_last)
    if delay_us is not None:
        if state is RunState.WAITING and (row.due_us is None or row.due_us > tx.now_us):
            return
        values: dict[str, object] = {"recover_after_us": tx.now_us + delay_us}
        tx.connection.execute(runs.update().where(runs.c.run_id == run_id).values(values))
        return
    if state is RunState.WAITING:
        _wait_instead(tx, run_id, row, waiting_on, error)
        return
    head = head_of(tx.connection, run_id)
    facts = ParkFacts(waiting_on=waiting_on, error=error, nothing_to_compensate=row.nothing_to_compensate)
    park = NewEvent(kind=kinds.RUN_PARKED, payload=facts.pack(), salt=salt)
    after, _ = write_events(tx, run_id, head, head.epoch, [park])
    tx.connection.execute(
        runs.update()
        .where(runs.c.run_id == run_id)
        .values(
            state=RunState.WAITING.value,
            waiting_on=waiting_on,
            due_us=None,
            error=run_state.error_bytes(error),
            wake_reason=run_state.UPGRADED,
            recover_after_us=0,
            updated_us=after.time_us,
        )
    )
    tx.connection.execute(
        run_locks.update().where(run_locks.c.run_id == run_id).values(worker_id="", expires_us=0, opened=False)
    )


def _wait_instead(tx: Transaction, run_id: str, row: Any, waiting_on: str, error: RunErrorFacts) -> None:
    """A due run that nobody can drive waits for who can: its row alone changes, as its park event still stands."""
    if row.due_us is None or row.due_us > tx.now_us:
        return
    tx.connection.execute(
        runs.update()
        .where(runs.c.run_id == run_id)
        .values(
            waiting_on=waiting_on,
            due_us=None,
            error=run_state.error_bytes(error),
            awaited_signals="",
            updated_us=tx.now_us,
        )
    )


def no_capacity(agent_name: str, agent_version: int, event_level: int) -> RunErrorFacts:
    """No live executor that knows the run's event level offers the agent."""
    return RunErrorFacts(
        code=reasons.NO_CAPACITY,
        message=f"no live executor offers {agent_name}@{agent_version} at event level {event_level} or above;"
        " it goes on when one does",
    )


def only_failed_code(agent_name: str, digest: str) -> RunErrorFacts:
    """Live executors offer the agent, but in no other code than that which failed to replay this run."""
    return RunErrorFacts(
        code=reasons.NONDETERMINISM,
        message=f"the code of {agent_name} that is offered failed to replay this run; it goes on with other code",
        details={"digest": digest},
    )


def _is_free(tx: Transaction, run_id: str, limits: Limits) -> bool:
    lock = find_lock(tx.connection, run_id)
    holder = sql_sessions.find(tx.connection, lock.worker_id) if lock is not None and lock.worker_id else None
    return leases.is_free(lock, holder.session if holder else None, tx.now_us, limits)


def _orphans_query(is_sqlite: bool) -> sa.TextClause:
    """The runs that need a driver.

    What is asked of each open run stands in the indexes `runs_open` and `run_locks_held`: neither rows of runs that
    ended nor rows of runs that are driven are read. SQLite, which keeps no statistics here, is told which index to use.
    """
    open_runs, due_runs, held_locks = (
        f" {table} INDEXED BY {index}" if is_sqlite else f" {table}"
        for table, index in (("runs", "runs_open"), ("runs", "runs_due"), ("run_locks", "run_locks_held"))
    )
    wanted = (
        " WHERE ended_us IS NULL AND recover_after_us <= :now AND NOT EXISTS (SELECT 1 FROM" + held_locks + " WHERE"
        " run_locks.run_id = runs.run_id AND run_locks.worker_id <> ''"
        f" AND (run_locks.expires_us > :now OR {_SHELTERED}))"
    )
    return sa.text(
        "SELECT runs.run_id, runs.tenant_id, runs.agent_name, runs.agent_version, runs.agent_digest,"
        f" runs.failed_digests, runs.event_level, {_KIND} AS program_kind, CASE WHEN runs.state = 'RUNNING'"
        f" AND (SELECT run_locks.opened OR {USED} FROM run_locks WHERE run_locks.run_id = runs.run_id) THEN 'crash'"
        " ELSE runs.wake_reason END AS reason"
        " FROM (SELECT found.*,"
        " row_number() OVER (PARTITION BY found.tenant_id ORDER BY found.created_us, found.run_id) AS turn FROM ("
        # Two parts, an index for each: those that somebody should drive, and those that are due.
        f"SELECT run_id, tenant_id, created_us FROM{open_runs}{wanted} AND state IN ('QUEUED', 'RUNNING')"
        f" UNION ALL SELECT run_id, tenant_id, created_us FROM{due_runs}{wanted}"
        " AND state = 'WAITING' AND due_us IS NOT NULL AND due_us <= :now"
        ") AS found ORDER BY turn, created_us, run_id LIMIT :most) AS orphans"
        " JOIN runs ON runs.run_id = orphans.run_id ORDER BY orphans.turn, runs.created_us, runs.run_id"
    )


_ORPHANS = {is_sqlite: _orphans_query(is_sqlite) for is_sqlite in (False, True)}


def find_orphans(tx: Transaction, limit: int, limits: Limits) -> list[Orphan]:
    """Runs that need a driver: each tenant's oldest first, then each tenant's second, and so on."""
    query = _ORPHANS[tx.connection.dialect.name == "sqlite"]
    found = tx.connection.execute(query, {"now": tx.now_us, "fresh": tx.now_us - limits.silence_us, "most": limit})
    return [
        Orphan(
            run_id=row.run_id,
            tenant_id=row.tenant_id,
            agent_name=row.agent_name,
            agent_version=row.agent_version,
            agent_digest=row.agent_digest,
            reason=row.reason,
            failed_digest=leases.failed_last(row.failed_digests),
            event_level=row.event_level,
            program_kind=row.program_kind,
        )
        for row in found
    ]


def next_due_us(connection: sa.Connection, after_us: int) -> int | None:
    """When the next run becomes due, is no longer set aside, or loses a grant that nobody opened."""
    moments = (
        sa.select(sa.func.min(runs.c.due_us)).where(runs.c.due_us > after_us, runs.c.ended_us.is_(None)),
        # The literal conditions are those of partial indexes.
        sa.select(sa.func.min(runs.c.recover_after_us)).where(
            runs.c.recover_after_us > after_us, sa.text("recover_after_us > 0"), runs.c.ended_us.is_(None)
        ),
        sa.select(sa.func.min(run_locks.c.expires_us)).where(
            run_locks.c.expires_us > after_us, sa.text("NOT opened AND worker_id <> ''")
        ),
    )
    found = [connection.execute(query).scalar() for query in moments]
    return min((moment for moment in found if moment is not None), default=None)
