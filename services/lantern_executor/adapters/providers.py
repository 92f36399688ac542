"""Model calls through the providers' own SDKs, each attempt one request under the step's key (SPEC M1, E2, E3).

The SDKs do not retry: the step's policy does, and only it knows whether the key may change. They are imported when the
first call is made, since that takes a second each.
"""

import asyncio
import os
import socket
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from lantern_executor.domain.step import Completed, StepContext
from lantern_kernel import json_bytes, reasons, sinks
from lantern_kernel.retry import Failure, Outcome

OPENAI, ANTHROPIC = "openai", "anthropic"
PROVIDERS = (OPENAI, ANTHROPIC)

KEY_HEADER = "Idempotency-Key"

DEADLINE_S = 600.0
"""Of one request, where the step sets no time-out that is shorter."""

MAX_TOKENS_DEFAULT = 4_096
"""Of an answer by Anthropic, whose API wants it said."""

MESSAGE_CHARACTERS_MAX = 500
"""How much of what a provider says of a fault is recorded."""

_CLASS = "llm"


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelCall:
    """One question to a model."""

    # One of PROVIDERS.
    provider: str
    # As the provider names it.
    model: str
    # What was said so far: role and content each, the last one the question.
    messages: tuple[Mapping[str, Any], ...]
    # What the model is to go by; empty for nothing.
    system: str = ""
    # At most so many tokens come back; None for the provider's bound.
    max_tokens: int | None = None
    # None for the provider's.
    temperature: float | None = None
    # Whatever else the provider's API takes, as it takes it.
    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, kw_only=True, slots=True)
class ProviderSettings:
    """Where a provider is reached, and with what."""

    # Empty is the provider's own address.
    base_url: str = ""
    # Empty is what the provider's SDK reads from the environment.
    api_key: str = ""


class Provider(Protocol):
    """A provider's SDK, made ready."""

    async def ask(self, call: ModelCall, key: str) -> "Answer":
        """One request; raises what the SDK raises."""
        ...

    async def close(self) -> None:
        """Closes the connections."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What a model said."""

    # All text parts, one after the other.
    text: str
    # Calls of tools that it asks for, as the provider tells them.
    tool_calls: tuple[Mapping[str, Any], ...]
    # The model that answered; it may be more exact than the one asked.
    model: str
    # Why it stopped, in the provider's word.
    stop_reason: str
    # Of the question, and of the answer.
    input_tokens: int
    output_tokens: int

    def to_json(self) -> bytes:
        """What is recorded as the step's output."""
        value: dict[str, Any] = {
            "text": self.text,
            "model": self.model,
            "stopReason": self.stop_reason,
            "usage": {"inputTokens": self.input_tokens, "outputTokens": self.output_tokens},
        }
        if self.tool_calls:
            value["toolCalls"] = list(self.tool_calls)
        return json_bytes.encode(value, "answer")


class Providers:
    """The providers that this process has spoken to.

    Args:
        settings: By provider; those that are left out are reached as their SDKs say.
        make: By provider, what makes it ready.
    """

    def __init__(
        self,
        settings: Mapping[str, ProviderSettings] | None = None,
        make: Mapping[str, Callable[[ProviderSettings], Provider]] | None = None,
    ) -> None:
        self._settings = settings or {}
        self._make = make or {OPENAI: OpenAi, ANTHROPIC: Anthropic}
        self._ready: dict[str, Provider] = {}
        self._making = asyncio.Lock()

    async def close(self) -> None:
        """Closes the connections."""
        for provider in self._ready.values():
            await provider.close()

    async def run(self, call: ModelCall, context: StepContext) -> Completed | Failure:
        """Executes one attempt; only cancellation is raised."""
        try:
            provider = await self._provider(call.provider)
        except Exception as error:
            return _failure(call, f"cannot be reached: {error}", "not_executed", retryable=False)
        try:
            answer = await provider.ask(call, context.key)
            return Completed(output=answer.to_json())
        except Exception as error:
            return failure_of_call(call, error)

    async def _provider(self, name: str) -> Provider:
        async with self._making:
            if name not in self._ready:
                # Importing an SDK takes a second, which the event loop is not to stand still for.
                make = self._make[name]
                self._ready[name] = await asyncio.to_thread(make, self._settings.get(name, ProviderSettings()))
        return self._ready[name]


class Unreadable(Exception):
    """An answer that is not what the provider's API promises; the request took effect, as far as we know."""


@contextmanager
def _reading() -> Generator[None]:
    try:
        yield
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        raise Unreadable(f"{type(error).__name__}: {error}") from error


def _parameters(call: ModelCall) -> dict[str, Any]:
    """What goes to the provider as it is: whether its API takes it is for the provider to say, not for its SDK."""
    own = {} if call.temperature is None else {"temperature": call.temperature}
    return {**call.parameters, **own}


class OpenAi:
    """The SDK `openai`, by its chat completions."""

    def __init__(self, settings: ProviderSettings) -> None:
        import openai

        self._client = openai.AsyncOpenAI(
            api_key=settings.api_key or None,
            base_url=settings.base_url or os.environ.get("OPENAI_BASE_URL") or None,
            max_retries=0,
            timeout=DEADLINE_S,
        )

    async def ask(self, call: ModelCall, key: str) -> Answer:
        """See Provider."""
        first = [{"role": "system", "content": call.system}] if call.system else []
        messages: list[Any] = [*first, *call.messages]
        more = _parameters(call)
        if call.max_tokens is not None:
            more["max_completion_tokens"] = call.max_tokens
        answered: Any = await self._client.chat.completions.create(
            model=call.model,
            messages=messages,
            extra_body=more,
            extra_headers={KEY_HEADER: key},
        )
        with _reading():
            choice = answered.choices[0]
            return Answer(
                text=choice.message.content or "",
                tool_calls=tuple(each.model_dump(mode="json") for each in choice.message.tool_calls or ()),
                model=answered.model,
                stop_reason=choice.finish_reason or "",
                input_tokens=answered.usage.prompt_tokens if answered.usage else 0,
                output_tokens=answered.usage.completion_tokens if answered.usage else 0,
            )

    async def close(self) -> None:
        """See Provider."""
        await self._client.close()


class Anthropic:
    """The SDK `anthropic`, by its messages."""

    def __init__(self, settings: ProviderSettings) -> None:
        import anthropic

        self._client = anthropic.AsyncAnthropic(
            api_key=settings.api_key or None,
            base_url=settings.base_url or os.environ.get("ANTHROPIC_BASE_URL") or None,
            max_retries=0,
            timeout=DEADLINE_S,
        )

    async def ask(self, call: ModelCall, key: str) -> Answer:
        """See Provider."""
        messages: list[Any] = list(call.messages)
        more = _parameters(call)
        if call.system:
            more["system"] = call.system
        answered: Any = await self._client.messages.create(
            model=call.model,
            messages=messages,
            max_tokens=MAX_TOKENS_DEFAULT if call.max_tokens is None else call.max_tokens,
            extra_body=more,
            extra_headers={KEY_HEADER: key},
        )
        with _reading():
            parts = list(answered.content)
            return Answer(
                text="".join(part.text for part in parts if part.type == "text"),
                tool_calls=tuple(part.model_dump(mode="json") for part in parts if part.type == "tool_use"),
                model=answered.model,
                stop_reason=answered.stop_reason or "",
                input_tokens=answered.usage.input_tokens,
                output_tokens=answered.usage.output_tokens,
            )

    async def close(self) -> None:
        """See Provider."""
        await self._client.close()


def failure_of_call(call: ModelCall, error: Exception) -> Failure:
    """How a request that the SDK gave up on ended; the two SDKs name their errors alike."""
    status = getattr(error, "status_code", None)
    names = {each.__name__ for each in type(error).__mro__}
    if isinstance(error, Unreadable) or "APIResponseValidationError" in names:
        return _failure(call, f"answered what its SDK cannot read: {error}", "unknown")
    if isinstance(status, int):
        return _failure(call, f"answered {status}: {error}", sinks.http_outcome(status), status=status)
    if "APITimeoutError" in names:
        return _failure(call, f"did not answer within {DEADLINE_S:g} s", "unknown", timed_out=True)
    if "APIConnectionError" in names:
        causes = list(_causes(error))
        refused = any(isinstance(cause, ConnectionRefusedError | socket.gaierror) for cause in causes)
        why = str(causes[-1]) or type(causes[-1]).__name__
        return _failure(call, f"was not reached: {why}", "not_executed" if refused else "unknown")
    if isinstance(error, TypeError):
        # So the SDKs tell what keeps them from asking at all, such as a credential that is missing.
        return _failure(call, f"cannot be asked: {error}", "not_executed", retryable=False)
    return _failure(call, f"{type(error).__name__}: {error}", "unknown")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and what it came from, the first cause last."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def _failure(
    call: ModelCall,
    what: str,
    outcome: Outcome,
    *,
    status: int | None = None,
    timed_out: bool = False,
    retryable: bool = True,
) -> Failure:
    code = reasons.STEP_TIMEOUT if timed_out else reasons.HTTP_UNREACHABLE if status is None else reasons.HTTP_STATUS
    message = f"{call.provider} ({call.model}) {what}"
    return Failure(
        code=code,
        message=message if len(message) <= MESSAGE_CHARACTERS_MAX else message[: MESSAGE_CHARACTERS_MAX - 3] + "...",
        error_class="timeout" if timed_out else _CLASS,
        step_class=_CLASS,
        outcome=outcome,
        retryable=retryable,
        details=None if status is None else {"status": str(status)},
    )
