"""Goal: what others say (signals, decisions, ends of children, cancels, updates) reaches the program at its place.

Method: histories written out event by event, commands issued by hand; each case once live and once from the history.
"""

from collections.abc import Sequence
from typing import Any

import pytest
from written import RUN_ID, Written

from lantern_kernel import kinds, reasons
from lantern_kernel.commands import (
    AwaitSignal,
    CompleteUpdate,
    RequestApproval,
    RunStep,
    StartChild,
    StartTimer,
    Succeed,
    Withdraw,
)
from lantern_kernel.names import USER_ID
from lantern_kernel.nondeterminism import NonDeterminism
from lantern_kernel.outcomes import Notice
from lantern_kernel.work import (
    ApprovalWork,
    ChildWork,
    FinishWork,
    StepWork,
    StopWork,
    TimerWork,
    UpdateWork,
    child_request_id,
)


def step(step_id: str, **named: Any) -> RunStep:
    return RunStep(step_id=step_id, name=step_id, type="function", input=b"[]", source="new.py:2", **named)


def wait(step_id: str, name: str) -> AwaitSignal:
    return AwaitSignal(step_id=step_id, name=name, source="new.py:3")


def child(step_id: str = "part", agent_name: str = "worker") -> StartChild:
    return StartChild(step_id=step_id, name=step_id, agent_name=agent_name, input=b"{}", source="new.py:4")


def approval(step_id: str = "ok") -> RequestApproval:
    return RequestApproval(step_id=step_id, name=step_id, title="Pay?", source="new.py:5")


def timer(step_id: str = "sleep") -> StartTimer:
    return StartTimer(step_id=step_id, duration_us=5, source="new.py:6")


def signal(run: Written, name: str, data: bytes, number: int) -> None:
    run.write(kinds.SIGNAL_RECEIVED, name=name, number=number, data=data)


def told(run: Written) -> Sequence[tuple[str, bytes | None]]:
    return [(outcome.step_id, outcome.data) for outcome in run.outcomes()]


def test_waits_take_signals_of_their_name_in_the_order_of_the_journal() -> None:
    run = Written()
    signal(run, "go", b"1", 1)
    signal(run, "other", b"2", 2)
    run.replay.issue(wait("w", "go"))
    run.replay.issue(wait("w[1]", "go"))
    assert told(run) == [("w", b"1")]
    signal(run, "go", b"3", 3)
    assert told(run) == [("w[1]", b"3")]
    assert run.replay.untaken_signals == [3]
    run.replay.issue(wait("x", "other"))
    assert told(run) == [("x", b"2")]
    assert run.replay.untaken_signals == []


def test_a_signal_that_came_later_is_told_later_though_the_whole_history_is_known() -> None:
    run = Written()
    run.start("a")
    run.start("b")
    run.complete("a", b"1")
    signal(run, "go", b"2", 1)
    run.complete("b", b"3")
    run.replay.issue(step("a"))
    run.replay.issue(step("b"))
    run.replay.issue(wait("w", "go"))
    assert told(run) == [("a", b"1"), ("w", b"2"), ("b", b"3")]


def test_a_wait_that_is_withdrawn_takes_no_signal() -> None:
    run = Written()
    run.replay.issue(wait("w", "go"))
    run.replay.issue(wait("w[1]", "go"))
    run.replay.issue(Withdraw(step_id="w"))
    signal(run, "go", b"1", 1)
    assert told(run) == [("w[1]", b"1")]


def test_a_signal_that_was_about_to_be_told_goes_to_the_next_one() -> None:
    run = Written()
    signal(run, "go", b"1", 1)
    assert told(run) == []
    run.replay.issue(wait("w", "go"))
    run.replay.issue(wait("w[1]", "go"))
    run.replay.issue(Withdraw(step_id="w"))
    assert told(run) == [("w[1]", b"1")]
    signal(run, "go", b"2", 2)
    assert (told(run), run.replay.untaken_signals) == ([], [3])
    run.replay.issue(wait("w[2]", "go"))
    run.replay.issue(Withdraw(step_id="w[2]"))
    assert (told(run), run.replay.untaken_signals) == ([], [3])


def test_a_decision_answers_its_approval() -> None:
    run = Written()
    run.replay.issue(approval())
    assert run.work() == [ApprovalWork(command=approval())]
    run.write(kinds.APPROVAL_REQUESTED, "ok", approvalId="ok", name="ok", source="new.py:5")
    run.write(kinds.STEP_WAITING, "ok", on="approval")
    run.write(kinds.APPROVAL_DELEGATED, "ok", number=1, approvalId="ok")
    assert (run.outcomes(), run.work()) == ([], [])
    run.write(kinds.APPROVAL_DECIDED, "ok", number=2, decision="approved", by="ann", data=b'"fine"')
    (outcome,) = run.outcomes()
    assert (outcome.data, outcome.facts["decision"], outcome.facts["by"]) == (b'"fine"', "approved", "ann")
    assert run.replay.last_inbox_number == 2
    run.write(kinds.APPROVAL_DECIDED, "ok", number=3, decision="denied", by="bob", data=b"1")
    assert run.outcomes() == [], "the first one stands"


def test_an_approval_that_is_recorded_is_not_asked_for_again() -> None:
    run = Written()
    run.write(kinds.APPROVAL_REQUESTED, "ok", approvalId="ok", name="ok")
    run.replay.issue(approval())
    assert run.work() == []
    assert [command.step_id for command in run.replay.open_commands] == ["ok"]


@pytest.mark.parametrize("state", ["SUCCEEDED", "FAILED", "CANCELLED"])
def test_the_end_of_a_child_is_told(state: str) -> None:
    run = Written()
    run.replay.issue(child())
    request_id = child_request_id(RUN_ID, "part")
    assert USER_ID.fullmatch(child_request_id(RUN_ID, "part[3]" * 40)), "an id that a request may have"
    assert run.work() == [ChildWork(command=child(), request_id=request_id, is_started=False)]
    run.write(kinds.CHILD_STARTED, "part", name="part", agent="worker")
    error: dict[str, Any] = {} if state == "SUCCEEDED" else {"error": {"code": "NO", "message": "no"}}
    run.write(kinds.CHILD_COMPLETED, "part", number=1, runId="r", state=state, data=b"7", **error)
    (outcome,) = run.outcomes()
    if state == "SUCCEEDED":
        assert (outcome.data, outcome.error) == (b"7", None)
    else:
        assert outcome.error is not None
        assert (outcome.error.code, outcome.error.step_id) == ("NO", "part")
    assert run.replay.open_commands == []


def test_a_child_that_is_recorded_is_created_once_more_and_another_agent_is_told_apart() -> None:
    run = Written()
    run.write(kinds.CHILD_STARTED, "part", name="part", agent="worker", source="old.py:1")
    with pytest.raises(NonDeterminism, match="worker"):
        run.replay.issue(child(agent_name="other"))
    run.replay.issue(child())
    (work,) = run.work()
    assert isinstance(work, ChildWork)
    assert work.is_started


def test_a_running_step_that_is_withdrawn_is_stopped_and_its_failure_not_told() -> None:
    run = Written()
    run.replay.issue(step("a"))
    (begun,) = run.work()
    run.start("a")
    run.replay.issue(Withdraw(step_id="a"))
    (work,) = run.work()
    assert isinstance(work, StopWork)
    assert (work.is_started, work.step.attempt) == (True, begun.attempt)
    run.write(kinds.STEP_FAILED, "a", 1, code=reasons.STEP_CANCELLED, message="stopped", final=True)
    assert (run.outcomes(), run.work(), run.replay.open_commands) == ([], [], [])


def test_a_step_that_is_withdrawn_before_it_began_stands_in_the_history_all_the_same() -> None:
    run = Written()
    run.replay.issue(step("a"))
    run.replay.issue(Withdraw(step_id="a"))
    (work,) = run.work()
    assert isinstance(work, StopWork)
    assert not work.is_started
    run.start("a")
    run.write(kinds.STEP_FAILED, "a", 1, code=reasons.STEP_CANCELLED, message="stopped", final=True)
    again = Written()
    again.start("a")
    again.write(kinds.STEP_FAILED, "a", 1, code=reasons.STEP_CANCELLED, message="stopped", final=True)
    again.replay.issue(step("a"))
    again.replay.issue(Withdraw(step_id="a"))
    assert (again.outcomes(), again.work()) == ([], [])


def test_a_backing_off_step_that_is_withdrawn_fails_as_the_attempt_that_it_was() -> None:
    run = Written()
    run.start("a")
    run.retrying("a", 1, key=1, outcome="unknown")
    run.replay.issue(step("a"))
    run.replay.issue(Withdraw(step_id="a"))
    (work,) = run.work()
    assert isinstance(work, StopWork)
    assert (work.is_started, work.step.attempt) == (True, 1)
    run.write(kinds.STEP_FAILED, "a", 1, code=reasons.STEP_CANCELLED, message="stopped", final=True)


def test_a_timer_that_is_withdrawn_is_forgotten_though_it_fires() -> None:
    run = Written()
    run.write(kinds.TIMER_STARTED, "sleep", dueUs=9)
    run.write(kinds.TIMER_FIRED, "sleep")
    run.replay.issue(timer())
    run.replay.issue(Withdraw(step_id="sleep"))
    assert (run.outcomes(), run.work()) == ([], [])
    live = Written()
    live.work()
    live.replay.issue(timer())
    live.replay.issue(Withdraw(step_id="sleep"))
    (work,) = live.work()
    assert isinstance(work, TimerWork)
    assert work.is_unwanted
    assert not live.replay.is_wanted("sleep")


def test_updates_are_told_and_their_answers_are_commands() -> None:
    run = Written()
    run.write(kinds.UPDATE_RECEIVED, "update#1", number=1, name="limit", data=b"5")
    assert run.happenings() == [Notice(kind="update", step_id="update#1", name="limit", data=b"5")]
    answer = CompleteUpdate(step_id="update#1", source="new.py:9", result=b"6")
    run.replay.issue(answer)
    assert run.work() == [UpdateWork(command=answer)]
    run.write(kinds.UPDATE_COMPLETED, "update#1", data=b"6")
    assert (run.outcomes(), run.replay.open_commands) == ([], [])


def test_events_between_a_reset_and_its_place_are_passed_over_but_for_what_others_said() -> None:
    run = Written(resets=((3, 8),))
    run.start("a")  # 2
    run.complete("a", b"1")  # 3
    run.write(kinds.CHILD_STARTED, "part", name="part", agent="worker")
    run.start("b")
    run.write(kinds.CHILD_COMPLETED, "part", number=1, runId="r", state="SUCCEEDED", data=b"7")
    signal(run, "go", b"2", 2)
    run.write(kinds.HISTORY_RESET, toSeq=3)
    run.replay.issue(step("a"))
    assert told(run) == [("a", b"1")]
    run.replay.issue(step("c"))
    run.replay.issue(child())
    run.replay.issue(wait("w", "go"))
    assert told(run) == [("w", b"2")]
    kinds_of_work = [type(work) for work in run.work()]
    assert kinds_of_work == [StepWork, ChildWork]
    run.start("c")
    run.write(kinds.CHILD_STARTED, "part", name="part", agent="worker")
    assert told(run) == [("part", b"7")], "its end is known"


def test_another_input_is_told_where_the_author_asks_for_it() -> None:
    run = Written()
    run.start("a", inputHash="0" * 64)
    run.replay.issue(step("a"))
    other = Written()
    other.start("a", inputHash="0" * 64)
    with pytest.raises(NonDeterminism, match="another input"):
        other.replay.issue(step("a", check_input=True))


def test_markers_of_patches_are_known_before_the_program_comes_to_them() -> None:
    run = Written()
    run.write(kinds.MARKER_RECORDED, "patch:new", name="patch:new", data=b"true")
    assert run.replay.has_marker("patch:new")
    assert not run.replay.has_marker("patch:old")
    assert (run.replay.recorded_left, run.replay.in_history) == (1, True)


def test_answers_given_as_the_program_ends_are_recorded_unless_something_stands_before_them() -> None:
    answers = [CompleteUpdate(step_id=f"update#{number}", source="new.py:7", result=b"1") for number in (1, 2)]
    end = Succeed(result=b"2")
    for before, recorded in (([], answers), ([step("a")], [])):
        run = Written()
        run.replay.finish_history()
        for command in (*before, *answers, end):
            run.replay.issue(command)
        assert run.work() == [*(UpdateWork(command=each) for each in recorded), FinishWork(command=end)]
        for answer in recorded:
            run.write(kinds.UPDATE_COMPLETED, answer.step_id, data=b"1")
        assert run.work() == []
