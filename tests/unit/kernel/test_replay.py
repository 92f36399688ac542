"""Goal: the replay core answers from the history exactly what is recorded, and says exactly what is left to do.

Method: histories written out event by event, commands issued by hand.
"""

from typing import Any

import pytest
from written import RUN_ID, Written

from lantern_kernel import kinds, reasons
from lantern_kernel.commands import Command, Fail, RecordMarker, RunStep, StartTimer, Succeed
from lantern_kernel.errors import LanternError
from lantern_kernel.event import AppliedEvent
from lantern_kernel.keys import idempotency_key
from lantern_kernel.nondeterminism import NonDeterminism
from lantern_kernel.outcomes import Notice, Outcome
from lantern_kernel.payloads import RunErrorFacts
from lantern_kernel.replay import Replay
from lantern_kernel.retry import RetryPolicy
from lantern_kernel.work import FinishWork, MarkerWork, StepWork, TimerWork


def step(step_id: str, **named: Any) -> RunStep:
    named = {"name": step_id, "type": "function", "input": b"[]", "source": "new.py:2", **named}
    return RunStep(step_id=step_id, **named)


def marker(step_id: str) -> RecordMarker:
    return RecordMarker(step_id=step_id, name=step_id, source="new.py:3")


def timer(step_id: str, duration_us: int = 10) -> StartTimer:
    return StartTimer(step_id=step_id, duration_us=duration_us, source="new.py:4")


def test_a_new_run_has_everything_to_do_in_order_and_once() -> None:
    run = Written()
    commands = [step("a"), marker("m"), timer("t", 7), step("b", retry=RetryPolicy(max_attempts=3))]
    for command in commands:
        run.replay.issue(command)
    assert run.replay.take_work(1_000) == [], "not before the history is finished"
    first, second, third, fourth = run.work()
    assert isinstance(first, StepWork)
    assert (first.attempt, first.key_attempt, first.key_frozen) == (1, 1, False)
    assert first.key == idempotency_key(RUN_ID, "a", 1)
    assert first.not_before_us is None
    assert second == MarkerWork(command=marker("m"))
    assert third == TimerWork(command=timer("t", 7), due_us=1_007, is_started=False)
    assert fourth.command is commands[3]
    assert run.work() == []


def test_completions_are_told_strictly_in_journal_order_with_their_bytes() -> None:
    run = Written()
    run.start("a")
    run.start("b")
    run.write(kinds.MARKER_RECORDED, "m", name="m", data=b"0.10")
    run.write(kinds.TIMER_STARTED, "t", dueUs=5)
    run.complete("b", b'{"x": 1.0}')
    run.write(kinds.TIMER_FIRED, "t")
    run.write(kinds.STEP_FAILED, "a", 1, code="NO", message="no", details={"status": "402"}, final=True)
    for command in (step("a"), step("b"), marker("m"), timer("t")):
        run.replay.issue(command)
    no = RunErrorFacts(code="NO", message="no", step_id="a", details={"status": "402"})
    assert run.outcomes() == [
        Outcome(step_id="m", data=b"0.10", error=None),
        Outcome(step_id="b", data=b'{"x": 1.0}', error=None),
        Outcome(step_id="t", data=None, error=None),
        Outcome(step_id="a", data=None, error=no),
    ]
    assert run.replay.steps_replayed == 2
    assert run.work() == []


def test_a_completion_waits_for_its_command_and_holds_up_later_ones() -> None:
    run = Written()
    run.start("a")
    run.complete("a", b"1")
    run.start("b")
    run.start("c")
    run.complete("c", b"3")
    run.complete("b", b"2")
    assert run.outcomes() == []
    run.replay.issue(step("a"))
    assert [outcome.step_id for outcome in run.outcomes()] == ["a"]
    run.replay.issue(step("b"))
    assert run.outcomes() == [], "c comes first in the journal"
    run.replay.issue(step("c"))
    assert [outcome.step_id for outcome in run.outcomes()] == ["c", "b"]


def test_the_crash_point_runs_again_as_the_same_attempt_with_its_key_frozen() -> None:
    run = Written()
    run.start("a")
    run.retrying("a", 1, key=2, outcome="not_executed")
    run.start("a", 2, key=2)
    run.write(kinds.LEASE_GRANTED, epoch=2)
    run.replay.issue(step("a"))
    (work,) = run.work()
    assert (work.attempt, work.key_attempt, work.key_frozen) == (2, 2, True)
    assert work.key == idempotency_key(RUN_ID, "a", 2)
    assert work.not_before_us is None
    run.start("a", 2, key=2, epoch=2)
    assert run.work() == []
    run.complete("a", b"9", 2)
    assert [outcome.data for outcome in run.outcomes()] == [b"9"]
    assert run.replay.steps_replayed == 0, "it was done, not replayed"


def test_a_crash_point_done_again_is_no_new_command() -> None:
    run = Written()
    run.start("a")
    run.write(kinds.LEASE_GRANTED, epoch=2)
    run.start("a", epoch=2)
    run.complete("a")
    run.start("b", epoch=2)
    run.replay.issue(step("a"))
    assert len(run.outcomes()) == 1
    run.replay.issue(step("b"))
    (work,) = run.work()
    assert work.command.step_id == "b"


def test_a_crash_during_a_back_off_leaves_what_is_left_of_it() -> None:
    run = Written()
    run.start("a")
    seq = run.retrying("a", 1, key=1, outcome="unknown", delay_ms=2_500)
    run.write(kinds.LEASE_GRANTED, epoch=2)
    run.replay.issue(step("a"))
    (work,) = run.work()
    assert (work.attempt, work.key_attempt, work.key_frozen) == (2, 1, True)
    assert work.not_before_us == seq * 1_000_000 + 2_500_000


def test_a_live_retry_comes_as_work_again() -> None:
    run = Written()
    run.replay.issue(step("a"))
    run.work()
    run.start("a")
    seq = run.retrying("a", 1, key=2, outcome="not_executed", delay_ms=1)
    (work,) = run.work()
    assert (work.attempt, work.key_attempt, work.key_frozen) == (2, 2, False)
    assert work.not_before_us == seq * 1_000_000 + 1_000
    run.start("a", 2, key=2)
    run.retrying("a", 2, key=2, outcome="unknown")
    (work,) = run.work()
    assert (work.attempt, work.key_attempt, work.key_frozen) == (3, 2, True)


def test_a_timer_of_the_history_keeps_its_due_time_and_a_live_one_comes_once() -> None:
    run = Written()
    run.write(kinds.TIMER_STARTED, "t", dueUs=42)
    run.replay.issue(timer("t"))
    run.replay.issue(timer("u"))
    assert run.work() == [
        TimerWork(command=timer("t"), due_us=42, is_started=True),
        TimerWork(command=timer("u"), due_us=1_010, is_started=False),
    ]
    run.write(kinds.TIMER_STARTED, "u", dueUs=1_010)
    assert run.work() == []
    run.write(kinds.TIMER_FIRED, "u")
    assert [outcome.step_id for outcome in run.outcomes()] == ["u"]


def test_a_step_that_waits_for_a_decision_is_looked_at_again() -> None:
    run = Written()
    run.start("mail")
    run.write(kinds.STEP_WAITING, "mail", 1, on="operator")
    run.write(kinds.RUN_PARKED, on="operator")
    run.write(kinds.LEASE_GRANTED, epoch=2)
    run.replay.issue(step("mail"))
    (work,) = run.work()
    assert (work.attempt, work.key_frozen) == (1, True)


def test_the_workflow_id_stands_in_the_key_where_asked() -> None:
    run = Written(workflow_id="order-1042")
    run.replay.issue(step("a", key_scope="workflow"))
    run.replay.issue(step("b"))
    assert [work.key for work in run.work()] == [
        idempotency_key("order-1042", "a", 1),
        idempotency_key(RUN_ID, "b", 1),
    ]
    nameless = Written()
    nameless.replay.issue(step("a", key_scope="workflow"))
    assert nameless.work()[0].key == idempotency_key(RUN_ID, "a", 1)


@pytest.mark.parametrize(
    ("asked", "recorded_words", "asked_words"),
    [
        (step("other"), "step charge (function)", "step other (function)"),
        (step("charge", type="http"), "step charge (function)", "step charge (http)"),
        (step("charge", name="fee"), "step charge (function)", "step charge (function, named fee)"),
        (marker("charge"), "step charge (function)", "marker charge"),
        (timer("charge"), "step charge (function)", "timer charge"),
    ],
)
def test_a_command_that_differs_is_refused_with_both_places(
    asked: Command, recorded_words: str, asked_words: str
) -> None:
    run = Written()
    seq = run.start("charge", source="order.py:12")
    with pytest.raises(NonDeterminism) as caught:
        run.replay.issue(asked)
    error = caught.value
    assert error.reason == reasons.NONDETERMINISM
    assert (error.seq, error.recorded, error.asked) == (seq, recorded_words, asked_words)
    assert error.recorded_source == "order.py:12"
    assert error.asked_source.startswith("new.py:")
    assert error.facts()["recordedSource"] == "order.py:12"
    run.replay.issue(step("charge"))
    assert run.work()[0].key_frozen, "the refusal changed nothing"


def test_the_order_of_concurrent_commands_matters() -> None:
    run = Written()
    run.start("a")
    run.start("b")
    with pytest.raises(NonDeterminism, match=r"step a .* step b"):
        run.replay.issue(step("b"))


def test_history_left_over_is_a_difference_where_the_program_waits_or_ends() -> None:
    for end in (None, Succeed(result=b"1"), Fail(error=RunErrorFacts(code="X", message="x"))):
        run = Written()
        run.start("a")
        run.complete("a")
        seq = run.start("b")
        run.replay.issue(step("a"))
        run.outcomes()
        if end is not None:
            run.replay.issue(end)
        with pytest.raises(NonDeterminism) as caught:
            run.replay.finish_history()
        assert caught.value.seq == seq
        assert ("the end of the run" in caught.value.asked) == (end is not None)
        assert run.replay.take_work(0) == []


def test_a_program_that_waits_for_another_step_than_the_recorded_one_says_where() -> None:
    run = Written()
    run.start("a")
    run.start("b")
    run.replay.issue(step("a"))
    with pytest.raises(NonDeterminism) as caught:
        run.replay.finish_history()
    assert caught.value.asked == "nothing more while it waits for a"
    assert caught.value.asked_source == "new.py:2"


def test_a_finished_run_has_no_work() -> None:
    run = Written()
    run.start("a")
    run.complete("a")
    run.write(kinds.RUN_SUCCEEDED, data=b"1")
    assert run.replay.is_finished
    run.replay.issue(step("a"))
    assert len(run.outcomes()) == 1
    run.replay.issue(Succeed(result=b"1"))
    assert run.work() == []
    with pytest.raises(LanternError, match="cannot follow on the end of the run"):
        run.write(kinds.LEASE_GRANTED)


def test_a_finished_run_that_would_now_end_otherwise_is_a_difference() -> None:
    run = Written()
    run.write(kinds.RUN_SUCCEEDED, data=b"1")
    with pytest.raises(NonDeterminism, match=r"with a result, but .* with an error"):
        run.replay.issue(Fail(error=RunErrorFacts(code="X", message="x")))
    cancelled = Written()
    cancelled.write(kinds.RUN_CANCELLED)
    cancelled.replay.issue(Succeed(result=b"1"))
    assert cancelled.work() == []


def test_an_ended_program_leaves_undone_what_was_not_begun() -> None:
    run = Written()
    run.start("a")
    run.start("b")
    run.write(kinds.STEP_FAILED, "a", 1, code="NO", message="no", final=True)
    run.replay.issue(step("a"))
    run.replay.issue(step("b"))
    assert len(run.outcomes()) == 1
    run.replay.issue(step("c"))
    end = Fail(error=RunErrorFacts(code="NO", message="no"))
    run.replay.issue(end)
    assert run.work() == [FinishWork(command=end)]
    assert run.work() == []
    run.complete("b")
    assert run.outcomes() == [], "nobody listens any more"


def test_the_inbox_and_the_cancel_are_noted_and_answer_nothing() -> None:
    run = Written()
    run.write(kinds.SIGNAL_RECEIVED, number=1, name="go", data=b"1")
    assert (run.replay.last_inbox_number, run.replay.is_cancel_requested) == (1, False)
    run.write(kinds.CANCEL_REQUESTED, number=2)
    assert (run.replay.last_inbox_number, run.replay.is_cancel_requested) == (2, True)
    run.write(kinds.CANCEL_REQUESTED, number=3)
    assert run.happenings() == [Notice(kind="cancel")], "it is told once"
    assert run.replay.untaken_signals == [2], "and a signal only to who asks"


def test_events_that_no_version_knows_or_that_cannot_follow_are_refused_without_a_trace() -> None:
    run = Written()
    bad: list[tuple[str, str, int, dict[str, Any]]] = [
        ("unheard_of", "a", 0, {}),
        (kinds.STEP_COMPLETED, "a", 1, {"data": b"1"}),
        (kinds.TIMER_FIRED, "a", 0, {}),
        (kinds.STEP_STARTED, "a", 2, {"keyAttempt": 1}),
        (kinds.STEP_STARTED, "a", 1, {}),
        (kinds.MARKER_RECORDED, "a", 0, {}),
        (kinds.CANCEL_REQUESTED, "", 0, {}),
    ]
    for kind, step_id, attempt, named in bad:
        with pytest.raises(LanternError) as caught:
            run.write(kind, step_id, attempt, **named)
        assert caught.value.reason == reasons.HISTORY_UNREADABLE
        assert run.replay.last_seq == 1
    run.start("a")
    with pytest.raises(LanternError, match="holds no data"):
        run.write(kinds.STEP_COMPLETED, "a", 1)
    run.complete("a")
    with pytest.raises(LanternError, match="step that is completed"):
        run.complete("a")
    run.replay.issue(step("a"))
    assert len(run.outcomes()) == 1


def test_a_gap_in_the_history_is_refused() -> None:
    replay = Replay(run_id=RUN_ID, workflow_id="")
    with pytest.raises(LanternError, match="cannot follow on event 0"):
        replay.apply(
            AppliedEvent(seq=2, kind=kinds.RUN_STARTED, step_id="", attempt=0, epoch=1, time_us=1, payload=b"{}")
        )


def test_the_driver_cannot_begin_commands_out_of_order_or_unasked() -> None:
    run = Written()
    run.replay.issue(step("a"))
    run.replay.issue(step("b"))
    run.work()
    with pytest.raises(LanternError, match=r"comes before step a .* asked for earlier"):
        run.start("b")
    run.start("a")
    run.start("b")
    with pytest.raises(LanternError, match="nobody asked for it"):
        run.start("c")


def test_history_that_comes_while_the_program_runs_is_compared_too() -> None:
    run = Written()
    run.replay.issue(step("a"))
    with pytest.raises(NonDeterminism):
        run.start("b")
    run.start("a")
    run.complete("a", b"5")
    assert [outcome.data for outcome in run.outcomes()] == [b"5"]
    assert run.work() == []


def test_a_step_that_ended_is_not_done_again() -> None:
    run = Written()
    run.replay.issue(step("a"))
    run.work()
    run.start("a")
    run.retrying("a", 1, key=1, outcome="unknown")
    run.start("a", 2)
    run.complete("a", attempt=2)
    assert run.work() == [], "the retry was begun before anybody asked what to do"


def test_an_id_used_twice_is_the_programs_fault() -> None:
    run = Written()
    run.replay.issue(step("a"))
    with pytest.raises(LanternError, match="used the id a twice"):
        run.replay.issue(step("a"))
