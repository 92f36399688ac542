"""How workflow code ends, as the last command of its run."""

import asyncio
from collections.abc import Callable
from typing import Any

from lantern.program import conversion
from lantern.program.failures import (
    ChildFailed,
    ContinueAsNewRequest,
    StepError,
    describe,
    is_ours,
    part_of_stdlib,
)
from lantern_kernel import reasons
from lantern_kernel.commands import ContinueAsNew, End, Fail, Succeed
from lantern_kernel.errors import InvalidField, LanternError
from lantern_kernel.outcomes import Outcome
from lantern_kernel.payloads import RunErrorFacts
from lantern_kernel.texts import printable

SourceOf = Callable[[str, int], str]
"""File and line as one short text."""


def end_of(main: "asyncio.Future[Any]", source_of: SourceOf) -> End:
    """The end that a workflow function's own makes of its run."""
    if main.cancelled():
        return Fail(error=RunErrorFacts(code=reasons.WORKFLOW_ERROR, message="the workflow cancelled itself"))
    error = main.exception()
    if isinstance(error, ContinueAsNewRequest):
        return ContinueAsNew(input=error.input)
    if error is not None:
        return Fail(error=error_facts(error, source_of))
    try:
        return Succeed(result=conversion.encode(main.result(), "result"))
    except InvalidField as refusal:
        return Fail.of(refusal)


def error_facts(error: BaseException, source_of: SourceOf) -> RunErrorFacts:
    """What is recorded of an exception that ended the run."""
    step_error = _first_step_error(error)
    if step_error is not None:
        details = dict(step_error.details)
        if isinstance(error, BaseExceptionGroup):
            others = [describe(each) for each in _leaves(error) if each is not step_error]
            details |= {"others": printable("; ".join(others))} if others else {}
        return RunErrorFacts(
            code=step_error.code, message=step_error.message, step_id=step_error.step_id, details=details or None
        )
    details = {"source": position_of(error, source_of)}
    if isinstance(error, LanternError):
        details = {"reason": error.reason, **error.details, **details}
    return RunErrorFacts(code=reasons.WORKFLOW_ERROR, message=printable(describe(error)), details=details)


def position_of(error: BaseException, source_of: SourceOf) -> str:
    """Where in the user's code an exception came from: the innermost frame that is neither ours nor Python's."""
    position, trace = "", error.__traceback__
    while trace is not None:
        filename = trace.tb_frame.f_code.co_filename
        if not is_ours(filename) and not part_of_stdlib(filename):
            position = source_of(filename, trace.tb_lineno)
        trace = trace.tb_next
    return position


def step_error(outcome: Outcome, *, is_child: bool) -> StepError:
    """What is raised where the code waits for a step or a child that failed for good."""
    error = outcome.error
    assert error is not None, "it failed"
    if not is_child:
        return StepError(error.code, error.message, outcome.step_id, error.details)
    run_id, state = str(outcome.facts.get("runId", "")), str(outcome.facts.get("state", ""))
    return ChildFailed(error.code, error.message, outcome.step_id, error.details, run_id=run_id, state=state)


def _first_step_error(error: BaseException) -> StepError | None:
    """The StepError that an exception is, or, in a group (asyncio.TaskGroup), its first one."""
    return next((each for each in _leaves(error) if isinstance(each, StepError)), None)


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for each in error.exceptions for leaf in _leaves(each)]
    return [error]
