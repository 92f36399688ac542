"""Goal: a loop that stands still is told once, and given up after its limit; one that moves never.

Method: counts of beats by hand.
"""

from lantern_executor.domain.stall import StallMeter


def meter() -> StallMeter:
    return StallMeter(look_s=0.5, warn_s=1.0, limit_s=2.0)


def test_a_loop_that_moves_is_left_alone():
    watched = meter()
    assert {watched.look(beats) for beats in (1, 2, 2, 3, 3, 4, 9)} == {"moves"}


def test_a_stall_is_told_once_and_given_up_at_the_limit():
    watched = meter()
    assert [watched.look(5) for _ in range(5)] == ["moves", "moves", "stalls", "moves", "stuck"]
    assert watched.stalled_s == 2.0


def test_a_stall_that_ends_begins_anew():
    watched = meter()
    assert [watched.look(beats) for beats in (1, 1, 1, 2, 2, 2, 3)] == [
        "moves", "moves", "stalls", "moves", "moves", "stalls", "moves",
    ]  # fmt: skip
