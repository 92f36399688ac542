"""What a node of a graph does outside of the run: calls a tool, asks a connector or a model (SPEC 7.1).

A node's work is told by its type and what its data came to, all templates and expressions being filled in: a JSON
object. What is wrong in it fails the step before anything is sent.
"""

import inspect
import json
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import Any, Protocol
from urllib.parse import urlsplit

from lantern.program.calls import FunctionCall, HttpCall
from lantern.program.calls import StepCall as LocalCall
from lantern.program.failures import failure_of
from lantern.registry import Tool
from lantern_executor.adapters.providers import OPENAI, PROVIDERS, ModelCall
from lantern_executor.domain.step import Completed, StepCall, StepContext
from lantern_kernel import reasons
from lantern_kernel.errors import InvalidField, LanternError
from lantern_kernel.graph.interpreter import STEP_TYPES
from lantern_kernel.graph.node_data import METHODS
from lantern_kernel.retry import Failure


class LocalRunner(Protocol):
    """Executes functions and HTTP requests."""

    def room(self, call: LocalCall) -> AbstractAsyncContextManager[object]:
        """What is needed to execute it at once."""
        ...

    async def run(self, call: LocalCall, context: StepContext) -> Completed | Failure:
        """Executes one attempt; only cancellation is raised."""
        ...


class ModelRunner(Protocol):
    """Asks models."""

    async def run(self, call: ModelCall, context: StepContext) -> Completed | Failure:
        """Executes one attempt; only cancellation is raised."""
        ...


class Nodes:
    """Executes the nodes of graphs.

    Args:
        tools: By name.
        local: For tools and connectors.
        models: For ai-steps.
    """

    def __init__(self, tools: Mapping[str, Tool], local: LocalRunner, models: ModelRunner) -> None:
        self._tools, self._local, self._models = tools, local, models

    def step_call(self, node_type: str, spec: bytes, *, keyed: bool = True) -> StepCall:
        """What to execute for a node: any number of attempts.

        Args:
            node_type: tool, connector or ai-step.
            spec: What its data came to, JSON.
            keyed: Whether the idempotency key is sent along.
        """
        try:
            value: Any = json.loads(spec)
            if not isinstance(value, dict):
                raise InvalidField("data", "is no object")
            match node_type:
                case "tool":
                    return self._local_call(self._tool(value))
                case "connector":
                    return self._local_call(_request(value, keyed=keyed))
                case "ai-step":
                    return StepCall(run=partial(self._models.run, _question(value)))
                case _:
                    raise InvalidField("type", f"{node_type!r} is nothing that an executor executes")
        except LanternError as error:
            return StepCall(run=_failing(_refusal(node_type, error)), room=nullcontext[None])

    def _local_call(self, call: LocalCall) -> StepCall:
        return StepCall(run=partial(self._local.run, call), room=partial(self._local.room, call))

    def _tool(self, spec: Mapping[str, Any]) -> FunctionCall:
        """The call of a tool: `{"tool": name, "input": {...}}`."""
        name = _text(spec, "tool")
        tool = self._tools.get(name)
        if tool is None:
            known = ", ".join(sorted(self._tools)) or "none"
            raise LanternError(
                reasons.TOOL_NOT_FOUND, f"no tool {name!r} is loaded here; there are: {known}", field="tool", tool=name
            )
        arguments: Any = spec.get("input")
        arguments = {} if arguments is None else arguments
        if not isinstance(arguments, dict):
            raise InvalidField("input", f"the tool {name!r} is called by keyword: an object is required")
        try:
            inspect.signature(tool.function).bind(**arguments)
        except TypeError as error:
            raise InvalidField("input", f"the tool {name!r} cannot be called so: {error}") from None
        return FunctionCall(fn=partial(tool.function, **arguments), args=())


def _request(spec: Mapping[str, Any], *, keyed: bool) -> HttpCall:
    """The request of the connector http: `{"connector": "http", "method", "url", "headers", "body"}`."""
    connector = spec.get("connector", "http")
    if connector != "http":
        raise InvalidField("connector", f"{connector!r} is none that this executor has; there is: http")
    url = _text(spec, "url")
    try:
        parts = urlsplit(url)
        is_absolute = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        is_absolute = False
    if not is_absolute:
        raise InvalidField("url", f"{url!r} is no absolute http or https URL")
    method = str(spec.get("method", "POST" if "body" in spec else "GET")).upper()
    if method not in METHODS:
        raise InvalidField("method", f"{method!r} is none of {', '.join(sorted(METHODS))}")
    headers: Any = spec.get("headers", {})
    if not isinstance(headers, dict) or not all(isinstance(each, str) for each in headers.values()):
        raise InvalidField("headers", "an object of texts is required")
    body = json.dumps(spec["body"], ensure_ascii=False, separators=(",", ":")).encode() if "body" in spec else b""
    return HttpCall(method=method, url=url, body=body, headers=headers, timeout_s=None, keyed=keyed)


def _question(spec: Mapping[str, Any]) -> ModelCall:
    """The question of an ai-step: `{"model", "prompt" or "messages", "provider", "system", ...}`."""
    provider: Any = spec.get("provider", OPENAI)
    if provider not in PROVIDERS:
        raise InvalidField("provider", f"{provider!r} is none of {', '.join(PROVIDERS)}")
    messages: Any = spec.get("messages")
    if messages is None:
        messages = [{"role": "user", "content": _text(spec, "prompt")}]
    if not isinstance(messages, list) or not messages or not all(isinstance(each, dict) for each in messages):
        raise InvalidField("messages", "a list of objects is required")
    max_tokens, temperature = spec.get("maxTokens"), spec.get("temperature")
    if max_tokens is not None and (type(max_tokens) is not int or max_tokens < 1):
        raise InvalidField("maxTokens", f"{max_tokens!r} is no whole number from 1 on")
    if temperature is not None and type(temperature) not in (int, float):
        raise InvalidField("temperature", f"{temperature!r} is no number")
    parameters: Any = spec.get("parameters", {})
    if not isinstance(parameters, dict):
        raise InvalidField("parameters", "an object is required")
    if "stream" in parameters:
        raise InvalidField("parameters.stream", "the answer is recorded as a whole")
    system = spec.get("system", "")
    if not isinstance(system, str):
        raise InvalidField("system", "a text is required")
    return ModelCall(
        provider=provider,
        model=_text(spec, "model"),
        messages=tuple(messages),
        system=system,
        max_tokens=max_tokens,
        temperature=temperature,
        parameters=parameters,
    )


def _text(spec: Mapping[str, Any], name: str) -> str:
    value = spec.get(name)
    if not isinstance(value, str) or not value:
        raise InvalidField(name, "a text is required")
    return value


def _refusal(node_type: str, error: LanternError) -> Failure:
    """What cannot be dispatched as it stands has done nothing; another worker may have the tool."""
    failure = failure_of(error, STEP_TYPES.get(node_type, ""))
    return Failure(
        code=failure.code,
        message=failure.message,
        error_class=failure.error_class,
        step_class=failure.step_class,
        outcome="not_executed",
        retryable=error.reason == reasons.TOOL_NOT_FOUND,
        details=failure.details,
    )


def _failing(failure: Failure) -> "Callable[[StepContext], Any]":
    async def run(context: StepContext) -> Failure:
        del context
        return failure

    return run
