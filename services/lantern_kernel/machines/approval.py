"""One approval: requested, perhaps delegated, decided once."""

from collections.abc import Mapping
from typing import Any, Final, Literal

from lantern_kernel import kinds
from lantern_kernel.event import AppliedEvent
from lantern_kernel.refusal import refused

State = Literal["new", "requested", "decided"]

TRANSITIONS: Final[Mapping[tuple[State, str], State]] = {
    ("new", kinds.APPROVAL_REQUESTED): "requested",
    ("requested", kinds.STEP_WAITING): "requested",
    ("requested", kinds.APPROVAL_DELEGATED): "requested",
    ("requested", kinds.APPROVAL_DECIDED): "decided",
}


class ApprovalMachine:
    """Where an approval stands, by its events alone.

    Attributes:
        state: See the table.
    """

    __slots__ = ("state",)

    def __init__(self) -> None:
        self.state: State = "new"

    @property
    def is_ended(self) -> bool:
        """Whether it is decided."""
        return self.state == "decided"

    def apply(self, event: AppliedEvent, facts: Mapping[str, Any]) -> None:
        """Takes in an event about this approval; raises HISTORY_UNREADABLE, unchanged, where it cannot follow."""
        del facts  # who decided what is the completion
        after = TRANSITIONS.get((self.state, event.kind))
        if after is None:
            raise refused(event, f"cannot follow on an approval that is {self.state}")
        self.state = after
