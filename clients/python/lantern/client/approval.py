"""Approvals as a client sees them, and how they are read from the wire."""

from dataclasses import dataclass

from lantern.api.journal.v1 import approval_service_pb2 as pb
from lantern_kernel.errors import InvalidField

STATES = ("PENDING", "APPROVED", "DENIED", "EXPIRED", "WITHDRAWN")

_STATE_PREFIX = "STATE_"


@dataclass(frozen=True, kw_only=True, slots=True)
class Approval:
    """What a run asks somebody to decide. Times are microseconds since the Unix epoch."""

    # The run.
    run_id: str
    # Unique within the run.
    approval_id: str
    # The tenant that owns the run.
    tenant_id: str
    # What the run executes.
    agent_name: str
    # The run's workflow id; may be empty.
    workflow_id: str
    # The step that asks.
    step_id: str
    # One of STATES.
    state: str
    # Whose inbox it is in; may be empty.
    assignee: str
    # For people; may be empty.
    title: str
    # When it was asked for.
    request_us: int
    # When it expires; None for never.
    expire_us: int | None
    # When it was decided; None while it is not.
    decide_us: int | None
    # Who decided; may be empty.
    decided_by: str
    # What whoever decided had to say (JSON); empty in lists.
    comment: bytes
    # The place of its approval_requested event.
    requested_seq: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ApprovalPage:
    """A page of approvals."""

    # Oldest first.
    approvals: tuple[Approval, ...]
    # For the next page; empty at the end.
    next_page_token: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """What is recorded of an approval after somebody decided."""

    # The approval.
    approval: Approval
    # Whether another request had decided so before.
    already_decided: bool


def approval_from_wire(message: pb.Approval) -> Approval:
    """An approval from its message."""
    return Approval(
        run_id=message.run_id,
        approval_id=message.approval_id,
        tenant_id=message.tenant_id,
        agent_name=message.agent_name,
        workflow_id=message.workflow_id,
        step_id=message.step_id,
        state=pb.Approval.State.Name(message.state).removeprefix(_STATE_PREFIX),
        assignee=message.assignee,
        title=message.title,
        request_us=message.request_time.ToMicroseconds(),
        expire_us=message.expire_time.ToMicroseconds() if message.HasField("expire_time") else None,
        decide_us=message.decide_time.ToMicroseconds() if message.HasField("decide_time") else None,
        decided_by=message.decided_by,
        comment=message.comment,
        requested_seq=message.requested_seq,
    )


def approval_state_to_wire(state: str) -> str:
    """The enum value's name of a state (one of STATES); raises InvalidField where there is no such state."""
    if state not in STATES:
        raise InvalidField("states", f"{state!r} must be one of {', '.join(STATES)}")
    return _STATE_PREFIX + state
