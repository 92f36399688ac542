"""Graphs as agents of an environment in memory: their tools are called, what else they reach is faked by node id."""

import json
from collections.abc import Mapping
from functools import partial
from hashlib import sha256
from typing import Any

from lantern.program.calls import FunctionCall, StepCall
from lantern.registry import Tool
from lantern.testing.programs import Agent
from lantern_kernel.errors import InvalidField
from lantern_kernel.graph.compiled import CompiledGraph
from lantern_kernel.graph.definition import TOOL, parse
from lantern_kernel.graph.interpreter import Interpreter, RunFacts


class GraphHost(Interpreter):
    """One run of a graph, and the code of its tools."""

    def __init__(self, graph: CompiledGraph, run: RunFacts, tools: Mapping[str, Tool]) -> None:
        super().__init__(graph, run)
        self._tools = tools

    def step_call(self, step_id: str) -> StepCall:
        """What a node consists of: a tool's function, or nothing but what the test puts in its place."""
        work = self.node_work(step_id)
        spec: Mapping[str, Any] = json.loads(work.spec)
        tool = self._tools.get(str(spec.get("tool"))) if work.node_type == TOOL else None
        # What stands in for a node is given what its data came to, as the node's own function is here.
        return FunctionCall(fn=partial(_missing, step_id) if tool is None else partial(_call, tool), args=(spec,))

    def close(self) -> None:
        """Ends it, wherever it stands."""


def _call(tool: Tool, spec: Mapping[str, Any]) -> Any:
    return tool.function(**(spec.get("input") or {}))


def _missing(step_id: str, spec: Mapping[str, Any]) -> None:
    del spec
    raise InvalidField("node", f"nothing stands in for {step_id}: env.fake({step_id.partition('[')[0]!r}, ...)")


def graph_agent(name: str, definition: bytes | Mapping[str, Any], *tools: Tool) -> Agent:
    """A graph as an agent, to be given to `Environment.offer`.

    Args:
        name: The agent's.
        definition: JSON, or what JSON can say.
        tools: What its tool nodes may call; others are faked by their node's id.

    Raises:
        InvalidField: It has not the shape of a graph.
    """
    content = definition if isinstance(definition, bytes) else json.dumps(definition).encode()
    graph = CompiledGraph(parse(content))
    named = {tool.name: tool for tool in tools}

    def host(run_id: str, workflow_id: str, run_input: bytes) -> GraphHost:
        return GraphHost(graph, RunFacts(run_id=run_id, workflow_id=workflow_id, input=run_input), named)

    return Agent(name=name, digest=sha256(content).hexdigest(), host=host)
