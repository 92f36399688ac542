"""The rows of approvals as the events of their runs make and end them, in SQL; always under the run's own row lock."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from lantern_journal.adapters.schema import approvals, runs
from lantern_journal.domain.approvals import ApprovalState
from lantern_journal.domain.run_state import RunChange

# The literal condition is that of a partial index.
PENDING = sa.text("approvals.state = 'PENDING'")

HAS_PENDING = sa.exists().where(approvals.c.run_id == runs.c.run_id, PENDING)
"""Of a run: whether somebody is still to decide something of it."""


def known(connection: sa.Connection, changes: Sequence[RunChange]) -> frozenset[tuple[str, str]]:
    """Which of the approvals that a group asks for were asked for before: run and approval."""
    wanted = [(change.run_id, request.approval_id) for change in changes for request in change.approvals]
    if not wanted:
        return frozenset()
    query = sa.select(approvals.c.run_id, approvals.c.approval_id).where(
        sa.tuple_(approvals.c.run_id, approvals.c.approval_id).in_(wanted)
    )
    return frozenset((run_id, approval_id) for run_id, approval_id in connection.execute(query))


def add(connection: sa.Connection, changes: Sequence[RunChange]) -> None:
    """Makes the rows of what a group asks for."""
    asking = {change.run_id for change in changes if change.approvals}
    if not asking:
        return
    query = sa.select(runs.c.run_id, runs.c.tenant_id, runs.c.agent_name, runs.c.workflow_id)
    owners = {row.run_id: row for row in connection.execute(query.where(runs.c.run_id.in_(asking)))}
    values: list[dict[str, Any]] = [
        {
            "run_id": change.run_id,
            "approval_id": request.approval_id,
            "tenant_id": owners[change.run_id].tenant_id,
            "agent_name": owners[change.run_id].agent_name,
            "workflow_id": owners[change.run_id].workflow_id,
            "step_id": request.step_id,
            "state": ApprovalState.PENDING.value,
            "assignee": request.assignee,
            "title": request.title,
            "requested_us": change.time_us,
            "requested_seq": request.seq,
            "expires_us": request.expires_us,
            "decided_by": "",
            "request_id": "",
        }
        for change in changes
        for request in change.approvals
    ]
    connection.execute(approvals.insert(), values)


def withdraw(connection: sa.Connection, ended: Sequence[RunChange]) -> None:
    """Nobody is to decide anything of runs that have ended."""
    for change in ended:
        connection.execute(
            approvals.update()
            .where(approvals.c.run_id == change.run_id, PENDING)
            .values(state=ApprovalState.WITHDRAWN.value, decided_us=change.time_us)
        )
