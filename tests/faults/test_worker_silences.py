"""Goal: whom the journal cannot hear is replaced within the silence, and changes nothing when he comes back (L2, L3).

Method: four workers in the middle of a step: one whose network is cut (a proxy that stops forwarding, and at the end
delivers late what it held back), one whose main process is stopped, one that is stopped together with its helper
process, and one that is left alone. Another takes over from the three; then they go on.
"""

import time
from collections.abc import Callable
from pathlib import Path
from signal import SIGCONT, SIGSTOP

import pytest
from proxy import Proxy
from worker_rig import WorkerRig, children_of, granted, keeper_of, logged, send

SILENCE_S = 3.0
STEP_S = 9.0
EARLY_S = 1.0
"""A ping may have been sent so long before the fault."""

LATE_S = 5.0
"""Of a take-over on a machine that has other things to do."""

VICTIMS = ("cut1", "halted1", "frozen1")


@pytest.mark.timeout(150)
def test_who_falls_silent_is_replaced_and_fenced(make_database: Callable[[str], str], tmp_path: Path) -> None:
    settings = {"LANTERN_SESSION_SILENCE": f"{SILENCE_S}s"}
    rig = WorkerRig(tmp_path, make_database("postgres"), settings=settings)
    with rig, Proxy(rig.journals[0].address) as proxy:
        through = {"cut1": {"LANTERN_JOURNAL": proxy.address}}
        victims = {name: rig.worker(name, through.get(name)) for name in VICTIMS}
        well = rig.worker("well1")
        standbys = [rig.worker(name.replace("1", "2")) for name in (*VICTIMS, "well1")]
        runs = {name: rig.start_at(worker, how="wait", s=STEP_S) for name, worker in victims.items()}
        of_well = rig.start_at(well, how="wait", s=STEP_S)
        for run_id in (*runs.values(), of_well):
            rig.await_effect(run_id, "long")
        for standby in standbys:
            standby.await_ready()

        stopped = [victims["halted1"].pid, victims["frozen1"].pid, keeper_of(victims["frozen1"])]
        send(stopped, SIGSTOP)
        proxy.cut()
        silent_s = time.monotonic()
        for name, run_id in runs.items():
            taken_over_s = rig.await_effect(run_id, "long", epoch=2).at_s - silent_s
            assert SILENCE_S - EARLY_S < taken_over_s < SILENCE_S + LATE_S, f"{name}: after {taken_over_s} s"
            assert granted(rig.await_success(run_id)) == [(1, "start"), (2, "crash")]
        before = {name: rig.client().events(run_id) for name, run_id in runs.items()}

        send(stopped, SIGCONT)
        proxy.mend()
        for name, run_id in runs.items():
            lost = victims[name]
            rig.wait(lambda lost=lost, run_id=run_id: run_id in str(logged(lost, "drive_lost")), f"{name} hears of it")
            assert {"LEASE_LOST", "RUN_CLOSED"} & {line["reason"] for line in logged(lost, "drive_lost")}
            assert rig.client().events(run_id) == before[name], "nothing of it was written"
            rig.check_effects(run_id)
            assert [each.pid for each in rig.effects(run_id, step_id="after0")] == [
                standby.pid for standby in standbys if standby.name[:-1] == name[:-1]
            ]
            again = rig.start_at(lost, short=1)
            assert len(granted(rig.await_success(again))) == 1, f"{name} works again"

        assert granted(rig.await_success(of_well)) == [(1, "start")], "who was heard kept its run"
        assert len(logged(well, "session_attached")) == 1
        for worker in victims.values():
            assert len(children_of(worker.pid)) == 1, "one helper process each"
