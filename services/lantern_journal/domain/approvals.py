"""Approvals: asked for by an event, decided once, by whoever is first (SPEC G5).

PENDING --approved | denied--> final          PENDING --expired (its time has come)--> final
PENDING --withdrawn (its run has ended)--> final     PENDING --delegated--> PENDING
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

from lantern_kernel import payloads, reasons
from lantern_kernel.errors import InvalidField, LanternError
from lantern_kernel.event import NewEvent
from lantern_kernel.payloads import ApprovalFacts


class ApprovalState(StrEnum):
    """Where an approval stands, as stored."""

    PENDING = "PENDING"
    APPROVED = "APPROVED"
    DENIED = "DENIED"
    EXPIRED = "EXPIRED"
    # Its run ended before anybody decided.
    WITHDRAWN = "WITHDRAWN"


@dataclass(frozen=True, kw_only=True, slots=True)
class ApprovalRequest:
    """What an approval_requested event asks for."""

    # Unique within the run.
    approval_id: str
    # The step that asks.
    step_id: str
    # The place of its event.
    seq: int
    # Whose inbox it is in; may be empty.
    assignee: str
    # For people; may be empty.
    title: str
    # When it expires; None for never.
    expires_us: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Approval:
    """An approval."""

    # Its run.
    run_id: str
    # Unique within the run.
    approval_id: str
    # The owner of the run.
    tenant_id: str
    # What the run executes.
    agent_name: str
    # The run's workflow id; may be empty.
    workflow_id: str
    # The step that asked.
    step_id: str
    # Where it stands.
    state: ApprovalState
    # Whose inbox it is in; may be empty.
    assignee: str
    # For people; may be empty.
    title: str
    # When it was asked for.
    requested_us: int
    # The place of its approval_requested.
    requested_seq: int
    # When it expires; None for never.
    expires_us: int | None
    # When it was decided; None while it is not.
    decided_us: int | None
    # Who decided; empty while nobody did, and for an expiry.
    decided_by: str
    # What whoever decided had to say (JSON); None where there is none.
    comment: bytes | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """A decision that somebody takes."""

    # Unique per logical request within the approval.
    request_id: str
    # The run.
    run_id: str
    # Which approval of it.
    approval_id: str
    # APPROVED or DENIED.
    state: ApprovalState
    # Who.
    by: str
    # What they have to say (JSON); None for nothing.
    comment: bytes | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Delegation:
    """An approval that is to be decided by somebody else."""

    # Unique per logical request within the run.
    request_id: str
    # The run.
    run_id: str
    # Which approval of it.
    approval_id: str
    # To whom.
    assignee: str
    # By whom.
    by: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Decided:
    """What became of a decision or a delegation."""

    # The approval as it is now recorded.
    approval: Approval
    # Somebody had decided so before.
    already_decided: bool = False
    # The number of the inbox entry that this call made; 0 where it made none.
    number: int = 0
    # The run was waiting and is now queued.
    woken: bool = False
    # Who drives the run now; empty where nobody does.
    driver: str = ""
    # The approval had expired by the time of the call: that is its decision, and the caller's is refused.
    expired: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Expired:
    """What an expiry did."""

    # The run.
    run_id: str
    # The number of its inbox entry.
    number: int
    # The run was waiting and is now queued.
    woken: bool
    # Who drives the run now; empty where nobody does.
    driver: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ApprovalFilter:
    """Which approvals to list."""

    # The owner.
    tenant_id: str
    # Only in these states; empty is all.
    states: tuple[ApprovalState, ...] = ()
    # Only of this assignee; empty is all.
    assignee: str = ""
    # Only of this run; empty is all.
    run_id: str = ""


def request_of(event: NewEvent, seq: int) -> ApprovalRequest:
    """What an approval_requested event asks for; its payload was checked when it came in."""
    facts = ApprovalFacts.from_facts(payloads.unpack(event.payload).facts)
    return ApprovalRequest(
        approval_id=facts.approval_id,
        step_id=event.step_id,
        seq=seq,
        assignee=facts.assignee,
        title=facts.title,
        expires_us=facts.expires_us,
    )


def repeated(
    run_id: str, requests: Sequence[ApprovalRequest], before: Collection[tuple[str, str]]
) -> LanternError | None:
    """Why a run may not ask for these approvals: it has asked for one of them already; None where it has not."""
    seen: set[str] = set()
    for request in requests:
        if (run_id, request.approval_id) in before or request.approval_id in seen:
            return InvalidField("approvalId", f"{request.approval_id!r} was asked for before", run_id=run_id)
        seen.add(request.approval_id)
    return None


def not_found(run_id: str, approval_id: str) -> LanternError:
    """The run never asked for it."""
    return LanternError(
        reasons.APPROVAL_NOT_FOUND,
        f"the run never asked for an approval {approval_id!r}",
        field="approval_id",
        run_id=run_id,
        approval_id=approval_id,
    )


def decided_error(approval: Approval) -> LanternError:
    """It was decided before, and otherwise."""
    by = f" by {approval.decided_by}" if approval.decided_by else ""
    return LanternError(
        reasons.APPROVAL_DECIDED,
        f"approval {approval.approval_id} is {approval.state.value}{by}",
        run_id=approval.run_id,
        approval_id=approval.approval_id,
        state=approval.state.value,
        decided_by=approval.decided_by,
    )
