"""Graphs drawn at random: well made ones, and ones with something done to them."""

from random import Random
from typing import Any

Tails = list[tuple[str, str]]
"""Ways out that lead nowhere yet: node and label."""

CONDITION = "size(input) > 0"


class Drawing:
    """Draws one graph that is well made.

    Attributes:
        joins: The join of each parallel.
        breakable: Tools and approvals whose failure, where nothing leads on from it, stops nothing beside it: it ends
            the run, or one branch of a parallel that goes on.
    """

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self.nodes: list[dict[str, Any]] = []
        self.edges: list[dict[str, Any]] = []
        self.joins: dict[str, str] = {}
        self.breakable: set[str] = set()
        self._around: list[str] = []

    def draw(self) -> dict[str, Any]:
        """A definition."""
        tails = self._sequence([(self._node("trigger"), "")], 0)
        ends = [self._node("end") for _ in range(self._chance.choice((1, 1, 2)) if len(tails) > 1 else 1)]
        for number, tail in enumerate(tails):
            self._edge(tail, ends[number % len(ends)])
        self._chance.shuffle(self.nodes)
        self._chance.shuffle(self.edges)
        return {"nodes": self.nodes, "edges": self.edges}

    def _node(self, node_type: str, **data: Any) -> str:
        node_id = f"{node_type}-{len(self.nodes)}"
        self.nodes.append({"id": node_id, "type": node_type, "data": data})
        return node_id

    def _is_breakable(self) -> bool:
        around = [each for each in self._around if each != "loop"]
        return not around or around[-1] == "goes on"

    def _outside(self) -> str:
        """A node that is a step, and is told in which round of what it is done."""
        known = [name for name, owner in (("index", "map"), ("iteration", "loop")) if owner in self._around]
        told = {"x": "{{ input }}", "at": [f"{{{{ {name} }}}}" for name in known]}
        retry = {"retry": {"maxAttempts": 3, "retryableClasses": ["any"]}} if self._chance.random() < 0.3 else {}
        match self._chance.randrange(4):
            case 0:
                return self._node("connector", connector="http", url="http://host/", body=told, **retry)
            case 1:
                return self._node("ai-step", provider="openai", model="m", messages=told, **retry)
            case _:
                return self._node("tool", tool="work", input=told, **retry)

    def _edge(self, tail: tuple[str, str], target: str) -> None:
        label = {"label": tail[1]} if tail[1] else {}
        self.edges.append({"source": tail[0], "target": target, **label})

    def _enter(self, tails: Tails, node_id: str) -> str:
        for tail in tails:
            self._edge(tail, node_id)
        return node_id

    def _sequence(self, tails: Tails, depth: int) -> Tails:
        for _ in range(self._chance.randint(1, 3)):
            tails = self._block(tails, depth)
        return tails

    def _block(self, tails: Tails, depth: int) -> Tails:
        simple = ("tool", "transform", "approval", "signal", "delay", "subagent")
        kinds = simple if depth >= 3 else (*simple, "condition", "switch", "parallel", "loop", "map")
        kind = self._chance.choice(kinds)
        return getattr(self, f"_{kind}")(tails, depth)

    def _tool(self, tails: Tails, depth: int) -> Tails:
        del depth
        node_id = self._enter(tails, self._outside())
        if self._is_breakable():
            self.breakable.add(node_id)
        return [(node_id, ""), *([(node_id, "error")] if self._chance.random() < 0.3 else [])]

    def _transform(self, tails: Tails, depth: int) -> Tails:
        del depth
        return [(self._enter(tails, self._node("transform", expression="1 + 1")), "")]

    def _approval(self, tails: Tails, depth: int) -> Tails:
        del depth
        node_id = self._enter(tails, self._node("approval", title="Go on?"))
        if self._is_breakable():
            self.breakable.add(node_id)
        return [
            (node_id, self._chance.choice(("", "approved"))),
            *([(node_id, "denied")] if self._chance.random() < 0.5 else []),
        ]

    def _signal(self, tails: Tails, depth: int) -> Tails:
        del depth
        if self._chance.random() < 0.5:
            return [(self._enter(tails, self._node("wait-signal", signal="go")), "")]
        node_id = self._enter(tails, self._node("wait-signal", signal="go", timeoutMs=10))
        return [(node_id, ""), (node_id, "timeout")]

    def _delay(self, tails: Tails, depth: int) -> Tails:
        del depth
        return [(self._enter(tails, self._node("delay", ms=10)), "")]

    def _subagent(self, tails: Tails, depth: int) -> Tails:
        del depth
        return [(self._enter(tails, self._node("subagent", agent="other", input=None)), "")]

    def _condition(self, tails: Tails, depth: int) -> Tails:
        node_id = self._enter(tails, self._node("condition", expression=self._chance.choice((CONDITION, "1 > 2"))))
        return [*self._sequence([(node_id, "true")], depth + 1), (node_id, "false")]

    def _switch(self, tails: Tails, depth: int) -> Tails:
        labels = ["a", "b", "default"][: self._chance.randint(1, 3)]
        case = self._chance.choice(["a", "b", "none of them"][: len(labels)])
        node_id = self._enter(tails, self._node("switch", expression=f"'{case}'"))
        return [tail for label in labels for tail in self._sequence([(node_id, label)], depth + 1)]

    def _parallel(self, tails: Tails, depth: int) -> Tails:
        node_id = self._enter(tails, self._node("parallel", maxConcurrency=2))
        if goes_on := self._chance.random() < 0.5:
            self.nodes[-1]["data"]["onError"] = "continue"
        self._around.append("goes on" if goes_on else "parallel")
        inner = [self._sequence([(node_id, "")], depth + 1) for _ in range(self._chance.randint(2, 3))]
        self._around.pop()
        join = self.joins[node_id] = self._node("join")
        for branch in inner:
            self._enter(branch, join)
        return [(join, "")]

    def _loop(self, tails: Tails, depth: int) -> Tails:
        return self._repeat(self._enter(tails, self._node("loop", maxIterations=2)), depth)

    def _map(self, tails: Tails, depth: int) -> Tails:
        return self._repeat(self._enter(tails, self._node("map", items="[1, 2]")), depth)

    def _repeat(self, node_id: str, depth: int) -> Tails:
        self._around.append(node_id.partition("-")[0])
        self._enter(self._sequence([(node_id, "body")], depth + 1), node_id)
        self._around.pop()
        return [(node_id, "done")]


def spoil(graph: dict[str, Any], chance: Random) -> None:
    """Does something to the edges or the types of a graph; it may still be well made afterwards."""
    nodes, edges = graph["nodes"], graph["edges"]
    edge, node = chance.choice(edges), chance.choice(nodes)
    match chance.randrange(7):
        case 0:
            edge["target"] = node["id"]
        case 1:
            edge["source"] = node["id"]
        case 2:
            edges.remove(edge)
        case 3:
            edges.append({"source": node["id"], "target": chance.choice(nodes)["id"], "label": chance.choice(LABELS)})
        case 4:
            edge["label"] = chance.choice(LABELS)
        case 5:
            other = chance.choice(edges)
            edge["target"], other["target"] = other["target"], edge["target"]
        case _:
            nodes.remove(node)


LABELS = ("", "error", "true", "false", "body", "done", "default", "approved", "denied", "timeout")
