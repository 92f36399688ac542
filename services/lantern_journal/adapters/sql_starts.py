"""Starting runs in SQL (SPEC S2): any number in one transaction, with as many statements as for one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from lantern_journal.adapters import sql_blobs, sql_runs, sql_sessions
from lantern_journal.adapters.schema import agents, journal_events, run_locks, runs
from lantern_journal.adapters.sql_events import Transaction, event_of, insert_rows
from lantern_journal.adapters.sql_sessions import FoundSession
from lantern_journal.domain import blobs, leases, run_state
from lantern_journal.domain.appends import Row, genesis, rows_of
from lantern_journal.domain.leases import Limits
from lantern_journal.domain.records import NewRun, Run, StartedRun, WorkflowIdPolicy
from lantern_journal.domain.run_state import RunState
from lantern_kernel import kinds, payloads, reasons
from lantern_kernel.blobs import BlobRef
from lantern_kernel.errors import LanternError
from lantern_kernel.event import NewEvent


@dataclass(frozen=True, kw_only=True, slots=True)
class _Known:
    """What the database holds of the things that some starts name."""

    # By tenant and request id: run id and digest of the content.
    requests: dict[tuple[str, str], tuple[str, bytes]]
    # By tenant and workflow id: the open run, and the newest of all where a policy asks.
    open_workflows: dict[tuple[str, str], str]
    any_workflows: dict[tuple[str, str], str]
    # By tenant and agent name: its versions by digest.
    agents: dict[tuple[str, str], dict[str, int]]
    # By worker.
    sessions: dict[str, FoundSession]
    # Tenant and blob of the inputs that are there; held.
    blobs: set[tuple[str, BlobRef]]


def start_runs(tx: Transaction, starts: Sequence[NewRun], limits: Limits) -> list[StartedRun | LanternError]:
    """Starts runs that differ in request id and workflow id; for each the run, or why it was refused."""
    known = _look_up(tx, starts)
    outcomes: list[StartedRun | LanternError] = []
    rows: list[Row] = []
    run_values: list[dict[str, Any]] = []
    lock_values: list[dict[str, Any]] = []
    for new in starts:
        try:
            before = _started_before(tx, new, known) or _workflow_id_taken(tx, new, known)
            if before is not None:
                outcomes.append(before)
                continue
            version, digest, granted = _pin(tx, new, known, limits)
            if new.input_blob is not None and (new.tenant_id, new.input_blob) not in known.blobs:
                raise blobs.absent(new.input_blob, field="input_blob")
        except LanternError as error:
            outcomes.append(error)
            continue
        mine = _first_rows(tx, new, version, digest, granted=granted)
        rows += mine
        run = _run(tx, new, version, digest, granted=granted)
        run_values.append(_run_values(new, run))
        if granted:
            lock_values.append(_lock_values(tx, new, limits))
        events = tuple(map(event_of, mine)) if granted else ()
        outcomes.append(StartedRun(run=run, created=True, events=events))
    if run_values:
        tx.connection.execute(runs.insert(), run_values)
        if lock_values:
            tx.connection.execute(run_locks.insert(), lock_values)
        insert_rows(tx.connection, sorted(rows, key=lambda row: row.run_id))
        sql_blobs.write_names(tx, _named(starts, {values["run_id"] for values in run_values}))
    return outcomes


def _named(starts: Sequence[NewRun], made: set[str]) -> list[tuple[str, BlobRef, str]]:
    """Which of the runs that were made name which blobs."""
    return [
        (new.tenant_id, new.input_blob, new.run_id)
        for new in starts
        if new.input_blob is not None and new.run_id in made
    ]


def _look_up(tx: Transaction, starts: Sequence[NewRun]) -> _Known:
    connection = tx.connection
    workers = sorted({new.target.worker_id for new in starts if new.target is not None})
    # Held: no lease is granted to a session that is being closed.
    sessions = sql_sessions.hold(connection, workers) if workers else {}
    requests = sa.select(runs.c.tenant_id, runs.c.request_id, runs.c.run_id, runs.c.request_digest).where(
        sa.tuple_(runs.c.tenant_id, runs.c.request_id).in_([(new.tenant_id, new.request_id) for new in starts])
    )
    named = [new for new in starts if new.workflow_id]
    rejecting = [new for new in named if new.policy is WorkflowIdPolicy.REJECT]
    versions = sa.select(agents.c.tenant_id, agents.c.name, agents.c.digest, agents.c.version).where(
        sa.tuple_(agents.c.tenant_id, agents.c.name).in_(sorted({(new.tenant_id, new.agent_name) for new in starts}))
    )
    found_agents: dict[tuple[str, str], dict[str, int]] = {}
    for row in connection.execute(versions):
        found_agents.setdefault((row.tenant_id, row.name), {})[row.digest] = row.version
    return _Known(
        requests={
            (row.tenant_id, row.request_id): (row.run_id, row.request_digest) for row in connection.execute(requests)
        },
        open_workflows=_workflows(connection, named, runs.c.ended_us.is_(None)),
        any_workflows=_workflows(connection, rejecting, sa.true()),
        agents=found_agents,
        sessions=sessions,
        blobs=sql_blobs.hold(tx, [(new.tenant_id, new.input_blob) for new in starts if new.input_blob is not None]),
    )


def _workflows(
    connection: sa.Connection, starts: Sequence[NewRun], which: sa.ColumnElement[bool]
) -> dict[tuple[str, str], str]:
    """The newest such run of each workflow id."""
    if not starts:
        return {}
    query = (
        sa.select(runs.c.tenant_id, runs.c.workflow_id, sa.func.max(runs.c.run_id).label("run_id"))
        .where(
            sa.tuple_(runs.c.tenant_id, runs.c.workflow_id).in_([(new.tenant_id, new.workflow_id) for new in starts])
        )
        .where(which)
        .group_by(runs.c.tenant_id, runs.c.workflow_id)
    )
    return {(row.tenant_id, row.workflow_id): row.run_id for row in connection.execute(query)}


def _started_before(tx: Transaction, new: NewRun, known: _Known) -> StartedRun | None:
    found = known.requests.get((new.tenant_id, new.request_id))
    if found is None:
        return None
    run_id, request_digest = found
    if request_digest != new.request_digest:
        raise LanternError(
            reasons.REQUEST_ID_REUSED,
            f"request id {new.request_id!r} was used for another request",
            field="request_id",
            run_id=run_id,
        )
    run = sql_runs.get_run(tx.connection, run_id)
    if run_id != new.run_id:
        return StartedRun(run=run, created=False)
    # This very call made it, before its connection was lost.
    query = sa.select(journal_events).where(journal_events.c.run_id == run_id).order_by(journal_events.c.seq).limit(2)
    rows = [Row(*row) for row in tx.connection.execute(query)]
    granted = len(rows) == 2 and rows[1].salt == new.salts[1]
    return StartedRun(run=run, created=True, events=tuple(map(event_of, rows)) if granted else ())


def _workflow_id_taken(tx: Transaction, new: NewRun, known: _Known) -> StartedRun | None:
    is_rejecting = new.policy is WorkflowIdPolicy.REJECT
    taken = known.any_workflows if is_rejecting else known.open_workflows
    run_id = taken.get((new.tenant_id, new.workflow_id)) if new.workflow_id else None
    if run_id is None:
        return None
    if new.policy is WorkflowIdPolicy.USE_EXISTING:
        return StartedRun(run=sql_runs.get_run(tx.connection, run_id), created=False)
    raise LanternError(
        reasons.WORKFLOW_ID_IN_USE,
        f"workflow id {new.workflow_id!r} belongs to run {run_id}",
        field="workflow_id",
        run_id=run_id,
    )


def _pin(tx: Transaction, new: NewRun, known: _Known, limits: Limits) -> tuple[int, str, bool]:
    """The version and digest that the run pins, and whether the lease is granted with it.

    It is where it was asked for and the worker's session can take it; the run then pins what that worker offers, else
    the newest version.
    """
    versions = known.agents.get((new.tenant_id, new.agent_name))
    if not versions:
        raise LanternError(
            reasons.AGENT_NOT_FOUND,
            f"no executor ever offered an agent {new.agent_name!r} in this tenant",
            field="agent_name",
            agent=new.agent_name,
        )
    if new.target is not None:
        found = known.sessions.get(new.target.worker_id)
        offer = leases.offer_of(found.offers, new.agent_name) if found is not None else None
        if (
            found is not None
            and offer is not None
            and found.tenant_id == new.tenant_id
            and leases.may_receive(found.session, new.target.session_number, tx.now_us, limits.silence_us)
        ):
            return versions[offer.digest], offer.digest, True
    digest = max(versions, key=lambda digest: versions[digest])
    return versions[digest], digest, False


def _first_rows(tx: Transaction, new: NewRun, version: int, digest: str, *, granted: bool) -> list[Row]:
    facts = {
        "agent": new.agent_name,
        "version": version,
        "digest": digest,
        "workflowId": new.workflow_id,
        "requestId": new.request_id,
        "traceparent": new.traceparent,
    }
    started = NewEvent(
        kind=kinds.RUN_STARTED, payload=payloads.pack(facts, new.input_blob or new.input), salt=new.salts[0]
    )
    rows: list[Row] = []
    head = rows_of(new.run_id, genesis(new.run_id), 0, tx.now_us, [started], rows)
    if granted:
        assert new.target is not None
        payload = leases.grant_payload(new.target.worker_id, new.target.session_number, run_state.STARTED)
        grant = NewEvent(kind=kinds.LEASE_GRANTED, payload=payload, salt=new.salts[1])
        rows_of(new.run_id, head, 1, tx.now_us, [grant], rows)
    return rows


def _run(tx: Transaction, new: NewRun, version: int, digest: str, *, granted: bool) -> Run:
    return Run(
        run_id=new.run_id,
        tenant_id=new.tenant_id,
        workflow_id=new.workflow_id,
        agent_name=new.agent_name,
        agent_version=version,
        agent_digest=digest,
        state=RunState.RUNNING if granted else RunState.QUEUED,
        waiting_on="",
        due_us=None,
        created_us=tx.now_us,
        updated_us=tx.now_us,
        ended_us=None,
        error=None,
        traceparent=new.traceparent,
        inbox_number=0,
        consumed_inbox=0,
        epoch=1 if granted else 0,
        end_seq=None,
        input=new.input if new.input_blob is None else None,
        input_blob=new.input_blob,
    )


def _run_values(new: NewRun, run: Run) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "tenant_id": run.tenant_id,
        "request_id": new.request_id,
        "request_digest": new.request_digest,
        "workflow_id": run.workflow_id,
        "agent_name": run.agent_name,
        "agent_version": run.agent_version,
        "agent_digest": run.agent_digest,
        "state": run.state.value,
        "waiting_on": "",
        "wake_reason": run_state.STARTED,
        "recover_after_us": 0,
        "created_us": run.created_us,
        "updated_us": run.updated_us,
        "traceparent": run.traceparent,
        "epoch": run.epoch,
        "inbox_number": 0,
        "consumed_inbox": 0,
        "failed_digests": "",
        "drive_faults": 0,
    }


def _lock_values(tx: Transaction, new: NewRun, limits: Limits) -> dict[str, Any]:
    assert new.target is not None
    return {
        "run_id": new.run_id,
        "worker_id": new.target.worker_id,
        "session_number": new.target.session_number,
        "epoch": 1,
        "acquired_us": tx.now_us,
        # Unopened until something is appended: an answer that never arrives must not strand the run.
        "expires_us": tx.now_us + limits.grant_us,
        "opened": False,
    }
