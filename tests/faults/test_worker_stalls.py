"""Goal: a worker that is busy is not taken for a dead one, and one that is stuck for good is replaced (SPEC L2, L3).

Method: steps that keep the interpreter's lock, or block the event loop, for longer than the journal bears silence: the
helper process speaks for their worker, so that the lease stays its own. With a stall limit of four seconds, the helper
falls silent and the run goes on elsewhere; what the first worker does when it comes to itself is refused. All at once
on two systems, one of them with every setting as it is by default.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from worker_rig import WorkerRig, granted, logged

SILENCE_S = 3.0
STALL_LIMIT_S = 4.0
BUSY_S = 8.0
HELD_BY_DEFAULT_S = 30.0
LOST_S = 18.0
BEAT_S = 1.0
EXIT_S = 20.0
LATE_S = 6.0
"""Of a take-over on a machine that has other things to do."""

STUCK = {"LANTERN_STALL_LIMIT": f"{STALL_LIMIT_S}s"}


@pytest.mark.timeout(150)
def test_who_is_busy_keeps_its_runs_and_who_is_stuck_loses_them(
    make_database: Callable[[str], str], tmp_path: Path
) -> None:
    patient = WorkerRig(tmp_path / "patient", f"sqlite:{tmp_path / 'patient.db'}")
    brisk = WorkerRig(
        tmp_path / "brisk", make_database("sqlite"), settings={"LANTERN_SESSION_SILENCE": f"{SILENCE_S}s"}
    )
    with patient, brisk:
        long_held = patient.worker("held")
        held, blocked = brisk.worker("held"), brisk.worker("blocked")
        lost1, lost2 = brisk.worker("lost1", STUCK), brisk.worker("lost2", STUCK)
        stuck1, stuck2 = brisk.worker("stuck1", STUCK), brisk.worker("stuck2", STUCK)
        of_long_held = patient.start_at(long_held, how="lock", s=HELD_BY_DEFAULT_S)
        lost2.await_ready()
        stuck2.await_ready()
        of_held = brisk.start_at(held, how="lock", s=BUSY_S)
        of_blocked = brisk.start_at(blocked, how="block", s=BUSY_S)
        of_lost = brisk.start_at(lost1, how="lock", s=LOST_S)
        of_stuck = brisk.start_at(stuck1, how="block", s=60)

        for rig, worker, run_id, seconds in (
            (brisk, held, of_held, BUSY_S),
            (brisk, blocked, of_blocked, BUSY_S),
            (patient, long_held, of_long_held, HELD_BY_DEFAULT_S),
        ):
            assert [epoch for epoch, _ in granted(rig.await_success(run_id))] == [1], f"{worker.name} keeps its run"
            rig.check_effects(run_id)
            (begun,) = rig.effects(run_id, step_id="long")
            (ended,) = rig.effects(run_id, "end", "long")
            (next_begun,) = rig.effects(run_id, step_id="after0")
            assert ended.at_s - begun.at_s >= seconds, "it was as busy as that"
            assert next_begun.at_s - ended.at_s < LATE_S, "and went on at once"
            assert len(logged(worker, "session_attached")) == 1, f"{worker.name} stayed attached\n{worker.log_text()}"
            assert logged(worker, "keeper_speaking"), "its helper process says that it spoke for it"

        assert stuck1.await_end(EXIT_S) == 70, "its watchdog ended it"
        assert granted(brisk.await_success(of_stuck)) == [(1, "start"), (2, "crash")]
        brisk.check_effects(of_stuck)

        first, second = brisk.await_effect(of_lost, "long"), brisk.await_effect(of_lost, "long", epoch=2)
        taken_over_s = second.at_s - first.at_s
        least_s = STALL_LIMIT_S - BEAT_S + SILENCE_S - BEAT_S
        assert least_s < taken_over_s < STALL_LIMIT_S + SILENCE_S + LATE_S, f"taken over after {taken_over_s} s"
        brisk.wait(lambda: bool(brisk.effects(of_lost, "end", "long")), "the worker that lost its run comes to itself")
        brisk.wait(lambda: of_lost in str(logged(lost1, "drive_lost")), "it heard of its loss")
        assert logged(lost1, "keeper_given_up")
        assert granted(brisk.await_success(of_lost)) == [(1, "start"), (2, "crash")]
        brisk.check_effects(of_lost)
        assert len(brisk.effects(of_lost, step_id="after0")) == 1
        assert lost1.is_alive()
