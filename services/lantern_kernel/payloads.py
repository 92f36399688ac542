"""What is inside an event's payload: engine facts, with the user's own bytes untouched among them.

A payload is a JSON object whose last member, `data`, is the user's:

    {"name":"charge","type":"http","key":"9f...","data":{"order":1042}}

The user's bytes are spliced in and cut out again, never parsed and written anew: a replayed value is exactly the
recorded one. The cut is safe because inside a JSON string a quote is always escaped, so the bytes `"data":` can only be
a member name, and no engine fact has that name. To the journal all this is opaque, but for the events that end a drive.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lantern_kernel import reasons
from lantern_kernel.errors import LanternError

_DATA = b'"data":'


def pack(facts: Mapping[str, Any], data: bytes | None = None) -> bytes:
    """The payload of engine facts and, where given, the user's JSON bytes."""
    assert "data" not in facts, "`data` is the user's member"
    head = json.dumps(facts, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    if data is None:
        return head
    comma = b"," if facts else b""
    return b"".join((head[:-1], comma, _DATA, data, b"}"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Unpacked:
    """A payload taken apart."""

    # The engine's facts.
    facts: Mapping[str, Any]
    # The user's bytes, exactly as recorded; None where the event has none.
    data: bytes | None


def unpack(payload: bytes) -> Unpacked:
    """Takes a payload apart; raises HISTORY_UNREADABLE where it was not packed by `pack`."""
    at = payload.find(_DATA)
    try:
        if at < 0:
            return Unpacked(facts=_object(payload), data=None)
        head = payload[: at - 1] + b"}" if payload[at - 1 : at] == b"," else b"{}"
        return Unpacked(facts=_object(head), data=payload[at + len(_DATA) : -1])
    except ValueError as error:
        raise LanternError(reasons.HISTORY_UNREADABLE, f"an event's payload is not readable: {error}") from None


def _object(raw: bytes) -> dict[str, Any]:
    value = json.loads(raw)
    if not isinstance(value, dict):
        raise ValueError("no JSON object")
    return value


@dataclass(frozen=True, kw_only=True, slots=True)
class RunErrorFacts:
    """Why a run or a step ended badly, as recorded in its event (SPEC S4)."""

    # A constant of `reasons`, or a class name of the user's.
    code: str
    # For people.
    message: str
    # The step in which it arose; empty outside steps.
    step_id: str = ""
    # Further facts.
    details: Mapping[str, str] | None = None

    def to_facts(self) -> dict[str, Any]:
        """As members of a payload."""
        facts: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.step_id:
            facts["stepId"] = self.step_id
        if self.details:
            facts["details"] = dict(self.details)
        return facts

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> "RunErrorFacts":
        """From members of a payload; absent ones are empty."""
        return cls(
            code=str(facts.get("code", "")),
            message=str(facts.get("message", "")),
            step_id=str(facts.get("stepId", "")),
            details={str(k): str(v) for k, v in (facts.get("details") or {}).items()},
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ParkFacts:
    """Why a run is parked: what the journal must know to wake it again."""

    # timer, signal, approval, child, code_fix, budget, capacity, operator or paused.
    waiting_on: str
    # When it goes on by itself, microseconds of the journal's clock; None where only an entry can wake it.
    due_us: int | None = None
    # What stands in its way, where that is an error (code_fix, operator, capacity).
    error: RunErrorFacts | None = None

    def pack(self) -> bytes:
        """The payload of run_parked."""
        facts: dict[str, Any] = {"on": self.waiting_on}
        if self.due_us is not None:
            facts["dueUs"] = self.due_us
        if self.error is not None:
            facts["error"] = self.error.to_facts()
        return pack(facts)

    @classmethod
    def unpack(cls, payload: bytes) -> "ParkFacts":
        """From the payload of run_parked."""
        facts = unpack(payload).facts
        error, due_us = facts.get("error"), facts.get("dueUs")
        return cls(
            waiting_on=str(facts.get("on", "")),
            due_us=due_us if isinstance(due_us, int) else None,
            error=RunErrorFacts.from_facts(error) if isinstance(error, dict) else None,
        )


WAITING_ON = frozenset({"approval", "signal", "timer", "child", "code_fix", "budget", "capacity", "operator", "paused"})
"""What a run can wait on (SPEC 2)."""
