"""The interpreter of graphs: a program like any other, whose commands the replay core answers (SPEC 7.1).

It walks the graph; each node of a walk asks for what its type needs and waits for it. Everything else (conditions,
transforms, templates) is computed anew in a replay: it depends on recorded values alone.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lantern_kernel import json_bytes, reasons
from lantern_kernel.commands import (
    AwaitSignal,
    Cancelled,
    Command,
    CompleteUpdate,
    Fail,
    RequestApproval,
    RunStep,
    StartChild,
    StartTimer,
    Succeed,
)
from lantern_kernel.errors import LanternError
from lantern_kernel.graph import definition as types
from lantern_kernel.graph.compiled import CompiledGraph, retry_policy
from lantern_kernel.graph.definition import Node
from lantern_kernel.graph.guards import Guards
from lantern_kernel.graph.walks import Asking, NodeFailed, Walk, gather
from lantern_kernel.outcomes import Happening, Notice, Outcome
from lantern_kernel.payloads import RunErrorFacts
from lantern_kernel.program import ReplayView

STEP_TYPES: Mapping[str, str] = {types.TOOL: "tool", types.CONNECTOR: "connector", types.AI_STEP: "llm"}
"""The type that the step of a node has in the journal."""

CONCURRENCY_DEFAULT = 10
ITERATIONS_MAX = 500


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeWork:
    """What a node does outside of the run."""

    # tool, connector or ai-step.
    node_type: str
    # What its data came to, JSON.
    spec: bytes
    # Whether the idempotency key is sent along.
    keyed: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Scope:
    """What the nodes of one iteration know, and how their steps are named."""

    # Of nodes that have ended: {"output": ...} or {"error": ...}; later nodes add to it.
    steps: dict[str, Any] = field(default_factory=dict[str, Any])
    # `item` and `index` in the body of a map, `iteration` in that of a loop.
    variables: Mapping[str, Any] = field(default_factory=dict[str, Any])
    # `[3]` in an iteration; goes behind the id of a node.
    path: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunFacts:
    """What a graph can know of its run."""

    # The run.
    run_id: str
    # The user's own name for the work; may be empty.
    workflow_id: str
    # JSON.
    input: bytes


class Interpreter:
    """One run of a graph. See `Program`.

    Args:
        graph: The graph; shared by its runs.
        run: The run.
        digest: SHA-256 (hex) of the interpreter's code.
    """

    has_compensation = False

    def __init__(self, graph: CompiledGraph, run: RunFacts, digest: str = "") -> None:
        self.digest = digest
        self._graph = graph
        self._run = {"id": run.run_id, "workflowId": run.workflow_id}
        self._input: Any = json.loads(run.input) if run.input else None
        self._asking = Asking()
        self._guards = Guards(graph.definition.settings, self._asking)
        self._works: dict[str, NodeWork] = {}
        self._told: list[Happening] = []
        self._root: Walk[Any] | None = None
        self._waits: tuple[str, ...] = ()
        self._is_ended = False
        self._scope = Scope()

    # What its driver uses.

    def begin(self, view: ReplayView) -> None:
        """See Program."""

    def advance(self) -> Sequence[Command]:
        """See Program."""
        if self._root is None:
            self._root = self._main()
            self._go_on(None)
        told, self._told = self._told, []
        for happening in told:
            if self._is_ended:
                break
            if isinstance(happening, Notice):
                self._notice(happening)
            elif happening.step_id in self._waits:
                self._go_on(happening)
        return self._asking.take()

    def resolve(self, outcome: Happening) -> None:
        """See Program."""
        self._told.append(outcome)

    def marker_value(self, step_id: str) -> bytes:
        """Never asked for: graphs record no markers."""
        raise LanternError(reasons.INTERNAL, f"the graph has no marker {step_id}")

    def node_work(self, step_id: str) -> NodeWork:
        """What to execute for a step that it issued."""
        return self._works[step_id]

    def answer_query(self, name: str, payload: bytes) -> bytes:
        """`steps`: what the nodes outside of maps came to so far, and what is waited for."""
        del payload
        if name != "steps":
            raise LanternError(reasons.QUERY_NOT_FOUND, f"a graph answers `steps`, not {name!r}", query=name)
        return json_bytes.encode({"steps": self._scope.steps, "waiting": list(self._waits)}, "result")

    # The whole run.

    def _go_on(self, outcome: Outcome | None) -> None:
        root = self._root
        assert root is not None, "begun"
        try:
            self._waits = next(root) if outcome is None else root.send(outcome)
        except StopIteration as stop:
            self._end(self._result(stop.value))
        except NodeFailed as failed:
            self._end(Fail(error=failed.error))

    def _result(self, value: Any) -> Succeed | Fail:
        try:
            return Succeed(result=json_bytes.encode(value, "result"))
        except LanternError as error:
            return Fail.of(error)

    def _end(self, command: Command) -> None:
        self._is_ended, self._waits = True, ()
        self._asking.add(command)

    def _notice(self, notice: Notice) -> None:
        if notice.kind == "update":
            error = RunErrorFacts(code=reasons.QUERY_NOT_FOUND, message="a graph takes no updates")
            self._asking.add(CompleteUpdate(step_id=notice.step_id, source="graph", error=error))
            return
        assert self._root is not None, "begun"
        self._root.close()
        error = RunErrorFacts(code=reasons.CANCEL_REQUESTED, message="cancelled on request")
        self._end(Cancelled(error=error))

    def _main(self) -> Walk[Any]:
        result = yield from self._path(self._graph.trigger.id, "", self._scope)
        return result

    def _path(self, node_id: str, until: str, scope: Scope) -> Walk[Any]:
        """Walks from a node on, to an end or up to `until`; what the last node came to."""
        output: Any = None
        while node_id != until:
            node = self._graph.node(node_id)
            yield from self._guards.visit(node)
            output, way = yield from self._visit(node, scope)
            if node.type == types.END:
                break
            node_id = way
        return output

    def _visit(self, node: Node, scope: Scope) -> Walk[tuple[Any, str]]:
        """One node: what it came to, and the node that follows."""
        ways = self._graph.ways_out(node)
        try:
            output, label = yield from self._do(node, scope)
            output = yield from self._guards.confidence(node, node.id + scope.path, output, self._values(scope))
        except LanternError as error:
            failed = Fail.of(error, node.id + scope.path).error
        except NodeFailed as error:
            failed = error.error
        else:
            scope.steps[node.id] = {"output": output}
            if node.type == types.END:
                return output, ""
            return output, self._way(node, ways, label)
        if "error" not in ways or node.type not in {*types.OUTSIDE, types.SUBAGENT}:
            raise NodeFailed(failed)
        scope.steps[node.id] = {"error": failed.to_facts()}
        return None, ways["error"]

    def _way(self, node: Node, ways: Mapping[str, str], label: str) -> str:
        if node.type == types.PARALLEL:
            return self._graph.join_of(node)
        if label in ways:
            return ways[label]
        default = "default" if node.type == types.SWITCH else ""
        if default in ways and (node.type != types.APPROVAL or label == "approved"):
            return ways[default]
        code = {"denied": reasons.APPROVAL_DENIED, "expired": reasons.APPROVAL_EXPIRED}.get(label, reasons.NO_WAY_OUT)
        if node.type == types.WAIT_SIGNAL:
            code = reasons.SIGNAL_TIMEOUT
        message = f"node {node.id} came to {label or 'its end'}, and no edge leads on from there"
        raise NodeFailed(RunErrorFacts(code=code, message=message, step_id=node.id))

    def _values(self, scope: Scope) -> dict[str, Any]:
        return {"input": self._input, "run": self._run, "steps": scope.steps, **scope.variables}

    def _render(self, node: Node, key: str, scope: Scope) -> Any:
        return self._graph.template(node, key).render(self._values(scope))

    # Nodes, each: what it came to, and the label of the way on.

    def _do(self, node: Node, scope: Scope) -> Walk[tuple[Any, str]]:
        step_id = node.id + scope.path
        match node.type:
            case types.TRIGGER:
                return self._input, ""
            case types.END:
                return (self._render(node, "output", scope) if "output" in node.data else None), ""
            case types.CONDITION | types.SWITCH:
                return self._choose(node, scope)
            case types.TRANSFORM:
                if "expression" in node.data:
                    return self._graph.expression(node, "expression").evaluate(self._values(scope)), ""
                return self._render(node, "value", scope), ""
            case types.TOOL | types.CONNECTOR | types.AI_STEP:
                return (yield from self._step(node, step_id, scope))
            case types.SUBAGENT:
                return (yield from self._subagent(node, step_id, scope))
            case types.APPROVAL:
                return (yield from self._approval(node, step_id, scope))
            case types.WAIT_SIGNAL:
                return (yield from self._signal(node, step_id, scope))
            case types.DELAY:
                yield from self._asking.ask(self._timer(node, step_id, "ms", scope))
                return None, ""
            case types.PARALLEL:
                return (yield from self._parallel(node, scope))
            case types.JOIN:
                return scope.steps.pop(_joined(node.id), {}), ""
            case types.LOOP:
                return (yield from self._loop(node, scope))
            case types.MAP:
                return (yield from self._map(node, scope))
            case _:
                raise NodeFailed(
                    RunErrorFacts(code=reasons.INVALID_FIELD, message=f"no node type {node.type!r} is known")
                )

    def _choose(self, node: Node, scope: Scope) -> tuple[Any, str]:
        value = self._graph.expression(node, "expression").evaluate(self._values(scope))
        if node.type == types.CONDITION and not isinstance(value, bool):
            raise _no_truth(f"the expression of condition {node.id}", value)
        return value, value if isinstance(value, str) else json.dumps(value)

    def _step(self, node: Node, step_id: str, scope: Scope) -> Walk[tuple[Any, str]]:
        data = node.data
        spec = json_bytes.encode(self._render(node, "", scope), "data")
        claim: Any = data.get("onUnknown", "")
        self._works[step_id] = NodeWork(node_type=node.type, spec=spec, keyed=data.get("keyed", True))
        command = RunStep(
            step_id=step_id,
            name=node.id,
            type=STEP_TYPES[node.type],
            input=spec,
            source=_source(node),
            retry=retry_policy(node),
            timeout_ms=data.get("timeoutMs"),
            total_timeout_ms=data.get("totalTimeoutMs"),
            claim=claim,
            sink=data.get("sink", node.id) if claim else "",
            key_scope=data.get("keyScope", "run"),
            keyed=data.get("keyed", True),
            effects=data.get("effects", "outside"),
        )
        yield from self._guards.step()
        outcome = yield from self._asking.ask(command)
        del self._works[step_id]
        yield from self._guards.retries(max(0, outcome.attempt - 1))
        output = _content(outcome)
        yield from self._guards.usage(output)
        return output, ""

    def _subagent(self, node: Node, step_id: str, scope: Scope) -> Walk[tuple[Any, str]]:
        command = StartChild(
            step_id=step_id,
            name=node.id,
            agent_name=self._text(node, "agent", scope),
            input=json_bytes.encode(self._render(node, "input", scope), "input"),
            source=_source(node),
            workflow_id=self._text(node, "workflowId", scope),
            abandon=node.data.get("abandon", False),
        )
        yield from self._guards.step()
        outcome = yield from self._asking.ask(command)
        return _content(outcome), ""

    def _approval(self, node: Node, step_id: str, scope: Scope) -> Walk[tuple[Any, str]]:
        timeout_ms: int | None = node.data.get("timeoutMs")
        command = RequestApproval(
            step_id=step_id,
            name=node.id,
            title=self._text(node, "title", scope),
            source=_source(node),
            assignee=self._text(node, "assignee", scope),
            data=json_bytes.encode(self._render(node, "data", scope), "data") if "data" in node.data else None,
            timeout_us=None if timeout_ms is None else timeout_ms * 1000,
        )
        outcome = yield from self._asking.ask(command)
        decision = str(outcome.facts.get("decision", ""))
        said = json.loads(outcome.data) if outcome.data else None
        return {"decision": decision, "by": str(outcome.facts.get("by", "")), "data": said}, decision

    def _signal(self, node: Node, step_id: str, scope: Scope) -> Walk[tuple[Any, str]]:
        wait = AwaitSignal(step_id=step_id, name=self._text(node, "signal", scope), source=_source(node))
        if "timeoutMs" not in node.data:
            return _content((yield from self._asking.ask(wait))), ""
        timer = self._timer(node, f"{step_id}#timeout", "timeoutMs", scope)
        outcome = yield from self._asking.race(wait, timer)
        return (None, "timeout") if outcome.step_id == timer.step_id else (_content(outcome), "")

    def _timer(self, node: Node, step_id: str, key: str, scope: Scope) -> StartTimer:
        ms: Any = self._render(node, key, scope)
        if isinstance(ms, bool) or not isinstance(ms, int) or not 0 <= ms <= _WAIT_MS_MAX:
            shown = json.dumps(ms)
            message = f"{key} of node {node.id} is {shown}, no whole number from 0 to {_WAIT_MS_MAX}"
            raise LanternError(reasons.INVALID_FIELD, message)
        return StartTimer(step_id=step_id, duration_us=ms * 1000, source=_source(node))

    def _text(self, node: Node, key: str, scope: Scope) -> str:
        value: Any = self._render(node, key, scope)
        if value is None:
            return ""
        return value if isinstance(value, str) else json.dumps(value)

    def _limit(self, node: Node) -> int:
        limit: int = node.data.get(
            "maxConcurrency", self._graph.definition.settings.get("maxConcurrency", CONCURRENCY_DEFAULT)
        )
        return limit

    def _parallel(self, node: Node, scope: Scope) -> Walk[tuple[Any, str]]:
        join = self._graph.join_of(node)
        goes_on = node.data.get("onError") == "continue"
        branches = self._graph.branches(node)

        def branch(first: str) -> Walk[Any]:
            try:
                return (yield from self._path(first, join, scope))
            except NodeFailed as failed:
                if not goes_on:
                    raise
                return {"error": failed.error.to_facts()}

        walks = [lambda first=first: branch(first) for first in branches]
        outputs = yield from gather(walks, self._limit(node))
        scope.steps[_joined(join)] = dict(zip(branches, outputs, strict=True))
        return None, ""

    def _loop(self, node: Node, scope: Scope) -> Walk[tuple[Any, str]]:
        body = self._graph.ways_out(node)["body"]
        most: int = node.data.get("maxIterations", ITERATIONS_MAX)
        output: Any = None
        iteration = 0
        while iteration < most:
            inner = replace(
                scope,
                variables={**scope.variables, "iteration": iteration},
                path=f"{scope.path}[{iteration}]",
            )
            if "while" in node.data:
                goes_on = self._graph.expression(node, "while").evaluate(self._values(inner))
                if not isinstance(goes_on, bool):
                    raise _no_truth(f"`while` of loop {node.id}", goes_on)
                if not goes_on:
                    break
            if iteration:
                yield from self._guards.visit(node)
            output = yield from self._path(body, node.id, inner)
            iteration += 1
        return {"iterations": iteration, "last": output}, "done"

    def _map(self, node: Node, scope: Scope) -> Walk[tuple[Any, str]]:
        items: Any = self._graph.expression(node, "items").evaluate(self._values(scope))
        if not isinstance(items, list):
            raise LanternError(reasons.EXPRESSION_FAILED, f"`items` of map {node.id} came to no list")
        body = self._graph.ways_out(node)["body"]
        listed: Sequence[Any] = items

        def each(index: int) -> Walk[Any]:
            inner = Scope(
                steps=dict(scope.steps),
                variables={**scope.variables, "item": listed[index], "index": index},
                path=f"{scope.path}[{index}]",
            )
            return (yield from self._path(body, node.id, inner))

        walks = [lambda index=index: each(index) for index in range(len(listed))]
        outputs = yield from gather(walks, self._limit(node))
        return outputs, "done"


_WAIT_MS_MAX = 100 * 366 * 24 * 3600 * 1000


def _joined(join: str) -> str:
    """Where the outputs of the branches wait for their join; no node can have that id."""
    return f"{join}#"


def _no_truth(what: str, value: Any) -> LanternError:
    return LanternError(
        reasons.EXPRESSION_FAILED, f"{what} came to {json.dumps(value)}, which is neither true nor false"
    )


def _source(node: Node) -> str:
    return f"node:{node.id}"


def _content(outcome: Outcome) -> Any:
    if outcome.error is not None:
        raise NodeFailed(outcome.error)
    return json.loads(outcome.data) if outcome.data else None
