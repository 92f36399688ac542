"""What a program asks for (SPEC 1, command). Programs of every kind speak these; the replay core answers them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from lantern_kernel.errors import LanternError
from lantern_kernel.payloads import RunErrorFacts
from lantern_kernel.retry import RetryPolicy

Claim = Literal["", "retry", "ask", "skip"]
KeyScope = Literal["run", "workflow"]
Effects = Literal["outside", "none"]


# Not frozen, which would more than double what making one costs: there are some for every step.
@dataclass(kw_only=True, slots=True)
class RunStep:
    """Do one unit of outside work."""

    # Unique within the run, the engine's `[n]` for a repeated name included.
    step_id: str
    # The name that the program gave it.
    name: str
    # What kind of work (`retry.CLASS_OF_STEP_TYPE`): a function of the user's, a request that the executor makes ...
    type: str
    # JSON of its arguments; only its hash is recorded.
    input: bytes
    # Where the program asks for it, "file:line".
    source: str
    # When a failed attempt is tried again.
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    # How long one attempt may take, milliseconds; None for no limit.
    timeout_ms: int | None = None
    # What to do where a claim on the delivery is found open (SPEC E4); empty: the step makes no claim.
    claim: Claim = ""
    # The name of the outside system that the claim is about; empty where there is no claim.
    sink: str = ""
    # Whose id stands in the idempotency key: this run's, or the workflow id's, which later runs share.
    key_scope: KeyScope = "run"
    # Whether the idempotency key is sent along.
    keyed: bool = True
    # How long all attempts and the waits between them may take, milliseconds from the first; None for no limit.
    total_timeout_ms: int | None = None
    # `none`: it touches nothing outside of itself, so what is before it need not be committed first (SPEC J7).
    effects: Effects = "outside"
    # Whether a replay with another input than the recorded one is a non-determinism (SPEC R3).
    check_input: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordMarker:
    """Evaluate something that varies once, and read it back ever after."""

    # Unique within the run.
    step_id: str
    # The name that the program gave it.
    name: str
    # Where the program asks for it, "file:line".
    source: str
    # JSON, where it is known already; None where the program is to be asked for it.
    value: bytes | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class StartTimer:
    """Wake the program after a while."""

    # Unique within the run.
    step_id: str
    # How long, microseconds.
    duration_us: int
    # Where the program asks for it, "file:line".
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class AwaitSignal:
    """Take the next signal of a name that nobody has taken yet. No event begins it."""

    # Unique within the run.
    step_id: str
    # The signal's name.
    name: str
    # Where the program asks for it, "file:line".
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestApproval:
    """Have somebody decide."""

    # Unique within the run; the approval's id as well.
    step_id: str
    # The name that the program gave it.
    name: str
    # For people, one line.
    title: str
    # Where the program asks for it, "file:line".
    source: str
    # Whose inbox it is in; empty where anybody may decide.
    assignee: str = ""
    # JSON for whoever decides; None for nothing.
    data: bytes | None = None
    # When it expires by itself, microseconds from now; None for never.
    timeout_us: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class StartChild:
    """Have another run do a part of the work, and wait for its end."""

    # Unique within the run.
    step_id: str
    # The name that the program gave it.
    name: str
    # The agent to execute.
    agent_name: str
    # JSON.
    input: bytes
    # Where the program asks for it, "file:line".
    source: str
    # The child's own workflow id; may be empty.
    workflow_id: str = ""
    # Whether it goes on when this run ends or does not want it any more.
    abandon: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class CompleteUpdate:
    """Answer an update; nothing comes back."""

    # The update.
    step_id: str
    # Where the program asks for it, "file:line".
    source: str
    # JSON; None where there is an error.
    result: bytes | None = None
    # Why it was refused or failed.
    error: RunErrorFacts | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Note:
    """Record an observation, once; nothing comes back."""

    # Unique within the run.
    step_id: str
    # The kind of its event: anomaly_detected, confidence_evaluated or confidence_gate_bypassed.
    kind: str
    # What was observed; members of the event's payload.
    facts: Mapping[str, Any]
    # Where the program observes it.
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Withdraw:
    """Stop waiting for a command.

    It is recorded by what follows from it alone: a step that runs is stopped and fails with STEP_CANCELLED, a child is
    cancelled unless abandoned, a timer is forgotten, a wait for a signal takes none, a decision comes to nothing.
    """

    # The command.
    step_id: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Succeed:
    """End the run with a result."""

    # JSON.
    result: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Fail:
    """End the run with an error."""

    # Why.
    error: RunErrorFacts

    @classmethod
    def of(cls, error: LanternError, step_id: str = "") -> "Fail":
        """The end that an error of ours makes of a run, in the step named."""
        return cls(
            error=RunErrorFacts(
                code=error.reason, message=error.message, step_id=step_id, details=dict(error.details) or None
            )
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Cancelled:
    """End the run as cancelled, all that was to be compensated being compensated."""

    # Why.
    error: RunErrorFacts


@dataclass(frozen=True, kw_only=True, slots=True)
class ContinueAsNew:
    """End the run and go on as a new one of the same agent and workflow id, with an empty history."""

    # JSON: the new run's input.
    input: bytes


Lasting = RunStep | RecordMarker | StartTimer | AwaitSignal | RequestApproval | StartChild | CompleteUpdate | Note
"""What has an id."""

End = Succeed | Fail | Cancelled | ContinueAsNew
"""The last thing that a program asks for."""

Command = Lasting | Withdraw | End
"""Whatever a program can ask for."""
