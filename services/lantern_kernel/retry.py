"""When a failed step is tried again, after how long, and under which idempotency key (SPEC E2, G4).

The key attempt grows only if every request made under the current key ended in a documented "not executed" answer.
A lost reply, a time-out, a reset or a crash is unknown, and one unknown freezes the key for the rest of the step: so a
request whose reply was lost is repeated under the key that the service may already know, and takes effect once.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from lantern_kernel.bounds import RETRY_ATTEMPTS_MAX
from lantern_kernel.errors import InvalidField

Outcome = Literal["not_executed", "unknown"]
"""What a failed request may have done: documented to have done nothing, or nobody knows."""

CLASSES = frozenset({"any", "timeout", "llm", "connector", "tool"})
"""What `RetryPolicy.retryable_classes` may list."""

CLASS_OF_STEP_TYPE: Mapping[str, str] = {
    "function": "tool",
    "tool": "tool",
    "http": "connector",
    "connector": "connector",
    "llm": "llm",
}
"""The class that a step has by its type; a policy may list it instead of the class of the error."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RetryPolicy:
    """How often and how patiently a step is tried.

    Raises:
        InvalidField: A value is out of its range.
    """

    # Tries in all, the first included; 1 to 100.
    max_attempts: int = 1
    # The wait after the first failure, milliseconds.
    backoff_ms: int = 0
    # By how much each further wait is longer than the one before; at least 1.
    multiplier: float = 2.0
    # No wait is longer, milliseconds.
    max_backoff_ms: int = 60_000
    # The share of a wait that chance may take away: 0 none, 1 all of it.
    jitter: float = 0.0
    # Failures of these classes are tried again; empty means all of them. See `CLASSES`.
    retryable_classes: tuple[str, ...] = ()
    # Codes that are never tried again.
    non_retryable: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_whole("max_attempts", self.max_attempts, 1, RETRY_ATTEMPTS_MAX)
        _check_whole("backoff_ms", self.backoff_ms, 0, _WAIT_MS_MAX)
        _check_whole("max_backoff_ms", self.max_backoff_ms, 0, _WAIT_MS_MAX)
        # Written so that NaN fails both.
        if not 1.0 <= self.multiplier < float("inf"):
            raise InvalidField("retry.multiplier", f"{self.multiplier} is not at least 1")
        if not 0.0 <= self.jitter <= 1.0:
            raise InvalidField("retry.jitter", f"{self.jitter} is not between 0 and 1")
        for name in ("retryable_classes", "non_retryable"):
            if isinstance(getattr(self, name), str):
                raise InvalidField(f"retry.{name}", "a single text stands where several belong; write (text,)")
        for unknown in sorted(set(self.retryable_classes) - CLASSES):
            raise InvalidField("retry.retryable_classes", f"{unknown!r} is none of {', '.join(sorted(CLASSES))}")


_WAIT_MS_MAX = 366 * 24 * 3600 * 1000


def _check_whole(name: str, value: int, low: int, high: int) -> None:
    if type(value) is not int or not low <= value <= high:
        raise InvalidField(f"retry.{name}", f"{value!r} is no whole number from {low} to {high}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """How one attempt of a step ended badly."""

    # A constant of `reasons`, or the user's own.
    code: str
    # For people.
    message: str
    # timeout, llm, connector or tool.
    error_class: str
    # What the attempt may have done.
    outcome: Outcome
    # False where trying again cannot help, whatever the policy says.
    retryable: bool = True
    # The class that the step has by its type (`CLASS_OF_STEP_TYPE`); empty where it has none.
    step_class: str = ""
    # Further facts, recorded with the error.
    details: Mapping[str, str] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RetryLater:
    """The step is to be tried again."""

    # How long to wait first.
    delay_ms: int
    # The key attempt of the next attempt.
    key_attempt: int
    # Whether the key can still change within this step.
    frozen: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class GiveUp:
    """The failure is final."""


def decide(
    policy: RetryPolicy, attempt: int, key_attempt: int, frozen: bool, failure: Failure, random01: float
) -> RetryLater | GiveUp:
    """What follows a failed attempt.

    Args:
        policy: The step's policy.
        attempt: The number of the attempt that failed, from 1.
        key_attempt: The key attempt that it was made under.
        frozen: Whether an earlier request of this step ended unknown, or this attempt is a crash point done again.
        failure: How it failed.
        random01: A random number, 0 <= random01 < 1, for the jitter.
    """
    if attempt >= policy.max_attempts or not _is_retryable(policy, failure):
        return GiveUp()
    frozen = frozen or failure.outcome != "not_executed"
    return RetryLater(
        delay_ms=backoff_ms(policy, attempt, random01),
        key_attempt=key_attempt if frozen else key_attempt + 1,
        frozen=frozen,
    )


def backoff_ms(policy: RetryPolicy, attempt: int, random01: float) -> int:
    """The wait after the given attempt failed: backoff x multiplier^(attempt - 1), bounded, less the jitter's share."""
    try:
        wait = min(policy.backoff_ms * policy.multiplier ** (attempt - 1), float(policy.max_backoff_ms))
    except OverflowError:
        wait = float(policy.max_backoff_ms if policy.backoff_ms else 0)
    return round(wait * (1.0 - policy.jitter * random01))


def _is_retryable(policy: RetryPolicy, failure: Failure) -> bool:
    if not failure.retryable or failure.code in policy.non_retryable:
        return False
    listed = policy.retryable_classes
    return not listed or "any" in listed or failure.error_class in listed or failure.step_class in listed
