"""Goal: HTTP steps send what they must, record what came back, and say of each failure what it can have done.

Method: a real aiohttp server on a real socket answers each case; the runner's end of the attempt is looked at.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from lantern.program.calls import HttpCall
from lantern_executor.adapters.steps import LocalStepRunner, http_session
from lantern_executor.domain.step import StepContext
from lantern_kernel import reasons
from lantern_kernel.bounds import PAYLOAD_BYTES_MAX
from lantern_kernel.retry import Failure
from lantern_kernel.step_ends import Completed

CONTEXT = StepContext(run_id="run", workflow_id="", step_id="charge", attempt=1, key_attempt=1, key="k" * 64, epoch=3)


@asynccontextmanager
async def _server(handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncGenerator[str]:
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()


async def _run(call: HttpCall) -> Completed | Failure:
    runner = LocalStepRunner(http_session)
    try:
        return await runner.run(call, CONTEXT)
    finally:
        await runner.close()


def _call(url: str, *, keyed: bool = True, body: bytes = b"", timeout_s: float | None = 5.0) -> HttpCall:
    headers = {"X-Mine": "1", "idempotency-key": "not mine to choose"}
    if not keyed:
        del headers["idempotency-key"]
    return HttpCall(method="POST", url=url, body=body, headers=headers, timeout_s=timeout_s, keyed=keyed)


@pytest.mark.parametrize("keyed", [True, False])
async def test_request_carries_key_epoch_and_body(keyed: bool) -> None:
    async def echo(request: web.Request) -> web.StreamResponse:
        return web.json_response({"headers": dict(request.headers), "body": await request.text()})

    async with _server(echo) as url:
        end = await _run(_call(url, keyed=keyed, body=b'{"big":12345678901234567890}'))
    assert isinstance(end, Completed)
    answer = json.loads(end.output)["body"]
    headers = {name.lower(): value for name, value in answer["headers"].items()}
    assert headers.get("idempotency-key") == (CONTEXT.key if keyed else None)
    assert (headers["lantern-epoch"], headers["x-mine"], headers["content-type"]) == ("3", "1", "application/json")
    assert answer["body"] == '{"big":12345678901234567890}'


@pytest.mark.parametrize(
    ("body", "recorded"),
    [
        (
            b'{ "a": 12345678901234567890, "b": 1.50 }',
            b'{"status":200,"body":{ "a": 12345678901234567890, "b": 1.50 }}',
        ),
        (b"plain \xc3\xa9", '{"status":200,"body":"plain é"}'.encode()),
        (b"", b'{"status":200,"body":null}'),
    ],
)
async def test_answer_is_recorded_exactly(body: bytes, recorded: bytes) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(body=body)

    async with _server(answer) as url:
        assert await _run(_call(url)) == Completed(output=recorded)


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (400, "not_executed"),
        (402, "not_executed"),
        (429, "not_executed"),
        (409, "unknown"),
        (500, "unknown"),
        (302, "unknown"),
    ],
)
async def test_status_says_what_was_done(status: int, outcome: str) -> None:
    calls: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        calls.append(request.path)
        return web.Response(status=status, text="no \ud7ff", headers={"Location": "/elsewhere"})

    async with _server(answer) as url:
        end = await _run(_call(url))
    assert isinstance(end, Failure)
    assert (end.code, end.outcome, end.details) == (reasons.HTTP_STATUS, outcome, {"status": str(status)})
    assert calls == ["/"]  # redirects are not followed


async def test_time_out_is_unknown() -> None:
    async def never(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(30)
        raise AssertionError("nobody waits so long")

    async with _server(never) as url:
        end = await _run(_call(url, timeout_s=0.2))
    assert isinstance(end, Failure)
    assert (end.code, end.error_class, end.outcome) == (reasons.STEP_TIMEOUT, "timeout", "unknown")


async def test_lost_connection_is_unknown() -> None:
    async def cut(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async with _server(cut) as url:
        end = await _run(_call(url))
    assert isinstance(end, Failure)
    assert (end.code, end.outcome) == (reasons.HTTP_UNREACHABLE, "unknown")


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/", "http://no-such-host.invalid/"])
async def test_what_was_never_sent_is_not_executed(url: str) -> None:
    end = await _run(_call(url))
    assert isinstance(end, Failure)
    assert (end.code, end.outcome, end.retryable) == (reasons.HTTP_UNREACHABLE, "not_executed", True)


@pytest.mark.parametrize("url", ["http://", "http://[::1/", "http://x:99999999/"])
async def test_url_that_cannot_be_called_is_final(url: str) -> None:
    end = await _run(_call(url))
    assert isinstance(end, Failure)
    assert (end.outcome, end.retryable) == ("not_executed", False)


@pytest.mark.parametrize("size", [PAYLOAD_BYTES_MAX - 2, PAYLOAD_BYTES_MAX, PAYLOAD_BYTES_MAX + 5_000_000])
async def test_answer_that_is_too_large_is_a_clear_failure(size: int) -> None:
    """Also one that is too large only with what is recorded beside it."""

    async def large(request: web.Request) -> web.StreamResponse:
        return web.Response(body=b'"' + b"x" * size + b'"')

    async with _server(large) as url:
        end = await _run(_call(url))
    assert isinstance(end, Failure)
    assert (end.code, end.outcome, end.retryable) == (reasons.PAYLOAD_TOO_LARGE, "unknown", False)


async def test_answer_of_some_megabytes_is_recorded_whole() -> None:
    async def large(request: web.Request) -> web.StreamResponse:
        return web.Response(body=b'"' + b"x" * 5_000_000 + b'"')

    async with _server(large) as url:
        end = await _run(_call(url))
    assert isinstance(end, Completed)
    assert json.loads(end.output)["body"] == "x" * 5_000_000
