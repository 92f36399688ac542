"""Goal: the storms notice what is broken: a proof that cannot fail proves nothing.

Method: one part of the replay core or of the course is broken at a time, and some storm must find it out.
"""

from collections.abc import Callable
from typing import Any

import pytest
from test_course_storms import weathered

from lantern_kernel import kinds, retry
from lantern_kernel.course.course import Course
from lantern_kernel.replay import Replay
from lantern_kernel.signals import Signals
from storms import laws

SEEDS_MAX = 3_000
RARE = {"signals_on_their_way_forgotten": 1_110, "signals_of_the_withdrawn_lost": 415}
"""The seed to begin with, where it takes many."""

Break = Callable[[pytest.MonkeyPatch], None]


def _completions_in_reverse(patch: pytest.MonkeyPatch) -> None:
    """R8: two that come together are told the wrong way round."""
    apply = Replay.apply

    def reversed_apply(self: Any, event: Any) -> None:
        apply(self, event)
        if not self._in_history and len(self._queue) > 1:
            self._queue.reverse()

    patch.setattr(Replay, "apply", reversed_apply)


def _outcomes_of_the_unwanted(patch: pytest.MonkeyPatch) -> None:
    """What was withdrawn is told after all, on replay."""
    finish = Replay.next_outcome

    def forgetful(self: Any) -> Any:
        if self._in_history:
            self._withdrawn.clear()
        return finish(self)

    patch.setattr(Replay, "next_outcome", forgetful)


def _keys_that_thaw(patch: pytest.MonkeyPatch) -> None:
    """E2: the key grows after any documented refusal."""
    decide = retry.decide

    def thawed(policy: Any, attempt: int, key_attempt: int, frozen: bool, failure: Any, random01: float) -> Any:
        del frozen
        return decide(policy, attempt, key_attempt, False, failure, random01)

    patch.setattr(retry, "decide", thawed)


def _signals_on_their_way_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A run that goes on as a new one carries only what nobody has asked for."""

    def untaken(self: Any) -> list[Any]:
        return [each for kept in self._untaken.values() for each in kept]

    patch.setattr(Signals, "untaken", untaken)


def _signals_of_the_withdrawn_lost(patch: pytest.MonkeyPatch) -> None:
    """A wait that is given up keeps the signal that it was to get."""
    patch.setattr(Signals, "give_back", _dropped)


def _dropped(signals: Any, step_id: str) -> str:
    signals._ready = type(signals._ready)(each for each in signals._ready if each[0] != step_id)
    return ""


def _parks_before_children_are_cancelled(patch: pytest.MonkeyPatch) -> None:
    """A run sleeps although a child that nobody wants goes on."""
    park = Course.park_if_idle

    def hasty(self: Any) -> None:
        stops, self.child_stops = self.child_stops, []
        park(self)
        self.child_stops = stops

    patch.setattr(Course, "park_if_idle", hasty)


def _dispatch_without_record(patch: pytest.MonkeyPatch) -> None:
    """R5: an attempt is made again that the journal does not know of."""
    take = Course.take_starts

    def doubled(self: Any) -> Any:
        starts = take(self)
        return starts + starts

    patch.setattr(Course, "take_starts", doubled)


def _markers_made_anew(patch: pytest.MonkeyPatch) -> None:
    """R4: on replay a marker brings something else than what is recorded."""
    following = Replay.next_outcome

    def anew(self: Any) -> Any:
        outcome = following(self)
        if outcome is not None and self._in_history and outcome.step_id.startswith("marker"):
            object.__setattr__(outcome, "data", b'{"evaluated":0}')
        return outcome

    patch.setattr(Replay, "next_outcome", anew)


def _cancel_that_is_told_twice(patch: pytest.MonkeyPatch) -> None:
    """S1: each request to cancel reaches the program."""
    apply = Replay.apply

    def twice(self: Any, event: Any) -> None:
        if event.kind == kinds.CANCEL_REQUESTED:
            self._is_cancel_requested = False
        apply(self, event)

    patch.setattr(Replay, "apply", twice)


BREAKS: tuple[Break, ...] = (
    _completions_in_reverse,
    _outcomes_of_the_unwanted,
    _keys_that_thaw,
    _signals_on_their_way_forgotten,
    _signals_of_the_withdrawn_lost,
    _parks_before_children_are_cancelled,
    _dispatch_without_record,
    _markers_made_anew,
    _cancel_that_is_told_twice,
)


@pytest.mark.parametrize("broken", BREAKS, ids=lambda each: each.__name__.strip("_"))
def test_a_storm_finds_it_out(broken: Break, monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch)
    for seed in range(RARE.get(broken.__name__.strip("_"), 1), SEEDS_MAX):
        try:
            laws.check(weathered(seed))
        except Exception as error:
            print(f"seed {seed}: {error!r}")
            return
    raise AssertionError("no storm has noticed")
