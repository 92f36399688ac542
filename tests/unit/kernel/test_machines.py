"""Goal: every transition of the machines is taken, and whatever the tables do not list is refused without a trace.

Method: for each machine, walk from each reachable state over each kind of event; compare with the table and with the
machine's own fields before and after.
"""

from typing import Any

import pytest

from lantern_kernel import kinds, payloads, reasons
from lantern_kernel.errors import LanternError
from lantern_kernel.event import AppliedEvent
from lantern_kernel.machines import approval, child, marker, step, timer, update

KINDS = sorted(
    {
        kinds.STEP_STARTED,
        kinds.STEP_COMPLETED,
        kinds.STEP_FAILED,
        kinds.STEP_RETRYING,
        kinds.STEP_WAITING,
        kinds.MARKER_RECORDED,
        kinds.TIMER_STARTED,
        kinds.TIMER_FIRED,
        kinds.APPROVAL_REQUESTED,
        kinds.APPROVAL_DELEGATED,
        kinds.APPROVAL_DECIDED,
        kinds.CHILD_STARTED,
        kinds.CHILD_COMPLETED,
        kinds.UPDATE_COMPLETED,
        *kinds.OBSERVED,
    }
)
FACTS: dict[str, Any] = {"keyAttempt": 1, "delayMs": 250, "outcome": "unknown", "dueUs": 77}

# How to reach each state from a new machine.
PATHS: dict[Any, dict[str, list[str]]] = {
    step.StepMachine: {
        "new": [],
        "running": [kinds.STEP_STARTED],
        "backing_off": [kinds.STEP_STARTED, kinds.STEP_RETRYING],
        "waiting": [kinds.STEP_STARTED, kinds.STEP_WAITING],
        "completed": [kinds.STEP_STARTED, kinds.STEP_COMPLETED],
        "failed": [kinds.STEP_STARTED, kinds.STEP_FAILED],
    },
    timer.TimerMachine: {
        "new": [],
        "running": [kinds.TIMER_STARTED],
        "fired": [kinds.TIMER_STARTED, kinds.TIMER_FIRED],
    },
    marker.MarkerMachine: {"new": [], "recorded": [kinds.MARKER_RECORDED]},
    approval.ApprovalMachine: {
        "new": [],
        "requested": [kinds.APPROVAL_REQUESTED],
        "decided": [kinds.APPROVAL_REQUESTED, kinds.APPROVAL_DECIDED],
    },
    child.ChildMachine: {
        "new": [],
        "started": [kinds.CHILD_STARTED],
        "ended": [kinds.CHILD_STARTED, kinds.CHILD_COMPLETED],
    },
    update.UpdateMachine: {"new": [], "completed": [kinds.UPDATE_COMPLETED]},
}
TABLES: dict[Any, Any] = {
    step.StepMachine: step.TRANSITIONS,
    timer.TimerMachine: timer.TRANSITIONS,
    marker.MarkerMachine: marker.TRANSITIONS,
    approval.ApprovalMachine: approval.TRANSITIONS,
    child.ChildMachine: child.TRANSITIONS,
    update.UpdateMachine: update.TRANSITIONS,
}


def make_event(kind: str, *, attempt: int = 1, epoch: int = 1, time_us: int = 5000) -> AppliedEvent:
    return AppliedEvent(
        seq=9,
        kind=kind,
        step_id="charge",
        attempt=attempt,
        epoch=epoch,
        time_us=time_us,
        payload=payloads.pack(FACTS),
    )


def walk(machine_type: Any, path: list[str]) -> Any:
    machine = machine_type()
    for kind in path:
        machine.apply(make_event(kind), FACTS)
    return machine


def fields_of(machine: Any) -> dict[str, Any]:
    return {name: getattr(machine, name) for name in type(machine).__slots__}


@pytest.mark.parametrize("machine_type", PATHS)
def test_every_row_is_taken_and_nothing_else_is_let_through(machine_type: Any) -> None:
    taken: set[tuple[str, str]] = set()
    for state, path in PATHS[machine_type].items():
        for kind in KINDS:
            machine = walk(machine_type, path)
            assert machine.state == state
            before = fields_of(machine)
            after = TABLES[machine_type].get((state, kind))
            attempt = 2 if (state, kind) == ("backing_off", kinds.STEP_STARTED) else 1
            event = make_event(kind, attempt=attempt, epoch=2)
            if after is None:
                with pytest.raises(LanternError, match=state.replace("_", "."), check=_is_unreadable):
                    machine.apply(event, FACTS)
                assert fields_of(machine) == before
            else:
                machine.apply(event, FACTS)
                assert machine.state == after
                assert machine.is_ended == (after in {"completed", "failed", "fired", "recorded", "decided", "ended"})
                taken.add((state, kind))
    assert taken == set(TABLES[machine_type])


def _is_unreadable(error: BaseException) -> bool:
    return isinstance(error, LanternError) and error.reason == reasons.HISTORY_UNREADABLE


@pytest.mark.parametrize(
    ("path", "event", "facts"),
    [
        ([], make_event(kinds.STEP_STARTED, attempt=2), FACTS),
        ([], make_event(kinds.STEP_STARTED), {"keyAttempt": 2}),
        ([], make_event(kinds.STEP_STARTED), {}),
        ([], make_event(kinds.STEP_STARTED), {"keyAttempt": "1"}),
        ([], make_event(kinds.STEP_STARTED), {"keyAttempt": True}),
        ([kinds.STEP_STARTED], make_event(kinds.STEP_STARTED, epoch=1), FACTS),
        ([kinds.STEP_STARTED], make_event(kinds.STEP_STARTED, epoch=2, attempt=2), FACTS),
        ([kinds.STEP_STARTED], make_event(kinds.STEP_STARTED, epoch=2), {"keyAttempt": 2}),
        ([kinds.STEP_STARTED], make_event(kinds.STEP_COMPLETED, attempt=2), FACTS),
        ([kinds.STEP_STARTED], make_event(kinds.STEP_FAILED, attempt=0), FACTS),
        ([kinds.STEP_STARTED], make_event(kinds.STEP_RETRYING, attempt=2), FACTS),
        ([kinds.STEP_STARTED], make_event(kinds.STEP_RETRYING), {**FACTS, "delayMs": -1}),
        ([kinds.STEP_STARTED], make_event(kinds.STEP_RETRYING), {**FACTS, "keyAttempt": 2}),
        ([kinds.STEP_STARTED], make_event(kinds.STEP_RETRYING), {**FACTS, "outcome": "not_executed"}),
        ([kinds.STEP_STARTED, kinds.STEP_RETRYING], make_event(kinds.STEP_STARTED, attempt=1), FACTS),
        ([kinds.STEP_STARTED, kinds.STEP_RETRYING], make_event(kinds.STEP_STARTED, attempt=3), FACTS),
    ],
)
def test_numbers_that_do_not_fit_are_refused(path: list[str], event: AppliedEvent, facts: dict[str, Any]) -> None:
    machine = walk(step.StepMachine, path)
    before = fields_of(machine)
    with pytest.raises(LanternError, check=_is_unreadable):
        machine.apply(event, facts)
    assert fields_of(machine) == before


def test_a_refusal_moves_the_key_and_an_unknown_outcome_freezes_it() -> None:
    machine = walk(step.StepMachine, [kinds.STEP_STARTED])
    machine.apply(make_event(kinds.STEP_RETRYING), {"keyAttempt": 2, "delayMs": 0, "outcome": "not_executed"})
    assert (machine.key_attempt, machine.is_frozen) == (2, False)
    machine.apply(make_event(kinds.STEP_STARTED, attempt=2), {"keyAttempt": 2})
    machine.apply(make_event(kinds.STEP_RETRYING, attempt=2), {"keyAttempt": 2, "delayMs": 9, "outcome": "unknown"})
    assert (machine.key_attempt, machine.is_frozen, machine.not_before_us) == (2, True, 5000 + 9000)
    machine.apply(make_event(kinds.STEP_STARTED, attempt=3), {"keyAttempt": 2})
    machine.apply(
        make_event(kinds.STEP_RETRYING, attempt=3), {"keyAttempt": 2, "delayMs": 0, "outcome": "not_executed"}
    )
    assert (machine.key_attempt, machine.is_frozen) == (2, True)


def test_a_crash_point_done_again_freezes_the_key() -> None:
    machine = walk(step.StepMachine, [kinds.STEP_STARTED])
    machine.apply(make_event(kinds.STEP_STARTED, epoch=2), {"keyAttempt": 1})
    assert (machine.attempt, machine.key_attempt, machine.is_frozen) == (1, 1, True)


def test_a_bad_due_time_starts_no_timer() -> None:
    machine = timer.TimerMachine()
    with pytest.raises(LanternError, check=_is_unreadable):
        machine.apply(make_event(kinds.TIMER_STARTED), {"dueUs": None})
    assert (machine.state, machine.due_us) == ("new", 0)
