"""What is inside an event's payload: engine facts, with the user's own bytes untouched among them.

A payload is a JSON object whose last member, `data`, is the user's:

    {"name":"charge","type":"http","key":"9f...","data":{"order":1042}}

The user's bytes are spliced in and cut out again, never parsed and written anew: a replayed value is exactly the
recorded one. The cut is safe because the engine's facts never hold the bytes `"data":`: where a member name inside them
would, its d is written as an escape. To the journal all this is opaque, but for the events that end a drive.

Data above 256 KiB is not in the payload: in its place the last member names the blob that holds it, spelled so and in
no other way, so that a look at the last bytes tells whether a payload names one:

    {"name":"charge","type":"http","blob":{"sha256":"64 hexadecimal digits","size":5242880}}

No data that is JSON can end a payload like that: its own last brace would be missing.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from lantern_kernel import reasons
from lantern_kernel.blobs import BlobRef, Content
from lantern_kernel.errors import LanternError

# Made once: `json.dumps` with arguments would make it anew at each call, at a third of its cost.
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)

_DATA = b'"data":'
_DATA_ESCAPED = b'"\\u0064ata":'
_ONLY_DATA = b"{" + _DATA
_NO_FACTS: Mapping[str, Any] = MappingProxyType({})
_BLOB = b'"blob":{"sha256":"'
_BLOB_TAIL = re.compile(rb'[{,]"blob":\{"sha256":"([0-9a-f]{64})","size":([1-9][0-9]{0,17})\}\}\Z')
_BLOB_TAIL_BYTES_MAX = len(_BLOB) + 64 + len('","size":') + 18 + len("}}") + 1


def pack(facts: Mapping[str, Any], data: Content | None = None) -> bytes:
    """The payload of engine facts and, where given, the user's JSON bytes or the blob that holds them.

    Texts among the facts can come from anywhere (messages of exceptions), so a lone surrogate in one becomes `?`.
    """
    assert "data" not in facts, "`data` is the user's member"
    assert "blob" not in facts, "`blob` is the user's member"
    head = _ENCODER.encode(facts).encode(errors="replace").replace(_DATA, _DATA_ESCAPED) if facts else b"{}"
    if data is None:
        return head
    comma = b"," if facts else b""
    if isinstance(data, BlobRef):
        return b'%b%b%b%b","size":%d}}' % (head[:-1], comma, _BLOB, data.sha256.encode(), data.size)
    return b"".join((head[:-1], comma, _DATA, data, b"}"))


def named_blob(payload: bytes) -> BlobRef | None:
    """The blob that a payload names in the place of its data; for nearly all None, by one look at the end."""
    if payload.find(_BLOB, -_BLOB_TAIL_BYTES_MAX) < 0:
        return None
    found = _BLOB_TAIL.search(payload, max(0, len(payload) - _BLOB_TAIL_BYTES_MAX))
    return None if found is None else BlobRef(sha256=found[1].decode(), size=int(found[2]))


# Not frozen, which would more than double what making one costs: there are some for every step.
@dataclass(kw_only=True, slots=True)
class Unpacked:
    """A payload taken apart."""

    # The engine's facts.
    facts: Mapping[str, Any]
    # The user's bytes, exactly as recorded; None where the event has none, or a blob holds them.
    data: bytes | None
    # The blob that holds the user's bytes; None where there is none.
    blob: BlobRef | None = None

    @property
    def content(self) -> Content | None:
        """The data or the blob that holds it; None where the event has neither."""
        return self.data if self.blob is None else self.blob


def unpack(payload: bytes) -> Unpacked:
    """Takes a payload apart; raises HISTORY_UNREADABLE where it was not packed by `pack`."""
    if not payload.endswith(b"}"):
        raise _unreadable("it is no JSON object")
    blob = named_blob(payload)
    if blob is not None:
        return _unpack_named(payload, blob)
    if payload.startswith(_ONLY_DATA):
        return Unpacked(facts=_NO_FACTS, data=payload[len(_ONLY_DATA) : -1])
    at = payload.find(_DATA)
    try:
        if at < 0:
            return Unpacked(facts=_object(payload), data=None)
        if payload[at - 1 : at] != b",":
            raise _unreadable("its data does not stand apart")
        return Unpacked(facts=_object(payload[: at - 1] + b"}"), data=payload[at + len(_DATA) : -1])
    except ValueError as error:
        raise _unreadable(str(error)) from None


def _unpack_named(payload: bytes, blob: BlobRef) -> Unpacked:
    at = payload.rfind(_BLOB)
    try:
        facts = _object(payload[:at].removesuffix(b",") + b"}")
    except ValueError as error:
        raise _unreadable(str(error)) from None
    if "data" in facts:
        raise _unreadable("it has data and names a blob")
    return Unpacked(facts=facts, data=None, blob=blob)


def _unreadable(why: str) -> LanternError:
    return LanternError(reasons.HISTORY_UNREADABLE, f"an event's payload is not readable: {why}")


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
        details = facts.get("details")
        return cls(
            code=str(facts.get("code", "")),
            message=str(facts.get("message", "")),
            step_id=str(facts.get("stepId", "")),
            details={str(k): str(v) for k, v in details.items()} if isinstance(details, dict) else {},
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ParkFacts:
    """Why a run is parked: what the journal must know to wake it again, or to end it."""

    # timer, signal, approval, child, code_fix, budget, capacity, operator or paused.
    waiting_on: str
    # When it goes on by itself, microseconds of the journal's clock; None where only an entry can wake it.
    due_us: int | None = None
    # What stands in its way, where that is an error (code_fix, operator, capacity).
    error: RunErrorFacts | None = None
    # The signals that it waits for, by name; where none is named and it waits on `signal`, any wakes it.
    signals: tuple[str, ...] = ()
    # Whether a cancel may end it as it stands: nothing that it did is to be compensated.
    nothing_to_compensate: bool = False
    # For a run that the journal paused: what it waited on before; None where it was queued, or its driver paused it.
    before: "ParkFacts | None" = None

    def to_facts(self) -> dict[str, Any]:
        """As members of a payload."""
        facts: dict[str, Any] = {"on": self.waiting_on}
        if self.due_us is not None:
            facts["dueUs"] = self.due_us
        if self.error is not None:
            facts["error"] = self.error.to_facts()
        if self.signals:
            facts["signals"] = list(self.signals)
        if self.nothing_to_compensate:
            facts["nothingToCompensate"] = True
        if self.before is not None:
            facts["before"] = self.before.to_facts()
        return facts

    def pack(self) -> bytes:
        """The payload of run_parked."""
        return pack(self.to_facts())

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> "ParkFacts":
        """From members of a payload; absent ones are empty."""
        error, due_us, before = facts.get("error"), facts.get("dueUs"), facts.get("before")
        signals = facts.get("signals")
        return cls(
            waiting_on=str(facts.get("on", "")),
            due_us=due_us if isinstance(due_us, int) else None,
            error=RunErrorFacts.from_facts(error) if isinstance(error, dict) else None,
            signals=tuple(map(str, signals)) if isinstance(signals, list) else (),
            nothing_to_compensate=facts.get("nothingToCompensate") is True,
            before=cls.from_facts(before) if isinstance(before, dict) else None,
        )

    @classmethod
    def unpack(cls, payload: bytes) -> "ParkFacts":
        """From the payload of run_parked."""
        return cls.from_facts(unpack(payload).facts)


WAITING_ON = frozenset({"approval", "signal", "timer", "child", "code_fix", "budget", "capacity", "operator", "paused"})
"""What a run can wait on (SPEC 2)."""


DURABILITIES = ("sync", "async", "exit")
"""When the events of a run are committed (SPEC J7); sync where run_started does not say."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ApprovalFacts:
    """What approval_requested says: who is to decide what, and until when. Its data are for whoever decides."""

    # Unique within the run: the step's id and, from the second visit on, `#` and the visit's number.
    approval_id: str
    # Whose inbox it is in; empty where anybody may decide.
    assignee: str = ""
    # For people, one line.
    title: str = ""
    # When it expires by itself, microseconds of the journal's clock; None for never.
    expires_us: int | None = None
    # The name that the program gave its step.
    name: str = ""
    # Where the program asks for it, "file:line".
    source: str = ""

    def pack(self, data: Content | None = None) -> bytes:
        """The payload of approval_requested."""
        facts: dict[str, Any] = {"approvalId": self.approval_id}
        if self.assignee:
            facts["assignee"] = self.assignee
        if self.title:
            facts["title"] = self.title
        if self.expires_us is not None:
            facts["expiresUs"] = self.expires_us
        if self.name:
            facts["name"] = self.name
        if self.source:
            facts["source"] = self.source
        return pack(facts, data)

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> "ApprovalFacts":
        """From members of a payload; absent ones are empty."""
        expires_us = facts.get("expiresUs")
        return cls(
            approval_id=str(facts.get("approvalId", "")),
            assignee=str(facts.get("assignee", "")),
            title=str(facts.get("title", "")),
            expires_us=expires_us if isinstance(expires_us, int) else None,
            name=str(facts.get("name", "")),
            source=str(facts.get("source", "")),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class DecisionFacts:
    """How an approval was decided, or to whom it was delegated: the content of its inbox entry, and of its event."""

    # Which.
    approval_id: str
    # The step that asked for it.
    step_id: str
    # approved, denied or expired; delegated where only the assignee changed.
    decision: str
    # Who did it; empty for an expiry.
    by: str
    # For a delegation: to whom.
    assignee: str = ""

    def pack(self, data: bytes | None, number: int | None = None) -> bytes:
        """The entry's payload, or with the entry's number that of approval_decided or approval_delegated.

        Args:
            data: What whoever decided has to say, JSON.
            number: The entry that the event takes in.
        """
        facts: dict[str, Any] = {} if number is None else {"number": number}
        facts |= {"approvalId": self.approval_id, "stepId": self.step_id, "decision": self.decision, "by": self.by}
        if self.assignee:
            facts["assignee"] = self.assignee
        return pack(facts, data)

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> "DecisionFacts":
        """From members of a payload; absent ones are empty."""
        names = ("approvalId", "stepId", "decision", "by", "assignee")
        approval_id, step_id, decision, by, assignee = (str(facts.get(name, "")) for name in names)
        return cls(approval_id=approval_id, step_id=step_id, decision=decision, by=by, assignee=assignee)


@dataclass(frozen=True, kw_only=True, slots=True)
class ChildFacts:
    """How a child run ended: the content of its parent's inbox entry, whose data, or blob, is the result."""

    # The child; where it went on as other runs, the last of them.
    run_id: str
    # SUCCEEDED, FAILED or CANCELLED.
    state: str
    # Why it ended badly; None where it did not.
    error: RunErrorFacts | None = None

    def to_facts(self) -> dict[str, Any]:
        """As members of a payload."""
        facts: dict[str, Any] = {"runId": self.run_id, "state": self.state}
        if self.error is not None:
            facts["error"] = self.error.to_facts()
        return facts

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> "ChildFacts":
        """From members of a payload; absent ones are empty."""
        error = facts.get("error")
        return cls(
            run_id=str(facts.get("runId", "")),
            state=str(facts.get("state", "")),
            error=RunErrorFacts.from_facts(error) if isinstance(error, dict) else None,
        )
