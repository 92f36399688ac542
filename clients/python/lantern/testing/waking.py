"""What an entry of the inbox does to a waiting run: the table of the journal, for the journal in memory.

| waits on                         | woken by                                                        |
|----------------------------------|-----------------------------------------------------------------|
| approval, child, signal, timer   | a decision, a child's end, an update, a signal that it names    |
| operator                         | the same, and resume                                            |
| code_fix, budget, paused         | resume                                                          |
| capacity                         | nothing                                                         |

A run that waits on a signal and names none is woken by any. A cancel wakes every run, or ends it at once.
"""

from collections.abc import Collection, Mapping
from typing import Final

SIGNAL, CANCEL, PAUSE, RESUME, DECISION, DELEGATION, CHILD, UPDATE = (
    "signal",
    "cancel",
    "pause",
    "resume",
    "decision",
    "delegation",
    "child",
    "update",
)
"""The kinds of inbox entries."""

PROGRAM_WAITS: Final = frozenset({"approval", "signal", "timer", "child", "operator"})
"""Waits of the program itself."""

_WOKEN_BY: Final[Mapping[str, frozenset[str]]] = {
    RESUME: frozenset({"paused", "operator", "code_fix", "budget"}),
    DECISION: PROGRAM_WAITS,
    CHILD: PROGRAM_WAITS,
    UPDATE: PROGRAM_WAITS,
    PAUSE: frozenset(),
    DELEGATION: frozenset(),
}


def wakes(kind: str, name: str, waiting_on: str, signals: Collection[str]) -> bool:
    """Whether an entry wakes a run.

    Args:
        kind: Of the entry.
        name: Of the signal, for one.
        waiting_on: What the run waits on.
        signals: The signals that it named when it was parked.
    """
    if kind == CANCEL:
        return True
    if kind == SIGNAL:
        return waiting_on in PROGRAM_WAITS and (name in signals if signals else waiting_on == "signal")
    return waiting_on in _WOKEN_BY[kind]


def ends_at_once(state: str, waiting_on: str, epoch: int, *, nothing_to_compensate: bool) -> bool:
    """Whether a cancel ends a run in its own transaction: nobody drives it, and nothing is to be compensated."""
    return state != "RUNNING" and (epoch == 0 or waiting_on == "code_fix" or nothing_to_compensate)
