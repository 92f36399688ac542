"""Goal: a driver that has nothing to do sleeps: what it waits for next is never in the past.

Method: a course whose program waits for a signal and for a timer that is due soon after the bound for parking; its
time is set by hand.
"""

import random
from collections.abc import Sequence

from lantern_kernel.commands import AwaitSignal, Command, StartTimer
from lantern_kernel.course import parking
from lantern_kernel.course.course import Course
from lantern_kernel.outcomes import Happening
from lantern_kernel.program import ReplayView
from storms.stormy_journal import Chances


class _Waits:
    """Waits for a signal, and for a while."""

    digest = "d"
    has_compensation = False

    def __init__(self, duration_us: int) -> None:
        self._commands: list[Command] = [
            AwaitSignal(step_id="paid", name="paid", source="flow.py:1"),
            StartTimer(step_id="sleep", duration_us=duration_us, source="flow.py:2"),
        ]

    def begin(self, view: ReplayView) -> None:
        del view

    def advance(self) -> Sequence[Command]:
        commands, self._commands = self._commands, []
        return commands

    def resolve(self, outcome: Happening) -> None:
        raise AssertionError(outcome)

    def marker_value(self, step_id: str) -> bytes:
        raise AssertionError(step_id)


def test_a_wait_that_comes_near_while_the_driver_lingers_is_slept_through() -> None:
    now_us = 1_000_000
    course = Course(
        run_id="r",
        workflow_id="",
        epoch=1,
        program=_Waits(parking.STAY_US + parking.LINGER_US // 2),
        sources=Chances(random.Random(1)),
        now_us=lambda: now_us,
    )
    course.advance()
    course.committed(len(course.events))
    course.park_if_idle()
    assert not course.ending, "it lingers"
    assert course.next_due_us == now_us + parking.LINGER_US
    now_us += parking.LINGER_US
    course.pass_time()
    course.advance()
    course.park_if_idle()
    assert not course.ending, "the timer is due within the bound by now"
    assert course.next_due_us == now_us - parking.LINGER_US + parking.STAY_US + parking.LINGER_US // 2
