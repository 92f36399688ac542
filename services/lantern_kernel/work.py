"""What the replay core leaves to its driver to do."""

from dataclasses import dataclass
from hashlib import sha256

from lantern_kernel.commands import (
    CompleteUpdate,
    End,
    Note,
    RecordMarker,
    RequestApproval,
    RunStep,
    StartChild,
    StartTimer,
)


# Not frozen, which would more than double what making one costs: there are some for every step.
@dataclass(kw_only=True, slots=True)
class StepWork:
    """Append step_started with these numbers, and once it is committed dispatch the attempt."""

    # The command.
    command: RunStep
    # The number of the attempt to make.
    attempt: int
    # The key attempt to make it under.
    key_attempt: int
    # Whether the key can no longer change within this step; goes into `retry.decide`.
    key_frozen: bool
    # The idempotency key.
    key: str
    # Not before this time (what is left of a back-off); None for at once.
    not_before_us: int | None
    # When all attempts together have taken too long, microseconds of the journal's clock; None for never.
    deadline_us: int | None = None

    @property
    def is_free(self) -> bool:
        """Whether it may be dispatched before its step_started is committed, being of no effect (SPEC J7)."""
        return self.command.effects == "none" and not self.command.claim


@dataclass(frozen=True, kw_only=True, slots=True)
class StopWork:
    """The program does not want the step any more: stop its attempt and append step_failed with STEP_CANCELLED.

    Where no attempt was begun, append its step_started first: the history holds whatever the program asked for.
    """

    # The attempt that runs or would be made.
    step: StepWork
    # Whether its step_started is recorded.
    is_started: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class MarkerWork:
    """Evaluate the marker and append marker_recorded."""

    # The command.
    command: RecordMarker


@dataclass(frozen=True, kw_only=True, slots=True)
class TimerWork:
    """Append timer_started where it is not started yet; append timer_fired when it is due, unless it is unwanted."""

    # The command.
    command: StartTimer
    # When it is due; for one not started yet `now_us` + its duration, which timer_started then records.
    due_us: int
    # Whether timer_started is already recorded.
    is_started: bool
    # Whether the program does not wait for it any more.
    is_unwanted: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class ApprovalWork:
    """Append approval_requested and step_waiting."""

    # The command.
    command: RequestApproval


@dataclass(frozen=True, kw_only=True, slots=True)
class ChildWork:
    """Append child_started where it is not yet; once that is committed, create the child, or find it made before."""

    # The command.
    command: StartChild
    # The same whenever this child is created again: of the request that creates it.
    request_id: str
    # Whether child_started is already recorded.
    is_started: bool
    # Whether the program does not want it any more: it is to be cancelled, or not to be made.
    is_unwanted: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdateWork:
    """Append update_completed."""

    # The command.
    command: CompleteUpdate


@dataclass(frozen=True, kw_only=True, slots=True)
class NoteWork:
    """Append the observation."""

    # The command.
    command: Note


@dataclass(frozen=True, kw_only=True, slots=True)
class FinishWork:
    """Append the event that ends the run."""

    # The command.
    command: End


Work = StepWork | StopWork | MarkerWork | TimerWork | ApprovalWork | ChildWork | UpdateWork | NoteWork | FinishWork
"""Whatever can be left to do."""


def child_request_id(run_id: str, step_id: str) -> str:
    """The request id under which a run creates the child of that step; acceptable whatever the step is called."""
    return f"child:{run_id}:{sha256(step_id.encode()).hexdigest()[:40]}"
