"""`ctx`: what workflow code asks Lantern for."""

import math
import uuid
from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from lantern.program import conversion
from lantern.program.asks import Asks, caller_source
from lantern.program.calls import FunctionCall, HttpCall, HttpResponse
from lantern.program.failures import NotReplayable, StepError
from lantern.program.waits import SLEEP_S_MAX, Waits
from lantern_kernel import json_bytes, names
from lantern_kernel.commands import Claim, Effects, KeyScope, RecordMarker, RunStep
from lantern_kernel.errors import InvalidField
from lantern_kernel.outcomes import Outcome
from lantern_kernel.retry import RetryPolicy

_T = TypeVar("_T")
_NOTHING: Any = object()
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ONCE = RetryPolicy()


class Context(Waits):
    """What a workflow function gets as its first argument.

    Everything that it awaits here is recorded; when the run is driven again after a crash, what is recorded comes back
    without being done again. Names are ids of up to 200 of A-Z a-z 0-9 _ . : / @ -; a name that is used again gets
    `[1]`, `[2]` ... by itself.

    Attributes:
        run_id: The run.
        workflow_id: The user's own name for the work; may be empty.
        info: Both, and what else is known of the run.
        log: A logger that says nothing on replay.
    """

    def __init__(self, host: Asks) -> None:
        super().__init__(host)
        self.run_id = host.info.run_id
        self.workflow_id = host.info.workflow_id

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
        total_timeout_s: float | None = None,
        check_input: bool = False,
    ) -> Coroutine[Any, Any, Any]:
        """Runs a function of the outside world once and records its result; to be awaited.

        Args:
            name: The step's name.
            function: Async or not; inside it `lantern.step_info().key` is the idempotency key to send along.
            args: Its arguments. It gets them, and the workflow its result, as JSON gives them back, made into what the
                function's annotations say (dataclasses, enums, times, UUIDs, decimals, tuples).
            retry: When to try again; by default never.
            timeout_s: For each attempt, seconds; by default without limit.
            claim: For deliveries that cannot be deduplicated: `retry`, `ask` or `skip` an unknown one (SPEC E4).
            sink: The name of the outside system that the claim is about; by default the step's name.
            key_scope: `workflow` puts the workflow id in place of the run id in the key, so that a later run of the
                same work repeats the effect under the same key.
            effects: `none` says that the function changes nothing outside: in the durability modes async and exit it
                is not held up by a commit, and a crash may have it done again (docs, durability).
            total_timeout_s: For all attempts and the waits between them; by default without limit.
            check_input: Whether other arguments than the recorded ones are refused on replay (NONDETERMINISM).

        Raises:
            StepError: It failed for good, or an argument is nothing that JSON can say.
            InvalidField: The name or an option is not acceptable.
        """
        source = caller_source(self._host, 1)
        names.check_user_id("step name", name)
        if not callable(function):
            raise InvalidField("function", f"a {type(function).__name__} cannot be called")
        options = _options(retry, timeout_s, claim, sink or (name if claim else ""), key_scope, total_timeout_s)
        options |= {"effects": _effects(effects), "check_input": check_input, "source": source}

        async def run() -> Any:
            step_id = self._host.name_once(name)
            raw = _encode_for_step(list(args), "args", step_id)
            command = RunStep(step_id=step_id, name=name, type="function", input=raw, **options)
            outcome = await self._host.ask_step(
                command, lambda: FunctionCall(fn=function, args=tuple(json_bytes.decode(raw, "args")))
            )
            value = _recorded(outcome)
            reader = conversion.signature_of(function).result
            return value if reader is None else reader(value, "result")

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
        total_timeout_s: float | None = None,
        check_input: bool = False,
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
            total_timeout_s: As in `step`.
            check_input: As in `step`.

        Raises:
            StepError: It failed for good (`details["status"]` where there was an answer), or the body is no JSON.
            InvalidField: The name, the URL or an option is not acceptable.
        """
        source = caller_source(self._host, 1)
        names.check_user_id("step name", name)
        if not url.startswith(("http://", "https://")):
            raise InvalidField("url", f"{url!r} does not start with http:// or https://")
        options = _options(retry, timeout_s, claim, sink or (name if claim else ""), key_scope, total_timeout_s)
        options |= {"keyed": keyed, "check_input": check_input, "source": source}
        all_headers = dict(headers or {})

        async def run() -> HttpResponse:
            step_id = self._host.name_once(name)
            body = b"" if json is _NOTHING else _encode_for_step(json, "json", step_id)
            request = {"method": method.upper(), "url": url, "headers": all_headers}
            # The body is spliced in as it is sent, so that the recorded hash is over exactly those bytes.
            raw = _encode_for_step(request, "request", step_id)[:-1] + b',"body":' + (body or b"null") + b"}"
            command = RunStep(step_id=step_id, name=name, type="http", input=raw, **options)
            call = HttpCall(
                method=method.upper(), url=url, body=body, headers=all_headers, timeout_s=timeout_s, keyed=keyed
            )
            outcome = await self._host.ask_step(command, lambda: call)
            return HttpResponse.from_output(outcome.data or b"null")

        return run()

    def side_effect(self, name: str, function: Callable[[], Any], /) -> Coroutine[Any, Any, Any]:
        """Evaluates a function once and records its value: for a clock, a random number, a choice; to be awaited.

        Unlike a step it is never repeated or retried, and it must not reach the outside world.

        Args:
            name: The marker's name.
            function: Not async; its value must be JSON. If it raises, the run fails.
        """
        source = caller_source(self._host, 1)
        names.check_user_id("side effect name", name)

        async def run() -> Any:
            command = RecordMarker(step_id=self._host.name_once(name), name=name, source=source)
            return _recorded(await self._host.ask_marker(command, function))

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
        source = caller_source(self._host, 2)

        async def run() -> _T:
            command = RecordMarker(step_id=self._host.name_once(name), name=name, source=source)
            return read(_recorded(await self._host.ask_marker(command, function)))

        return run()

    def __reduce__(self) -> Any:
        raise NotReplayable("ctx belongs to the workflow function: pass values to steps, not ctx")


def _recorded(outcome: Outcome) -> Any:
    assert outcome.data is not None, "the core sees to it"
    return json_bytes.decode_recorded(outcome.data)


def _encode_for_step(value: Any, field: str, step_id: str) -> bytes:
    try:
        return conversion.encode(value, field)
    except InvalidField as error:
        raise StepError(error.reason, error.message, step_id, error.details) from None


def _effects(value: str) -> str:
    if value not in {"outside", "none"}:
        raise InvalidField("effects", f"{value!r} is none of outside, none")
    return value


def _options(
    retry: RetryPolicy | None,
    timeout_s: float | None,
    claim: str,
    sink: str,
    key_scope: str,
    total_timeout_s: float | None,
) -> dict[str, Any]:
    """The options that steps of all types share, checked, as fields of RunStep."""
    for field, seconds in (("timeout_s", timeout_s), ("total_timeout_s", total_timeout_s)):
        if seconds is not None and not (math.isfinite(seconds) and 0.001 <= seconds <= SLEEP_S_MAX):
            raise InvalidField(field, f"{seconds} is not between 0.001 and {SLEEP_S_MAX}")
    if claim not in {"", "retry", "ask", "skip"}:
        raise InvalidField("claim", f"{claim!r} is none of retry, ask, skip")
    if sink:
        names.check_user_id("sink", sink)
    if key_scope not in {"run", "workflow"}:
        raise InvalidField("key_scope", f"{key_scope!r} is none of run, workflow")
    return {
        "retry": retry or _ONCE,
        "timeout_ms": None if timeout_s is None else math.ceil(timeout_s * 1000),
        "total_timeout_ms": None if total_timeout_s is None else math.ceil(total_timeout_s * 1000),
        "claim": claim,
        "sink": sink,
        "key_scope": key_scope,
    }
