"""A graph as visual editors write it: `{"nodes":[{"id","type","data"}],"edges":[{"source","target","label"?}]}`.

Parsing takes whatever has that shape; what else is wrong with a graph is told all at once by `check`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from lantern_kernel import json_bytes
from lantern_kernel.bounds import GRAPH_NODES_MAX
from lantern_kernel.errors import InvalidField

TRIGGER, END = "trigger", "end"
TOOL, CONNECTOR, AI_STEP = "tool", "connector", "ai-step"
SUBAGENT, APPROVAL, WAIT_SIGNAL, DELAY = "subagent", "approval", "wait-signal", "delay"
CONDITION, SWITCH, TRANSFORM = "condition", "switch", "transform"
PARALLEL, JOIN, LOOP, MAP = "parallel", "join", "loop", "map"

NODE_TYPES = frozenset(
    {
        *(TRIGGER, END, TOOL, CONNECTOR, AI_STEP, SUBAGENT, APPROVAL, WAIT_SIGNAL, DELAY),
        *(CONDITION, SWITCH, TRANSFORM, PARALLEL, JOIN, LOOP, MAP),
    }
)

OUTSIDE = frozenset({TOOL, CONNECTOR, AI_STEP})
"""Nodes that are steps: an executor does something outside of the run for them."""

REPEATS = frozenset({LOOP, MAP})
"""Nodes with a body: what lies between their edge `body` and the edges back to them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """One node."""

    # Unique within the graph.
    id: str
    # One of NODE_TYPES, if the graph is well made.
    type: str
    # What its type needs; JSON values.
    data: Mapping[str, Any] = field(default_factory=dict[str, Any])
    # Its place in the list.
    index: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Edge:
    """One edge."""

    # The node that it leaves.
    source: str
    # The node that it goes to.
    target: str
    # Which way out it is: `true`, `body`, `approved`, a case of a switch ...; empty for the plain one.
    label: str = ""
    # Its place in the list.
    index: int = 0


@dataclass(frozen=True, kw_only=True)
class GraphDefinition:
    """A whole graph."""

    # In the order given.
    nodes: Sequence[Node]
    # In the order given.
    edges: Sequence[Edge]
    # `maxConcurrency`, `anomalies`, `confidence`; see docs/guides/graphs.md.
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @cached_property
    def by_id(self) -> Mapping[str, Node]:
        """The nodes by id; of several with one id the first."""
        found: dict[str, Node] = {}
        for node in self.nodes:
            found.setdefault(node.id, node)
        return found

    @cached_property
    def leaving(self) -> Mapping[str, Sequence[Edge]]:
        """The edges that leave each node, in the order given."""
        found: dict[str, list[Edge]] = {node.id: [] for node in self.nodes}
        for edge in self.edges:
            found.setdefault(edge.source, []).append(edge)
        return found

    @cached_property
    def entering(self) -> Mapping[str, Sequence[Edge]]:
        """The edges that go to each node, in the order given."""
        found: dict[str, list[Edge]] = {node.id: [] for node in self.nodes}
        for edge in self.edges:
            found.setdefault(edge.target, []).append(edge)
        return found


def parse(content: bytes) -> GraphDefinition:
    """Reads a definition.

    Raises:
        InvalidField: It is no JSON, or has not the shape of a graph; the path says where.
    """
    value = json.loads(json_bytes.check(content, "definition"))
    root = _object(value, "definition")
    nodes = _list(root.get("nodes"), "definition.nodes")
    if len(nodes) > GRAPH_NODES_MAX:
        raise InvalidField("definition.nodes", f"{len(nodes)} nodes; {GRAPH_NODES_MAX} are allowed")
    edges = _list(root.get("edges", []), "definition.edges")
    return GraphDefinition(
        nodes=tuple(_node(each, at) for at, each in enumerate(nodes)),
        edges=tuple(_edge(each, at) for at, each in enumerate(edges)),
        settings=_object(root.get("settings", {}), "definition.settings"),
    )


def _node(value: Any, index: int) -> Node:
    path = f"definition.nodes[{index}]"
    node = _object(value, path)
    return Node(
        id=_text(node.get("id"), f"{path}.id"),
        type=_text(node.get("type"), f"{path}.type"),
        data=_object(node.get("data", {}), f"{path}.data"),
        index=index,
    )


def _edge(value: Any, index: int) -> Edge:
    path = f"definition.edges[{index}]"
    edge = _object(value, path)
    label = edge.get("label")
    return Edge(
        source=_text(edge.get("source"), f"{path}.source"),
        target=_text(edge.get("target"), f"{path}.target"),
        label="" if label is None else _text(label, f"{path}.label"),
        index=index,
    )


def _object(value: Any, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidField(path, "is no object")
    return value


def _list(value: Any, path: str) -> list[Any]:
    if not isinstance(value, list):
        raise InvalidField(path, "is no list")
    return value


def _text(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise InvalidField(path, "is no text")
    return value
