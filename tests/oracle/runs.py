"""Runs: start, read, list, speak to; what appends change in them; claims on deliveries."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from lantern_journal.domain.appends import Row, event_of, not_found
from lantern_journal.domain.family import NOTHING, Aftermath
from lantern_journal.domain.leases import Limits
from lantern_journal.domain.records import (
    InboxEntry,
    NewEntry,
    NewRun,
    Run,
    SentEntry,
    StartedRun,
    Terminated,
    WorkflowIdPolicy,
)
from lantern_journal.domain.run_state import RunChange, RunState, error_facts
from lantern_journal.ports import Collision, GroupRefused
from lantern_kernel import kinds, reasons
from lantern_kernel.errors import InvalidField, LanternError
from lantern_kernel.event import NewEvent
from lantern_kernel.payloads import pack, unpack
from oracle import agents, family, leasing, waking
from oracle.tables import AgentRow, EntryRow, LockRow, RunRow, SessionRow, StartRequestRow, Tables

T = TypeVar("T")

EVENT_ROOM, RUN_ROOM, ENTRY_ROOM = 320, 1_000, 300
"""What a page counts for a row besides its payload."""


def page(rows: Iterable[T], size: Callable[[T], int], limit: int, bytes_max: int) -> tuple[list[T], bool]:
    """Rows from the first on, as many as fit, at least one; and whether there are more."""
    taken: list[T] = []
    total = 0
    for row in rows:
        total += size(row)
        if len(taken) == limit or (taken and total > bytes_max):
            return taken, True
        taken.append(row)
    return taken, False


def shown(tables: Tables, run: RunRow, *, with_data: bool) -> Run:
    """A run as it is read."""
    events = tables.events[run.run_id]
    succeeded = run.state == "SUCCEEDED"
    return Run(
        run_id=run.run_id,
        tenant_id=run.tenant_id,
        workflow_id=run.workflow_id,
        agent_name=run.agent_name,
        agent_version=run.agent_version,
        agent_digest=run.agent_digest,
        state=RunState(run.state),
        waiting_on=run.waiting_on,
        due_us=run.due_us,
        created_us=run.created_us,
        updated_us=run.updated_us,
        ended_us=run.ended_us,
        error=error_facts(run.error),
        traceparent=run.traceparent,
        inbox_number=run.inbox_number,
        consumed_inbox=run.consumed_inbox,
        epoch=run.epoch,
        end_seq=run.end_seq,
        input=unpack(events[0].payload).data if with_data else None,
        result=unpack(events[-1].payload).data if with_data and succeeded and not run.continued_as else None,
        durability=run.durability,
        parent_run_id=run.parent_run_id,
        parent_step_id=run.parent_step_id,
        depth=run.depth,
        continued_as=run.continued_as,
        continued_from=run.continued_from,
    )


def start(tables: Tables, new: NewRun, limits: Limits, now_us: int) -> StartedRun:
    """Starts a run or finds the one that was started before; raises why not."""
    before = next((r for r in tables.runs.values() if _names(r) == (new.tenant_id, new.request_id)), None)
    if before is not None:
        return _again(tables, new, before)
    found = next((r for r in tables.start_requests if (r.tenant_id, r.request_id) == _asked(new)), None)
    if found is not None:
        _check_digest(new, found.request_digest, found.run_id)
        return StartedRun(run=shown(tables, tables.runs[found.run_id], with_data=True), created=False)
    taken = _taken(tables, new)
    if taken is not None and new.policy is WorkflowIdPolicy.USE_EXISTING:
        return _use(tables, new, taken, now_us)
    if taken is not None and new.policy is not WorkflowIdPolicy.TERMINATE_EXISTING:
        raise LanternError(reasons.WORKFLOW_ID_IN_USE, "taken", field="workflow_id", run_id=taken.run_id)
    agent, session = _pin(tables, new, limits, now_us)
    depth = family.depth_of(tables, new, taken)
    terminated, aftermath = (None, NOTHING) if taken is None else _terminate(tables, new, taken, now_us)
    is_granted = session is not None
    run = tables.runs[new.run_id] = _new_row(
        new, agent, now_us, is_granted=is_granted, event_level=session.event_level if session is not None else 1
    )
    run.depth = depth
    facts: dict[str, Any] = {
        "agent": agent.name,
        "version": agent.version,
        "digest": agent.digest,
        "workflowId": new.workflow_id,
        "requestId": new.request_id,
        "traceparent": new.traceparent,
    }
    family.name(tables, new, run, facts)
    first = NewEvent(kind=kinds.RUN_STARTED, payload=pack(facts, new.input), salt=new.salts[0])
    events = tables.append(new.run_id, 0, now_us, first)
    if is_granted:
        assert new.target is not None, "granted to somebody"
        events += tables.append(new.run_id, 1, now_us, leasing.granted_event(new.target, "start", new.salts[1]))
        tables.locks[new.run_id] = LockRow(
            run_id=new.run_id,
            worker_id=new.target.worker_id,
            session_number=new.target.session_number,
            epoch=1,
            acquired_us=now_us,
            expires_us=now_us + limits.grant_us,
            opened=False,
        )
    if new.signal is not None:
        send(tables, _signal_of(new, new.run_id), now_us)
    return StartedRun(
        run=shown(tables, run, with_data=True),
        created=True,
        events=tuple(events) if is_granted else (),
        terminated=terminated,
        aftermath=aftermath,
    )


def _asked(new: NewRun) -> tuple[str, str]:
    return new.tenant_id, new.request_id


def _signal_of(new: NewRun, run_id: str) -> NewEntry:
    assert new.signal is not None, "there is one"
    return NewEntry(
        request_id="start#" + new.request_id,
        run_id=run_id,
        kind="signal",
        name=new.signal.name,
        payload=new.signal.payload,
        salts=new.salts,
    )


def _use(tables: Tables, new: NewRun, run: RunRow, now_us: int) -> StartedRun:
    """The open run is what was asked for; the signal goes to it."""
    sent = None if new.signal is None else send(tables, _signal_of(new, run.run_id), now_us)
    tables.start_requests.append(
        StartRequestRow(
            tenant_id=new.tenant_id,
            request_id=new.request_id,
            request_digest=new.request_digest,
            run_id=run.run_id,
        )
    )
    return StartedRun(run=shown(tables, run, with_data=True), created=False, sent=sent)


def _terminate(tables: Tables, new: NewRun, run: RunRow, now_us: int) -> tuple[Terminated, Aftermath]:
    """Ends the run that has the workflow id, one epoch further on."""
    lock = tables.locks.get(run.run_id)
    driver = lock.worker_id if lock is not None else ""
    run.epoch += 1
    if lock is not None:
        lock.epoch = run.epoch
    facts = {
        "code": "RUN_TERMINATED",
        "message": f"run {new.run_id} was started in place of it",
        "details": {"by": new.run_id, "run": run.run_id},
    }
    end = NewEvent(kind=kinds.RUN_CANCELLED, payload=pack(facts), salt=new.end_salt)
    (made,) = tables.append(run.run_id, run.epoch, now_us, end)
    _end(tables, run, made.time_us, made.seq, facts)
    told = family.ended(tables, run, made, now_us, send)
    return Terminated(run_id=run.run_id, driver=driver), told


def _end(tables: Tables, run: RunRow, time_us: int, seq: int, facts: dict[str, Any]) -> None:
    """What the journal's own run_cancelled changes."""
    run.state, run.waiting_on, run.due_us = "CANCELLED", "", None
    run.error = json.dumps(facts).encode()
    run.wake_reason, run.recover_after_us, run.drive_faults = "timer", 0, 0
    run.awaited_signals, run.nothing_to_compensate = "", False
    run.updated_us = run.ended_us = time_us
    run.end_seq = seq
    leasing.clear(tables, run.run_id)


def _names(run: RunRow) -> tuple[str, str]:
    return run.tenant_id, run.request_id


def _again(tables: Tables, new: NewRun, run: RunRow) -> StartedRun:
    _check_digest(new, run.request_digest, run.run_id)
    view = shown(tables, run, with_data=True)
    if run.run_id != new.run_id:
        return StartedRun(run=view, created=False)
    first = tables.events[run.run_id][:2]
    granted = len(first) == 2 and first[1].salt == new.salts[1]
    return StartedRun(run=view, created=True, events=tuple(first) if granted else ())


def _check_digest(new: NewRun, before: bytes, run_id: str) -> None:
    if before != new.request_digest:
        raise LanternError(reasons.REQUEST_ID_REUSED, "other content", field="request_id", run_id=run_id)


def _taken(tables: Tables, new: NewRun) -> RunRow | None:
    """Who has the workflow id: an open run, or under `reject` any."""
    is_any = new.policy is WorkflowIdPolicy.REJECT
    having = [
        run
        for run in tables.runs.values()
        if new.workflow_id
        and (run.tenant_id, run.workflow_id) == (new.tenant_id, new.workflow_id)
        and (is_any or run.is_open)
    ]
    return max(having, key=lambda run: run.run_id, default=None)


def _pin(tables: Tables, new: NewRun, limits: Limits, now_us: int) -> tuple[AgentRow, SessionRow | None]:
    """The version that the run pins, and the session that gets the lease with it."""
    versions = agents.versions(tables, new.tenant_id, new.agent_name)
    if not versions:
        raise LanternError(reasons.AGENT_NOT_FOUND, "unknown", field="agent_name", agent=new.agent_name)
    session = tables.sessions.get(new.target.worker_id) if new.target is not None else None
    if session is not None and new.target is not None:
        offered = (o for o in session.agents if agents.is_of(tables, new.tenant_id, new.agent_name, o))
        offer = next(offered, None)
        fits = session.tenant_id == new.tenant_id and session.session_number == new.target.session_number
        if offer is not None and fits and not session.draining and waking.is_alive(session, now_us, limits):
            if offer.name == "*":
                return agents.current(tables, new.tenant_id, new.agent_name), session
            return next(a for a in versions if a.digest == offer.digest), session
    return agents.current(tables, new.tenant_id, new.agent_name), None


def _new_row(new: NewRun, agent: AgentRow, now_us: int, *, is_granted: bool, event_level: int) -> RunRow:
    return RunRow(
        run_id=new.run_id,
        tenant_id=new.tenant_id,
        request_id=new.request_id,
        request_digest=new.request_digest,
        workflow_id=new.workflow_id,
        agent_name=agent.name,
        agent_version=agent.version,
        agent_digest=agent.digest,
        state="RUNNING" if is_granted else "QUEUED",
        waiting_on="",
        due_us=None,
        error=None,
        wake_reason="start",
        recover_after_us=0,
        created_us=now_us,
        updated_us=now_us,
        ended_us=None,
        end_seq=None,
        traceparent=new.traceparent,
        epoch=1 if is_granted else 0,
        inbox_number=0,
        consumed_inbox=0,
        cancel_seq=None,
        failed_digests="",
        drive_faults=0,
        awaited_signals="",
        nothing_to_compensate=False,
        event_level=event_level,
    )


def insert_group(tables: Tables, rows: Sequence[Row], changes: Sequence[RunChange], now_us: int) -> Aftermath:
    """A group of appends: all of it, or nothing and why."""
    cancelled: set[str] = set()
    errors: dict[int, Exception] = {
        index: error
        for index, change in enumerate(changes)
        if (error := _refusal(tables, change, cancelled)) is not None
    }
    if errors:
        raise GroupRefused(errors)
    if any(row.seq <= len(tables.events.get(row.run_id, ())) for row in rows):
        raise Collision("occupied")
    for row in rows:
        tables.events.setdefault(row.run_id, []).append(event_of(row))
    for change in changes:
        _apply(tables, change)
    parked = [tables.runs[change.run_id] for change in changes if change.ends_with == kinds.RUN_PARKED]
    told = Aftermath(queued=tuple(run.run_id for run in parked if waking.wake_late(tables, run, now_us)))
    for change in changes:
        if change.ends_with in kinds.TERMINAL:
            run = tables.runs[change.run_id]
            told += family.ended(tables, run, tables.events[run.run_id][-1], now_us, send)
    return told


def _refusal(tables: Tables, change: RunChange, cancelled: set[str]) -> LanternError | None:
    """Why an append may not change its run; `cancelled` gathers the runs whose cancel this very group takes in."""
    run = tables.runs.get(change.run_id)
    if run is None:
        return not_found(change.run_id)
    if change.cancel_seq or run.cancel_seq is not None:
        cancelled.add(run.run_id)
    if not change.ends_with:
        return None
    if not run.is_open:
        return LanternError(reasons.RUN_CLOSED, "ended", run_id=run.run_id, state=run.state)
    if change.consumed > run.inbox_number:
        return InvalidField("consumed_inbox_number", "above the last")
    if change.consumed < run.inbox_number and change.taken_in < run.inbox_number:
        return LanternError(reasons.INBOX_AHEAD, "more", last_inbox_number=run.inbox_number)
    if change.ends_with == kinds.RUN_SUCCEEDED and run.run_id in cancelled:
        return LanternError(reasons.CANCEL_REQUESTED, "being cancelled", run=run.run_id)
    if run.state == "WAITING" and change.ends_with == kinds.RUN_PARKED:
        return LanternError(reasons.LEASE_LOST, "driven by nobody", run_id=run.run_id)
    return None


_FINAL = {kinds.RUN_SUCCEEDED: "SUCCEEDED", kinds.RUN_FAILED: "FAILED", kinds.RUN_CANCELLED: "CANCELLED"}


def _apply(tables: Tables, change: RunChange) -> None:
    run = tables.runs[change.run_id]
    run.consumed_inbox = max(run.consumed_inbox, change.taken_in, change.consumed if change.ends_with else 0)
    if run.cancel_seq is None and change.cancel_seq:
        run.cancel_seq = change.cancel_seq
    if not change.ends_with:
        return
    run.state = _FINAL.get(change.ends_with, "WAITING")
    run.waiting_on, run.due_us, run.error = change.waiting_on, change.due_us, change.error
    run.wake_reason, run.recover_after_us, run.updated_us, run.drive_faults = "timer", 0, change.time_us, 0
    run.awaited_signals, run.nothing_to_compensate = " ".join(change.signals), change.nothing_to_compensate
    if run.state != "WAITING":
        run.ended_us, run.end_seq = change.time_us, change.last_seq
    leasing.clear(tables, run.run_id)


def send(tables: Tables, entry: NewEntry, now_us: int) -> SentEntry:
    """Takes an inbox entry in; wakes the run where it waits for it, or ends it where a cancel may at once."""
    run = leasing.run_of(tables, entry.run_id)
    inbox = tables.inboxes.setdefault(entry.run_id, [])
    before = next((e for e in inbox if e.request_id == entry.request_id), None)
    if before is not None:
        if (before.kind, before.name, before.payload) != (entry.kind, entry.name, entry.payload):
            raise LanternError(reasons.REQUEST_ID_REUSED, "other", field="request_id", run_id=run.run_id)
        return SentEntry(number=before.number, repeated=True, state=RunState(run.state))
    if not run.is_open and entry.kind == "cancel":
        return SentEntry(number=0, repeated=False, state=RunState(run.state), already_ended=True)
    if not run.is_open:
        raise LanternError(reasons.RUN_CLOSED, "ended", run_id=run.run_id, state=run.state)
    run.inbox_number += 1
    number = run.inbox_number
    inbox.append(
        EntryRow(
            run_id=run.run_id,
            number=number,
            request_id=entry.request_id,
            kind=entry.kind,
            name=entry.name,
            payload=entry.payload,
            created_us=now_us,
        )
    )
    lock = tables.locks.get(run.run_id)
    sent = SentEntry(number=number, repeated=False, state=RunState(run.state))
    if run.state == "RUNNING":
        return replace(sent, driver=lock.worker_id if lock else "")
    can_end = run.epoch == 0 or run.waiting_on == "code_fix" or run.nothing_to_compensate
    if entry.kind == "cancel" and can_end:
        told = _end_at_once(tables, run, entry, now_us)
        return replace(sent, state=RunState.CANCELLED, ended=True, aftermath=told)
    if entry.kind == "pause" and run.waiting_on != "paused":
        _pause(tables, run, entry, now_us)
        return replace(sent, state=RunState.WAITING, moved=True)
    if entry.kind == "resume" and run.waiting_on == "paused":
        return _resume(tables, run, entry, sent, now_us)
    called = waking.is_called(run.waiting_on, run.awaited_signals.split(), entry.kind, entry.name)
    if run.state == "WAITING" and called:
        if entry.kind == "resume":
            run.failed_digests = ""
        waking.wake(run, "signal", now_us)
        return replace(sent, state=RunState.QUEUED, woken=True)
    return sent


def _end_at_once(tables: Tables, run: RunRow, entry: NewEntry, now_us: int) -> Aftermath:
    facts = {"code": "CANCEL_REQUESTED", "message": "cancelled on request"}
    asked = NewEvent(kind=kinds.CANCEL_REQUESTED, payload=pack({"number": run.inbox_number}), salt=entry.salts[0])
    ended = NewEvent(kind=kinds.RUN_CANCELLED, payload=pack(facts), salt=entry.salts[1])
    asked_event, last = tables.append(run.run_id, run.epoch, now_us, asked, ended)
    run.consumed_inbox = run.inbox_number
    run.cancel_seq = run.cancel_seq if run.cancel_seq is not None else asked_event.seq
    _end(tables, run, last.time_us, last.seq, facts)
    return family.ended(tables, run, last, now_us, send)


def _pause(tables: Tables, run: RunRow, entry: NewEntry, now_us: int) -> None:
    """The journal parks a run that nobody drives, and notes what it waited on."""
    facts: dict[str, Any] = {"on": "paused"}
    if run.nothing_to_compensate:
        facts["nothingToCompensate"] = True
    if run.waiting_on:
        facts["before"] = _wait(run.waiting_on, run.due_us, run.awaited_signals.split())
    _park(tables, run, facts, entry, now_us)
    run.waiting_on, run.due_us, run.awaited_signals = "paused", None, ""


def _wait(on: str, due_us: int | None, signals: list[str]) -> dict[str, Any]:
    due = {} if due_us is None else {"dueUs": due_us}
    return {"on": on, **due, **({"signals": signals} if signals else {})}


def _park(tables: Tables, run: RunRow, facts: dict[str, Any], entry: NewEntry, now_us: int) -> None:
    event = NewEvent(kind=kinds.RUN_PARKED, payload=pack(facts), salt=entry.salts[0])
    (made,) = tables.append(run.run_id, run.epoch, now_us, event)
    run.state, run.error, run.recover_after_us, run.updated_us = "WAITING", None, 0, made.time_us


def _resume(tables: Tables, run: RunRow, entry: NewEntry, sent: SentEntry, now_us: int) -> SentEntry:
    """Back to what it waited on, unless something of that may have come; then to whoever drives it."""
    last = tables.events[run.run_id][-1]
    before = unpack(last.payload).facts.get("before") if last.kind == kinds.RUN_PARKED else None
    waits = before is not None and before["on"] in ("timer", "signal", "approval", "child")
    since = [row for row in tables.inboxes[run.run_id] if row.number > run.consumed_inbox]
    if (
        before is None
        or not waits
        or any(waking.is_called(before["on"], before.get("signals", []), row.kind, row.name) for row in since)
    ):
        waking.wake(run, "start" if run.epoch == 0 else "signal", now_us)
        return replace(sent, state=RunState.QUEUED, woken=True)
    on, due_us, signals = before["on"], before.get("dueUs"), before.get("signals", [])
    facts = _wait(on, due_us, signals)
    if run.nothing_to_compensate:
        facts["nothingToCompensate"] = True
    _park(tables, run, facts, entry, now_us)
    run.waiting_on, run.due_us, run.awaited_signals = on, due_us, " ".join(signals)
    return replace(sent, state=RunState.WAITING, moved=True, due_us=due_us)


def entries(tables: Tables, run_id: str, after: int, limit: int, bytes_max: int) -> tuple[list[InboxEntry], bool]:
    """A page of inbox entries."""
    leasing.run_of(tables, run_id)
    rows = [row for row in tables.inboxes.get(run_id, []) if row.number > after]
    taken, has_more = page(rows, lambda row: len(row.payload) + ENTRY_ROOM, limit, bytes_max)
    return [
        InboxEntry(number=r.number, kind=r.kind, name=r.name, payload=r.payload, created_us=r.created_us) for r in taken
    ], has_more
