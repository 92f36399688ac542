"""Drawn graphs come to the same result whatever happens to their workers at any event."""

from random import Random
from typing import Any

import pytest
from drawn_graphs import Drawing

from lantern.testing import Environment, check_every_fault
from lantern.testing.graphs import graph_agent
from lantern_kernel import kinds

OTHER = {
    "nodes": [{"id": "in", "type": "trigger"}, {"id": "out", "type": "end", "data": {"output": "child"}}],
    "edges": [{"source": "in", "target": "out"}],
}
FAULTS = ("crash-before-commit", "crash-after-commit", "lost-answer", "second-driver")
EVENTS_MAX = 40


def fails(spec: dict[str, Any]) -> None:
    raise ValueError(f"cannot do {spec['tool']}")


def play(env: Environment, definition: dict[str, Any]) -> Any:
    """The run at its end, every approval given and every signal sent that it waits for."""
    env.offer(graph_agent("g", definition))
    env.offer(graph_agent("other", OTHER))
    caught = {edge["source"] for edge in definition["edges"] if edge.get("label") == "error"}
    for node in definition["nodes"]:
        if node["type"] in ("tool", "connector", "ai-step"):
            env.fake(node["id"], fails if node["id"] in caught else f"did {node['id']}")
    run = env.start("g", [1])
    for _ in range(400):
        env.settle()
        if run.state not in ("RUNNING", "WAITING", "QUEUED"):
            break
        asked = [event.step_id for event in run.events if event.kind == kinds.APPROVAL_REQUESTED]
        decided = {event.step_id for event in run.events if event.kind == kinds.APPROVAL_DECIDED}
        open_ones = [step_id for step_id in asked if step_id not in decided]
        for step_id in open_ones:
            run.approve(step_id, by="ann")
        if not open_ones and not env.skip_to_next():
            run.signal("go", "gone")
    assert run.state == "SUCCEEDED", run.state
    return run


def drawn(seed: int) -> dict[str, Any]:
    """A graph whose ends tell all that was done."""
    chance = Random(seed)
    definition = Drawing(chance).draw()
    for node in definition["nodes"]:
        if node["type"] == "end":
            node["data"] = {"output": "{{ steps }}"}
    return definition


def is_short(definition: dict[str, Any]) -> bool:
    with Environment() as env:
        return 15 < len(play(env, definition).events) <= EVENTS_MAX


@pytest.mark.parametrize("seed", range(40))
def test_a_drawn_graph_comes_to_its_end(seed: int) -> None:
    with Environment() as env:
        result = play(env, drawn(seed)).result()
        assert result, "the steps"


@pytest.mark.parametrize("seed", range(6))
def test_under_every_fault(seed: int) -> None:
    definition = next(each for each in map(drawn, range(1000 * seed, 1000 * seed + 100)) if is_short(each))

    def scenario(env: Environment) -> None:
        play(env, definition)

    assert check_every_fault(scenario, kinds=FAULTS)
