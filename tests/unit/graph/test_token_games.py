"""Goal: graphs drawn at random come to what a game of tokens says, and to the same wherever their worker dies.

Method: the environment in memory, in which every commit is replayed; a part of the graphs again with a crash before and
after every event. `LANTERN_TEST_SEED` says which is the first seed.
"""

import json
import os
from random import Random
from typing import Any

import pytest
from drawn_graphs import Drawing
from tokens import FAILED, Forecast, TokenGame

from lantern import RunFailed
from lantern.testing import Environment, check_every_fault
from lantern.testing.graphs import graph_agent
from lantern_kernel.graph.check import faults_of

FIRST = int(os.environ.get("LANTERN_TEST_SEED", "1"))
SEEDS = range(FIRST, FIRST + 8)
GRAPHS_PER_SEED = 50
CRASHED_PER_SEED = 6
EVENTS_MIN, EVENTS_MAX = 10, 40
"""Of a graph that is crashed at every one of them."""

INPUT = "some"
OTHER = {
    "nodes": [{"id": "in", "type": "trigger"}, {"id": "out", "type": "end", "data": {"output": "from another"}}],
    "edges": [{"source": "in", "target": "out"}],
}


class Play:
    """A drawn graph and everything around it: which tools fail, what is denied."""

    def __init__(self, chance: Random) -> None:
        drawing = Drawing(chance)
        self.graph, self.joins = drawing.draw(), drawing.joins
        for node in self.graph["nodes"]:
            if node["type"] == "end":
                node["data"]["output"] = {"end": node["id"], "steps": "{{ steps }}"}
        ways = [(edge["source"], edge.get("label", "")) for edge in self.graph["edges"]]
        self.failing = {source for source, label in ways if label == "error" and chance.random() < 0.5}
        self.denied = {source for source, label in ways if label == "denied" and chance.random() < 0.5}
        self.caught = self.failing | self.denied
        broken = {node_id for node_id in sorted(drawing.breakable) if chance.random() < 0.1}
        ways_on = {source for source, label in ways if label in ("error", "denied")}
        asked = {node["id"] for node in self.graph["nodes"] if node["type"] == "approval"}
        self.failing |= broken - ways_on - asked
        self.denied |= broken & asked - ways_on

    def decide(self, node: dict[str, Any], rounds: list[int]) -> tuple[Any, str]:
        """What a node comes to, and the label of the way on; see TokenGame."""
        if node["id"] in (self.failing | self.denied) - self.caught:
            denial = {"decision": "denied", "by": "ann", "data": None}
            return (denial if node["id"] in self.denied else None), FAILED
        match node["type"]:
            case "trigger":
                return INPUT, ""
            case "transform":
                return 2, ""
            case "tool" | "connector" | "ai-step":
                return (None, "error") if node["id"] in self.failing else (f"by {node['id']} in {rounds}", "")
            case "subagent":
                return "from another", ""
            case "approval":
                decision = "denied" if node["id"] in self.denied else "approved"
                return {"decision": decision, "by": "ann", "data": None}, decision
            case "wait-signal":
                return (None, "timeout") if "timeoutMs" in node["data"] else ("went", "")
            case "condition":
                is_so = node["data"]["expression"] != "1 > 2"
                return is_so, json.dumps(is_so)
            case "switch":
                case = node["data"]["expression"].strip("'")
                return case, case
            case _:
                return None, ""

    def forecast(self, chance: Random) -> Forecast:
        """What it has to come to."""
        return TokenGame(self.graph, self.joins, self.decide, chance).play()

    def run(self, env: Environment) -> Any:
        """Runs it, whoever it waits for included; gives what it came to."""
        env.offer(graph_agent("g", self.graph), graph_agent("other", OTHER))
        for number, node in enumerate(self.graph["nodes"]):
            if node["type"] in ("tool", "connector", "ai-step"):
                env.fake(node["id"], self._stand_in(node["id"]), takes_s=number % 3)
        run = env.start("g", INPUT)
        # A signal is sent only where nothing else goes on any more: those with a time-out are over by then.
        env.finish(run.run_id)
        for _ in range(300):
            if run.state not in ("QUEUED", "RUNNING", "WAITING"):
                break
            asked = min((each.step_id for each in run.approvals), default="")
            if not asked:
                run.signal("go", "went")
            elif asked.partition("[")[0] in self.denied:
                run.deny(asked, by="ann")
            else:
                run.approve(asked, by="ann")
            env.finish(run.run_id)
        try:
            return run.result()
        except RunFailed:
            return {"end": "", "steps": {}}

    def _stand_in(self, node_id: str) -> Any:
        def stand_in(spec: Any) -> str:
            told = spec.get("input") or spec.get("body") or spec["messages"]
            assert told["x"] == INPUT
            if node_id in self.failing:
                raise ValueError("broken")
            return f"by {node_id} in {told['at']}"

        return stand_in


def seen(value: Any) -> Any:
    """What an end sees of nodes, with True in place of errors."""
    if isinstance(value, dict):
        members: dict[str, Any] = value
        return {name: True if name == "error" else seen(each) for name, each in members.items()}
    if isinstance(value, list):
        items: list[Any] = value
        return [seen(each) for each in items]
    return value


@pytest.mark.parametrize("seed", SEEDS)
def test_a_drawn_graph_comes_to_what_the_tokens_say(seed: int) -> None:
    print(f"LANTERN_TEST_SEED={seed}")
    chance = Random(seed)
    for _ in range(GRAPHS_PER_SEED):
        play = Play(chance)
        shown = json.dumps(play.graph)
        assert faults_of(shown.encode()) == [], shown
        forecast = play.forecast(chance)
        with Environment(seed=seed) as env:
            result = play.run(env)
            executed = {attempt.step_id for attempt in env.attempts}
        assert executed == forecast.executed, shown
        assert result["end"] == forecast.end, shown
        assert seen(result["steps"]) == forecast.steps, shown


@pytest.mark.parametrize("seed", SEEDS)
def test_a_drawn_graph_comes_to_the_same_wherever_its_worker_dies(seed: int) -> None:
    print(f"LANTERN_TEST_SEED={seed}")
    chance = Random(seed)
    crashed = 0
    while crashed < CRASHED_PER_SEED:
        play = Play(chance)
        with Environment(seed=seed) as env:
            expected = play.run(env)
            events = sum(len(run.events) for run in env.runs)
        if not EVENTS_MIN <= events <= EVENTS_MAX:
            continue

        def scenario(env: Environment, play: Play = play, expected: Any = expected) -> None:
            assert play.run(env) == expected

        faults = check_every_fault(scenario, kinds=["crash-before-commit", "crash-after-commit"])
        assert len(faults) >= events, json.dumps(play.graph)
        crashed += 1
