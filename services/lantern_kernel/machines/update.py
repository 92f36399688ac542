"""The answer to one update: command and end in one event."""

from collections.abc import Mapping
from typing import Any, Final, Literal

from lantern_kernel import kinds
from lantern_kernel.event import AppliedEvent
from lantern_kernel.refusal import refused

State = Literal["new", "completed"]

TRANSITIONS: Final[Mapping[tuple[State, str], State]] = {
    ("new", kinds.UPDATE_COMPLETED): "completed",
}


class UpdateMachine:
    """Where the answer to an update stands, by its events alone.

    Attributes:
        state: See the table.
    """

    __slots__ = ("state",)

    def __init__(self) -> None:
        self.state: State = "new"

    @property
    def is_ended(self) -> bool:
        """Whether it is given."""
        return self.state == "completed"

    def apply(self, event: AppliedEvent, facts: Mapping[str, Any]) -> None:
        """Takes in the answer; raises HISTORY_UNREADABLE, unchanged, where it is the second."""
        del facts
        after = TRANSITIONS.get((self.state, event.kind))
        if after is None:
            raise refused(event, f"cannot follow on an answer that is {self.state}")
        self.state = after
