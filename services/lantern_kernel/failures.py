"""How what went wrong is put on record: short, printable, with an outcome that never claims too much (SPEC E2)."""

from collections.abc import Mapping

from lantern_kernel import reasons
from lantern_kernel.bounds import PAYLOAD_BYTES_MAX
from lantern_kernel.payloads import RunErrorFacts
from lantern_kernel.retry import CLASS_OF_STEP_TYPE, Failure
from lantern_kernel.texts import printable

CODE_CHARACTERS_MAX = 200

DETAILS_MAX = 32


def printable_error(error: RunErrorFacts) -> RunErrorFacts:
    """The same error, fit to be recorded."""
    return RunErrorFacts(
        code=printable(error.code, CODE_CHARACTERS_MAX),
        message=printable(error.message),
        step_id=error.step_id,
        details=printable_details(error.details),
    )


def printable_details(details: Mapping[str, str] | None) -> dict[str, str] | None:
    """The same facts, fit to be recorded; None where there are none."""
    listed = list((details or {}).items())[:DETAILS_MAX]
    return {printable(key, CODE_CHARACTERS_MAX): printable(value) for key, value in listed} or None


def timed_out(step_type: str, step_id: str, timeout_ms: int) -> Failure:
    """The step took longer than it may; whether it was executed is not known."""
    return Failure(
        code=reasons.STEP_TIMEOUT,
        message=f"step {step_id} did not end within {timeout_ms} ms",
        error_class="timeout",
        step_class=CLASS_OF_STEP_TYPE.get(step_type, "tool"),
        outcome="unknown",
    )


def refused(step_type: str, code: str, message: str) -> Failure:
    """An earlier delivery under the same key is recorded as refused: it is documented to have done nothing."""
    step_class = CLASS_OF_STEP_TYPE.get(step_type, "tool")
    return Failure(code=code, message=message, error_class=step_class, step_class=step_class, outcome="not_executed")


def too_large(what: str, size_bytes: int) -> RunErrorFacts:
    """Something is larger than user data may be."""
    message = f"{what} takes {size_bytes} bytes; {PAYLOAD_BYTES_MAX} are allowed"
    details = {"size": str(size_bytes), "limit": str(PAYLOAD_BYTES_MAX)}
    return RunErrorFacts(code=reasons.PAYLOAD_TOO_LARGE, message=message, details=details)
