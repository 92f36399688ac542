"""One child run, as its parent's journal tells of it."""

from collections.abc import Mapping
from typing import Any, Final, Literal

from lantern_kernel import kinds
from lantern_kernel.event import AppliedEvent
from lantern_kernel.refusal import refused

State = Literal["new", "started", "ended"]

TRANSITIONS: Final[Mapping[tuple[State, str], State]] = {
    ("new", kinds.CHILD_STARTED): "started",
    ("started", kinds.CHILD_COMPLETED): "ended",
    # It could not be created.
    ("started", kinds.STEP_FAILED): "ended",
}


class ChildMachine:
    """Where a child stands, by its parent's events alone.

    Attributes:
        state: See the table.
    """

    __slots__ = ("state",)

    def __init__(self) -> None:
        self.state: State = "new"

    @property
    def is_ended(self) -> bool:
        """Whether its end is known."""
        return self.state == "ended"

    def apply(self, event: AppliedEvent, facts: Mapping[str, Any]) -> None:
        """Takes in an event about this child; raises HISTORY_UNREADABLE, unchanged, where it cannot follow."""
        del facts  # how it ended is the completion
        after = TRANSITIONS.get((self.state, event.kind))
        if after is None:
            raise refused(event, f"cannot follow on a child that is {self.state}")
        self.state = after
