"""Faults that a test injects, each at one position of the journal.

A position is the number of an event among all that drivers append: every prefix of these is a history with which a
crash can leave a run behind.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from lantern_kernel import kinds
from lantern_kernel.event import NewEvent


class FaultKind(StrEnum):
    """What goes wrong."""

    # The worker dies; the event is not committed, those before it are.
    CRASH_BEFORE_COMMIT = "crash-before-commit"
    # The worker dies right after the event is committed, before anything that follows from it is done.
    CRASH_AFTER_COMMIT = "crash-after-commit"
    # The journal commits, its answer is lost, and the worker asks again.
    LOST_ANSWER = "lost-answer"
    # The attempt that the event begins is made, and its reply is lost.
    LOST_REPLY = "lost-reply"
    # What brought the event comes twice: the append, the attempt's request, the message of whoever spoke to the run.
    DUPLICATE_DELIVERY = "duplicate-delivery"
    # Another worker takes the run over while this one goes on, until it is refused.
    SECOND_DRIVER = "second-driver"
    # The clock jumps ahead.
    CLOCK_JUMP = "clock-jump"


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """One fault."""

    # What goes wrong.
    kind: FaultKind
    # Where: the number of the event, from 1.
    position: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Position:
    """An event as the place of a fault."""

    # Of the event.
    kind: str
    # Of the event; empty for one of the run itself.
    step_id: str
    # For step_started: whether the step is tried again if this attempt fails with unknown outcome.
    is_retried: bool = False

    def __str__(self) -> str:
        return f"{self.kind} {self.step_id}".strip()


class Injector:
    """Counts positions, and says when the fault's has come.

    Args:
        fault: None for none: then it notes the positions that there are.

    Attributes:
        positions: Those passed so far.
        is_done: Whether the fault has happened.
    """

    def __init__(self, fault: Fault | None = None) -> None:
        self.fault = fault
        self.positions: list[Position] = []
        self.is_done = False

    def reach(self, events: Sequence[NewEvent], retried: Sequence[bool]) -> int | None:
        """How many of these events come before the fault, its own included; None where its position is not in them.

        Args:
            events: What a driver is about to append.
            retried: For each of them: see Position.
        """
        before = len(self.positions)
        self.positions.extend(
            Position(kind=event.kind, step_id=event.step_id, is_retried=again)
            for event, again in zip(events, retried, strict=True)
        )
        if self.fault is None or self.is_done or self.fault.position > len(self.positions):
            return None
        self.is_done = True
        return self.fault.position - before


def applies(kind: FaultKind, position: Position) -> bool:
    """Whether a fault of that kind does anything of its own there."""
    match kind:
        case FaultKind.LOST_REPLY:
            return position.is_retried
        case FaultKind.DUPLICATE_DELIVERY:
            return position.kind == kinds.STEP_STARTED or position.kind in kinds.FROM_INBOX
        case FaultKind.SECOND_DRIVER:
            return position.kind not in kinds.ENDS_DRIVE
        case _:
            return True
