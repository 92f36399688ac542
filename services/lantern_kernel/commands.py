"""What a program asks for (SPEC 1, command). Programs of every kind speak these; the replay core answers them."""

from dataclasses import dataclass, field
from typing import Literal

from lantern_kernel.errors import LanternError
from lantern_kernel.payloads import RunErrorFacts
from lantern_kernel.retry import RetryPolicy

StepType = Literal["function", "http"]
Claim = Literal["", "retry", "ask", "skip"]
KeyScope = Literal["run", "workflow"]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunStep:
    """Do one unit of outside work."""

    # Unique within the run, the engine's `[n]` for a repeated name included.
    step_id: str
    # The name that the program gave it.
    name: str
    # What kind of work: a function of the user's, or a request that the executor makes.
    type: StepType
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


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordMarker:
    """Evaluate something that varies once, and read it back ever after."""

    # Unique within the run.
    step_id: str
    # The name that the program gave it.
    name: str
    # Where the program asks for it, "file:line".
    source: str


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


Command = RunStep | RecordMarker | StartTimer | Succeed | Fail
"""Whatever a program can ask for."""
