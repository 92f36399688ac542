"""Goal: a model call is one request with the key, its answer is recorded, and each failure says what it can have done.

Method: the providers' real SDKs against a local server that speaks their APIs; the end of the attempt is looked at.
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from lantern_executor.adapters.providers import ANTHROPIC, OPENAI, PROVIDERS, ModelCall, Providers, ProviderSettings
from lantern_executor.domain.step import Completed, StepContext
from lantern_kernel import reasons
from lantern_kernel.retry import Failure

KEY = "k" * 64
CONTEXT = StepContext(run_id="run", workflow_id="", step_id="ask", attempt=1, key_attempt=1, key=KEY, epoch=3)

SAYS: dict[str, dict[str, Any]] = {
    OPENAI: {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "exact-1",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "four\u0000 é"}}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 2, "total_tokens": 13},
    },
    ANTHROPIC: {
        "id": "m1",
        "type": "message",
        "role": "assistant",
        "model": "exact-1",
        "stop_reason": "stop",
        "content": [{"type": "text", "text": "four\u0000"}, {"type": "text", "text": " é"}],
        "usage": {"input_tokens": 11, "output_tokens": 2},
    },
}
PATHS = {OPENAI: "/v1/chat/completions", ANTHROPIC: "/v1/messages"}


@dataclass
class FakeProvider:
    """Answers with a status and a body, after a while; keeps what it was asked."""

    status: int = 200
    # By provider; else what SAYS says.
    body: Any = None
    # Closes the connection instead of answering.
    hangs_up: bool = False
    requests: list[tuple[str, dict[str, str], Any]] = field(default_factory=list[tuple[str, dict[str, str], Any]])

    async def answer(self, request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        self.requests.append((request.path, {k.lower(): v for k, v in request.headers.items()}, asked))
        if self.hangs_up:
            assert request.transport is not None
            request.transport.close()
        provider = OPENAI if request.path == PATHS[OPENAI] else ANTHROPIC
        body = SAYS[provider] if self.body is None else self.body
        return web.json_response(body, status=self.status)


@asynccontextmanager
async def serving(fake: FakeProvider, api_key: str = "secret") -> AsyncGenerator[Providers]:
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", fake.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    at = f"http://127.0.0.1:{runner.addresses[0][1]}"
    providers = Providers(
        {
            OPENAI: ProviderSettings(base_url=f"{at}/v1", api_key=api_key),
            ANTHROPIC: ProviderSettings(base_url=at, api_key=api_key),
        }
    )
    try:
        yield providers
    finally:
        await providers.close()
        await runner.cleanup()


def question(provider: str, **changes: Any) -> ModelCall:
    values: dict[str, Any] = {
        "provider": provider,
        "model": "some-model",
        "messages": ({"role": "user", "content": "2 + 2?"},),
        "system": "Be short.",
        "max_tokens": 64,
        "temperature": 0,
    }
    return ModelCall(**{**values, **changes})


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_question_carries_the_key_and_its_answer_is_recorded(provider: str) -> None:
    fake = FakeProvider()
    async with serving(fake) as providers:
        end = await providers.run(question(provider), CONTEXT)
    assert isinstance(end, Completed)
    assert json.loads(end.output) == {
        "text": "four\u0000 é",
        "model": "exact-1",
        "stopReason": "stop",
        "usage": {"inputTokens": 11, "outputTokens": 2},
    }
    ((path, headers, asked),) = fake.requests
    assert path == PATHS[provider]
    assert headers["idempotency-key"] == KEY
    assert "secret" in (headers.get("authorization") or headers["x-api-key"])
    assert (asked["model"], asked["temperature"]) == ("some-model", 0)
    if provider == OPENAI:
        assert asked["messages"][0] == {"role": "system", "content": "Be short."}
        assert asked["max_completion_tokens"] == 64
    else:
        assert (asked["system"], asked["max_tokens"]) == ("Be short.", 64)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (400, "not_executed"),
        (401, "not_executed"),
        (429, "not_executed"),
        (409, "unknown"),
        (500, "unknown"),
        (529, "unknown"),
    ],
)
async def test_a_refusal_is_made_once_and_says_what_it_can_have_done(provider: str, status: int, outcome: str) -> None:
    fake = FakeProvider(status=status, body={"error": {"type": "t", "message": "slow down"}})
    async with serving(fake) as providers:
        end = await providers.run(question(provider), CONTEXT)
    assert isinstance(end, Failure)
    assert (end.code, end.error_class, end.step_class, end.outcome) == (reasons.HTTP_STATUS, "llm", "llm", outcome)
    assert end.details == {"status": str(status)}
    assert "slow down" in end.message
    assert "secret" not in end.message
    assert len(fake.requests) == 1, "the SDK's own retries are off"


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_lost_reply_is_unknown_and_is_not_asked_again_by_the_sdk(provider: str) -> None:
    fake = FakeProvider(hangs_up=True)
    async with serving(fake) as providers:
        end = await providers.run(question(provider), CONTEXT)
    assert isinstance(end, Failure)
    assert (end.code, end.outcome, end.retryable) == (reasons.HTTP_UNREACHABLE, "unknown", True)
    assert len(fake.requests) == 1


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_nobody_there_has_done_nothing(provider: str) -> None:
    nowhere = ProviderSettings(base_url="http://127.0.0.1:9/v1", api_key="k")
    providers = Providers({OPENAI: nowhere, ANTHROPIC: nowhere})
    end = await providers.run(question(provider), CONTEXT)
    await providers.close()
    assert isinstance(end, Failure)
    assert (end.code, end.outcome, end.retryable) == (reasons.HTTP_UNREACHABLE, "not_executed", True)


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_an_answer_that_is_none_is_unknown(provider: str) -> None:
    fake = FakeProvider(body={"choices": [], "content": None, "usage": None})
    async with serving(fake) as providers:
        end = await providers.run(question(provider), CONTEXT)
    assert isinstance(end, Failure)
    assert end.outcome == "unknown"


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_what_else_the_api_takes_goes_along_as_it_is(provider: str) -> None:
    fake = FakeProvider()
    async with serving(fake) as providers:
        end = await providers.run(question(provider, parameters={"top_p": 0.5, "newer": {"a": [1]}}), CONTEXT)
    assert isinstance(end, Completed)
    asked = fake.requests[0][2]
    assert (asked["top_p"], asked["newer"]) == (0.5, {"a": [1]})


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_without_a_credential_nothing_is_sent(provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/nonexistent")
    fake = FakeProvider()
    async with serving(fake, api_key="") as providers:
        end = await providers.run(question(provider), CONTEXT)
    assert isinstance(end, Failure)
    assert (end.outcome, end.retryable, fake.requests) == ("not_executed", False, [])


async def test_a_cancelled_question_ends_as_cancelled() -> None:
    fake = FakeProvider()
    async with serving(fake) as providers:
        task = asyncio.create_task(providers.run(question(OPENAI), CONTEXT))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_tool_calls_of_the_model_are_recorded() -> None:
    call = {"id": "t1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    body: dict[str, Any] = json.loads(json.dumps(SAYS[OPENAI]))
    body["choices"][0]["message"] |= {"content": None, "tool_calls": [call]}
    async with serving(FakeProvider(body=body)) as providers:
        end = await providers.run(question(OPENAI), CONTEXT)
    assert isinstance(end, Completed)
    recorded = json.loads(end.output)
    assert recorded["text"] == ""
    assert recorded["toolCalls"][0]["function"] == {"name": "add", "arguments": "{}"}
