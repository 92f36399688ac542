"""What a live step consists of: the function or the request behind a RunStep command."""

import asyncio
import inspect
import json
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from lantern.program import conversion
from lantern_kernel import json_bytes, reasons
from lantern_kernel.errors import InvalidField


@dataclass(frozen=True, kw_only=True, slots=True)
class StepInfo:
    """What a step function can know of the attempt that it makes."""

    # The run.
    run_id: str
    # The user's own name for the work; may be empty.
    workflow_id: str
    # The step.
    step_id: str
    # From 1.
    attempt: int
    # What stands in the idempotency key; grows only after a documented refusal.
    key_attempt: int
    # The idempotency key: send it along with whatever the step does to the outside world.
    key: str
    # The lease that the attempt is made under: a fencing token.
    epoch: int


_current: ContextVar[StepInfo] = ContextVar("lantern_step_info")


def step_info() -> StepInfo:
    """The facts of the running attempt; only inside a step function.

    Raises:
        RuntimeError: There is no step around.
    """
    info = _current.get(None)
    if info is None:
        raise RuntimeError("step_info() works only inside a step function that Lantern runs")
    return info


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it gives a coroutine; plain functions are told by one look, not `inspect`'s ten."""
    if type(function) is FunctionType and function.__code__.co_flags & inspect.CO_COROUTINE:
        return True
    return inspect.iscoroutinefunction(function)


# Not frozen, which would more than double what making one costs: there are some for every step.
@dataclass(kw_only=True, slots=True)
class FunctionCall:
    """A step that is a function of the user's."""

    # Async or not.
    fn: Callable[..., Any]
    # What to call it with: the arguments as JSON gives them back.
    args: tuple[Any, ...]

    async def run(self, info: StepInfo) -> bytes:
        """Calls the function and returns its result as JSON bytes. A function that is not async runs in a thread.

        Raises:
            InvalidField: The result is nothing that JSON can say; `result` + path.
            Exception: Whatever the function raises; see `failures.failure_of`.
        """
        token = _current.set(info)
        try:
            if is_async(self.fn):
                value = await self.fn(*self._typed())
            else:
                encoded, value = await asyncio.to_thread(self._in_thread)
                if encoded is not None:
                    return encoded
                value = await value
        finally:
            _current.reset(token)
        return conversion.encode(value, "result")

    def _typed(self) -> list[Any]:
        """The arguments as the function's annotations want them."""
        signature = conversion.signature_of(self.fn)
        return [signature.read_argument(at, value) for at, value in enumerate(self.args)]

    def _in_thread(self) -> tuple[bytes | None, Any]:
        """Its result as bytes, made here since it may be large, or what it is to be awaited for."""
        try:
            value = self.fn(*self._typed())
            return (None, value) if inspect.isawaitable(value) else (conversion.encode(value, "result"), None)
        except (StopIteration, GeneratorExit) as error:  # raised into whoever awaits, they would never arrive
            raise RuntimeError(f"the function raised {error!r}") from error


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpCall:
    """A step that is an HTTP request, made by the executor."""

    # GET, POST ...
    method: str
    # Absolute, http or https.
    url: str
    # JSON; empty for no body.
    body: bytes
    # To send; the executor adds Content-Type: application/json for a body, and Idempotency-Key for a keyed one.
    headers: Mapping[str, str]
    # For the whole request, seconds; None for no limit.
    timeout_s: float | None
    # Whether to send Idempotency-Key.
    keyed: bool

    @staticmethod
    def output(status: int, body: bytes) -> bytes:
        """What is recorded of an answer: `{"status":200,"body":...}`, the body exactly where it is JSON, else its text.

        Raises:
            InvalidField: The body is too large, or neither JSON nor UTF-8 text.
        """
        try:
            recorded = json_bytes.check(body, "body")
        except InvalidField as error:
            if error.reason != reasons.INVALID_JSON:
                raise
            try:
                recorded = json_bytes.encode(body.decode(), "body")
            except UnicodeDecodeError:
                raise InvalidField("body", "the answer is neither JSON nor UTF-8 text") from None
        return b'{"status":%d,"body":%b}' % (status, recorded)


StepCall = FunctionCall | HttpCall
"""What a step consists of."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A recorded answer with a status of 2xx."""

    # 200 to 299.
    status: int
    # The JSON value of the body, or its text where it is no JSON.
    body: Any

    @classmethod
    def from_output(cls, data: bytes) -> "HttpResponse":
        """From what `HttpCall.output` made."""
        value = json.loads(data)
        return cls(status=int(value["status"]), body=value["body"])
