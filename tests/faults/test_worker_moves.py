"""Goal: workers pass between journal processes under load, and it costs no run its driver (SPEC L2).

Method: two journals on one PostgreSQL, two workers that name both, runs started all the time. The journal that the
workers speak to is stopped in order (it drains), the other one likewise, then one is killed, then one stands still
(SIGSTOP) for longer than a silence. Every run whose start was acknowledged must succeed under the lease that it began
with, and the workers must have spoken to the journals that were left.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from signal import SIGCONT, SIGSTOP

import grpc
import pytest
from system import Process
from worker_rig import WorkerRig, granted, logged

SILENCE_S = 3.0
STANDS_STILL_S = 6.0
UNDER_LOAD_S = 1.0
MOVED_S = 6.0
LOADERS = 3
SHORT_STEPS = 4


class Load:
    """Threads that start runs at workers, one after the other, and remember those that were acknowledged."""

    def __init__(self, rig: WorkerRig, workers: list[Process]) -> None:
        self._rig, self._stop = rig, threading.Event()
        self.started: list[str] = []
        self.failures: list[str] = []
        self._threads = [
            threading.Thread(target=self._start_runs, args=(workers[number % len(workers)],), daemon=True)
            for number in range(LOADERS)
        ]
        for thread in self._threads:
            thread.start()

    def _start_runs(self, worker: Process) -> None:
        while not self._stop.wait(0.1):
            try:
                self.started.append(self._rig.start_at(worker, short=SHORT_STEPS))
            except grpc.RpcError as error:
                # Not acknowledged: the journal that it was asked of stood still or died; whoever asked asks again.
                self.failures.append(str(error))

    def go_on(self, seconds: float) -> None:
        """Lets it go on for so long; some run must be started meanwhile."""
        before = len(self.started)
        time.sleep(seconds)
        self._rig.wait(lambda: len(self.started) > before, "a run is started")

    def stop(self) -> None:
        """Ends it."""
        self._stop.set()
        for thread in self._threads:
            thread.join(30)


@pytest.mark.timeout(150)
def test_workers_move_between_journals_and_lose_nothing(make_database: Callable[[str], str], tmp_path: Path) -> None:
    settings = {"LANTERN_SESSION_SILENCE": f"{SILENCE_S}s"}
    with WorkerRig(tmp_path, make_database("postgres"), journals=2, settings=settings) as rig:
        workers = [rig.worker("mover1"), rig.worker("mover2")]
        for worker in workers:
            worker.await_ready()
        load = Load(rig, workers)
        load.go_on(UNDER_LOAD_S)
        # Long steps are under way all the while: one for each of the workers.
        long_runs = [rig.start_at(worker, how="wait", s=14) for worker in workers]
        for number in (0, 1):
            leaving, staying = rig.journals[number], rig.journals[1 - number]
            assert leaving.terminate() == 0
            _await_attached(rig, workers, staying)
            load.go_on(UNDER_LOAD_S)
            leaving.start()
        dying, staying = rig.journals
        dying.kill()
        _await_attached(rig, workers, staying)
        load.go_on(UNDER_LOAD_S)
        dying.start()
        standing, other = staying, dying
        standing.signal(SIGSTOP)
        stood_still_s = time.monotonic()
        _await_attached(rig, workers, other)
        load.go_on(UNDER_LOAD_S)
        time.sleep(max(0.0, stood_still_s + STANDS_STILL_S - time.monotonic()))
        standing.signal(SIGCONT)
        load.go_on(UNDER_LOAD_S)
        load.stop()
        runs = [*load.started, *long_runs]
        print(f"{len(runs)} runs were acknowledged, {len(load.failures)} starts were not")
        for run_id in runs:
            events = rig.await_success(run_id)
            assert granted(events) == [(1, "start")], f"{run_id} was taken over needlessly\n{rig.tails()}"
        assert len(runs) > 4 * LOADERS
        begun = Counter((effect.run_id, effect.step_id) for effect in rig.all_effects())
        assert {run_id for run_id, _ in begun} >= set(runs)
        assert set(begun.values()) == {1}, f"each step once: {begun.most_common(3)}"


def _await_attached(rig: WorkerRig, workers: list[Process], journal: Process) -> None:
    """Waits until the last attach of each worker was to that journal."""
    for worker in workers:
        rig.wait(
            lambda worker=worker: logged(worker, "session_attached")[-1]["address"] == journal.address,
            f"{worker.name} speaks to {journal.name}",
            MOVED_S,
        )
