"""Goal: a worker's helper process is there as long as the worker, no longer, and its loss costs nothing (SPEC L2, L9).

Method: one helper is killed, one is stopped: each is replaced while the step of its worker goes on under its lease. Two
workers are told to drain by a SIGTERM to them and their helpers, as a supervisor sends it to the whole group: the lease
lives until the step has ended, or is handed back. Workers are killed, alone: no helper outlives them.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from signal import SIGKILL, SIGSTOP, SIGTERM

import pytest
from system import Process
from worker_rig import WorkerRig, granted, is_running, keeper_of, logged, send

SILENCE_S = 3.0
STEP_S = 7.0
"""Longer than a silence: whoever stopped pinging at SIGTERM would lose the lease."""

HASTY_DRAIN_S = 1.0
GONE_S = 2.0
LATE_S = 5.0


@pytest.mark.timeout(120)
def test_helpers_end_with_their_workers_and_are_replaced(make_database: Callable[[str], str], tmp_path: Path) -> None:
    settings = {"LANTERN_SESSION_SILENCE": f"{SILENCE_S}s", "LANTERN_DRAIN": "30s"}
    with WorkerRig(tmp_path, make_database("sqlite"), settings=settings) as rig:
        bereft, hung, leaving = (rig.worker(f"{name}1") for name in ("bereft", "hung", "leaving"))
        hasty = rig.worker("hasty1", {"LANTERN_DRAIN": f"{HASTY_DRAIN_S}s"})
        heirs = [rig.worker(name) for name in ("leaving2", "hasty2")]
        runs = {worker.name: rig.start_at(worker, how="wait", s=STEP_S) for worker in (bereft, hung, leaving, hasty)}
        begun = {name: rig.await_effect(run_id, "long") for name, run_id in runs.items()}
        for heir in heirs:
            heir.await_ready()
        helpers = {worker.name: keeper_of(worker) for worker in (bereft, hung, leaving, hasty)}

        os.kill(helpers["bereft1"], SIGKILL)
        os.kill(helpers["hung1"], SIGSTOP)
        send([leaving.pid, helpers["leaving1"], hasty.pid, helpers["hasty1"]], SIGTERM)
        time.sleep(0.2)
        assert is_running(helpers["leaving1"]), "it heeds its parent alone"

        hasty_end = rig.await_effect(runs["hasty1"], "long", epoch=2)
        assert hasty_end.at_s - begun["hasty1"].at_s < HASTY_DRAIN_S + LATE_S, "no TTL, no silence was waited for"
        assert hasty.await_end(LATE_S) == 0
        assert granted(rig.await_success(runs["hasty1"])) == [(1, "start"), (2, "upgrade")]

        ended = rig.await_effect(runs["leaving1"], "long", "end")
        assert ended.pid == leaving.pid, "the step was let end where it was"
        assert leaving.await_end(LATE_S) == 0
        assert granted(rig.await_success(runs["leaving1"])) == [(1, "start"), (2, "upgrade")]
        assert len(rig.effects(runs["leaving1"], step_id="long")) == 1, "and was not done again"

        for worker in (bereft, hung):
            assert [epoch for epoch, _ in granted(rig.await_success(runs[worker.name]))] == [1]
            assert len(logged(worker, "session_attached")) == 1, f"{worker.name} stayed attached"
            former = helpers[worker.name]
            rig.wait(lambda worker=worker, former=former: _is_replaced(worker, former), f"{worker.name} has a new one")
            assert logged(worker, "keeper_lost")
        for name, run_id in runs.items():
            rig.check_effects(run_id)
            helper = helpers[name]
            rig.wait(lambda helper=helper: not is_running(helper), f"the helper of {name} is gone", LATE_S)

        survivors = [bereft, hung, *heirs]
        helpers = {worker.name: keeper_of(worker) for worker in survivors}
        for worker in survivors:
            worker.kill()
        for name, helper in helpers.items():
            rig.wait(lambda helper=helper: not is_running(helper), f"the helper of {name} ended with it", GONE_S)


def _is_replaced(worker: Process, before: int) -> bool:
    return len(logged(worker, "keeper_started")) == 2 and keeper_of(worker) != before
