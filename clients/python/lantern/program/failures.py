"""How steps and workflows end badly, on the user's side of the fence."""

import os
import sysconfig
import traceback
from collections.abc import Mapping
from pathlib import Path

import lantern_kernel
from lantern_kernel import reasons
from lantern_kernel.errors import LanternError
from lantern_kernel.retry import CLASS_OF_STEP_TYPE, Failure
from lantern_kernel.texts import printable

_OUR_FOLDERS = tuple(str(Path(folder)) + os.sep for folder in (Path(__file__).parent.parent, *lantern_kernel.__path__))
_STDLIB = sysconfig.get_path("stdlib") + os.sep
_SITE = tuple({sysconfig.get_path("purelib") + os.sep, sysconfig.get_path("platlib") + os.sep})


class StepError(Exception):
    """A step failed for good; raised where the workflow awaits it.

    Attributes:
        code: A constant of `lantern_kernel.reasons`, or the `code` of the StepFailure.
        message: For people.
        step_id: Which step.
        details: Further facts, for instance `status` of an HTTP answer.
    """

    def __init__(self, code: str, message: str, step_id: str, details: Mapping[str, str] | None = None) -> None:
        super().__init__(f"step {step_id}: {code}: {message}")
        self.code = code
        self.message = message
        self.step_id = step_id
        self.details: Mapping[str, str] = dict(details or {})


class ChildFailed(StepError):
    """A child ended without a result.

    Attributes:
        run_id: The child.
        state: How it ended: FAILED or CANCELLED; empty where it could not be begun.
    """

    def __init__(
        self, code: str, message: str, step_id: str, details: Mapping[str, str] | None, *, run_id: str, state: str
    ) -> None:
        super().__init__(code, message, step_id, details)
        self.run_id = run_id
        self.state = state


class ContinueAsNewRequest(BaseException):
    """Raised by `ctx.continue_as_new`; to be let through. It is no failure, so it is no Exception.

    Attributes:
        input: The new run's input, JSON bytes.
    """

    def __init__(self, input_bytes: bytes) -> None:
        super().__init__("the run goes on as a new one")
        self.input = input_bytes


class StepFailure(Exception):
    """Raised inside a step function to say how it failed.

    Args:
        message: For people.
        code: What workflows and policies act on.
        executed: False where the outside system is documented to have done nothing, so that a retry may use a fresh
            idempotency key; None where nobody knows; True where it did. Only False is "not executed".
        retryable: False where trying again cannot help.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str = reasons.STEP_FAILED,
        executed: bool | None = None,
        retryable: bool = True,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.executed = executed
        self.retryable = retryable


class NotReplayable(RuntimeError):
    """Workflow code asked for something that cannot be replayed in the same order; the message names what can."""


def failure_of(error: BaseException, step_type: str = "function") -> Failure:
    """What an exception out of a step means to the retry policy.

    Args:
        error: A StepFailure says it itself; a TimeoutError is of class `timeout`; a LanternError (such as a result
            that is no JSON) is never retried; anything else failed with unknown outcome.
        step_type: The type of the step, for its class.
    """
    step_class = CLASS_OF_STEP_TYPE.get(step_type, "")
    match error:
        case StepFailure():
            return Failure(
                code=error.code,
                message=printable(error.message),
                error_class=step_class,
                step_class=step_class,
                outcome="not_executed" if error.executed is False else "unknown",
                retryable=error.retryable,
            )
        case LanternError():
            return Failure(
                code=error.reason,
                message=printable(error.message),
                error_class=step_class,
                step_class=step_class,
                outcome="unknown",
                retryable=False,
                details=dict(error.details) or None,
            )
        case TimeoutError():
            return Failure(
                code=reasons.STEP_TIMEOUT,
                message=printable(describe(error)),
                error_class="timeout",
                step_class=step_class,
                outcome="unknown",
            )
        case _:
            return Failure(
                code=reasons.STEP_FAILED,
                message=printable(describe(error)),
                error_class=step_class,
                step_class=step_class,
                outcome="unknown",
            )


def describe(error: BaseException) -> str:
    """Type and text of an exception, as the last line of a traceback has them; never raises."""
    return "".join(traceback.format_exception_only(type(error), error)).strip()


def is_ours(filename: str) -> bool:
    """Whether a source file is Lantern's own, so that the user's fault is shown further out."""
    return filename.startswith(_OUR_FOLDERS)


def part_of_stdlib(filename: str) -> str:
    """The module or package of Python's own library that a source file belongs to; empty for any other file."""
    if filename.startswith("<frozen "):
        return filename[len("<frozen ") : -1].split(".", maxsplit=1)[0]
    if filename.startswith(_STDLIB) and not filename.startswith(_SITE):
        return filename[len(_STDLIB) :].split(os.sep, maxsplit=1)[0].removesuffix(".py")
    return ""
