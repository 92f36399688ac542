"""Goal: setting a machine's clock takes no lease, fires no timer early or late, and turns no run's time back (J5, L1).

Method: on both databases at once, the journal's and the workers' wall clocks are set to and fro by ten minutes, in
opposite directions (a small C library, preloaded), while a step is under way, timers are pending and runs begin; with
its clock set back, the journal is killed and started again. What is late or early is judged by the monotonic clock.
"""

import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from system import Process
from worker_rig import WorkerRig, granted, logged

SOURCE = Path(__file__).with_name("skew.c")
COMPILER_HINT = "a C compiler is missing; install one, e.g. `apt-get install gcc libc6-dev`"
STEPS_S = ((600, -600), (-600, 600), (0, 0))
"""The journal's and the workers' clocks, seconds from the right time, one after the other."""

HELD_S = 2.5
LONG_S = 9.0
TIMER_OF_DRIVER_S = 4
PARKED_TIMER_S = 12
EARLY_S = 0.2
LATE_S = 4.0
"""Of a timer on a machine that has other things to do; far less than the ten minutes."""

LASTS_US = 60_000_000


@pytest.fixture(scope="module")
def skew_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled library."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler is not None, COMPILER_HINT
    library = tmp_path_factory.mktemp("skew") / "skew.so"
    made = subprocess.run(
        [compiler, "-shared", "-fPIC", "-O2", "-o", str(library), str(SOURCE), "-ldl"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, f"{COMPILER_HINT}\n{made.stderr}"
    return library


class SkewedRig(WorkerRig):
    """A journal and its workers, each side with a wall clock that can be set."""

    def __init__(self, folder: Path, database: str, library: Path) -> None:
        self._journals_clock, self._workers_clock = folder / "journals-clock", folder / "workers-clock"
        settings = {"LD_PRELOAD": str(library), "SKEW_FILE": str(self._journals_clock)}
        super().__init__(folder, database, settings=settings)
        self.set_clocks(0, 0)
        self.workers: list[Process] = []

    def set_clocks(self, journals_s: int, workers_s: int) -> None:
        """Both clocks, from the right time, at once for all processes of either side."""
        for path, seconds in ((self._journals_clock, journals_s), (self._workers_clock, workers_s)):
            new = path.with_suffix(".new")
            new.write_text(str(seconds))
            new.replace(path)

    def start_workers(self) -> None:
        """Two that can replace each other."""
        self.workers = [self.worker(name, {"SKEW_FILE": str(self._workers_clock)}) for name in ("clock1", "clock2")]
        for worker in self.workers:
            worker.await_ready()


@pytest.mark.timeout(150)
def test_clocks_that_are_set_change_nothing(
    make_database: Callable[[str], str], skew_library: Path, tmp_path: Path
) -> None:
    lite = SkewedRig(tmp_path / "lite", make_database("sqlite"), skew_library)
    large = SkewedRig(tmp_path / "large", make_database("postgres"), skew_library)
    with lite, large:
        rigs = (lite, large)
        for rig in rigs:
            rig.start_workers()
        long = {rig: rig.start_at(rig.workers[0], how="wait", s=LONG_S) for rig in rigs}
        parked = {rig: rig.start_at(rig.workers[0], timer=PARKED_TIMER_S) for rig in rigs}
        timed: dict[SkewedRig, list[str]] = {rig: [] for rig in rigs}
        short: dict[SkewedRig, list[str]] = {rig: [] for rig in rigs}
        for journals_s, workers_s in STEPS_S:
            for rig in rigs:
                timed[rig] += [rig.start_at(worker, timer=TIMER_OF_DRIVER_S) for worker in rig.workers]
                rig.set_clocks(journals_s, workers_s)
                short[rig] += [rig.start_at(worker, short=2) for worker in rig.workers]
            time.sleep(HELD_S)
            if journals_s < 0:
                for rig in rigs:
                    rig.journals[0].kill()
                    rig.journals[0].start()
        for rig in rigs:
            for run_id in (long[rig], parked[rig], *timed[rig], *short[rig]):
                events = rig.await_success(run_id)
                leases = [(1, "start"), (2, "timer")] if run_id == parked[rig] else [(1, "start")]
                assert granted(events) == leases, f"{run_id} changed its driver\n{rig.tails()}"
                assert events[-1].time_us - events[0].time_us < LASTS_US, "its time is that of its life"
                rig.check_effects(run_id)
            timers = [(parked[rig], PARKED_TIMER_S), *((run_id, TIMER_OF_DRIVER_S) for run_id in timed[rig])]
            for run_id, timer_s in timers:
                (before,), (after,) = rig.effects(run_id, "end", "before"), rig.effects(run_id, step_id="after0")
                waited_s = after.at_s - before.at_s
                assert timer_s - EARLY_S < waited_s < timer_s + LATE_S, f"{timer_s} s: fired after {waited_s} s"
            ended = [*logged(rig.journals[0], "session_silent"), *logged(rig.journals[0], "session_closed")]
            assert ended == [], f"no session was ended\n{rig.tails()}"
