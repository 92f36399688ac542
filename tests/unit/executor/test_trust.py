"""Goal: trust lasts 0.9 of the journal's patience after the last answered ping was sent, and keeps no answered ping.

Method: the pure rule with times set by hand.
"""

import pytest

from lantern_executor.domain.trust import Trust


@pytest.mark.parametrize(
    ("now_s", "holds", "silent"), [(108.9, True, False), (109.1, False, False), (110.1, False, True)]
)
def test_an_attach_counts_as_an_answered_ping(now_s: float, holds: bool, silent: bool) -> None:
    trust = Trust(100.0)
    assert (trust.holds(now_s), trust.is_silent(now_s)) == (holds, silent)


def test_an_answer_counts_from_when_its_ping_was_sent() -> None:
    trust = Trust(100.0)
    trust.ping(1, 105.0)
    trust.pong(1)
    assert trust.holds(113.9)
    assert not trust.holds(114.1)


def test_a_later_answer_answers_the_earlier_pings() -> None:
    trust = Trust(0.0)
    for number in range(1, 101):
        trust.ping(number, float(number))
    trust.pong(99)
    assert trust.unanswered_count == 1
    trust.pong(3)  # late, and out of order
    assert trust.holds(107.9)
    trust.pong(100)
    assert trust.unanswered_count == 0


@pytest.mark.parametrize("number", [0, 2, -1])
def test_an_answer_to_no_ping_proves_nothing(number: int) -> None:
    trust = Trust(0.0)
    trust.ping(1, 5.0)
    trust.pong(number)
    assert not trust.holds(9.1)
    assert trust.unanswered_count == 1


def test_a_journal_of_less_patience_is_trusted_shorter() -> None:
    trust = Trust(0.0)
    trust.silence_s = 1.0
    assert trust.holds(0.8)
    assert not trust.holds(0.95)
