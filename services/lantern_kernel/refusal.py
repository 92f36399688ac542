"""The refusal of an event that cannot stand where it stands, and the reading of numbers that must be there."""

from collections.abc import Mapping
from typing import Any

from lantern_kernel import reasons
from lantern_kernel.errors import LanternError
from lantern_kernel.event import AppliedEvent


def refused(event: AppliedEvent, why: str) -> LanternError:
    """HISTORY_UNREADABLE, naming the event."""
    about = f" of {event.step_id}" if event.step_id else ""
    return LanternError(
        reasons.HISTORY_UNREADABLE,
        f"event {event.seq} ({event.kind}{about}): {why}",
        seq=event.seq,
        kind=event.kind,
        step_id=event.step_id,
    )


def whole_number(event: AppliedEvent, facts: Mapping[str, Any], name: str) -> int:
    """The fact of that name; raises HISTORY_UNREADABLE where it is no whole number from 0 on."""
    value = facts.get(name)
    if type(value) is not int or value < 0:
        raise refused(event, f"{name} is {value!r}, not a whole number")
    return value
