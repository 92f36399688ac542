"""One timer: started with the time when it is due, fired once."""

from collections.abc import Mapping
from typing import Any, Final, Literal

from lantern_kernel import kinds
from lantern_kernel.event import AppliedEvent
from lantern_kernel.refusal import refused, whole_number

State = Literal["new", "running", "fired"]

TRANSITIONS: Final[Mapping[tuple[State, str], State]] = {
    ("new", kinds.TIMER_STARTED): "running",
    ("running", kinds.TIMER_FIRED): "fired",
}


class TimerMachine:
    """Where a timer stands, by its events alone.

    Attributes:
        state: See the table.
        due_us: When it is due, microseconds of the journal's clock; 0 before it is started.
    """

    __slots__ = ("due_us", "state")

    def __init__(self) -> None:
        self.state: State = "new"
        self.due_us = 0

    @property
    def is_ended(self) -> bool:
        """Whether it has fired."""
        return self.state == "fired"

    def apply(self, event: AppliedEvent, facts: Mapping[str, Any]) -> None:
        """Takes in an event about this timer; raises HISTORY_UNREADABLE, unchanged, where it cannot follow."""
        after = TRANSITIONS.get((self.state, event.kind))
        if after is None:
            raise refused(event, f"cannot follow on a timer that is {self.state}")
        if event.kind == kinds.TIMER_STARTED:
            self.due_us = whole_number(event, facts, "dueUs")
        self.state = after
