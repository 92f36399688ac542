"""Goal: a node's work is what its data says; what is wrong in it fails before anything is sent.

Method: the nodes over runners that keep what they are asked to do, and over the real runner for tools.
"""

import json
from contextlib import nullcontext
from typing import Any

import pytest

import lantern
from lantern.program.calls import HttpCall
from lantern.registry import Tool
from lantern_executor.adapters.nodes import Nodes
from lantern_executor.adapters.providers import ModelCall
from lantern_executor.adapters.steps import LocalStepRunner
from lantern_executor.domain.step import Completed, StepContext
from lantern_kernel import reasons
from lantern_kernel.retry import Failure

CONTEXT = StepContext(run_id="run", workflow_id="wf", step_id="a", attempt=2, key_attempt=1, key="k" * 64, epoch=3)


class Keeping:
    """Keeps the calls, and says that each was made."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def room(self, call: Any) -> Any:
        return nullcontext(call)

    async def run(self, call: Any, context: StepContext) -> Completed | Failure:
        del context
        self.calls.append(call)
        return Completed(output=b"1")


async def run(nodes: Nodes, node_type: str, spec: Any, *, keyed: bool = True) -> Completed | Failure:
    call = nodes.step_call(node_type, json.dumps(spec).encode(), keyed=keyed)
    async with call.room():
        return await call.run(CONTEXT)


async def made(node_type: str, spec: Any, *, keyed: bool = True) -> Any:
    """What is executed for a node."""
    keeping = Keeping()
    end = await run(Nodes({}, keeping, keeping), node_type, spec, keyed=keyed)
    assert isinstance(end, Completed), end
    return keeping.calls[0]


def reserve(order: str, *, quantity: int = 1) -> dict[str, Any]:
    return {"order": order, "quantity": quantity, "key": lantern.step_info().key}


async def charge(amount: int) -> int:
    return amount * 100


def give_up() -> None:
    raise lantern.StepFailure("sold out", code="SOLD_OUT", executed=False)


TOOLS = {name: Tool(name=name, function=f) for name, f in (("reserve", reserve), ("charge", charge), ("no", give_up))}


def with_tools() -> Nodes:
    def no_http() -> Any:
        raise AssertionError("no requests here")

    return Nodes(TOOLS, LocalStepRunner(no_http), Keeping())


async def test_a_tool_is_called_by_keyword_and_knows_its_key() -> None:
    end = await run(with_tools(), "tool", {"tool": "reserve", "input": {"order": "o-1", "quantity": 3}})
    assert isinstance(end, Completed)
    assert json.loads(end.output) == {"order": "o-1", "quantity": 3, "key": "k" * 64}
    end = await run(with_tools(), "tool", {"tool": "charge", "input": {"amount": 40}})
    assert end == Completed(output=b"4000")


async def test_what_a_tool_says_of_its_failure_counts() -> None:
    end = await run(with_tools(), "tool", {"tool": "no"})
    assert isinstance(end, Failure)
    assert (end.code, end.outcome, end.step_class) == ("SOLD_OUT", "not_executed", "tool")


@pytest.mark.parametrize("given", [{"nobody": 1}, {"order": "o", "quantity": 1, "more": 1}, {}, [1], "text"])
async def test_a_tool_that_cannot_be_called_so_is_not_called(given: Any) -> None:
    end = await run(with_tools(), "tool", {"tool": "reserve", "input": given})
    assert isinstance(end, Failure)
    assert (end.code, end.outcome, end.retryable) == (reasons.INVALID_FIELD, "not_executed", False)


async def test_a_tool_that_is_not_loaded_here_may_be_tried_again() -> None:
    end = await run(with_tools(), "tool", {"tool": "refund", "input": {}})
    assert isinstance(end, Failure)
    assert (end.code, end.outcome, end.retryable) == (reasons.TOOL_NOT_FOUND, "not_executed", True)
    assert "charge, no, reserve" in end.message


async def test_a_connector_makes_the_request_that_its_data_says() -> None:
    spec: dict[str, Any] = {"url": "http://shop/charges", "headers": {"X-A": "b"}, "body": {"amount": 2**70}}
    call = await made("connector", spec)
    assert isinstance(call, HttpCall)
    assert (call.method, call.url, call.headers, call.keyed) == ("POST", "http://shop/charges", {"X-A": "b"}, True)
    assert call.body == b'{"amount":%d}' % 2**70
    plain = await made("connector", {"url": "https://shop/", "connector": "http"}, keyed=False)
    assert (plain.method, plain.body, plain.keyed) == ("GET", b"", False)
    assert (await made("connector", {"url": "https://shop/", "method": "put", "body": None})).body == b"null"


async def test_an_ai_step_asks_what_its_data_says() -> None:
    spec = {"model": "m", "prompt": "Hi", "maxTokens": 5, "parameters": {"top_p": 1}}
    call = await made("ai-step", spec)
    assert call == ModelCall(
        provider="openai",
        model="m",
        messages=({"role": "user", "content": "Hi"},),
        max_tokens=5,
        parameters={"top_p": 1},
    )
    said = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
    call = await made("ai-step", {"provider": "anthropic", "model": "m", "messages": said, "system": "s"})
    assert (call.messages, call.system) == (tuple(said), "s")


ASK = {"provider": "openai", "model": "m", "prompt": "Hi"}


@pytest.mark.parametrize(
    ("node_type", "spec", "field"),
    [
        ("tool", {}, "tool"),
        ("connector", {}, "url"),
        ("connector", {"url": "ftp://shop/"}, "url"),
        ("connector", {"url": "/charges"}, "url"),
        ("connector", {"url": "http://[/"}, "url"),
        ("connector", {"url": "http://shop/", "method": "BREW"}, "method"),
        ("connector", {"url": "http://shop/", "headers": {"X-A": 1}}, "headers"),
        ("connector", {"url": "http://shop/", "connector": "fax"}, "connector"),
        ("ai-step", {**ASK, "provider": "nobody"}, "provider"),
        ("ai-step", {**ASK, "provider": None}, "provider"),
        ("ai-step", {**ASK, "model": ""}, "model"),
        ("ai-step", {**ASK, "prompt": 7}, "prompt"),
        ("ai-step", {**ASK, "messages": []}, "messages"),
        ("ai-step", {**ASK, "messages": ["Hi"]}, "messages"),
        ("ai-step", {**ASK, "maxTokens": True}, "maxTokens"),
        ("ai-step", {**ASK, "temperature": "hot"}, "temperature"),
        ("ai-step", {**ASK, "parameters": []}, "parameters"),
        ("ai-step", {**ASK, "parameters": {"stream": True}}, "parameters.stream"),
        ("ai-step", {**ASK, "system": 1}, "system"),
        ("ai-step", [], "data"),
        ("poem", {}, "type"),
    ],
)
async def test_what_is_wrong_in_a_node_fails_it_before_anything_is_sent(node_type: str, spec: Any, field: str) -> None:
    keeping = Keeping()
    end = await run(Nodes({}, keeping, keeping), node_type, spec)
    assert isinstance(end, Failure)
    assert (end.outcome, end.retryable, keeping.calls) == ("not_executed", False, [])
    assert (end.details or {})["field"] == field
