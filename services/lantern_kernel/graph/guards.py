"""What watches over a graph that runs: anomalies (SPEC G7) and the gate of confidence (SPEC G6)."""

from collections.abc import Mapping
from typing import Any

from lantern_kernel import kinds, reasons
from lantern_kernel.commands import Note, RequestApproval
from lantern_kernel.errors import LanternError
from lantern_kernel.graph.definition import Node
from lantern_kernel.graph.expressions import compile_expression
from lantern_kernel.graph.walks import Asking, NodeFailed, Walk
from lantern_kernel.payloads import RunErrorFacts

THRESHOLDS: Mapping[str, tuple[str, int]] = {
    "visits": ("runaway_loop", 500),
    "steps": ("excessive_steps", 80),
    "retries": ("retry_storm", 10),
    "costMicroUsd": ("cost_spike", 5_000_000),
    "tokens": ("token_spike", 500_000),
}
"""What is counted: the kind of anomaly that more of it is, and how much is not yet one."""


class Guards:
    """Counts what one run does.

    Args:
        settings: Of the graph.
        asking: Where notes and approvals are asked for.
    """

    def __init__(self, settings: Mapping[str, Any], asking: Asking) -> None:
        self._asking = asking
        anomalies: Mapping[str, Any] = settings.get("anomalies", {})
        self._thresholds = {name: anomalies.get(name, default) for name, (_, default) in THRESHOLDS.items()}
        self._action = str(anomalies.get("action", "note"))
        self._confidence: Mapping[str, Any] | None = settings.get("confidence")
        self._counted = dict.fromkeys(THRESHOLDS, 0)
        self._found: set[str] = set()

    def visit(self, node: Node) -> Walk[None]:
        """A node is come to, or an iteration begun."""
        yield from self._count("visits", 1, node.id)

    def step(self) -> Walk[None]:
        """A step is about to be made."""
        yield from self._count("steps", 1)

    def retries(self, count: int) -> Walk[None]:
        """A step has ended after so many further attempts."""
        yield from self._count("retries", count)

    def usage(self, output: Any) -> Walk[None]:
        """A step has ended with what it used: `usage` with `inputTokens`, `outputTokens` and `costMicroUsd`."""
        if not isinstance(output, dict):
            return
        members: Mapping[str, Any] = output
        usage = members.get("usage")
        if isinstance(usage, dict):
            used: Mapping[str, Any] = usage
            yield from self._count("tokens", _whole(used.get("inputTokens")) + _whole(used.get("outputTokens")))
            yield from self._count("costMicroUsd", _whole(used.get("costMicroUsd")))

    def _count(self, what: str, more: int, node_id: str = "") -> Walk[None]:
        self._counted[what] += more
        kind = THRESHOLDS[what][0]
        if self._counted[what] <= self._thresholds[what] or kind in self._found:
            return
        self._found.add(kind)
        facts: dict[str, Any] = {
            "kind": kind,
            "count": self._counted[what],
            "threshold": self._thresholds[what],
            "action": self._action,
        }
        if node_id:
            facts["node"] = node_id
        note_id = f"anomaly#{kind}"
        self._asking.add(Note(step_id=note_id, kind=kinds.ANOMALY_DETECTED, facts=facts, source="graph"))
        message = f"{kind}: {self._counted[what]} {what}, more than {self._thresholds[what]}"
        if self._action == "park":
            yield from self._review(f"{note_id}#review", "anomaly", f"Go on? {message}", reasons.ANOMALY)
        elif self._action == "fail":
            details = {name: str(value) for name, value in facts.items()}
            raise NodeFailed(RunErrorFacts(code=reasons.ANOMALY, message=message, details=details))

    def confidence(self, node: Node, step_id: str, output: Any, values: Mapping[str, Any]) -> Walk[Any]:
        """The output of a node, once it is sure enough or somebody has said that it will do."""
        gate = self._confidence
        if gate is None or node.type not in gate.get("types", ()):
            return output
        facts: dict[str, Any] = {"node": node.id, "threshold": gate.get("threshold")}
        note_id = f"{step_id}#confidence"
        if "score" not in gate:
            note = Note(step_id=note_id, kind=kinds.CONFIDENCE_GATE_BYPASSED, facts=facts, source=f"node:{node.id}")
            self._asking.add(note)
            return output
        score = compile_expression(gate["score"], "settings.confidence.score").evaluate({**values, "output": output})
        if isinstance(score, bool) or not isinstance(score, int | float):
            raise LanternError(reasons.EXPRESSION_FAILED, "settings.confidence.score came to no number")
        is_sure = score >= gate.get("threshold", 0)
        facts |= {"score": score, "decision": "pass" if is_sure else "review"}
        self._asking.add(Note(step_id=note_id, kind=kinds.CONFIDENCE_EVALUATED, facts=facts, source=f"node:{node.id}"))
        if not is_sure:
            title = f"{node.id} is sure to {score}, less than {gate.get('threshold')}: will its output do?"
            yield from self._review(f"{step_id}#review", node.id, title, reasons.APPROVAL_DENIED)
        return output

    def _review(self, step_id: str, name: str, title: str, code: str) -> Walk[None]:
        command = RequestApproval(step_id=step_id, name=name, title=title, source="graph")
        outcome = yield from self._asking.ask(command)
        if outcome.facts.get("decision") != "approved":
            by = str(outcome.facts.get("by", ""))
            raise NodeFailed(RunErrorFacts(code=code, message=f"{by or 'nobody'} did not approve: {title}"))


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
