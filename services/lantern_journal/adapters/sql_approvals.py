"""Decisions on approvals in SQL (SPEC G5): the first one wins, under the row lock of its run."""

from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from lantern_journal.adapters import sql_inbox
from lantern_journal.adapters.schema import approvals
from lantern_journal.adapters.sql_approval_rows import PENDING
from lantern_journal.adapters.sql_events import Transaction
from lantern_journal.domain import appends, run_state
from lantern_journal.domain.approvals import (
    Approval,
    ApprovalFilter,
    ApprovalState,
    Decided,
    Decision,
    Delegation,
    Expired,
    decided_error,
    not_found,
)
from lantern_journal.domain.records import NewEntry, SentEntry
from lantern_journal.domain.run_state import RunState
from lantern_kernel.payloads import DecisionFacts

_NO_SALTS = (b"", b"")
"""A decision makes no event of the journal's own."""


def decide(tx: Transaction, decision: Decision) -> Decided:
    """Takes a decision, or says what was decided before; one that comes after its time is the expiry's."""
    run, row = _lock(tx, decision.run_id, decision.approval_id)
    known = _approval(row)
    if known.state is not ApprovalState.PENDING:
        if known.state is ApprovalState.WITHDRAWN:
            raise run_state.closed_error(run.run_id, run.state)
        if known.state is not decision.state:
            raise decided_error(known)
        return Decided(approval=known, already_decided=row.request_id != decision.request_id)
    if RunState(run.state) in run_state.FINAL:
        raise run_state.closed_error(run.run_id, run.state)
    if known.expires_us is not None and known.expires_us <= tx.now_us:
        decided, sent = _settle(tx, run, known, ApprovalState.EXPIRED, "", "", None)
        return _told(Decided(approval=decided, expired=True), sent)
    decided, sent = _settle(tx, run, known, decision.state, decision.by, decision.request_id, decision.comment)
    return _told(Decided(approval=decided), sent)


def delegate(tx: Transaction, delegation: Delegation) -> Decided:
    """Gives an approval to somebody else; the run's history tells of it."""
    run, row = _lock(tx, delegation.run_id, delegation.approval_id)
    known = _approval(row)
    if known.state is ApprovalState.WITHDRAWN:
        raise run_state.closed_error(run.run_id, run.state)
    if known.state is not ApprovalState.PENDING:
        raise decided_error(known)
    facts = DecisionFacts(
        approval_id=known.approval_id,
        step_id=known.step_id,
        decision="delegated",
        by=delegation.by,
        assignee=delegation.assignee,
    )
    sent = sql_inbox.deliver(
        tx, run, _entry(known, run_state.DELEGATION, f"delegate#{delegation.request_id}", facts.pack(None))
    )
    if sent.repeated or known.assignee == delegation.assignee:
        return _told(Decided(approval=known), sent)
    _update(tx, known, {"assignee": delegation.assignee})
    return _told(Decided(approval=replace(known, assignee=delegation.assignee)), sent)


def expire(tx: Transaction, limit: int) -> list[Expired]:
    """Decides what nobody has decided in time, at most so many, the oldest first."""
    query = sa.select(approvals.c.run_id, approvals.c.approval_id).where(
        # The literal conditions are those of a partial index.
        PENDING,
        sa.text("approvals.expires_us IS NOT NULL"),
        approvals.c.expires_us <= tx.now_us,
    )
    due = tx.connection.execute(query.order_by(approvals.c.expires_us).limit(limit)).all()
    if not due:
        return []
    runs = sql_inbox.lock(tx.connection, sorted({row.run_id for row in due}))
    done: list[Expired] = []
    for run_id, approval_id in sorted((row.run_id, row.approval_id) for row in due):
        known = _approval(_find(tx, run_id, approval_id))
        if known.state is not ApprovalState.PENDING:
            continue  # somebody was first
        if RunState(runs[run_id].state) in run_state.FINAL:
            _update(tx, known, {"state": ApprovalState.WITHDRAWN.value, "decided_us": tx.now_us})
            continue
        _, sent = _settle(tx, runs[run_id], known, ApprovalState.EXPIRED, "", "", None)
        # The next one of the same run builds on this one.
        runs = sql_inbox.lock(tx.connection, [run_id]) | {k: v for k, v in runs.items() if k != run_id}
        done.append(Expired(run_id=run_id, number=sent.number, woken=sent.woken, driver=sent.driver))
    return done


def next_expiry_us(connection: sa.Connection) -> int | None:
    """When the next approval expires; None where none does."""
    query = sa.select(sa.func.min(approvals.c.expires_us)).where(PENDING, sa.text("approvals.expires_us IS NOT NULL"))
    return connection.execute(query).scalar()


def list_approvals(
    connection: sa.Connection, wanted: ApprovalFilter, after: tuple[int, str, str], limit: int
) -> list[Approval]:
    """Approvals behind a position (time, run, approval), oldest first, without what was said."""
    where: list[sa.ColumnElement[bool] | sa.TextClause] = [approvals.c.tenant_id == wanted.tenant_id]
    if wanted.states == (ApprovalState.PENDING,):
        where.append(PENDING)
    elif wanted.states:
        where.append(approvals.c.state.in_([state.value for state in wanted.states]))
    if wanted.assignee:
        where.append(approvals.c.assignee == wanted.assignee)
    if wanted.run_id:
        where.append(approvals.c.run_id == wanted.run_id)
    place = sa.tuple_(approvals.c.requested_us, approvals.c.run_id, approvals.c.approval_id)
    query = (
        sa.select(*(column for column in approvals.c if column is not approvals.c.comment))
        .where(*where, place > sa.tuple_(*map(sa.literal, after)))
        .order_by(approvals.c.requested_us, approvals.c.run_id, approvals.c.approval_id)
        .limit(limit)
    )
    return [_approval(row, with_comment=False) for row in connection.execute(query)]


def _lock(tx: Transaction, run_id: str, approval_id: str) -> tuple[Any, Any]:
    run = sql_inbox.lock(tx.connection, [run_id]).get(run_id)
    if run is None:
        raise appends.not_found(run_id)
    row = _find(tx, run_id, approval_id)
    if row is None:
        raise not_found(run_id, approval_id)
    return run, row


def _find(tx: Transaction, run_id: str, approval_id: str) -> Any:
    query = sa.select(approvals).where(approvals.c.run_id == run_id, approvals.c.approval_id == approval_id)
    return tx.connection.execute(query).one_or_none()


def _settle(
    tx: Transaction, run: Any, known: Approval, state: ApprovalState, by: str, request_id: str, comment: bytes | None
) -> tuple[Approval, SentEntry]:
    """The decision: the approval's row, its run's inbox, and the wake-up of the run."""
    facts = DecisionFacts(approval_id=known.approval_id, step_id=known.step_id, decision=state.value.lower(), by=by)
    # One entry for each approval, whoever decides it.
    entry = _entry(known, run_state.DECISION, f"approval#{known.approval_id}", facts.pack(comment))
    sent = sql_inbox.deliver(tx, run, entry)
    _update(
        tx,
        known,
        {
            "state": state.value,
            "decided_us": tx.now_us,
            "decided_by": by,
            "request_id": request_id,
            "comment": comment,
        },
    )
    return replace(known, state=state, decided_us=tx.now_us, decided_by=by, comment=comment), sent


def _entry(known: Approval, kind: str, request_id: str, payload: bytes) -> NewEntry:
    """An entry of the journal's own; `#` keeps its request id apart from those of senders."""
    return NewEntry(
        request_id=request_id,
        run_id=known.run_id,
        kind=kind,
        name=known.approval_id,
        payload=payload,
        salts=_NO_SALTS,
    )


def _update(tx: Transaction, known: Approval, values: dict[str, Any]) -> None:
    tx.connection.execute(
        approvals.update()
        .where(approvals.c.run_id == known.run_id, approvals.c.approval_id == known.approval_id)
        .values(values)
    )


def _told(decided: Decided, sent: SentEntry) -> Decided:
    return replace(decided, number=sent.number, woken=sent.woken, driver=sent.driver)


def _approval(row: Any, *, with_comment: bool = True) -> Approval:
    return Approval(
        run_id=row.run_id,
        approval_id=row.approval_id,
        tenant_id=row.tenant_id,
        agent_name=row.agent_name,
        workflow_id=row.workflow_id,
        step_id=row.step_id,
        state=ApprovalState(row.state),
        assignee=row.assignee,
        title=row.title,
        requested_us=row.requested_us,
        requested_seq=row.requested_seq,
        expires_us=row.expires_us,
        decided_us=row.decided_us,
        decided_by=row.decided_by,
        comment=row.comment if with_comment else None,
    )
