"""The picture of a run: bars with their ends, retries, crash points, resumes, waits.

Method: hand-made event lists in, rows out; nothing is drawn.
"""

import pytest
from event_lists import START_US, History, order_with_everything

from lantern.cli.waterfall import Bar, Outcome, Point, Resume, Waterfall, build
from lantern_kernel import kinds
from lantern_kernel.event import Event


def bars(picture: Waterfall) -> list[Bar]:
    return [row for row in picture.rows if isinstance(row, Bar)]


def resumes(picture: Waterfall) -> list[Resume]:
    return [row for row in picture.rows if isinstance(row, Resume)]


def short(picture: Waterfall) -> list[tuple[str, int, str]]:
    return [(bar.label, bar.attempt, bar.outcome.value) for bar in bars(picture)]


def test_no_events_is_an_empty_picture():
    assert build([]) == Waterfall(begin_us=0, end_us=0, rows=())


def test_a_run_from_start_to_end():
    history = History().run().grant(1).started("reserve", 2).completed("reserve", 40)
    picture = build(history.add(kinds.RUN_SUCCEEDED, 50, data=b"1").events, now_us=START_US + 10**9)
    assert short(picture) == [("reserve", 1, "ok")]
    assert bars(picture)[0].begin_us == START_US + 2_000
    assert bars(picture)[0].end_us == START_US + 40_000
    assert (picture.begin_us, picture.end_us) == (START_US, START_US + 50_000)
    assert (picture.resumes, picture.crashes) == (0, 0)


def test_everything_at_once():
    picture = build(order_with_everything().events)
    assert short(picture) == [
        ("reserve", 1, "ok"),
        ("charge", 1, "retry"),
        ("charge", 2, "crash"),
        ("charge", 2, "ok"),
        ("pause", 0, "ok"),
        ("approval", 0, "ok"),
        ("ship", 1, "ok"),
    ]
    assert [(r.number, r.reason, r.epoch, r.worker, r.replayed_steps) for r in resumes(picture)] == [
        (1, "start", 1, "worker-1", 0),
        (2, "crash", 2, "worker-2", 1),
        (3, "approval", 3, "worker-2", 2),
    ]
    assert (picture.resumes, picture.crashes) == (2, 1)


def test_a_crash_ends_where_the_next_driver_took_over():
    crash = next(bar for bar in bars(build(order_with_everything().events)) if bar.outcome is Outcome.CRASHED)
    assert crash.end_us == START_US + 2_700_000
    assert crash.epoch == 1


def test_the_resume_stands_between_the_crash_and_the_step_that_runs_again():
    rows = build(order_with_everything().events).rows
    place = next(i for i, row in enumerate(rows) if isinstance(row, Resume) and row.reason == "crash")
    before, after = rows[place - 1], rows[place + 1]
    assert isinstance(before, Bar)
    assert isinstance(after, Bar)
    assert (before.label, before.outcome) == ("charge", Outcome.CRASHED)
    assert (after.label, after.attempt, after.outcome) == ("charge", 2, Outcome.COMPLETED)


def test_a_retry_says_why_whether_it_may_have_happened_and_when_it_goes_on():
    retry = bars(build(order_with_everything().events))[1]
    assert retry.note == "HTTP_UNREACHABLE: no answer within 2 s · outcome unknown · again in 100 ms"


def test_a_driver_that_gave_the_run_away_is_no_crash():
    history = History().run().grant(1).started("a", 2).grant(50, "upgrade").started("a", 51).completed("a", 60)
    assert short(build(history.events)) == [("a", 1, "cut off"), ("a", 1, "ok")]


def test_all_steps_in_flight_crash_together_and_done_ones_are_replayed():
    history = History().run().grant(1)
    for step in ("a", "b", "c"):
        history.started(step, 2)
    history.completed("b", 10).grant(20, "crash")
    picture = build(history.events)
    assert short(picture) == [("a", 1, "crash"), ("b", 1, "ok"), ("c", 1, "crash")]
    assert resumes(picture)[1].replayed_steps == 1


def test_a_finally_failed_step_says_its_error_and_counts_as_replayed():
    history = History().run().grant(1).started("a", 2)
    history.add(kinds.STEP_FAILED, 9, step="a", attempt=1, code="CARD", message="no", final=True)
    picture = build(history.grant(20, "signal").events)
    assert bars(picture)[0].note == "CARD: no"
    assert bars(picture)[0].outcome is Outcome.FAILED
    assert resumes(picture)[1].replayed_steps == 1


def test_what_goes_on_reaches_to_now():
    picture = build(History().run().grant(1).started("a", 2).events, now_us=START_US + 500_000)
    assert bars(picture)[0].outcome is Outcome.RUNNING
    assert bars(picture)[0].end_us is None
    assert picture.end_us == START_US + 500_000


def test_a_clock_that_is_behind_the_journals_cuts_nothing_off():
    picture = build(History().run().grant(1).started("a", 200).events, now_us=START_US)
    assert picture.end_us == START_US + 200_000


def test_the_end_of_the_run_cuts_off_what_is_open():
    history = History().run().grant(1).started("a", 2).add(kinds.TIMER_STARTED, 3, step="t", dueUs=START_US)
    picture = build(history.add(kinds.RUN_CANCELLED, 9).events)
    assert [bar.outcome for bar in bars(picture)] == [Outcome.INTERRUPTED] * 2
    assert all(bar.end_us == START_US + 9_000 for bar in bars(picture))


def test_a_timer_goes_on_across_a_crash():
    history = History().run().grant(1).add(kinds.TIMER_STARTED, 2, step="t", dueUs=START_US).grant(50, "crash")
    picture = build(history.add(kinds.TIMER_FIRED, 90, step="t").events)
    assert short(picture) == [("t", 0, "ok")]
    assert bars(picture)[0].end_us == START_US + 90_000


def test_a_park_lasts_until_the_next_driver_and_says_its_error():
    history = History().run().grant(1)
    history.add(kinds.RUN_PARKED, 5, on="code_fix", error={"code": "NONDETERMINISM", "message": "differs"})
    waiting = bars(build(history.events, now_us=START_US + 100_000))[0]
    assert (waiting.what, waiting.label, waiting.outcome, waiting.end_us) == ("wait", "code_fix", Outcome.WAITING, None)
    assert waiting.note == "NONDETERMINISM: differs"
    assert bars(build(history.grant(70, "upgrade").events))[0].end_us == START_US + 70_000


def test_a_step_that_is_open_when_the_journal_parks_the_run_has_lost_its_driver():
    history = History().run().grant(1).started("a", 2).add(kinds.RUN_PARKED, 30, on="capacity").grant(70, "upgrade")
    picture = build(history.started("a", 71).completed("a", 80).events)
    assert short(picture) == [("a", 1, "crash"), ("capacity", 0, "ok"), ("a", 1, "ok")]
    assert bars(picture)[0].end_us == START_US + 30_000


def test_a_step_that_asks_its_operator_was_not_crashed():
    history = History().run()
    for at_ms in (10, 20):
        history.grant(at_ms, "signal").started("mail", at_ms + 1)
        history.add(kinds.STEP_WAITING, at_ms + 2, step="mail", attempt=1, on="operator", key="k")
        history.add(kinds.RUN_PARKED, at_ms + 3, on="operator")
    picture = build(history.events)
    asked = ("mail", 1, "unknown")
    assert short(picture) == [asked, ("operator", 0, "ok"), asked, ("operator", 0, "waiting")]
    assert picture.crashes == 0


def test_a_driver_that_parks_for_other_code_cuts_its_steps_off():
    history = History().run().grant(1).started("a", 2).add(kinds.NONDETERMINISM_DETECTED, 3, seq=4)
    picture = build(history.add(kinds.RUN_PARKED, 3, on="code_fix").events)
    assert short(picture) == [("a", 1, "cut off"), ("code_fix", 0, "waiting")]


@pytest.mark.parametrize("kind", sorted({*kinds.TERMINAL, kinds.RUN_PARKED}))
def test_a_wait_ends_with_the_next_park_or_the_end_of_the_run(kind: str):
    history = History().run().add(kinds.RUN_PARKED, 5, on="capacity").add(kind, 9, on="operator")
    wait = bars(build(history.events))[0]
    assert (wait.label, wait.end_us, wait.outcome) == ("capacity", START_US + 9_000, Outcome.COMPLETED)


def test_points_and_unknown_kinds_are_shown():
    history = History().run().grant(1).add(kinds.MARKER_RECORDED, 2, step="option", data=b"1")
    history.add(kinds.CANCEL_REQUESTED, 3, number=1).add("budget_reserved", 4, step="llm[0]")
    history.add(
        kinds.NONDETERMINISM_DETECTED, 5, seq=4, recorded="step charge", asked="step ship",
        recordedSource="o.py:3", askedSource="o.py:4",
    )  # fmt: skip
    points = [row for row in build(history.events).rows if isinstance(row, Point)]
    assert [(p.label, p.what) for p in points] == [
        ("option", "marker"),
        ("cancel", "cancel"),
        ("llm[0]", "budget_reserved"),
        ("program", "nondeterminism"),
    ]
    assert points[-1].note == "recorded step charge (o.py:3), asked step ship (o.py:4)"


@pytest.mark.parametrize("payload", [b"", b"\xff\x00", b"[1]", b'{"x":'])
def test_a_payload_that_is_not_readable_is_no_fault_of_the_picture(payload: bytes):
    events = [
        Event(
            seq=1, kind=kind, step_id="a", attempt=1, epoch=1, time_us=START_US, payload=payload, salt=b"", digest=b"",
            hash=b"",
        )
        for kind in sorted(kinds.KNOWN)
    ]  # fmt: skip
    assert build(events).rows


def test_an_end_without_its_beginning_is_shown():
    assert short(build(History().completed("a", 5).events)) == [("a", 1, "ok")]


@pytest.mark.parametrize(("decision", "outcome"), [("approved", "ok"), ("denied", "failed"), ("expired", "failed")])
def test_approvals_and_children_last_until_they_are_answered(decision: str, outcome: str):
    history = History().run().grant(1)
    history.add(kinds.APPROVAL_REQUESTED, 5, step="ok", approvalId="ok")
    history.add(kinds.STEP_WAITING, 5, step="ok", on="approval")
    history.add(kinds.CHILD_STARTED, 6, step="part", agent="worker")
    history.add(kinds.RUN_PARKED, 7, on="approval").grant(20, "approval")
    history.add(kinds.APPROVAL_DECIDED, 21, step="ok", decision=decision, by="ann")
    history.add(kinds.CHILD_COMPLETED, 30, step="part", state="SUCCEEDED", runId="r1")
    picture = build(history.events)
    assert short(picture) == [("ok", 0, outcome), ("part", 0, "ok"), ("approval", 0, "ok")]
    assert bars(picture)[0].note == f"{decision} by ann"
    assert bars(picture)[0].end_us == START_US + 21_000
    assert bars(picture)[1].end_us == START_US + 30_000
