"""One marker, or one observation: recorded once, command and completion in one event."""

from collections.abc import Mapping
from typing import Any, Final, Literal

from lantern_kernel import kinds
from lantern_kernel.event import AppliedEvent
from lantern_kernel.refusal import refused

State = Literal["new", "recorded"]

TRANSITIONS: Final[Mapping[tuple[State, str], State]] = {
    ("new", kinds.MARKER_RECORDED): "recorded",
    **{("new", kind): "recorded" for kind in sorted(kinds.OBSERVED)},
}


class MarkerMachine:
    """Where a marker stands, by its events alone.

    Attributes:
        state: See the table.
    """

    __slots__ = ("state",)

    def __init__(self) -> None:
        self.state: State = "new"

    @property
    def is_ended(self) -> bool:
        """Whether it has its value."""
        return self.state == "recorded"

    def apply(self, event: AppliedEvent, facts: Mapping[str, Any]) -> None:
        """Takes in an event about this marker; raises HISTORY_UNREADABLE, unchanged, where it cannot follow."""
        del facts  # its value is the completion; nothing in them decides what may follow
        after = TRANSITIONS.get((self.state, event.kind))
        if after is None:
            raise refused(event, f"cannot follow on a marker that is {self.state}")
        self.state = after
