"""The examples of docs/guides/graphs.md are what can be published, and there is one of each type of node."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lantern_kernel.graph.check import faults_of, ways_of
from lantern_kernel.graph.definition import NODE_TYPES, Node

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "graphs.md"

EXAMPLES: list[dict[str, Any]] = [json.loads(part.split("```")[0]) for part in GUIDE.read_text().split("```json")[1:]]
NODES = [example for example in EXAMPLES if "id" in example]
GRAPHS = [example for example in EXAMPLES if "nodes" in example]
SETTINGS = [example["settings"] for example in EXAMPLES if "settings" in example]


def published(nodes: list[dict[str, Any]], *ways: tuple[str, str, str], **settings: Any) -> list[str]:
    edges = [{"source": source, "target": target, "label": label} for source, target, label in ways]
    all_nodes = [{"id": "start", "type": "trigger"}, {"id": "work", "type": "delay", "data": {"ms": 1}}, *nodes]
    content = {"nodes": [*all_nodes, {"id": "done", "type": "end"}], "edges": edges, "settings": settings}
    return [f"{fault.path}: {fault.message}" for fault in faults_of(json.dumps(content).encode())]


def test_whole_graphs_can_be_published() -> None:
    assert [faults_of(json.dumps(each).encode()) for each in GRAPHS] == [[]]


def test_there_is_one_of_each_type() -> None:
    whole = [node["type"] for each in GRAPHS for node in each["nodes"]]
    assert {*whole, *(node["type"] for node in NODES)} == NODE_TYPES


@pytest.mark.parametrize("node", NODES, ids=lambda node: node["type"])
def test_each_node_can_be_published(node: dict[str, Any]) -> None:
    name = node["id"]
    match node["type"]:
        case "loop" | "map":
            ways = [("start", name, ""), (name, "work", "body"), ("work", name, ""), (name, "done", "done")]
            nodes = [node]
        case "parallel" | "join":
            pair = [each for each in NODES if each["type"] in ("parallel", "join")]
            fork, join = pair[0]["id"], pair[1]["id"]
            nodes = [*pair, {"id": "more", "type": "delay", "data": {"ms": 1}}]
            ways = [("start", fork, ""), (fork, "work", ""), (fork, "more", ""), ("work", join, ""), ("more", join, "")]
            ways.append((join, "done", ""))
        case _:
            required, optional = ways_of(Node(id=name, type=node["type"], data=node["data"]))
            label = next(iter(required or optional - {"error"}))
            others = required - {label}
            ways = [("start", name, ""), (name, "work", label), ("work", "done", "")]
            ways += [(name, "done", other) for other in others]
            nodes = [node]
            if node["type"] == "switch":
                ways[1] = (name, "work", "GB")
    assert published(nodes, *ways) == []


def test_the_settings_can_be_published() -> None:
    (settings,) = SETTINGS
    assert published([], ("start", "work", ""), ("work", "done", ""), **settings) == []


def test_the_example_of_a_test_runs(tmp_path: Path) -> None:
    (example,) = GUIDE.read_text().split("```python")[1:]
    (tmp_path / "test_order.py").write_text(example.split("```")[0])
    (tmp_path / "order.json").write_text(json.dumps(GRAPHS[0]))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_order.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
