"""What comes back to a program, each at its place in the journal."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from lantern_kernel import kinds, reasons
from lantern_kernel.blobs import BlobRef
from lantern_kernel.event import AppliedEvent
from lantern_kernel.payloads import RunErrorFacts, Unpacked
from lantern_kernel.refusal import refused

COMPLETES = frozenset(
    {
        kinds.STEP_COMPLETED,
        kinds.STEP_FAILED,
        kinds.MARKER_RECORDED,
        kinds.TIMER_FIRED,
        kinds.APPROVAL_DECIDED,
        kinds.CHILD_COMPLETED,
    }
)
"""Events that answer a command."""

_NO_FACTS: Mapping[str, Any] = MappingProxyType({})


def _no_facts() -> Mapping[str, Any]:
    return _NO_FACTS


# Not frozen, which would more than double what making one costs: there are some for every step.
@dataclass(kw_only=True, slots=True)
class Outcome:
    """How a command ended: at most one of data, blob and error; none of them for a timer."""

    # The command.
    step_id: str
    # The recorded bytes.
    data: bytes | None
    # Why the step or child failed for good.
    error: RunErrorFacts | None
    # The blob that holds the recorded bytes: whoever drives has them fetched before the program gets the outcome.
    blob: BlobRef | None = None
    # What else was recorded: of an approval `decision` and `by`, of a signal its `name`, of a child its `state`.
    facts: Mapping[str, Any] = field(default_factory=_no_facts)
    # Of a step: the attempt that ended it; else 0.
    attempt: int = field(default=0, compare=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Notice:
    """Something that others have to say to the program without having been asked."""

    # `cancel` comes at most once; `update` is to be answered by CompleteUpdate.
    kind: Literal["cancel", "update"]
    # Of an update: its id, to be named in the answer; else empty.
    step_id: str = ""
    # Of an update: its name.
    name: str = ""
    # Of an update: JSON.
    data: bytes | None = None
    # The blob that holds the data.
    blob: BlobRef | None = None


Happening = Outcome | Notice


_CHILD_ENDED_BADLY = "the child ended badly"


def outcome_of(event: AppliedEvent, content: Unpacked) -> Outcome:
    """What an event that completes a command tells the program; HISTORY_UNREADABLE where it lacks its data."""
    kind, step_id = event.kind, event.step_id
    if kind == kinds.STEP_FAILED:
        facts = {**content.facts, "stepId": step_id}
        return Outcome(step_id=step_id, data=None, error=RunErrorFacts.from_facts(facts), attempt=event.attempt)
    if kind == kinds.CHILD_COMPLETED:
        return _child_outcome(event, content)
    if kind == kinds.APPROVAL_DECIDED:
        return Outcome(step_id=step_id, data=content.data, error=None, blob=content.blob, facts=content.facts)
    if kind != kinds.TIMER_FIRED and content.content is None:
        raise refused(event, "holds no data")
    return Outcome(step_id=step_id, data=content.data, error=None, blob=content.blob, attempt=event.attempt)


def _child_outcome(event: AppliedEvent, content: Unpacked) -> Outcome:
    error = None
    if content.facts.get("state") != "SUCCEEDED":
        facts = content.facts.get("error")
        recorded = {"code": reasons.STEP_FAILED, "message": _CHILD_ENDED_BADLY} | (
            facts if isinstance(facts, dict) else {}
        )
        error = RunErrorFacts.from_facts({**recorded, "stepId": event.step_id})
    return Outcome(step_id=event.step_id, data=content.data, error=error, blob=content.blob, facts=content.facts)
