"""What a run of a drawn graph has to come to, found by moving tokens along edges instead of by walking with generators.

Any token may move next: what the run comes to does not depend on it. Every token knows the repeats and branches that it
is inside of; joins and maps count the tokens that came.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

ROUNDS = 2
"""Of every loop and map that is drawn."""

Frames = tuple[tuple[str, int], ...]
"""Owner and number of each round or branch around a token, from the outermost on."""

FAILED = "failed"

Decide = Callable[[dict[str, Any], list[int]], tuple[Any, str]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Token:
    """Something that moves."""

    # Where it is.
    at: str
    # What it is inside of.
    frames: Frames = ()
    # What the node before came to.
    last: Any = None


@dataclass(kw_only=True)
class Forecast:
    """What a run comes to."""

    # The ids of all steps that are executed.
    executed: set[str] = field(default_factory=set[str])
    # The end that is reached; empty where the run fails.
    end: str = ""
    # What the end sees of the nodes before it; of one that failed, `error` is True.
    steps: dict[str, Any] = field(default_factory=dict[str, Any])


class TokenGame:
    """Plays one graph.

    Args:
        graph: A definition that is well made.
        joins: The join of each parallel.
        decide: What a node comes to in the rounds that it is in (of the innermost map, of the innermost loop), and the
            label of the way on: `error` for a failure that has one, FAILED for one that has none.
        chance: Which token moves next.
    """

    def __init__(self, graph: dict[str, Any], joins: Mapping[str, str], decide: Decide, chance: Random) -> None:
        self._nodes = {node["id"]: node for node in graph["nodes"]}
        self._edges: list[dict[str, Any]] = graph["edges"]
        self._joins, self._decide, self._chance = joins, decide, chance
        # By the rounds of maps that it belongs to: what lies in the body of a map is seen in that round alone.
        self._seen: dict[Frames, dict[str, Any]] = {(): {}}
        self._came: dict[tuple[str, Frames], dict[int, Any]] = {}
        self._forecast = Forecast()

    def play(self) -> Forecast:
        """Moves tokens until none is left."""
        (start,) = [node_id for node_id, node in self._nodes.items() if node["type"] == "trigger"]
        tokens = [Token(at=start)]
        while tokens:
            tokens += self._move(tokens.pop(self._chance.randrange(len(tokens))))
        return self._forecast

    def _targets(self, node_id: str, label: str) -> list[str]:
        return [e["target"] for e in self._edges if e["source"] == node_id and e.get("label", "") == label]

    def _labels(self, node_id: str) -> set[str]:
        return {e.get("label", "") for e in self._edges if e["source"] == node_id}

    def _scope(self, frames: Frames) -> dict[str, Any]:
        return self._seen[tuple(frame for frame in frames if self._nodes[frame[0]]["type"] == "map")]

    def _leave(self, token: Token, label: str, output: Any) -> list[Token]:
        (target,) = self._targets(token.at, label)
        return [Token(at=target, frames=token.frames, last=output)]

    def _note(self, token: Token, output: Any, label: str = "") -> list[Token]:
        self._scope(token.frames)[token.at] = {"output": output}
        return self._leave(token, label, output)

    def _move(self, token: Token) -> list[Token]:
        node = self._nodes[token.at]
        match node["type"]:
            case "end":
                self._forecast.end, self._forecast.steps = token.at, dict(self._scope(()))
                return []
            case "parallel":
                self._scope(token.frames)[token.at] = {"output": None}
                firsts = enumerate(self._targets(token.at, ""))
                return [Token(at=first, frames=(*token.frames, (token.at, number))) for number, first in firsts]
            case "join":
                return self._join(token)
            case "loop":
                return self._loop(token)
            case "map":
                return self._map(token)
            case _:
                return self._act(token, node)

    def _act(self, token: Token, node: dict[str, Any]) -> list[Token]:
        rounds = "".join(f"[{at}]" for owner, at in token.frames if self._nodes[owner]["type"] != "parallel")
        if node["type"] in ("tool", "connector", "ai-step"):
            self._forecast.executed.add(token.at + rounds)
        output, label = self._decide(node, self._rounds(token.frames))
        if label == FAILED:
            if output is not None:
                # It came to something, a denial, from which nothing leads on.
                self._scope(token.frames)[token.at] = {"output": output}
            return self._fail(token.frames)
        if label == "error":
            self._scope(token.frames)[token.at] = {"error": True}
            return self._leave(token, "error", None)
        ways = self._labels(token.at)
        fallback = "default" if node["type"] == "switch" else ""
        return self._note(token, output, label if label in ways else fallback)

    def _rounds(self, frames: Frames) -> list[int]:
        innermost = {self._nodes[owner]["type"]: at for owner, at in frames}
        return [innermost[kind] for kind in ("map", "loop") if kind in innermost]

    def _fail(self, frames: Frames) -> list[Token]:
        while frames and self._nodes[frames[-1][0]]["type"] == "loop":
            frames = frames[:-1]
        if not frames:
            return []
        return [Token(at=self._joins[frames[-1][0]], frames=frames, last={"error": True})]

    def _join(self, token: Token) -> list[Token]:
        owner, number = token.frames[-1]
        outer = token.frames[:-1]
        came = self._came.setdefault((owner, outer), {})
        came[number] = token.last
        firsts = self._targets(owner, "")
        if len(came) < len(firsts):
            return []
        del self._came[owner, outer]
        output = {first: came[at] for at, first in enumerate(firsts)}
        return self._note(Token(at=token.at, frames=outer), output)

    def _loop(self, token: Token) -> list[Token]:
        is_back = bool(token.frames) and token.frames[-1][0] == token.at
        outer = token.frames[:-1] if is_back else token.frames
        number = token.frames[-1][1] + 1 if is_back else 0
        if number == ROUNDS:
            output = {"iterations": ROUNDS, "last": token.last}
            return self._note(Token(at=token.at, frames=outer), output, "done")
        (body,) = self._targets(token.at, "body")
        return [Token(at=body, frames=(*outer, (token.at, number)))]

    def _map(self, token: Token) -> list[Token]:
        if not (token.frames and token.frames[-1][0] == token.at):
            (body,) = self._targets(token.at, "body")
            begun = [(*token.frames, (token.at, number)) for number in range(ROUNDS)]
            for frames in begun:
                key = tuple(frame for frame in frames if self._nodes[frame[0]]["type"] == "map")
                self._seen[key] = dict(self._scope(token.frames))
            return [Token(at=body, frames=frames) for frames in begun]
        outer = token.frames[:-1]
        came = self._came.setdefault((token.at, outer), {})
        came[token.frames[-1][1]] = token.last
        if len(came) < ROUNDS:
            return []
        del self._came[token.at, outer]
        return self._note(Token(at=token.at, frames=outer), [came[at] for at in range(ROUNDS)], "done")
