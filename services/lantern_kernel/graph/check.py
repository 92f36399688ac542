"""What has to be right about a graph before it is published (SPEC G1): all faults at once."""

import difflib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from lantern_kernel import json_bytes
from lantern_kernel.bounds import DEFINITION_BYTES_MAX
from lantern_kernel.errors import InvalidField
from lantern_kernel.graph import definition as types
from lantern_kernel.graph.definition import Edge, GraphDefinition, Node, parse
from lantern_kernel.graph.faults import Fault, at_edge, at_node, pointer
from lantern_kernel.graph.layout import BODY, Layout, lay_out
from lantern_kernel.graph.node_data import faults_of_data, faults_of_settings
from lantern_kernel.graph.shape import faults_of_shape
from lantern_kernel.names import USER_ID

NODE_ID_LENGTH_MAX = 120
"""Room is left for the path of iterations, `notify[3][17]`, and for what the interpreter adds to it."""

_FALLIBLE = frozenset({*types.OUTSIDE, types.SUBAGENT})
"""Nodes that may have a way out labelled `error`."""


def faults_of(content: bytes) -> list[Fault]:
    """All that is wrong with a definition, from whether it is JSON on; empty where it can be published."""
    try:
        value = json_bytes.decode(content, "definition", bytes_max=DEFINITION_BYTES_MAX)
    except InvalidField as error:
        return [Fault(path="", code="no_json", message=error.message)]
    return list(faults_of_shape(value)) or check(parse(content))


def check(definition: GraphDefinition) -> list[Fault]:
    """All that is wrong with a graph; empty where it can be published."""
    faults = [*_faults_of_nodes(definition), *_faults_of_ends(definition), *faults_of_settings(definition.settings)]
    nodes = definition.by_id
    edges = [edge for edge in definition.edges if edge.source in nodes and edge.target in nodes]
    leaving: dict[str, list[Edge]] = {node_id: [] for node_id in nodes}
    entering: dict[str, list[Edge]] = {node_id: [] for node_id in nodes}
    for edge in edges:
        leaving[edge.source].append(edge)
        entering[edge.target].append(edge)
    for node in nodes.values():
        if node.type in types.NODE_TYPES:
            faults.extend(faults_of_data(node))
            faults.extend(_faults_of_ways(node, leaving[node.id]))
    triggers = [node for node in definition.nodes if node.type == types.TRIGGER]
    if not any(node.type == types.END for node in definition.nodes):
        faults.append(Fault(path="/nodes", code="no_end", message="there is no end"))
    if len(triggers) != 1:
        message = f"there are {len(triggers)} triggers; one is needed"
        faults.append(Fault(path="/nodes", code="no_trigger" if not triggers else "many_triggers", message=message))
        return faults
    faults.extend(
        Fault(path=at_edge(edge), code="into_trigger", message="nothing comes before the trigger")
        for edge in entering[triggers[0].id]
    )
    layout = lay_out(nodes, leaving, triggers[0])
    faults.extend(layout.faults)
    faults.extend(_faults_of_reach(nodes, leaving, entering))
    faults.extend(_faults_of_cycles(nodes, edges, layout))
    return faults


def _faults_of_nodes(definition: GraphDefinition) -> Iterator[Fault]:
    for node in definition.nodes:
        if len(node.id) > NODE_ID_LENGTH_MAX or not USER_ID.fullmatch(node.id):
            message = f"an id is 1 to {NODE_ID_LENGTH_MAX} of A-Z a-z 0-9 _ . : / @ -"
            yield Fault(path=pointer("nodes", node.index, "id"), code="bad_id", message=message)
        if definition.by_id[node.id] is not node:
            message = f"there is another node {node.id!r}"
            yield Fault(path=pointer("nodes", node.index, "id"), code="duplicate_id", message=message)
        if node.type not in types.NODE_TYPES:
            near = difflib.get_close_matches(node.type, types.NODE_TYPES, n=1)
            known = ", ".join(sorted(types.NODE_TYPES))
            hint = f"did you mean {near[0]!r}?" if near else f"there are: {known}"
            message = f"{node.type!r} is no type; {hint}"
            yield Fault(path=pointer("nodes", node.index, "type"), code="unknown_type", message=message)


def _faults_of_ends(definition: GraphDefinition) -> Iterator[Fault]:
    for edge in definition.edges:
        for name, end in (("source", edge.source), ("target", edge.target)):
            if end not in definition.by_id:
                path = pointer("edges", edge.index, name)
                yield Fault(path=path, code="unknown_node", message=f"there is no node {end!r}")


def ways_of(node: Node) -> tuple[frozenset[str], frozenset[str]]:
    """The labels that the edges out of a node must have, and those that they may have besides; empty for the plain."""
    plain = frozenset({""})
    match node.type:
        case types.END:
            return frozenset(), frozenset()
        case types.CONDITION:
            return frozenset({"true", "false"}), frozenset()
        case types.LOOP | types.MAP:
            return frozenset({BODY, "done"}), frozenset()
        case types.APPROVAL:
            return frozenset(), frozenset({"", "approved", "denied", "expired"})
        case types.WAIT_SIGNAL:
            return (plain | {"timeout"}, frozenset()) if "timeoutMs" in node.data else (plain, frozenset())
        case _:
            return plain, frozenset({"error"} if node.type in _FALLIBLE else ())


def _faults_of_ways(node: Node, leaving: Sequence[Edge]) -> Iterator[Fault]:
    counts = Counter(edge.label for edge in leaving)
    if node.type == types.PARALLEL:
        if len(leaving) < 2:
            yield Fault(path=at_node(node), code="few_branches", message="a parallel has at least two branches")
        for edge in leaving:
            if edge.label:
                message = "the branches of a parallel have no labels"
                yield Fault(path=at_edge(edge), code="unknown_way", message=message)
        targets = Counter(edge.target for edge in leaving)
        for edge in leaving:
            if targets[edge.target] > 1:
                message = f"several branches begin with {edge.target!r}"
                yield Fault(path=at_edge(edge), code="ambiguous_way", message=message)
        return
    if node.type == types.SWITCH:
        if not leaving:
            yield Fault(path=at_node(node), code="missing_way", message="a switch needs an edge for each case")
        required, optional = frozenset[str](), frozenset(counts) - {""}
    else:
        required, optional = ways_of(node)
    if node.type == types.APPROVAL and ("" in counts) == ("approved" in counts):
        message = "either an edge with the label 'approved' or one with no label has to leave an approval"
        yield Fault(path=at_node(node), code="missing_way", message=message)
    for label in sorted(required - set(counts)):
        shown = f"the label {label!r}" if label else "no label"
        message = f"an edge with {shown} has to leave a {node.type}"
        yield Fault(path=at_node(node), code="missing_way", message=message)
    for edge in leaving:
        if edge.label not in required | optional:
            message = f"no edge with {f'the label {edge.label!r}' if edge.label else 'no label'} leaves a {node.type}"
            yield Fault(path=at_edge(edge), code="unknown_way", message=message)
        elif counts[edge.label] > 1:
            message = f"{counts[edge.label]} edges with the label {edge.label!r} leave {node.id!r}; use a parallel"
            yield Fault(path=at_edge(edge), code="ambiguous_way", message=message)


def _faults_of_reach(
    nodes: Mapping[str, Node], leaving: Mapping[str, Sequence[Edge]], entering: Mapping[str, Sequence[Edge]]
) -> Iterator[Fault]:
    able = {node.id for node in nodes.values() if node.type == types.END}
    waiting = list(able)
    while waiting:
        for edge in entering[waiting.pop()]:
            if edge.source not in able:
                able.add(edge.source)
                waiting.append(edge.source)
    reached = {node.id for node in nodes.values() if node.type == types.TRIGGER}
    waiting = list(reached)
    while waiting:
        for edge in leaving[waiting.pop()]:
            if edge.target not in reached:
                reached.add(edge.target)
                waiting.append(edge.target)
    for node in nodes.values():
        if node.id not in reached:
            message = f"nothing leads from the trigger to {node.id!r}"
            yield Fault(path=at_node(node), code="unreachable", message=message)
        elif node.id not in able:
            message = f"nothing leads from {node.id!r} to an end"
            yield Fault(path=at_node(node), code="no_way_to_end", message=message)


def _faults_of_cycles(nodes: Mapping[str, Node], edges: Sequence[Edge], layout: Layout) -> Iterator[Fault]:
    """What is on a cycle without an edge that ends a round of a body: it would go round without a bound."""
    forward: dict[str, list[Edge]] = {node_id: [] for node_id in nodes}
    for edge in edges:
        if edge.index not in layout.backward:
            forward[edge.source].append(edge)
    place = _components(forward)
    for edge in edges:
        if edge.index not in layout.backward and place[edge.source] == place[edge.target]:
            message = f"{edge.source!r} to {edge.target!r} is part of a cycle that goes through no loop"
            yield Fault(path=at_edge(edge), code="cycle", message=message)


def _components(leaving: Mapping[str, Sequence[Edge]]) -> Mapping[str, int]:
    """The strongly connected component of each node (Kosaraju 1978), without recursion."""
    entering: dict[str, list[str]] = {node_id: [] for node_id in leaving}
    for node_id, edges in leaving.items():
        for edge in edges:
            entering[edge.target].append(node_id)
    order: list[str] = []
    seen: set[str] = set()
    for root in leaving:
        if root in seen:
            continue
        seen.add(root)
        stack = [(root, iter(leaving[root]))]
        while stack:
            node_id, rest = stack[-1]
            edge = next(rest, None)
            if edge is None:
                order.append(node_id)
                stack.pop()
            elif edge.target not in seen:
                seen.add(edge.target)
                stack.append((edge.target, iter(leaving[edge.target])))
    place: dict[str, int] = {}
    for root in reversed(order):
        if root in place:
            continue
        place[root] = len(place)
        number, waiting = place[root], [root]
        while waiting:
            for source in entering[waiting.pop()]:
                if source not in place:
                    place[source] = number
                    waiting.append(source)
    return place
