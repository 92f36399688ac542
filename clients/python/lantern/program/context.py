"""`ctx`: what workflow code asks Lantern for."""

import asyncio
import math
import sys
import uuid
from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeVar

from lantern.program.calls import FunctionCall, HttpCall, HttpResponse, StepCall
from lantern.program.failures import NotReplayable, StepError
from lantern.program.surroundings import Surroundings
from lantern_kernel import json_bytes, names
from lantern_kernel.commands import Claim, Effects, KeyScope, RecordMarker, RunStep, StartTimer
from lantern_kernel.errors import InvalidField
from lantern_kernel.retry import RetryPolicy

SLEEP_S_MAX = 100 * 366 * 24 * 3600
_T = TypeVar("_T")
_NOTHING: Any = object()
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ONCE = RetryPolicy()


class Asks(Protocol):
    """What a context needs of the host behind it."""

    @property
    def surroundings(self) -> Surroundings:
        """Where time and chance come from."""
        ...

    def name_once(self, name: str) -> str:
        """The step id for a name: the name itself, and `name[1]`, `name[2]` ... when it is used again."""
        ...

    def source_of(self, filename: str, line: int) -> str:
        """The position as "file:line", short."""
        ...

    def ask_step(self, command: RunStep, call: Callable[[], StepCall]) -> "asyncio.Future[bytes]":
        """Issues the command; the future brings the recorded bytes or a StepError."""
        ...

    def ask_marker(self, command: RecordMarker, function: Callable[[], Any]) -> "asyncio.Future[bytes]":
        """Issues the command; the future brings the recorded bytes."""
        ...

    def ask_timer(self, command: StartTimer) -> "asyncio.Future[bytes]":
        """Issues the command; the future brings nothing of use once the timer has fired."""
        ...


class Context:
    """What a workflow function gets as its first argument.

    Everything that it awaits here is recorded; when the run is driven again after a crash, what is recorded comes back
    without being done again. Names are ids of up to 200 of A-Z a-z 0-9 _ . : / @ -; a name that is used again gets
    `[1]`, `[2]` ... by itself.

    Attributes:
        run_id: The run.
        workflow_id: The user's own name for the work; may be empty.
    """

    def __init__(self, run_id: str, workflow_id: str, host: Asks) -> None:
        self.run_id = run_id
        self.workflow_id = workflow_id
        self._host = host

    def step(
        self,
        name: str,
        function: Callable[..., Any],
        /,
        *args: Any,
        retry: RetryPolicy | None = None,
        timeout_s: float | None = None,
        claim: Claim = "",
        sink: str = "",
        key_scope: KeyScope = "run",
        effects: Effects = "outside",
    ) -> Coroutine[Any, Any, Any]:
        """Runs a function of the outside world once and records its result; to be awaited.

        Args:
            name: The step's name.
            function: Async or not; inside it `lantern.step_info().key` is the idempotency key to send along.
            args: Its arguments; JSON values. It gets them, and the workflow its result, as JSON gives them back.
            retry: When to try again; by default never.
            timeout_s: For each attempt, seconds; by default without limit.
            claim: For deliveries that cannot be deduplicated: `retry`, `ask` or `skip` an unknown one (SPEC E4).
            sink: The name of the outside system that the claim is about; by default the step's name.
            key_scope: `workflow` puts the workflow id in place of the run id in the key, so that a later run of the
                same work repeats the effect under the same key.
            effects: `none` says that the function changes nothing outside: in the durability modes async and exit it
                is not held up by a commit, and a crash may have it done again (docs, durability).

        Raises:
            StepError: It failed for good, or an argument is nothing that JSON can say.
            InvalidField: The name or an option is not acceptable.
        """
        caller = sys._getframe(1)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - the user's line
        source = self._host.source_of(caller.f_code.co_filename, caller.f_lineno)
        names.check_user_id("step name", name)
        if not callable(function):
            raise InvalidField("function", f"a {type(function).__name__} cannot be called")
        options = _options(retry, timeout_s, claim, sink or (name if claim else ""), key_scope)
        if effects not in {"outside", "none"}:
            raise InvalidField("effects", f"{effects!r} is none of outside, none")

        async def run() -> Any:
            step_id = self._host.name_once(name)
            raw = _encode_for_step(list(args), "args", step_id)
            command = RunStep(
                step_id=step_id,
                name=name,
                type="function",
                input=raw,
                source=source,
                effects=effects,
                **options,
            )
            recorded = await self._host.ask_step(
                command, lambda: FunctionCall(fn=function, args=tuple(json_bytes.decode(raw, "args")))
            )
            return json_bytes.decode_recorded(recorded)

        return run()

    def http(
        self,
        name: str,
        method: str,
        url: str,
        *,
        json: Any = _NOTHING,
        headers: Mapping[str, str] | None = None,
        retry: RetryPolicy | None = None,
        timeout_s: float | None = None,
        keyed: bool = True,
        claim: Claim = "",
        sink: str = "",
        key_scope: KeyScope = "run",
    ) -> Coroutine[Any, Any, HttpResponse]:
        """Sends an HTTP request as a step and records the answer; to be awaited.

        A status of 2xx completes the step. Any other, and no answer, is a failure for the retry policy; which of them
        count as "not executed" is a table (docs, retries).

        Args:
            name: The step's name.
            method: GET, POST ...
            url: Absolute, http or https.
            json: The body; by default none.
            headers: Further headers. They are not recorded.
            retry: As in `step`.
            timeout_s: As in `step`.
            keyed: Whether to send `Idempotency-Key`.
            claim: As in `step`.
            sink: As in `step`.
            key_scope: As in `step`.

        Raises:
            StepError: It failed for good (`details["status"]` where there was an answer), or the body is no JSON.
            InvalidField: The name, the URL or an option is not acceptable.
        """
        caller = sys._getframe(1)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - the user's line
        source = self._host.source_of(caller.f_code.co_filename, caller.f_lineno)
        names.check_user_id("step name", name)
        if not url.startswith(("http://", "https://")):
            raise InvalidField("url", f"{url!r} does not start with http:// or https://")
        options = _options(retry, timeout_s, claim, sink or (name if claim else ""), key_scope)
        all_headers = dict(headers or {})

        async def run() -> HttpResponse:
            step_id = self._host.name_once(name)
            body = b"" if json is _NOTHING else _encode_for_step(json, "json", step_id)
            request = {"method": method.upper(), "url": url, "headers": all_headers}
            # The body is spliced in as it is sent, so that the recorded hash is over exactly those bytes.
            raw = _encode_for_step(request, "request", step_id)[:-1] + b',"body":' + (body or b"null") + b"}"
            command = RunStep(
                step_id=step_id,
                name=name,
                type="http",
                input=raw,
                source=source,
                keyed=keyed,
                **options,
            )
            call = HttpCall(
                method=method.upper(), url=url, body=body, headers=all_headers, timeout_s=timeout_s, keyed=keyed
            )
            return HttpResponse.from_output(await self._host.ask_step(command, lambda: call))

        return run()

    def side_effect(self, name: str, function: Callable[[], Any], /) -> Coroutine[Any, Any, Any]:
        """Evaluates a function once and records its value: for a clock, a random number, a choice; to be awaited.

        Unlike a step it is never repeated or retried, and it must not reach the outside world.

        Args:
            name: The marker's name.
            function: Not async; its value must be JSON. If it raises, the run fails.
        """
        caller = sys._getframe(1)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - the user's line
        source = self._host.source_of(caller.f_code.co_filename, caller.f_lineno)
        names.check_user_id("side effect name", name)

        async def run() -> Any:
            command = RecordMarker(step_id=self._host.name_once(name), name=name, source=source)
            return json_bytes.decode_recorded(await self._host.ask_marker(command, function))

        return run()

    def now(self) -> Coroutine[Any, Any, datetime]:
        """The time, in UTC, recorded when it is first read; to be awaited."""
        return self._marker("now", self._host.surroundings.now_us, lambda us: _EPOCH + timedelta(microseconds=us))

    def random(self) -> Coroutine[Any, Any, float]:
        """A random number from 0 up to, not including, 1, recorded when it is first drawn; to be awaited."""
        return self._marker("random", self._host.surroundings.random01, float)

    def uuid(self) -> Coroutine[Any, Any, uuid.UUID]:
        """A new UUID, recorded when it is first made; to be awaited."""
        return self._marker("uuid", self._host.surroundings.uuid, uuid.UUID)

    def _marker(self, name: str, function: Callable[[], Any], read: Callable[[Any], _T]) -> Coroutine[Any, Any, _T]:
        caller = sys._getframe(2)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - the user's line
        source = self._host.source_of(caller.f_code.co_filename, caller.f_lineno)

        async def run() -> _T:
            command = RecordMarker(step_id=self._host.name_once(name), name=name, source=source)
            return read(json_bytes.decode_recorded(await self._host.ask_marker(command, function)))

        return run()

    def sleep(self, seconds: float, /) -> Coroutine[Any, Any, None]:
        """Waits, across crashes and deploys, too; to be awaited. Waits of any length cost nothing while they last."""
        caller = sys._getframe(1)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - the user's line
        source = self._host.source_of(caller.f_code.co_filename, caller.f_lineno)
        if not (math.isfinite(seconds) and 0 <= seconds <= SLEEP_S_MAX):
            raise InvalidField("seconds", f"{seconds} is not between 0 and {SLEEP_S_MAX}")
        duration_us = round(seconds * 1_000_000)

        async def run() -> None:
            step_id = self._host.name_once("sleep")
            await self._host.ask_timer(StartTimer(step_id=step_id, duration_us=duration_us, source=source))

        return run()

    def __reduce__(self) -> Any:
        raise NotReplayable("ctx belongs to the workflow function: pass values to steps, not ctx")


def _encode_for_step(value: Any, field: str, step_id: str) -> bytes:
    try:
        return json_bytes.encode(value, field)
    except InvalidField as error:
        raise StepError(error.reason, error.message, step_id, error.details) from None


def _options(
    retry: RetryPolicy | None, timeout_s: float | None, claim: str, sink: str, key_scope: str
) -> dict[str, Any]:
    """The options that steps of all types share, checked, as fields of RunStep."""
    if timeout_s is not None and not (math.isfinite(timeout_s) and 0.001 <= timeout_s <= SLEEP_S_MAX):
        raise InvalidField("timeout_s", f"{timeout_s} is not between 0.001 and {SLEEP_S_MAX}")
    if claim not in {"", "retry", "ask", "skip"}:
        raise InvalidField("claim", f"{claim!r} is none of retry, ask, skip")
    if sink:
        names.check_user_id("sink", sink)
    if key_scope not in {"run", "workflow"}:
        raise InvalidField("key_scope", f"{key_scope!r} is none of run, workflow")
    return {
        "retry": retry or _ONCE,
        "timeout_ms": None if timeout_s is None else math.ceil(timeout_s * 1000),
        "claim": claim,
        "sink": sink,
        "key_scope": key_scope,
    }
