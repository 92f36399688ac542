"""The rows that a run begins with, in SQL: its first events, its row and, where it is granted at once, its lock."""

from typing import Any

from lantern_journal.adapters.sql_events import Transaction
from lantern_journal.domain import leases, run_state
from lantern_journal.domain.appends import Row, genesis, rows_of
from lantern_journal.domain.leases import Limits
from lantern_journal.domain.records import NewRun, Run
from lantern_journal.domain.run_state import RunState
from lantern_kernel import kinds, payloads
from lantern_kernel.event import NewEvent


def first_rows(now_us: int, new: NewRun, version: int, digest: str, *, granted: bool, depth: int = 0) -> list[Row]:
    """Its run_started and, where it is granted at once, the lease_granted."""
    facts: dict[str, Any] = {
        "agent": new.agent_name,
        "version": version,
        "digest": digest,
        "workflowId": new.workflow_id,
        "requestId": new.request_id,
        "traceparent": new.traceparent,
    }
    if new.durability != "sync":
        facts["durability"] = new.durability
    if new.parent is not None:
        facts["parent"] = {"runId": new.parent.run_id, "stepId": new.parent.step_id, "depth": depth}
        if new.parent.abandon:
            facts["parent"]["abandoned"] = True
    if new.continued_from:
        facts["continuedFrom"] = new.continued_from
    started = NewEvent(
        kind=kinds.RUN_STARTED, payload=payloads.pack(facts, new.input_blob or new.input), salt=new.salts[0]
    )
    rows: list[Row] = []
    head = rows_of(new.run_id, genesis(new.run_id), 0, now_us, [started], rows)
    if granted:
        assert new.target is not None
        payload = leases.grant_payload(new.target.worker_id, new.target.session_number, run_state.STARTED)
        grant = NewEvent(kind=kinds.LEASE_GRANTED, payload=payload, salt=new.salts[1])
        rows_of(new.run_id, head, 1, now_us, [grant], rows)
    return rows


def run_of(now_us: int, new: NewRun, version: int, digest: str, *, granted: bool, depth: int = 0) -> Run:
    """The run as it begins."""
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
        created_us=now_us,
        updated_us=now_us,
        ended_us=None,
        error=None,
        traceparent=new.traceparent,
        inbox_number=0 if new.signal is None else 1,
        consumed_inbox=0,
        epoch=1 if granted else 0,
        end_seq=None,
        input=new.input if new.input_blob is None else None,
        input_blob=new.input_blob,
        durability=new.durability,
        parent_run_id=new.parent.run_id if new.parent is not None else "",
        parent_step_id=new.parent.step_id if new.parent is not None else "",
        depth=depth,
        continued_from=new.continued_from,
    )


def row_of_run(new: NewRun, run: Run, event_level: int) -> dict[str, Any]:
    """Its row."""
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
        "archived": False,
        "updated_us": run.updated_us,
        "traceparent": run.traceparent,
        "epoch": run.epoch,
        "inbox_number": run.inbox_number,
        "consumed_inbox": 0,
        "failed_digests": "",
        "drive_faults": 0,
        "awaited_signals": "",
        "nothing_to_compensate": False,
        "event_level": event_level,
        "durability": run.durability,
        "parent_run_id": run.parent_run_id,
        "parent_step_id": run.parent_step_id,
        "depth": run.depth,
        "continued_from": run.continued_from,
        "abandoned": new.parent is not None and new.parent.abandon,
    }


def lock_values(tx: Transaction, new: NewRun, limits: Limits) -> dict[str, Any]:
    """Its lock."""
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
