"""Goal: each node type does what it should, whatever happens to the worker on the way.

Method: graphs in the environment in memory, which replays the history at every commit; the whole of them under every
fault at every event.
"""

import json
from typing import Any

import pytest

from lantern.testing import Environment, check_every_fault
from lantern.testing.graphs import graph_agent
from lantern_kernel import kinds, reasons


def node(node_id: str, node_type: str, **data: Any) -> dict[str, Any]:
    return {"id": node_id, "type": node_type, "data": data}


def edges(*texts: str) -> list[dict[str, str]]:
    """From texts such as `a -> b` and `a -yes-> b`."""
    found: list[dict[str, str]] = []
    for text in texts:
        source, _, rest = text.partition(" -")
        label, _, target = rest.partition("> ")
        edge = {"source": source, "target": target}
        if label.strip("-"):
            edge["label"] = label.strip("-")
        found.append(edge)
    return found


def graph(nodes: list[dict[str, Any]], *lines: str, **settings: Any) -> dict[str, Any]:
    return {"nodes": [node("start", "trigger"), *nodes], "edges": edges(*lines), "settings": settings}


def tool(node_id: str, **data: Any) -> dict[str, Any]:
    return node(node_id, "tool", tool="t", **data)


Spec = dict[str, Any]


def broken(spec: Spec) -> None:
    raise ValueError("broken")


def item_of(spec: Spec) -> Any:
    return spec["input"]["item"]


def place_of(spec: Spec) -> Any:
    return spec["input"]["at"]


def origin_of(spec: Spec) -> Any:
    return spec["input"]["of"]["got"]


def play(definition: dict[str, Any], value: Any = None, fakes: dict[str, Any] | None = None) -> Any:
    with Environment() as env:
        env.offer(graph_agent("g", definition))
        for name, fake in (fakes or {}).items():
            env.fake(name, fake)
        run = env.start("g", value)
        return run.result()


def failure(definition: dict[str, Any], value: Any = None, fakes: dict[str, Any] | None = None) -> Any:
    with Environment() as env:
        env.offer(graph_agent("g", definition))
        for name, fake in (fakes or {}).items():
            env.fake(name, fake)
        run = env.start("g", value)
        with pytest.raises(Exception, match=r".") as caught:
            run.result()
        return caught.value


BRANCHES = graph(
    [
        tool("first", input={"n": "{{ input.n }}"}),
        node("fan", "parallel"),
        tool("left"),
        tool("right", input={"of": "{{ steps.first.output }}"}),
        node("meet", "join"),
        node("done", "end", output={"all": "{{ steps.meet.output }}", "text": "got {{ steps.left.output }}!"}),
    ],
    "start -> first",
    "first -> fan",
    "fan -> left",
    "fan -> right",
    "left -> meet",
    "right -> meet",
    "meet -> done",
)


def test_branches_run_side_by_side_and_meet() -> None:
    seen: list[Any] = []

    def first(spec: Any) -> Any:
        seen.append(spec)
        return {"got": spec["input"]["n"]}

    result = play(BRANCHES, {"n": 5}, {"first": first, "left": "L", "right": origin_of})
    assert result == {"all": {"left": "L", "right": 5}, "text": "got L!"}
    assert seen == [{"tool": "t", "input": {"n": 5}}]


def test_a_failed_branch_stops_the_others() -> None:
    with Environment() as env:
        env.offer(graph_agent("g", BRANCHES))
        env.fake("first", 1)
        env.fake("left", broken, takes_s=1)
        env.fake("right", 2, takes_s=9)
        run = env.start("g", {"n": 1})
        with pytest.raises(Exception, match="broken"):
            run.result()
        failed = [event.step_id for event in run.events if event.kind == kinds.STEP_FAILED]
        assert failed == ["left"]
        assert [event.step_id for event in run.events if event.kind == kinds.STEP_COMPLETED] == ["first"]


def test_a_failed_branch_leaves_the_others_alone_where_the_node_says_so() -> None:
    definition = json.loads(json.dumps(BRANCHES))
    definition["nodes"][2]["data"] = {"onError": "continue"}
    definition["nodes"][6]["data"] = {"output": "{{ steps.meet.output }}"}
    result = play(definition, {"n": 1}, {"first": 1, "left": broken, "right": 2})
    assert result["right"] == 2
    assert result["left"]["error"]["stepId"] == "left"


CHOICES = graph(
    [
        node("big", "condition", expression="input.n > 10"),
        node("kind", "switch", expression="input.kind"),
        node("a", "end", output="{{ 'big' }}"),
        node("b", "end", output="{{ 'apple ' + input.kind }}"),
        node("c", "end", output={"other": "{{ input.kind }}"}),
    ],
    "start -> big",
    "big -true-> a",
    "big -false-> kind",
    "kind -apple-> b",
    "kind -default-> c",
)


@pytest.mark.parametrize(
    ("value", "result"),
    [
        ({"n": 11}, "big"),
        ({"n": 1, "kind": "apple"}, "apple apple"),
        ({"n": 1, "kind": "pear"}, {"other": "pear"}),
    ],
)
def test_conditions_and_switches_choose(value: Any, result: Any) -> None:
    assert play(CHOICES, value) == result


def test_a_missing_path_is_named() -> None:
    error = failure(CHOICES, {"m": 1})
    assert reasons.EXPRESSION_FAILED in str(error)
    assert "'n'" in str(error)


REPEATED = graph(
    [
        node("each", "map", items="input.list", maxConcurrency=2),
        tool("work", input={"item": "{{ item }}", "at": "{{ index }}"}),
        node("again", "loop", **{"while": "iteration < 3"}),
        tool("poll", input={"at": "{{ iteration }}"}),
        node("done", "end", output=["{{ steps.each.output }}", "{{ steps.again.output }}"]),
    ],
    "start -> each",
    "each -body-> work",
    "work -> each",
    "each -done-> again",
    "again -body-> poll",
    "poll -> again",
    "again -done-> done",
)


def test_bodies_are_steps_with_the_number_of_their_iteration() -> None:
    with Environment() as env:
        env.offer(graph_agent("g", REPEATED))
        env.fake("work", item_of)
        env.fake("poll", place_of)
        run = env.start("g", {"list": [1, 2, 3]})
        assert run.result() == [[1, 2, 3], {"iterations": 3, "last": 2}]
        assert [each.step_id for each in env.attempts] == [
            *("work[0]", "work[1]", "work[2]"),
            *("poll[0]", "poll[1]", "poll[2]"),
        ]


def test_a_map_of_nothing_and_a_loop_that_never_begins() -> None:
    definition = json.loads(json.dumps(REPEATED))
    definition["nodes"][3]["data"] = {"while": "false"}
    assert play(definition, {"list": []}) == [[], {"iterations": 0, "last": None}]


OTHERS = graph(
    [
        node("ask", "approval", title="Pay {{ input.amount }}?", timeoutMs=60_000),
        node("wait", "wait-signal", signal="go", timeoutMs=5_000),
        node("rest", "delay", ms=3_600_000),
        node("done", "end", output=["{{ steps.ask.output.by }}", "{{ steps.wait.output }}"]),
        node("denied", "end", output="{{ steps.ask.output.decision }}"),
        node("late", "end", output="{{ 'late' }}"),
    ],
    "start -> ask",
    "ask -approved-> wait",
    "ask -denied-> denied",
    "ask -expired-> denied",
    "wait -> rest",
    "wait -timeout-> late",
    "rest -> done",
)


def approve_and_go(env: Environment) -> None:
    env.offer(graph_agent("g", OTHERS))
    run = env.start("g", {"amount": 5})
    env.settle()
    run.approve("ask", by="ann")
    env.settle()
    run.signal("go", {"x": 1})
    assert run.result() == ["ann", {"x": 1}]


def test_what_others_decide_and_say() -> None:
    with Environment() as env:
        approve_and_go(env)
    with Environment() as env:
        env.offer(graph_agent("g", OTHERS))
        run = env.start("g", {"amount": 5})
        env.settle()
        run.deny("ask", by="bob")
        assert run.result() == "denied"
    with Environment() as env:
        env.offer(graph_agent("g", OTHERS))
        run = env.start("g", {"amount": 5})
        assert run.result() == "expired"
    with Environment() as env:
        env.offer(graph_agent("g", OTHERS))
        run = env.start("g", {"amount": 5})
        env.settle()
        run.approve("ask", by="ann")
        assert run.result() == "late"


def test_a_denial_without_a_way_out_fails_the_run() -> None:
    definition = graph([node("ask", "approval", title="?"), node("done", "end")], "start -> ask", "ask -> done")
    with Environment() as env:
        env.offer(graph_agent("g", definition))
        run = env.start("g")
        env.settle()
        run.deny("ask", by="bob")
        with pytest.raises(Exception, match=reasons.APPROVAL_DENIED):
            run.result()


def test_an_error_has_a_way_out_of_its_own() -> None:
    definition = graph(
        [tool("try"), node("done", "end"), node("sorry", "end", output="{{ steps.try.error.code }}")],
        "start -> try",
        "try -> done",
        "try -error-> sorry",
    )
    assert play(definition, None, {"try": broken}) == reasons.STEP_FAILED


def test_a_subagent_is_a_run_of_its_own_and_ends_with_its_parent() -> None:
    inner = graph(
        [node("rest", "delay", ms=1_000), node("done", "end", output={"twice": "{{ input.n * 2 }}"})],
        *(
            "start -> rest",
            "rest -> done",
        ),
    )
    outer = graph(
        [
            node("part", "subagent", agent="inner", input={"n": "{{ input.n }}"}),
            node("done", "end", output="{{ steps.part.output.twice }}"),
        ],
        "start -> part",
        "part -> done",
    )
    with Environment() as env:
        env.offer(graph_agent("inner", inner), graph_agent("g", outer))
        assert env.start("g", {"n": 4}).result() == 8
    with Environment() as env:
        env.offer(graph_agent("inner", inner), graph_agent("g", outer))
        run = env.start("g", {"n": 4})
        env.settle()
        run.cancel()
        env.skip(10)
        assert run.state == "CANCELLED"


@pytest.mark.parametrize("action", ["note", "park", "fail"])
def test_an_anomaly_is_told_once_and_strictly_above_its_threshold(action: str) -> None:
    definition = graph(
        [
            node("again", "loop", **{"while": "iteration < 5"}),
            tool("poll"),
            node("done", "end", output="{{ steps.again.output.iterations }}"),
        ],
        "start -> again",
        "again -body-> poll",
        "poll -> again",
        "again -done-> done",
        anomalies={"steps": 3, "action": action},
    )
    with Environment() as env:
        env.offer(graph_agent("g", definition))
        env.fake("poll", 1)
        run = env.start("g")
        env.settle()
        if action == "park":
            run.approve("anomaly#excessive_steps#review", by="ann")
        if action == "fail":
            with pytest.raises(Exception, match=reasons.ANOMALY):
                run.result()
        else:
            assert run.result() == 5
        noted = [event for event in run.events if event.kind == kinds.ANOMALY_DETECTED]
        assert [event.step_id for event in noted] == ["anomaly#excessive_steps"]
        assert len([each for each in env.attempts if each.step_id == "poll[3]"]) == (0 if action == "fail" else 1)


@pytest.mark.parametrize(("confidence", "is_asked"), [(0.9, False), (0.5, False), (0.4, True)])
def test_the_gate_of_confidence(confidence: float, is_asked: bool) -> None:
    gate = {"threshold": 0.5, "types": ["tool"], "score": "output.sure"}
    definition = graph(
        [tool("guess"), node("done", "end", output="{{ steps.guess.output.sure }}")],
        "start -> guess",
        "guess -> done",
        confidence=gate,
    )
    with Environment() as env:
        env.offer(graph_agent("g", definition))
        env.fake("guess", {"sure": confidence})
        run = env.start("g")
        env.settle()
        if is_asked:
            assert run.state == "WAITING"
            run.approve("guess#review", by="ann")
        assert run.result() == confidence
        assert [event.step_id for event in run.events if event.kind == kinds.CONFIDENCE_EVALUATED] == [
            "guess#confidence"
        ]


def test_a_gate_that_nobody_wired_is_passed_and_said_so() -> None:
    definition = graph(
        [tool("guess"), node("done", "end")],
        "start -> guess",
        "guess -> done",
        confidence={"threshold": 0.5, "types": ["tool"]},
    )
    with Environment() as env:
        env.offer(graph_agent("g", definition))
        env.fake("guess", 1)
        run = env.start("g")
        run.result()
        assert kinds.CONFIDENCE_GATE_BYPASSED in [event.kind for event in run.events]


def _with_branches(env: Environment) -> None:
    env.offer(graph_agent("g", BRANCHES))
    env.fake("first", {"got": 1})
    env.fake("left", "L", takes_s=2)
    env.fake("right", "R", takes_s=1)
    assert env.start("g", {"n": 1}).result()["all"] == {"left": "L", "right": "R"}


def _with_repeats(env: Environment) -> None:
    env.offer(graph_agent("g", REPEATED))
    env.fake("work", item_of, takes_s=1)
    env.fake("poll", place_of)
    assert env.start("g", {"list": [3, 4, 5]}).result() == [[3, 4, 5], {"iterations": 3, "last": 2}]


@pytest.mark.parametrize("scenario", [_with_branches, _with_repeats, approve_and_go])
def test_under_every_fault(scenario: Any) -> None:
    kinds_of_fault = [
        "crash-before-commit",
        "crash-after-commit",
        "lost-answer",
        "duplicate-delivery",
        "second-driver",
    ]
    assert check_every_fault(scenario, kinds=kinds_of_fault)
