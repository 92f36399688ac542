"""Commands as the history holds them, and how they are compared with what the program asks for (SPEC R3)."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, NamedTuple

from lantern_kernel import kinds
from lantern_kernel.commands import (
    CompleteUpdate,
    ContinueAsNew,
    End,
    Note,
    RecordMarker,
    RequestApproval,
    RunStep,
    StartChild,
    StartTimer,
    Succeed,
)
from lantern_kernel.event import AppliedEvent
from lantern_kernel.nondeterminism import NonDeterminism

Begun = RunStep | RecordMarker | StartTimer | RequestApproval | StartChild | CompleteUpdate | Note
"""The commands that an event begins."""

_BEGUN_BY: Mapping[type[Begun], tuple[str, str]] = {
    RunStep: (kinds.STEP_STARTED, "step"),
    RecordMarker: (kinds.MARKER_RECORDED, "marker"),
    StartTimer: (kinds.TIMER_STARTED, "timer"),
    RequestApproval: (kinds.APPROVAL_REQUESTED, "approval"),
    StartChild: (kinds.CHILD_STARTED, "child"),
    CompleteUpdate: (kinds.UPDATE_COMPLETED, "answer to update"),
}
"""Which event begins a command, and its word for people."""


def _begun_by(command: Begun) -> tuple[str, str]:
    return (command.kind, _NOTED) if isinstance(command, Note) else _BEGUN_BY[type(command)]


_NOTED = "observation"
_WORDS: Mapping[str, str] = {**dict(_BEGUN_BY.values()), **dict.fromkeys(kinds.OBSERVED, _NOTED)}
_UNNAMED = (StartTimer, CompleteUpdate, Note)


class Recorded(NamedTuple):
    """A command in the history, by the event that began it."""

    seq: int
    kind: str
    step_id: str
    name: str
    step_type: str
    source: str
    input_hash: str

    @classmethod
    def of(cls, event: AppliedEvent, facts: Mapping[str, Any]) -> "Recorded":
        """From the event that begins it."""
        get = facts.get
        return cls(
            event.seq,
            event.kind,
            event.step_id,
            str(get("name", "")),
            str(get("type", get("agent", ""))),
            str(get("source", "")),
            str(get("inputHash", "")),
        )

    def describe(self) -> str:
        """For people."""
        return _describe(_WORDS[self.kind], self.step_id, self.name, self.step_type)

    def differs(self, command: Begun) -> bool:
        """Whether the command is another one than this; what an old event does not say is not compared."""
        if self.step_id != command.step_id or self.kind != _begun_by(command)[0]:
            return True
        if isinstance(command, _UNNAMED):
            return False
        if self.name not in {"", command.name}:
            return True
        if isinstance(command, RunStep):
            if self.step_type not in {"", command.type}:
                return True
            return command.check_input and self.input_hash not in {"", sha256(command.input).hexdigest()}
        return isinstance(command, StartChild) and self.step_type not in {"", command.agent_name}

    def against(self, command: Begun) -> NonDeterminism:
        """What to raise where it differs."""
        asked = describe_command(command)
        if isinstance(command, RunStep) and asked == self.describe():
            asked += " with another input"
        return NonDeterminism(
            seq=self.seq,
            recorded=self.describe(),
            asked=asked,
            recorded_source=self.source,
            asked_source=command.source,
        )


def _describe(word: str, step_id: str, name: str, step_type: str) -> str:
    more = ", ".join(part for part in (step_type, f"named {name}" if name not in {"", step_id} else "") if part)
    return f"{word} {step_id}" + (f" ({more})" if more else "")


def describe_command(command: Begun) -> str:
    """For people."""
    name = "" if isinstance(command, _UNNAMED) else command.name
    match command:
        case RunStep():
            step_type = command.type
        case StartChild():
            step_type = command.agent_name
        case _:
            step_type = ""
    return _describe(_begun_by(command)[1], command.step_id, name, step_type)


def describe_end(command: End) -> str:
    """For people."""
    if isinstance(command, Succeed | ContinueAsNew):
        return "the end of the run with a result"
    return "the end of the run with an error"
