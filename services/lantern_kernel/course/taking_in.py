"""The events by which a driver takes in what others say."""

from collections.abc import Mapping
from typing import NamedTuple

from lantern_kernel import kinds, payloads, reasons
from lantern_kernel.errors import LanternError
from lantern_kernel.inbox import InboxEntry
from lantern_kernel.payloads import DecisionFacts

TAKEN_IN_AS: Mapping[str, str] = {
    "signal": kinds.SIGNAL_RECEIVED,
    "cancel": kinds.CANCEL_REQUESTED,
    "pause": kinds.PAUSE_REQUESTED,
    "resume": kinds.RESUME_REQUESTED,
    "decision": kinds.APPROVAL_DECIDED,
    "delegation": kinds.APPROVAL_DELEGATED,
    "child": kinds.CHILD_COMPLETED,
    "update": kinds.UPDATE_RECEIVED,
}
"""By which event each kind of inbox entry is taken in."""


class TakenIn(NamedTuple):
    """An event to append."""

    kind: str
    payload: bytes
    step_id: str = ""


def taken_in(entry: InboxEntry) -> TakenIn:
    """The event for an entry; HISTORY_UNREADABLE where this version does not know its kind."""
    kind = TAKEN_IN_AS.get(entry.kind)
    if kind is None:
        message = f"inbox entry {entry.number} is a {entry.kind}, which this version does not know"
        raise LanternError(reasons.HISTORY_UNREADABLE, message)
    said = entry.payload_blob or entry.payload or b"null"
    match kind:
        case kinds.SIGNAL_RECEIVED:
            return TakenIn(kind, payloads.pack({"number": entry.number, "name": entry.name}, said))
        case kinds.UPDATE_RECEIVED:
            facts = {"number": entry.number, "name": entry.name}
            return TakenIn(kind, payloads.pack(facts, said), update_id(entry.number))
        case kinds.APPROVAL_DECIDED | kinds.APPROVAL_DELEGATED:
            unpacked = payloads.unpack(entry.payload)
            decision = DecisionFacts.from_facts(unpacked.facts)
            return TakenIn(kind, decision.pack(unpacked.data, entry.number), decision.step_id)
        case kinds.CHILD_COMPLETED:
            unpacked = payloads.unpack(entry.payload)
            facts = {"number": entry.number, **unpacked.facts}
            return TakenIn(kind, payloads.pack(facts, unpacked.content or b"null"), entry.name)
        case _:
            return TakenIn(kind, payloads.pack({"number": entry.number}))


def update_id(number: int) -> str:
    """The id of the update that is that entry of its run's inbox."""
    return f"update#{number}"
