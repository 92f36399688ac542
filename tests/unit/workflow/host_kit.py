"""What the tests of the workflow host share: hosts of functions, outcomes by hand, how a program ended."""

from collections.abc import Callable
from typing import Any

from lantern.program.host import RunInfo, WorkflowHost
from lantern.registry import define
from lantern_kernel.commands import Command, Fail, RecordMarker, RunStep, StartTimer, Succeed
from lantern_kernel.outcomes import Outcome
from lantern_kernel.payloads import RunErrorFacts

INFO = RunInfo(run_id="0190b5f0-0000-7000-8000-000000000001", workflow_id="order-1042")


def host_of(function: Callable[..., Any], raw: bytes = b'{"id":1042}') -> WorkflowHost:
    return WorkflowHost(define(function), raw, INFO)


def done(step_id: str, data: bytes | None = b"null") -> Outcome:
    return Outcome(step_id=step_id, data=data, error=None)


def failed(step_id: str, code: str = "NO") -> Outcome:
    error = RunErrorFacts(code=code, message="no", step_id=step_id, details={"status": "402"})
    return Outcome(step_id=step_id, data=None, error=error)


def ids(commands: list[Command]) -> list[str]:
    return [command.step_id for command in commands if isinstance(command, RunStep | RecordMarker | StartTimer)]


def end_of(function: Callable[..., Any]) -> Succeed | Fail:
    host = host_of(function)
    (command,) = host.advance()
    assert isinstance(command, Succeed | Fail)
    assert host.is_ended
    host.close()
    return command


def error_of(function: Callable[..., Any]) -> RunErrorFacts:
    end = end_of(function)
    assert isinstance(end, Fail)
    return end.error
