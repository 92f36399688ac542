"""Goal: under load, with executors dying all the time, every order goes through, and no step is driven by two at once.

Method: 200 orders are kept in flight over two executors and two recovery services, while one executor after the other
is killed with SIGKILL every two seconds and started again. At the end the shop must have charged once per order, and a
run may have changed hands only because the executor that had it was killed. `LANTERN_TEST_LOAD_S` says for how long.
"""

import os
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from checks import check_order, grants
from client import OPEN_STATES
from conftest import DATABASES
from system import System

from lantern.api.journal.v1 import run_pb2
from lantern_kernel.event import Event

LOAD_S = float(os.environ.get("LANTERN_TEST_LOAD_S", "20"))
IN_FLIGHT = 200
KILL_EVERY_S = 2.0
TICK_S = 0.25
NEW_PER_TICK_MAX = 3
FINISH_TIMEOUT_S = 60.0
SEED = 1042
STEP_DELAYS_S = {"reserve": 3.0, "charge": 1.2, "ship": 3.0}


class Load:
    """Orders in flight, and who was killed while they were."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.chance = random.Random(SEED)
        self.executors = [system.add_executor(name) for name in ("executor-1", "executor-2")]
        self.started: list[str] = []
        self.killed_workers: set[str] = set()
        self.kills = 0
        # Of every executor process so far, by its address.
        self._worker_ids: dict[str, str] = {}

    def start_orders(self, count: int) -> None:
        """Queues further orders, each with its own delays."""
        for _ in range(count):
            order_id = f"load-{len(self.started)}"
            delays = {step: self.chance.uniform(0.2, most) for step, most in STEP_DELAYS_S.items()}
            self.started.append(
                self.system.client.create_run(self.system.order_input(order_id, delays=delays), order_id).run_id
            )

    def kill_next(self) -> None:
        """SIGKILLs an executor, the other one than before, and starts it again without waiting for it."""
        self._learn_workers()
        victim = self.executors[self.kills % len(self.executors)]
        self.kills += 1
        victim.kill()
        self.killed_workers.add(self._worker_ids[victim.address])
        victim.launch()

    def _learn_workers(self) -> None:
        for process in self.executors:
            process.await_ready()
            if process.address not in self._worker_ids:
                self._worker_ids[process.address] = self.system.await_worker(process)

    def open_count(self) -> int:
        """How many orders have not ended yet."""
        return len(self.system.client.list_runs(OPEN_STATES))


@pytest.mark.timeout(LOAD_S + 2 * FINISH_TIMEOUT_S + 60)
@pytest.mark.parametrize("database", DATABASES)
def test_orders_under_load_survive_executors_that_keep_dying(
    database: str, make_database: Callable[[str, Path, str], str], tmp_path: Path
) -> None:
    with System(tmp_path, make_database(database, tmp_path, "load")) as system:
        load = Load(system)
        processes = [system.add_recovery("recovery-1"), system.add_recovery("recovery-2"), *load.executors]
        for process in processes:
            process.launch()
        for process in processes:
            process.await_ready()
        for process in load.executors:
            system.await_worker(process)
        _run_for(load, LOAD_S)
        _await_all(load)
        _check(load)


def _run_for(load: Load, seconds: float) -> None:
    load.start_orders(IN_FLIGHT)
    began = time.monotonic()
    next_kill = began + KILL_EVERY_S
    while time.monotonic() < began + seconds:
        if time.monotonic() >= next_kill:
            load.kill_next()
            next_kill += KILL_EVERY_S
        load.start_orders(min(NEW_PER_TICK_MAX, IN_FLIGHT - load.open_count()))
        time.sleep(TICK_S)


def _await_all(load: Load) -> None:
    deadline = time.monotonic() + FINISH_TIMEOUT_S
    while load.open_count():
        assert time.monotonic() < deadline, f"{load.open_count()} orders are still open\n{load.system.tails()}"
        time.sleep(TICK_S)


def _check(load: Load) -> None:
    system = load.system
    runs = system.client.list_runs()
    assert {run.run_id for run in runs} == set(load.started), "every acknowledged order is there, and no other"
    crashes = 0
    for listed in runs:
        run = system.client.get_run(listed.run_id)
        assert run.state == run_pb2.Run.STATE_SUCCEEDED, f"{run.run_id}: {run.error.code} {run.error.message}"
        events = system.client.events(run.run_id)
        check_order(run, events, system.shop, run.workflow_id)
        crashes += _check_drivers(events, system.shop.requests(run.workflow_id), load.killed_workers)
    ledger = system.shop.ledger()
    assert len(ledger["charges"]) == len(load.started), "one charge per order"
    assert ledger["chargedPence"] == 4000 * len(load.started)
    assert load.kills >= int(LOAD_S / KILL_EVERY_S) - 2
    assert crashes > 0, "no executor had a run when it was killed: the test has shown nothing"
    print(f"{len(runs)} orders, {load.kills} kills, {crashes} resumes after a crash")


def _check_drivers(events: Sequence[Event], requests: Sequence[Mapping[str, Any]], killed: set[str]) -> int:
    """A run changes hands only because its executor was killed, and each step is asked for only by those who had it.

    A grant that nobody took up (no event of its epoch but itself) hands nothing over. Returns how often a driver that
    had begun was replaced.
    """
    granted = grants(events)
    worker_of = {epoch: worker for epoch, worker, _ in granted}
    events_of = Counter(event.epoch for event in events)
    taken_up = {epoch for epoch in worker_of if events_of[epoch] > 1}
    for (former_epoch, former, _), (epoch, _, reason) in pairwise(granted):
        if former_epoch in taken_up:
            assert reason == "crash", f"epoch {epoch} was granted because of {reason}"
            assert former in killed, f"epoch {epoch} was granted although {former} had not been killed"
    epochs_of: defaultdict[str, list[int]] = defaultdict(list)
    for request in requests:
        assert int(request["epoch"]) in worker_of, f"a request under epoch {request['epoch']}, which was never granted"
        epochs_of[request["path"]].append(int(request["epoch"]))
    for path, epochs in epochs_of.items():
        assert epochs == sorted(epochs), f"{path}: a former driver came after a later one: {epochs}"
    return len(taken_up) - 1
