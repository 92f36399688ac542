"""Executes the attempts of steps: functions of the user's, and HTTP requests over one shared session (SPEC E2, E3)."""

import asyncio
import socket
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import assert_never

import aiohttp

from lantern.program.calls import FunctionCall, HttpCall, StepCall, StepInfo, is_async
from lantern.program.failures import failure_of
from lantern_executor.domain.step import StepContext
from lantern_kernel import reasons, sinks
from lantern_kernel.bounds import PAYLOAD_BYTES_MAX
from lantern_kernel.errors import InvalidField, LanternError
from lantern_kernel.retry import CLASS_OF_STEP_TYPE, Failure
from lantern_kernel.step_ends import Completed

THREADS_DEFAULT = 64
"""Functions of the user's that are not async and run at once; more of them wait for a thread."""

KEY_HEADER = "Idempotency-Key"
EPOCH_HEADER = "Lantern-Epoch"

ERROR_BODY_BYTES_MAX = 500
"""How much of an answer that is no success goes into the error's message."""

_CONNECTOR = CLASS_OF_STEP_TYPE["http"]


class LocalStepRunner:
    """Runs functions in this process and makes HTTP requests from it.

    Args:
        http: Makes the session that all requests share; called at the first request.
        threads: How many functions that are not async run at once; as many threads the loop's default executor has.
    """

    def __init__(self, http: Callable[[], aiohttp.ClientSession], threads: int = THREADS_DEFAULT) -> None:
        self._make_http = http
        self._threads = asyncio.Semaphore(threads)
        self._http: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Closes the connections."""
        if self._http is not None:
            await self._http.close()

    def room(self, call: StepCall) -> AbstractAsyncContextManager[object]:
        """A thread, where the call needs one; entered in the order of asking."""
        if isinstance(call, FunctionCall) and not is_async(call.fn):
            return self._threads
        return nullcontext()

    async def run(self, call: StepCall, context: StepContext) -> Completed | Failure:
        """Executes one attempt. Whatever the user's code does is an end; only our own cancellation is raised."""
        step_type = "function" if isinstance(call, FunctionCall) else "http"
        try:
            match call:
                case FunctionCall():
                    return Completed(output=await call.run(_info(context)))
                case HttpCall():
                    return await self._request(call, context)
                case _:
                    assert_never(call)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return failure_of(error, step_type)  # the code of the step cancelled itself
        except BaseException as error:  # SystemExit in a step ends the step, not the process
            return failure_of(error, step_type)

    async def _request(self, call: HttpCall, context: StepContext) -> Completed | Failure:
        if self._http is None:
            self._http = self._make_http()
        headers = dict(call.headers)
        if call.body and not any(name.lower() == "content-type" for name in headers):
            headers["Content-Type"] = "application/json"
        ours = {EPOCH_HEADER: str(context.epoch)}
        if call.keyed:
            ours[KEY_HEADER] = context.key
        taken = {name.lower() for name in ours}
        headers = {name: value for name, value in headers.items() if name.lower() not in taken} | ours
        try:
            async with self._http.request(
                call.method,
                call.url,
                data=call.body or None,
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=call.timeout_s),
                allow_redirects=False,
            ) as response:
                body = await _read(response)
                return _answered(call, response.status, body)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            return _unanswered(call, error)


def http_session() -> aiohttp.ClientSession:
    """The session that all HTTP steps share: no cookies carried from one run to another, no bound on connections."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=True
    )


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """The body, up to one byte more than may be recorded: an answer without end does not fill the memory."""
    parts: list[bytes] = []
    size = 0
    async for part in response.content.iter_chunked(64 * 1024):
        parts.append(part)
        size += len(part)
        if size > PAYLOAD_BYTES_MAX:
            break
    return b"".join(parts)


def _answered(call: HttpCall, status: int, body: bytes) -> Completed | Failure:
    if not sinks.http_succeeded(status):
        text = body[:ERROR_BODY_BYTES_MAX].decode("utf-8", "replace")
        return Failure(
            code=reasons.HTTP_STATUS,
            message=f"{call.method} {call.url} answered {status}: {text}" if text else f"{call.url} answered {status}",
            error_class=_CONNECTOR,
            step_class=_CONNECTOR,
            outcome=sinks.http_outcome(status),
            details={"status": str(status)},
        )
    if len(body) > PAYLOAD_BYTES_MAX:
        return _too_large(call)
    output = call.output(status, body or b"null")
    # What is recorded is the answer with its status.
    return _too_large(call) if len(output) > PAYLOAD_BYTES_MAX else Completed(output=output)


def _too_large(call: HttpCall) -> Failure:
    error: LanternError = InvalidField(
        "body",
        f"{call.url} answered more than the {PAYLOAD_BYTES_MAX} bytes that can be recorded",
        reason=reasons.PAYLOAD_TOO_LARGE,
        limit=PAYLOAD_BYTES_MAX,
    )
    return failure_of(error, "http")


def _unanswered(call: HttpCall, error: Exception) -> Failure:
    """The failure of a request that got no answer."""
    fault = _fault(error)
    timed_out = fault == "timeout"
    if timed_out and call.timeout_s is not None:
        message = f"{call.method} {call.url} was not answered within {call.timeout_s:g} s"
    else:
        message = f"{call.method} {call.url}: {type(error).__name__}: {error}"
    return Failure(
        code=reasons.STEP_TIMEOUT if timed_out else reasons.HTTP_UNREACHABLE,
        message=message,
        error_class="timeout" if timed_out else _CONNECTOR,
        step_class=_CONNECTOR,
        outcome="not_executed" if isinstance(error, ValueError) else sinks.fault_outcome(fault),
        # A URL or a header that cannot be sent will never do.
        retryable=not isinstance(error, ValueError),
    )


def _fault(error: Exception) -> sinks.Fault:
    match error:
        case aiohttp.ClientConnectorDNSError() | socket.gaierror():
            return "name_not_resolved"
        case TimeoutError():
            return "timeout"
        case aiohttp.ClientConnectorError(os_error=ConnectionRefusedError()):
            return "connection_refused"
        case aiohttp.ServerDisconnectedError() | ConnectionResetError() | aiohttp.ClientOSError():
            return "reset"
        case _:
            return "other"


def _info(context: StepContext) -> StepInfo:
    return StepInfo(
        run_id=context.run_id,
        workflow_id=context.workflow_id,
        step_id=context.step_id,
        attempt=context.attempt,
        key_attempt=context.key_attempt,
        key=context.key,
        epoch=context.epoch,
    )
