"""A graph made ready to be walked: its expressions compiled once, its ways out by label, the join of each parallel."""

from collections.abc import Mapping
from typing import Any

from lantern_kernel import reasons
from lantern_kernel.errors import InvalidField, LanternError
from lantern_kernel.graph.definition import JOIN, LOOP, MAP, PARALLEL, TRIGGER, GraphDefinition, Node
from lantern_kernel.graph.expressions import Expression, Template, compile_expression, compile_template
from lantern_kernel.retry import RetryPolicy

POLICY_KEYS = frozenset(
    {"retry", "timeoutMs", "totalTimeoutMs", "onUnknown", "sink", "keyed", "keyScope", "effects"},
)
"""Of the data of a node that is a step: how it is done; the rest says what is to be done."""

_RETRY_KEYS: Mapping[str, str] = {
    "maxAttempts": "max_attempts",
    "backoffMs": "backoff_ms",
    "multiplier": "multiplier",
    "maxBackoffMs": "max_backoff_ms",
    "jitter": "jitter",
    "retryableClasses": "retryable_classes",
    "nonRetryable": "non_retryable",
}


class CompiledGraph:
    """See the module. A graph that `check` finds no fault with never makes it raise but for INVALID_EXPRESSION."""

    def __init__(self, definition: GraphDefinition) -> None:
        self.definition = definition
        self._expressions: dict[tuple[str, str], Expression] = {}
        self._templates: dict[tuple[str, str], Template] = {}
        self._joins: dict[str, str] = {}

    @property
    def trigger(self) -> Node:
        """Where runs begin."""
        found = next((node for node in self.definition.nodes if node.type == TRIGGER), None)
        if found is None:
            raise InvalidField("definition.nodes", "there is no trigger")
        return found

    def node(self, node_id: str) -> Node:
        """A node."""
        return self.definition.by_id[node_id]

    def expression(self, node: Node, key: str) -> Expression:
        """The expression that is that member of a node's data."""
        found = self._expressions.get((node.id, key))
        if found is None:
            text: Any = node.data.get(key)
            field = f"nodes[{node.index}].data.{key}"
            if not isinstance(text, str):
                raise InvalidField(field, "an expression is required")
            found = self._expressions[node.id, key] = compile_expression(text, field)
        return found

    def template(self, node: Node, key: str) -> Template:
        """The template that is that member of a node's data; where `key` is empty, all but what POLICY_KEYS names."""
        found = self._templates.get((node.id, key))
        if found is None:
            value: Any = node.data.get(key)
            if not key:
                value = {name: each for name, each in node.data.items() if name not in POLICY_KEYS}
            path = f"nodes[{node.index}].data" + (f".{key}" if key else "")
            found = self._templates[node.id, key] = compile_template(value, path)
        return found

    def ways_out(self, node: Node) -> Mapping[str, str]:
        """The node that each way out leads to, by label; empty for the plain one."""
        return {edge.label: edge.target for edge in self.definition.leaving[node.id]}

    def branches(self, node: Node) -> list[str]:
        """Where the branches of a parallel begin, in order."""
        return [edge.target for edge in self.definition.leaving[node.id]]

    def join_of(self, node: Node) -> str:
        """The join at which the branches of a parallel meet."""
        found = self._joins.get(node.id)
        if found is None:
            found = self._joins[node.id] = self._find_join(node)
        return found

    def _find_join(self, parallel: Node) -> str:
        # Parallels and joins stand like brackets on every way, so any way will do; bodies are passed by.
        node, depth = self.node(self.branches(parallel)[0]), 0
        for _ in range(len(self.definition.nodes) + 1):
            if node.type == JOIN and depth == 0:
                return node.id
            depth += (node.type == PARALLEL) - (node.type == JOIN)
            edges = self.definition.leaving[node.id]
            way = next((each for each in edges if node.type not in {LOOP, MAP} or each.label == "done"), None)
            if way is None:
                break
            node = self.node(way.target)
        raise LanternError(reasons.INVALID_FIELD, f"the branches of {parallel.id} meet at no join", node=parallel.id)


def retry_policy(node: Node) -> RetryPolicy:
    """What the data of a node say of retries; InvalidField where they are out of range."""
    value: Any = node.data.get("retry")
    if value is None:
        return RetryPolicy()
    field = f"nodes[{node.index}].data.retry"
    if not isinstance(value, dict):
        raise InvalidField(field, "is no object")
    given: Mapping[str, Any] = value
    unknown = sorted(set(given) - set(_RETRY_KEYS))
    if unknown:
        raise InvalidField(f"{field}.{unknown[0]}", f"is none of {', '.join(_RETRY_KEYS)}")
    named: dict[str, Any] = {}
    for key, name in _RETRY_KEYS.items():
        if key in given:
            each = given[key]
            named[name] = tuple(each) if isinstance(each, list) else each
    try:
        return RetryPolicy(**named)
    except InvalidField as error:
        raise error.below(f"nodes[{node.index}].data") from None
    except TypeError as error:
        raise InvalidField(field, str(error)) from None
