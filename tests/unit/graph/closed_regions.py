"""Whether a graph is well made, judged by sets of nodes instead of by walking: the words of the guide, one by one.

A body and a branch are what can be reached from their first node without passing what closes them; closed is a region
that is entered by its first edge alone and left to what closes it alone.
"""

from collections import Counter
from typing import Any

Edge = dict[str, Any]


def is_well_made(graph: dict[str, Any]) -> bool:
    """Judges ends, labels, regions and cycles; the data of nodes are not looked at."""
    nodes = {node["id"]: node for node in graph["nodes"]}
    edges: list[Edge] = graph["edges"]
    if any(edge[end] not in nodes for edge in edges for end in ("source", "target")):
        return False
    kinds = {node_id: node["type"] for node_id, node in nodes.items()}
    (trigger, *others) = [node_id for node_id, kind in kinds.items() if kind == "trigger"] or [None]
    ends = {node_id for node_id, kind in kinds.items() if kind == "end"}
    if trigger is None or others or not ends or any(edge["target"] == trigger for edge in edges):
        return False
    if not all(
        _labels_are_right(node, [e.get("label", "") for e in edges if e["source"] == node["id"]])
        for node in graph["nodes"]
    ):
        return False
    if _reach({trigger}, edges) != set(nodes) or _reach(ends, edges, backward=True) != set(nodes):
        return False
    rounds: list[Edge] = []
    for node_id, kind in kinds.items():
        if kind in ("loop", "map"):
            body = _body(node_id, edges)
            if body is None or body & ends:
                return False
            rounds += [edge for edge in edges if edge["source"] in body and edge["target"] == node_id]
    joins = [_join_of(node_id, edges, kinds, ends) for node_id, kind in kinds.items() if kind == "parallel"]
    if None in joins or Counter(joins) != Counter(node_id for node_id, kind in kinds.items() if kind == "join"):
        return False
    return not _goes_round(set(nodes), [edge for edge in edges if edge not in rounds])


def _labels_are_right(node: dict[str, Any], labels: list[str]) -> bool:
    given, once = set(labels), len(labels) == len(set(labels))
    match node["type"]:
        case "end":
            return not labels
        case "parallel":
            return given == {""} and len(labels) >= 2
        case "condition":
            return once and given == {"true", "false"}
        case "loop" | "map":
            return once and given == {"body", "done"}
        case "switch":
            return once and bool(labels) and "" not in given
        case "approval":
            return once and len(given & {"", "approved"}) == 1 and given <= {"", "approved", "denied", "expired"}
        case "wait-signal":
            return once and given == ({"", "timeout"} if "timeoutMs" in node["data"] else {""})
        case "tool" | "connector" | "ai-step" | "subagent":
            return once and "" in given <= {"", "error"}
        case _:
            return labels == [""]


def _reach(start: set[str], edges: list[Edge], *, backward: bool = False, without: str = "") -> set[str]:
    source, target = ("target", "source") if backward else ("source", "target")
    reached = set(start)
    while True:
        more = {edge[target] for edge in edges if edge[source] in reached} - reached - {without}
        if not more:
            return reached
        reached |= more


def _is_closed(region: set[str], first: Edge, closing: str, edges: list[Edge]) -> bool:
    left = {edge["target"] for edge in edges if edge["source"] in region} - region
    entering = [edge for edge in edges if edge["target"] in region and edge["source"] not in region]
    return left == {closing} and entering == [first]


def _body(loop: str, edges: list[Edge]) -> set[str] | None:
    (first,) = [edge for edge in edges if edge["source"] == loop and edge.get("label") == "body"]
    if first["target"] == loop:
        return None
    body = _reach({first["target"]}, edges, without=loop)
    return body if _is_closed(body, first, loop, edges) else None


def _join_of(parallel: str, edges: list[Edge], kinds: dict[str, str], ends: set[str]) -> str | None:
    firsts = [edge for edge in edges if edge["source"] == parallel]
    if len({edge["target"] for edge in firsts}) < len(firsts):
        return None
    for join in (node_id for node_id, kind in kinds.items() if kind == "join"):
        if any(edge["target"] == join for edge in firsts):
            continue
        regions = [_reach({edge["target"]}, edges, without=join) for edge in firsts]
        inside: set[str] = set().union(*regions)
        are_apart = len(inside) == sum(map(len, regions))
        are_closed = all(_is_closed(each, first, join, edges) for each, first in zip(regions, firsts, strict=True))
        entered_from = {edge["source"] for edge in edges if edge["target"] == join}
        if are_apart and are_closed and entered_from <= inside and not inside & ends and parallel not in inside:
            return join
    return None


def _goes_round(nodes: set[str], edges: list[Edge]) -> bool:
    """Whether something is left once all nodes that nothing leads to were taken away, again and again."""
    while True:
        free = nodes - {edge["target"] for edge in edges if edge["source"] in nodes}
        if not free:
            return bool(nodes)
        nodes = nodes - free
