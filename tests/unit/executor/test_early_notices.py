"""Goal: a notice for an unknown run is kept while a start under way may be its own, and no longer.

Method: notices and starts in every order that matters.
"""

from lantern_executor.domain.notices import EarlyNotices


def test_a_notice_during_a_start_is_taken_once() -> None:
    notices = EarlyNotices()
    notices.begin("start")
    notices.add("run")
    assert notices.take("run")
    assert not notices.take("run")
    assert not notices.take("other")


def test_without_a_start_nothing_is_kept() -> None:
    notices = EarlyNotices()
    notices.add("run")
    assert notices.kept_count == 0


def test_a_notice_outlives_starts_that_ended_before_a_start_that_may_be_its_own() -> None:
    notices = EarlyNotices()
    notices.begin("first")
    notices.begin("second")
    notices.add("run")
    notices.end("first")
    assert notices.kept_count == 1
    notices.begin("third")  # later than the notice: it cannot be its own
    notices.end("second")
    assert notices.kept_count == 0


def test_a_later_notice_for_the_same_run_counts_from_then() -> None:
    notices = EarlyNotices()
    notices.begin("first")
    notices.add("run")
    notices.begin("second")
    notices.add("run")
    notices.end("first")
    assert notices.take("run")


def test_starts_without_end_do_not_grow_it_without_end() -> None:
    notices = EarlyNotices()
    notices.begin(0)
    for n in range(1, 10_000):
        notices.begin(n)
        notices.add(f"run{n}")
        notices.end(n - 1)
        assert notices.kept_count <= 1


def test_a_start_that_never_began_may_end() -> None:
    notices = EarlyNotices()
    notices.end("start")
    assert not notices.take("run")
