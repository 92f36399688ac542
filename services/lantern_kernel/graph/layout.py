"""How a graph is nested: which branch of which parallel and which loop's body each node stands in.

Follows one walker from the trigger on: an edge out of a parallel enters a branch, an edge into a join leaves it, an
edge labelled `body` enters the body of a loop or map, and an edge back to it leaves the body. Every node has to be
reached in one nesting alone; then branches and bodies are closed, joins match, and all cycles go through a loop.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lantern_kernel.graph.definition import END, JOIN, PARALLEL, REPEATS, Edge, Node
from lantern_kernel.graph.faults import Fault, at_edge, at_node

BODY = "body"


@dataclass(frozen=True, kw_only=True, slots=True)
class Inside:
    """One thing that a node stands in."""

    # The parallel, loop or map.
    owner: str
    # Of a parallel: which of the edges that leave it, from 0; -1 for a body.
    branch: int


Nesting = tuple[Inside, ...]
"""From the outermost on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """The nesting of a graph."""

    # Of every node that was reached.
    nesting: Mapping[str, Nesting]
    # The join of every parallel that has one.
    join_of: Mapping[str, str]
    # The edges that end a round of a body, by their places.
    backward: frozenset[int]
    # What is not closed or crosses.
    faults: Sequence[Fault]


def lay_out(nodes: Mapping[str, Node], leaving: Mapping[str, Sequence[Edge]], trigger: Node) -> Layout:
    """Walks a graph from its trigger.

    Args:
        nodes: By id.
        leaving: The edges that leave each of them; all lead to nodes.
        trigger: Where to begin.
    """
    walk = _Walk(nodes, leaving)
    walk.follow(trigger)
    faults = [*walk.faults, *walk.unjoined()]
    return Layout(nesting=walk.nesting, join_of=walk.join_of, backward=frozenset(walk.backward), faults=tuple(faults))


class _Walk:
    def __init__(self, nodes: Mapping[str, Node], leaving: Mapping[str, Sequence[Edge]]) -> None:
        self._nodes, self._leaving = nodes, leaving
        self.nesting: dict[str, Nesting] = {}
        self.join_of: dict[str, str] = {}
        self.backward: set[int] = set()
        self.faults: list[Fault] = []
        self._arrived: set[Inside] = set()

    def follow(self, trigger: Node) -> None:
        self.nesting[trigger.id] = ()
        waiting = [trigger]
        while waiting:
            node = waiting.pop()
            for branch, edge in enumerate(self._leaving[node.id]):
                target = self._nodes[edge.target]
                nesting = self._after(node, branch, edge, target)
                if nesting is None:
                    continue
                known = self.nesting.get(target.id)
                if known is None:
                    self.nesting[target.id] = nesting
                    waiting.append(target)
                elif known != nesting:
                    message = f"{target.id!r} is reached {_shown(known)} and {_shown(nesting)}"
                    self.faults.append(Fault(path=at_edge(edge), code="crossing", message=message))
        for node_id, nesting in self.nesting.items():
            node = self._nodes[node_id]
            if node.type == END and nesting:
                message = f"a run cannot end {_shown(nesting)}"
                self.faults.append(Fault(path=at_node(node), code="end_inside", message=message))

    def _after(self, node: Node, branch: int, edge: Edge, target: Node) -> Nesting | None:
        """The nesting in which an edge enters its target; None where it ends a round, or is at fault."""
        nesting = self.nesting[node.id]
        if node.type == PARALLEL:
            nesting = (*nesting, Inside(owner=node.id, branch=branch))
        elif node.type in REPEATS and edge.label == BODY:
            nesting = (*nesting, Inside(owner=node.id, branch=-1))
        if target.type in REPEATS and any(inside.owner == target.id for inside in nesting):
            if nesting[-1].owner != target.id:
                message = f"{_shown(nesting)} leads back to {target.id!r} across a border"
                self.faults.append(Fault(path=at_edge(edge), code="crossing", message=message))
                return None
            if node.id == target.id:
                self.faults.append(Fault(path=at_edge(edge), code="empty_body", message="a body needs a node"))
            self.backward.add(edge.index)
            return None
        return self._joined(nesting, node, edge, target) if target.type == JOIN else nesting

    def _joined(self, nesting: Nesting, node: Node, edge: Edge, join: Node) -> Nesting | None:
        if not nesting or nesting[-1].branch < 0:
            message = f"the join {join.id!r} is reached {_shown(nesting)}, which is no branch of a parallel"
            self.faults.append(Fault(path=at_edge(edge), code="join_unmatched", message=message))
            return None
        inside = nesting[-1]
        if node.id == inside.owner:
            self.faults.append(Fault(path=at_edge(edge), code="empty_branch", message="a branch needs a node"))
        if self.join_of.setdefault(inside.owner, join.id) != join.id:
            message = f"branches of {inside.owner!r} go to the joins {self.join_of[inside.owner]!r} and {join.id!r}"
            self.faults.append(Fault(path=at_edge(edge), code="join_unmatched", message=message))
            return None
        if any(owner != inside.owner for owner, other in self.join_of.items() if other == join.id):
            message = f"the join {join.id!r} is reached from branches of several parallels"
            self.faults.append(Fault(path=at_edge(edge), code="join_unmatched", message=message))
            return None
        self._arrived.add(inside)
        return nesting[:-1]

    def unjoined(self) -> Iterator[Fault]:
        for node in self._nodes.values():
            if node.type != PARALLEL or node.id not in self.nesting:
                continue
            for branch, edge in enumerate(self._leaving[node.id]):
                if Inside(owner=node.id, branch=branch) not in self._arrived:
                    message = f"the branch that begins with {edge.target!r} comes to no join"
                    yield Fault(path=at_edge(edge), code="branch_unjoined", message=message)


def _shown(nesting: Nesting) -> str:
    if not nesting:
        return "outside of all loops and branches"
    inside = nesting[-1]
    where = "the body" if inside.branch < 0 else f"branch {inside.branch}"
    return f"in {where} of {inside.owner!r}"
