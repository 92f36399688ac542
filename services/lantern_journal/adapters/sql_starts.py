"""Starting runs in SQL (SPEC S2): any number in one transaction, with as many statements as for one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from lantern_journal.adapters import sql_blobs, sql_family, sql_first_rows, sql_inbox, sql_runs, sql_sessions
from lantern_journal.adapters.schema import agents, journal_events, run_locks, runs, start_requests
from lantern_journal.adapters.sql_events import Transaction, event_of, head_of, insert_rows
from lantern_journal.adapters.sql_sessions import FoundSession
from lantern_journal.domain import blobs, leases, run_state
from lantern_journal.domain.appends import Row, rows_of
from lantern_journal.domain.leases import Limits
from lantern_journal.domain.records import NewEntry, NewRun, StartedRun, StartSignal, Terminated, WorkflowIdPolicy
from lantern_journal.domain.run_state import RunChange, RunState
from lantern_journal.ports import Collision
from lantern_kernel import kinds, payloads, reasons
from lantern_kernel.blobs import BlobRef
from lantern_kernel.errors import LanternError
from lantern_kernel.event import NewEvent


@dataclass(frozen=True, kw_only=True, slots=True)
class _Known:
    """What the database holds of the things that some starts name."""

    # By run: the open runs that a start ends or sends a signal to, and parents; their rows locked.
    held: dict[str, Any]

    # By tenant and request id: run id and digest of the content.
    requests: dict[tuple[str, str], tuple[str, bytes]]
    # By tenant and workflow id: the open run, and the newest of all where a policy asks.
    open_workflows: dict[tuple[str, str], str]
    any_workflows: dict[tuple[str, str], str]
    # By tenant and agent name: its versions by digest.
    agents: dict[tuple[str, str], dict[str, Any]]
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
    ended: dict[str, RunChange] = {}
    for new in starts:
        try:
            before = _started_before(tx, new, known) or _workflow_id_taken(tx, new, known)
            if before is not None:
                outcomes.append(before)
                continue
            version, digest, granted = _pin(tx, new, known, limits)
            depth = _depth(new, known, ended)
            if new.input_blob is not None and (new.tenant_id, new.input_blob) not in known.blobs:
                raise blobs.absent(new.input_blob, field="input_blob")
        except LanternError as error:
            outcomes.append(error)
            continue
        terminated = _terminate(tx, new, known, rows, ended)
        mine = sql_first_rows.first_rows(tx.now_us, new, version, digest, granted=granted, depth=depth)
        rows += mine
        run = sql_first_rows.run_of(tx.now_us, new, version, digest, granted=granted, depth=depth)
        level = known.sessions[new.target.worker_id].event_level if granted and new.target is not None else 1
        run_values.append(sql_first_rows.row_of_run(new, run, level))
        if granted:
            lock_values.append(sql_first_rows.lock_values(tx, new, limits))
        if new.signal is not None:
            sql_inbox.insert(tx, _entry(new, run.run_id, new.signal), 1)
        events = tuple(map(event_of, mine)) if granted else ()
        outcomes.append(StartedRun(run=run, created=True, events=events, terminated=terminated))
    if run_values:
        tx.connection.execute(runs.insert(), run_values)
        if lock_values:
            tx.connection.execute(run_locks.insert(), lock_values)
        insert_rows(tx.connection, sorted(rows, key=lambda row: row.run_id))
        sql_blobs.write_names(tx, _named(starts, {values["run_id"] for values in run_values}))
        sql_family.note_parents(tx, starts, {values["run_id"] for values in run_values})
    if ended:
        _tell_of_ends(tx, known, ended, outcomes)
    return outcomes


def _tell_of_ends(
    tx: Transaction,
    known: _Known,
    ended: Mapping[str, RunChange],
    outcomes: list[StartedRun | LanternError],
) -> None:
    """What the ends of the runs that made room mean to their relatives; once their events stand."""
    for index, outcome in enumerate(outcomes):
        if isinstance(outcome, StartedRun) and outcome.terminated is not None:
            run_id = outcome.terminated.run_id
            aftermath = sql_inbox.settle_ends(tx, [ended[run_id]], [known.held[run_id]])
            outcomes[index] = replace(outcome, aftermath=aftermath)


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
    requests = _requests([(new.tenant_id, new.request_id) for new in starts])
    named = [new for new in starts if new.workflow_id]
    rejecting = [new for new in named if new.policy is WorkflowIdPolicy.REJECT]
    versions = sa.select(agents).where(
        sa.tuple_(agents.c.tenant_id, agents.c.name).in_(sorted({(new.tenant_id, new.agent_name) for new in starts}))
    )
    found_agents: dict[tuple[str, str], dict[str, Any]] = {}
    for row in connection.execute(versions):
        found_agents.setdefault((row.tenant_id, row.name), {})[row.digest] = row
    made_before = {
        (row.tenant_id, row.request_id): (row.run_id, row.request_digest) for row in connection.execute(requests)
    }
    open_workflows = _workflows(connection, named, runs.c.ended_us.is_(None))
    return _Known(
        held=_hold(
            connection, [new for new in starts if (new.tenant_id, new.request_id) not in made_before], open_workflows
        ),
        requests=made_before,
        open_workflows=open_workflows,
        any_workflows=_workflows(connection, rejecting, sa.true()),
        agents=found_agents,
        sessions=sessions,
        blobs=sql_blobs.hold(tx, [(new.tenant_id, new.input_blob) for new in starts if new.input_blob is not None]),
    )


def _requests(wanted: Sequence[tuple[str, str]]) -> sa.CompoundSelect[Any, Any, Any, Any]:
    """What these requests led to before, be it a run of their own or another's."""
    made, led = runs.c, start_requests.c
    return sa.union_all(
        sa.select(made.tenant_id, made.request_id, made.run_id, made.request_digest).where(
            sa.tuple_(made.tenant_id, made.request_id).in_(wanted)
        ),
        sa.select(led.tenant_id, led.request_id, led.run_id, led.request_digest).where(
            sa.tuple_(led.tenant_id, led.request_id).in_(wanted)
        ),
    )


def _hold(
    connection: sa.Connection, starts: Sequence[NewRun], open_workflows: Mapping[tuple[str, str], str]
) -> dict[str, Any]:
    """Locks the open runs that these starts end or send a signal to, and the parents of what they start."""
    wanted = {
        open_workflows.get((new.tenant_id, new.workflow_id), "")
        for new in starts
        if new.policy is WorkflowIdPolicy.TERMINATE_EXISTING
        or (new.policy is WorkflowIdPolicy.USE_EXISTING and new.signal is not None)
    } - {""}
    parents = {new.parent.run_id for new in starts if new.parent is not None}
    if not wanted | parents:
        return {}
    held = sql_inbox.lock(connection, sorted(wanted | parents), ending=sorted(wanted))
    if any(RunState(held[run_id].state) in run_state.FINAL for run_id in wanted):
        raise Collision("a run ended while a start was about to find it open")
    return held


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
    if new.policy is WorkflowIdPolicy.TERMINATE_EXISTING:
        return None
    if new.policy is WorkflowIdPolicy.USE_EXISTING:
        return _use(tx, new, run_id, known)
    raise LanternError(
        reasons.WORKFLOW_ID_IN_USE,
        f"workflow id {new.workflow_id!r} belongs to run {run_id}",
        field="workflow_id",
        run_id=run_id,
    )


def _use(tx: Transaction, new: NewRun, run_id: str, known: _Known) -> StartedRun:
    """The open run is the answer, and gets the signal; a repeat of the request finds it also once it has ended."""
    sent = None
    if new.signal is not None:
        sent = sql_inbox.deliver(tx, known.held[run_id], _entry(new, run_id, new.signal))
    tx.connection.execute(
        start_requests.insert().values(
            tenant_id=new.tenant_id, request_id=new.request_id, request_digest=new.request_digest, run_id=run_id
        )
    )
    return StartedRun(run=sql_runs.get_run(tx.connection, run_id), created=False, sent=sent)


def _entry(new: NewRun, run_id: str, signal: StartSignal) -> NewEntry:
    """The inbox entry of the signal that goes with a start; `#` keeps its request id apart from those of senders."""
    return NewEntry(
        request_id=f"start#{new.request_id}",
        run_id=run_id,
        kind=run_state.SIGNAL,
        name=signal.name,
        payload=signal.payload,
        salts=new.salts,
    )


def _depth(new: NewRun, known: _Known, ended: Mapping[str, RunChange]) -> int:
    """How deep below a run that nobody started the new one is; refused where its parent may not start it."""
    if new.parent is None:
        return 0
    parent = known.held.get(new.parent.run_id)
    makes_room_of = known.open_workflows.get((new.tenant_id, new.workflow_id)) if new.workflow_id else None
    if new.parent.run_id in ended or new.parent.run_id == makes_room_of:
        raise run_state.closed_error(new.parent.run_id, RunState.CANCELLED)
    return sql_family.depth_below(new, new.parent, parent)


def _terminate(
    tx: Transaction, new: NewRun, known: _Known, rows: list[Row], ended: dict[str, RunChange]
) -> Terminated | None:
    """Ends the open run whose workflow id the new one takes over; its event goes into `rows`.

    Under an epoch of its own, so that whatever its driver still sends is refused at once.
    """
    run_id = known.open_workflows.get((new.tenant_id, new.workflow_id)) if new.workflow_id else None
    if run_id is None:
        return None
    head = head_of(tx.connection, run_id)
    error = run_state.terminated_error(run_id, new.run_id)
    end = NewEvent(kind=kinds.RUN_CANCELLED, payload=payloads.pack(error.to_facts()), salt=new.end_salt)
    epoch = head.epoch + 1
    after = rows_of(run_id, head, epoch, tx.now_us, [end], rows)
    change = run_state.change_of(run_id, after.seq, [end], 0, after.time_us)
    assert change is not None, "a run that ends changes its row"
    ended[run_id] = change
    driver = sql_inbox.driver_of(tx.connection, run_id)
    sql_runs.apply_changes(tx.connection, [change], [run_id])
    tx.connection.execute(runs.update().where(runs.c.run_id == run_id).values(epoch=epoch))
    tx.connection.execute(run_locks.update().where(run_locks.c.run_id == run_id).values(epoch=epoch))
    return Terminated(run_id=run_id, driver=driver)


def _pin(tx: Transaction, new: NewRun, known: _Known, limits: Limits) -> tuple[int, str, bool]:
    """The version and digest that the run pins, and whether the lease is granted with it.

    It is where it was asked for and the worker's session can take it; the run then pins what that worker offers, else
    the current version: the one published last, or else the newest.
    """
    versions = known.agents.get((new.tenant_id, new.agent_name))
    if not versions:
        raise LanternError(
            reasons.AGENT_NOT_FOUND,
            f"nobody ever offered or published an agent {new.agent_name!r} in this tenant",
            field="agent_name",
            agent=new.agent_name,
        )
    current = max(versions.values(), key=lambda row: (row.published_us, row.version))
    if new.target is not None:
        found = known.sessions.get(new.target.worker_id)
        offers = leases.offers_of(found.offers, new.agent_name, current.program_kind) if found is not None else []
        if (
            found is not None
            and offers
            and found.tenant_id == new.tenant_id
            and leases.may_receive(found.session, new.target.session_number, tx.now_us, limits.silence_us)
        ):
            pinned = versions.get(offers[0].digest, current)
            return pinned.version, pinned.digest, True
    return current.version, current.digest, False
