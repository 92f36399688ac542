"""The outside world of a test: what stands in for steps and HTTP services, and what was asked of it.

An attempt is executed at once, one after the other, while the time of the environment stands still; what it is said to
take passes afterwards. So the order of everything is the same each time.
"""

import asyncio
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lantern.program.calls import FunctionCall, HttpCall, StepCall, StepInfo
from lantern.program.failures import failure_of
from lantern_kernel import json_bytes, reasons, sinks
from lantern_kernel.commands import RunStep
from lantern_kernel.retry import CLASS_OF_STEP_TYPE, Failure
from lantern_kernel.step_ends import Completed

KEY_HEADER = "Idempotency-Key"

STEP_LIMIT_S = 10.0
"""Of real time that an attempt may take: a test that hangs says where."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """One execution of a step, as the outside world saw it."""

    # The run.
    run_id: str
    # The step; in loops with its iteration.
    step_id: str
    # The name that the workflow gave it.
    name: str
    # From 1.
    attempt: int
    # The idempotency key.
    key: str
    # The lease under which it was made.
    epoch: int
    # JSON of its arguments or its request, as Python has it.
    input: Any


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpRequest:
    """What an HTTP step sends."""

    # GET, POST ...
    method: str
    # Absolute.
    url: str
    # With Idempotency-Key, unless the step is not keyed.
    headers: Mapping[str, str]
    # The body as Python has it; None where there is none.
    json: Any
    # The step's name.
    name: str


@dataclass(frozen=True, kw_only=True, slots=True)
class _StandIn:
    """What a step does in a test."""

    # Called with the step's arguments; None leaves the step's own code in place.
    function: Callable[..., Any] | None
    # What its reply takes, microseconds.
    takes_us: int


@dataclass(kw_only=True)
class Outside:
    """See the module."""

    # By the names of steps.
    stand_ins: dict[str, _StandIn] = field(default_factory=dict[str, _StandIn])
    # Answers HTTP steps: `(status, body)`, or the body alone for 200.
    http: Callable[[HttpRequest], Any] | None = None
    # All that was asked, in order.
    attempts: list[Attempt] = field(default_factory=list[Attempt])

    def put(self, name: str, stand_in: Any, takes_s: float) -> None:
        """Lets something stand in for a step: a function, or the value that the step returns."""
        function = stand_in if stand_in is None or callable(stand_in) else _returning(stand_in)
        self.stand_ins[name] = _StandIn(function=function, takes_us=round(takes_s * 1e6))

    def takes_us(self, command: RunStep) -> int:
        """What the reply of a step takes."""
        found = self.stand_ins.get(command.name)
        return found.takes_us if found else 0

    async def execute(self, command: RunStep, call: StepCall, info: StepInfo) -> Completed | Failure:
        """Executes one attempt; whatever the user's code does is an end."""
        self.attempts.append(
            Attempt(
                run_id=info.run_id,
                step_id=info.step_id,
                name=command.name,
                attempt=info.attempt,
                key=info.key,
                epoch=info.epoch,
                input=json.loads(command.input) if command.input else None,
            )
        )
        stand_in = self.stand_ins.get(command.name)
        scope = asyncio.timeout(STEP_LIMIT_S)
        try:
            async with scope:
                if stand_in is not None and stand_in.function is not None:
                    args = call.args if isinstance(call, FunctionCall) else (self._request(command, call, info),)
                    call = FunctionCall(fn=_settled(stand_in.function, call), args=args)
                if isinstance(call, FunctionCall):
                    return Completed(output=await call.run(info))
                return await self._answer(command, call, info)
        except TimeoutError as error:
            if scope.expired():
                raise AssertionError(
                    f"step {info.step_id} takes more than {STEP_LIMIT_S:g} s of real time in a test: let something"
                    f" stand in for it, `env.fake({command.name!r}, value, takes_s=...)`"
                ) from None
            return _unanswered(error, command)
        except Exception as error:
            return _unanswered(error, command)

    def _request(self, command: RunStep, call: HttpCall, info: StepInfo) -> HttpRequest:
        headers = dict(call.headers) | ({KEY_HEADER: info.key} if call.keyed else {})
        body = json.loads(call.body) if call.body else None
        return HttpRequest(method=call.method, url=call.url, headers=headers, json=body, name=command.name)

    async def _answer(self, command: RunStep, call: HttpCall, info: StepInfo) -> Completed | Failure:
        if self.http is None:
            raise AssertionError(
                f"step {info.step_id} asks {call.method} {call.url}: say what answers, with `env.http(function)` for"
                f" all of HTTP, or with `env.fake({command.name!r}, value)` for this step"
            )
        answer = self.http(self._request(command, call, info))
        if inspect.isawaitable(answer):
            answer = await answer
        return _answered(call, answer)


def _settled(function: Callable[..., Any], call: StepCall) -> Callable[..., Any]:
    """The function as a step's code: for an HTTP step its answer is turned into what is recorded of one."""
    if isinstance(call, FunctionCall):
        return function

    async def answer(request: HttpRequest) -> Any:
        given = function(request)
        if inspect.isawaitable(given):
            given = await given
        end = _answered(call, given)
        if isinstance(end, Failure):
            raise _Refused(end)
        return json.loads(end.output)

    return answer


class _Refused(Exception):
    """An HTTP answer that is a failure."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def _answered(call: HttpCall, answer: Any) -> Completed | Failure:
    """What comes of an answer: `(status, body)`, or a body alone for 200."""
    status, body = answer if _is_status_and_body(answer) else (200, answer)
    if sinks.http_succeeded(status):
        return Completed(output=call.output(status, json_bytes.encode(body, "body")))
    connector = CLASS_OF_STEP_TYPE["http"]
    return Failure(
        code=reasons.HTTP_STATUS,
        message=f"{call.method} {call.url} answered {status}",
        error_class=connector,
        step_class=connector,
        outcome=sinks.http_outcome(status),
        details={"status": str(status)},
    )


def _is_status_and_body(answer: Any) -> bool:
    return isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[0], int)


def _unanswered(error: Exception, command: RunStep) -> Failure:
    """The failure that an exception means; those of a network are told apart for HTTP steps (SPEC E2)."""
    if isinstance(error, _Refused):
        return error.failure
    if isinstance(error, AssertionError):
        raise error  # the test's own, not the step's
    failure = failure_of(error, command.type)
    if command.type != "http" or not isinstance(error, OSError) or isinstance(error, TimeoutError):
        return failure
    fault = "connection_refused" if isinstance(error, ConnectionRefusedError) else "reset"
    return Failure(
        code=reasons.HTTP_UNREACHABLE,
        message=failure.message,
        error_class=failure.error_class,
        step_class=failure.step_class,
        outcome=sinks.fault_outcome(fault),
    )


def _returning(value: Any) -> Callable[..., Any]:
    def give(*_: Any) -> Any:
        return value

    return give


def lost_reply(command: RunStep) -> Failure:
    """What the engine learns of a request whose reply was lost: nothing but that."""
    timed_out = command.timeout_ms is not None
    step_class = CLASS_OF_STEP_TYPE.get(command.type, "")
    code = reasons.HTTP_UNREACHABLE if command.type == "http" else reasons.STEP_FAILED
    return Failure(
        code=reasons.STEP_TIMEOUT if timed_out else code,
        message=f"the reply of step {command.step_id} was lost",
        error_class="timeout" if timed_out else step_class,
        step_class=step_class,
        outcome="unknown",
    )
