"""What is published and what is not: each fault by itself, at its place."""

import itertools
import json
from collections.abc import Sequence
from typing import Any

import pytest

from lantern_kernel.graph.check import faults_of

Nodes = list[dict[str, Any]]


def node(node_id: str, node_type: str, **data: Any) -> dict[str, Any]:
    return {"id": node_id, "type": node_type, "data": data}


def edges(*written: str) -> list[dict[str, str]]:
    """Edges from `a>b` or `a>b:label`."""
    result: list[dict[str, str]] = []
    for each in written:
        ends, _, label = each.partition(":")
        source, _, target = ends.partition(">")
        result.append({"source": source, "target": target, **({"label": label} if label else {})})
    return result


def told(nodes: Nodes, ways: Sequence[str], **settings: Any) -> list[tuple[str, str]]:
    content = {"nodes": nodes, "edges": edges(*ways), "settings": settings}
    return [(each.code, each.path) for each in faults_of(json.dumps(content).encode())]


START, END = node("in", "trigger"), node("out", "end")
PAIR = [node("p", "parallel"), node("j", "join")]


def tools(*names: str) -> Nodes:
    return [node(name, "tool", tool="work") for name in names]


def test_a_graph_of_every_type_is_accepted():
    nodes = [
        START,
        *tools("a", "b", "c"),
        *PAIR,
        node("ask", "ai-step", provider="openai", model="m", prompt="{{ steps.a.output }}", retry={"maxAttempts": 3}),
        node("call", "connector", connector="http", url="http://x", onUnknown="ask", sink="mail"),
        node("if", "condition", expression="input.n > 1"),
        node("sw", "switch", expression="input.list.map(x, x + 1)[0] > 1 ? 'one' : 'two'"),
        node("m", "map", items="input.list", maxConcurrency=3),
        node("l", "loop", maxIterations=5, **{"while": "iteration < 3"}),
        node("t", "transform", value={"x": "{{ item }}"}),
        node("d", "delay", ms="{{ input.ms }}"),
        node("s", "wait-signal", signal="go", timeoutMs=5),
        node("ok", "approval", title="Sure of {{ run.id }}?"),
        node("sub", "subagent", agent="other", input={}),
        END,
    ]
    ways = (
        "in>if if>p:true if>sw:false p>a p>ask a>j ask>j j>m m>t:body t>m m>ok:done sw>call:one sw>l:default call>l"
        " l>d:body d>b b>l l>s:done s>c s>out:timeout c>sub sub>out ok>out:approved ok>out:denied sub>out:error"
    )
    confidence = {"threshold": 0.5, "types": ["ai-step"], "score": "output.confidence"}
    settings = {"maxConcurrency": 5, "anomalies": {"visits": 10, "action": "fail"}, "confidence": confidence}
    assert told(nodes, ways.split(), **settings) == []


@pytest.mark.parametrize(
    ("nodes", "ways", "expected"),
    [
        ([END], "", {("no_trigger", "/nodes")}),
        ([START], "", {("missing_way", "/nodes/0"), ("no_end", "/nodes"), ("no_way_to_end", "/nodes/0")}),
        ([START, node("in2", "trigger"), END], "in>out in2>out", {("many_triggers", "/nodes")}),
        ([START, END, node("out", "end")], "in>out", {("duplicate_id", "/nodes/2/id")}),
        ([START, END, *tools("a")], "in>out a>out", {("unreachable", "/nodes/2")}),
        ([START, END], "in>out in>gone", {("unknown_node", "/edges/1/target")}),
        (
            [START, END],
            "in>out out>in",
            {("unknown_way", "/edges/1"), ("into_trigger", "/edges/1"), ("cycle", "/edges/0"), ("cycle", "/edges/1")},
        ),
        (
            [START, END, *tools("a", "b")],
            "in>a a>out a>b b>out",
            {("ambiguous_way", "/edges/1"), ("ambiguous_way", "/edges/2")},
        ),
        (
            [START, END, *tools("a", "b")],
            "in>a a>b b>a b>out:error",
            {("cycle", "/edges/1"), ("cycle", "/edges/2")},
        ),
        ([START, END, node("j", "join")], "in>j j>out", {("join_unmatched", "/edges/0")}),
        (
            [START, END, *PAIR, *tools("a", "b")],
            "in>p p>a p>b a>j b>out j>out",
            {("branch_unjoined", "/edges/2"), ("crossing", "/edges/5"), ("end_inside", "/nodes/1")},
        ),
        ([START, END, *PAIR, *tools("a")], "in>p p>a p>j a>j j>out", {("empty_branch", "/edges/2")}),
        ([START, END, node("l", "loop")], "in>l l>l:body l>out:done", {("empty_body", "/edges/1")}),
        (
            [START, END, node("l", "loop", maxIterations=501), *tools("a", "b")],
            "in>l l>a:body a>b b>l a>out:error l>out:done",
            {("crossing", "/edges/4"), ("bad_data", "/nodes/2/data/maxIterations")},
        ),
        (
            [START, END, node("c", "condition", expression="1 +")],
            "in>c c>out:true",
            {("bad_data", "/nodes/2/data/expression"), ("missing_way", "/nodes/2")},
        ),
        (
            [START, END, node("c", "condition", expression="nothing.x > steps.a.output")],
            "in>c c>out:true c>out:false",
            {("bad_data", "/nodes/2/data/expression")},
        ),
        ([START, END, node("t", "transform")], "in>t t>out", {("either_or", "/nodes/2/data")}),
        ([START, END, node("d", "delay")], "in>d d>out", {("missing_data", "/nodes/2/data/ms")}),
        ([START, END, node("d", "delay", ms=-1)], "in>d d>out", {("bad_data", "/nodes/2/data/ms")}),
        (
            [START, END, node("a", "tool", tool="t", input=["{{ 1 + }}"], timeoutMS=1)],
            "in>a a>out",
            {("bad_data", "/nodes/2/data/input"), ("unknown_data", "/nodes/2/data/timeoutMS")},
        ),
        (
            [START, END, node("a", "tool", tool="t", retry={"maxAttempts": 101})],
            "in>a a>out",
            {("bad_data", "/nodes/2/data/retry")},
        ),
        (
            [START, END, {"id": "x y", "type": "toll"}],
            "in>out",
            {("bad_id", "/nodes/2/id"), ("unknown_type", "/nodes/2/type"), ("unreachable", "/nodes/2")},
        ),
        (
            [START, END, node("s", "wait-signal", signal="go", timeoutMs=5)],
            "in>s s>out",
            {("missing_way", "/nodes/2")},
        ),
        (
            [START, END, node("s", "wait-signal", signal="go")],
            "in>s s>out s>out:timeout",
            {("unknown_way", "/edges/2")},
        ),
        ([START, END, node("y", "approval", title="?")], "in>y y>out:denied", {("missing_way", "/nodes/2")}),
    ],
)
def test_faults_are_told_at_their_places(nodes: Nodes, ways: str, expected: set[tuple[str, str]]):
    found = told(nodes, ways.split())
    # What cannot be left is besides unable to reach an end, or the end cannot be reached.
    assert set(found) - expected <= {("no_way_to_end", each[1]) for each in expected} | {("unreachable", "/nodes/1")}
    assert expected <= set(found)


def test_all_that_has_not_the_shape_is_told_at_once():
    content = {"nodes": [{"id": 1}, 2, {"id": "a", "type": "end", "data": 1}], "edges": [{"target": "a", "label": 1}]}
    faults = faults_of(json.dumps({**content, "settings": 1}).encode())
    assert [fault.path for fault in faults] == [
        *(
            "/nodes/0/id",
            "/nodes/0/type",
            "/nodes/1",
            "/nodes/2/data",
            "/edges/0/source",
            "/edges/0/label",
            "/settings",
        ),
    ]
    assert [fault.code for fault in faults_of(b"[]")] == ["no_object"]
    assert [fault.code for fault in faults_of(b"{")] == ["no_json"]
    many = {"nodes": [node(f"n{n}", "end") for n in range(1001)], "edges": []}
    assert [(each.code, each.path) for each in faults_of(json.dumps(many).encode())] == [("too_many", "/nodes")]


def test_settings_are_looked_at():
    settings: dict[str, Any] = {
        "maxConcurrency": 0,
        "anomalies": {"action": "shout", "visit": 3},
        "confidence": {"threshold": 2, "types": ["tools"], "score": "outputs.x"},
        "more": 1,
    }
    assert {path for _, path in told([START, END], ["in>out"], **settings)} == {
        *("/settings/maxConcurrency", "/settings/anomalies/action", "/settings/anomalies/visit", "/settings/more"),
        *("/settings/confidence/threshold", "/settings/confidence/types", "/settings/confidence/score"),
    }


def test_the_nearest_name_is_told():
    content = {"nodes": [START, END, node("a", "tool", tool="t", timeoutMS=1)], "edges": edges("in>a", "a>out")}
    (fault,) = faults_of(json.dumps(content).encode())
    assert "did you mean 'timeoutMs'?" in fault.message


def test_a_long_chain_is_checked():
    names = [f"t{n}" for n in range(900)]
    ways = ["in>t0", *(f"{a}>{b}" for a, b in itertools.pairwise(names)), "t899>out"]
    assert told([START, END, *tools(*names)], ways) == []


def told_of(node_type: str, **data: Any) -> list[tuple[str, str]]:
    return told([START, node("n", node_type, **data), END], ["in>n", "n>out"])


def test_an_ai_step_asks_a_provider_that_there_is_or_the_usual_one():
    ask = {"model": "m", "prompt": "?"}
    assert told_of("ai-step", **ask) == []
    assert told_of("ai-step", provider="anthropic", **ask) == []
    assert told_of("ai-step", provider="{{ input.provider }}", **ask) == []
    assert told_of("ai-step", provider="opnai", **ask) == [("bad_data", "/nodes/1/data/provider")]


def test_a_connector_knows_where_to_and_how():
    assert told_of("connector", connector="http", url="{{ input.url }}", method="{{ input.method }}") == []
    assert told_of("connector", connector="http") == [("missing_data", "/nodes/1/data/url")]
    assert told_of("connector", connector="ftp", url="http://x") == [("bad_data", "/nodes/1/data/connector")]
    wrong = told_of("connector", connector="http", url="http://x", method="FETCH")
    assert wrong == [("bad_data", "/nodes/1/data/method")]


def test_a_gate_says_what_it_gates():
    graph = ([START, *tools("a"), END], ["in>a", "a>out"])
    places = [f"/settings/confidence/{name}" for name in ("threshold", "types")]
    assert told(*graph, confidence={}) == [("missing_data", place) for place in places]
    assert told(*graph, confidence={"threshold": 0.5, "types": ["tool"]}) == []
