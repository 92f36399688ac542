"""Goal: trust lasts 0.9 of the journal's patience after the last answered ping was sent, and keeps no answered ping.

Method: the pure rule with times set by hand.
"""

import pytest

from lantern_executor.domain.trust import Trust


@pytest.mark.parametrize(("now_s", "holds"), [(108.9, True), (109.1, False)])
def test_an_attach_counts_as_an_answered_ping(now_s: float, holds: bool) -> None:
    assert Trust(100.0).holds(now_s) is holds


def test_an_answer_counts_from_when_its_ping_was_sent() -> None:
    trust = Trust(100.0)
    trust.ping(1, 105.0)
    trust.pong(1, 105.1)
    assert trust.holds(113.9)
    assert not trust.holds(114.1)


def test_a_later_answer_answers_the_earlier_pings() -> None:
    trust = Trust(0.0)
    for number in range(1, 101):
        trust.ping(number, float(number))
    trust.pong(99, 101.0)
    assert trust.unanswered_count == 1
    trust.pong(3, 101.0)  # late, and out of order
    assert trust.holds(107.9)
    trust.pong(100, 102.0)
    assert trust.unanswered_count == 0


@pytest.mark.parametrize("number", [0, 2, -1])
def test_an_answer_to_no_ping_proves_nothing(number: int) -> None:
    trust = Trust(0.0)
    trust.ping(1, 5.0)
    trust.pong(number, 6.0)
    assert not trust.holds(9.1)
    assert trust.unanswered_count == 1


def test_a_journal_of_less_patience_is_trusted_shorter() -> None:
    trust = Trust(0.0)
    trust.silence_s = 1.0
    assert trust.holds(0.8)
    assert not trust.holds(0.95)


def test_what_a_helper_was_answered_counts_from_when_it_asked() -> None:
    trust = Trust(0.0)
    for second in range(1, 31):
        trust.answered(float(second), second + 0.1)
    assert trust.holds(38.9)
    assert not trust.holds(39.1)
    assert not trust.take_return(30.5), "it was never lost, though we heard of it only now"


def test_a_return_is_told_once() -> None:
    trust = Trust(0.0)
    trust.answered(9.5, 9.6)  # more than nine seconds after the attach
    assert trust.take_return(9.7)
    assert not trust.take_return(9.7)
    trust.answered(10.0, 30.0)  # an answer that came too late to prove anything
    assert not trust.take_return(30.0)
    trust.answered(30.5, 30.6)
    assert trust.take_return(30.7)


def test_nothing_brings_back_what_was_revoked() -> None:
    trust = Trust(0.0)
    trust.revoke()
    trust.answered(5.0, 5.1)
    assert not trust.holds(5.2)
    assert not trust.take_return(5.2)
