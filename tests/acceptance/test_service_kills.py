"""Goal: the journal and the recovery service may die at any moment; no acknowledged run is lost, none is done twice.

Method: orders are in flight while both services are killed with SIGKILL at random moments and started again. Each seed
is a test that names itself; the moments, and how long the orders' steps take, follow from the seed alone. Odd seeds run
on one database, even ones on the other; `LANTERN_TEST_SEEDS` says how many there are.
"""

import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from checks import check_order
from conftest import DATABASES
from system import Process, System

from lantern.api.journal.v1 import run_pb2

SEEDS = range(1, 1 + int(os.environ.get("LANTERN_TEST_SEEDS", "20")))
CASES = [(DATABASES[seed % len(DATABASES)], seed) for seed in SEEDS]
ORDERS_PER_SEED = 5
KILLS_PER_SEED = 3
STEP_DELAY_S_MAX = 0.4
KILL_PAUSE_S_MAX = 0.6
FINISH_TIMEOUT_S = 40.0


class Rig:
    """One system for all seeds of a database."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.recovery: Process = system.add_recovery()
        executors = [system.add_executor(name) for name in ("executor-1", "executor-2")]
        for process in (self.recovery, *executors):
            process.launch()
        for process in (self.recovery, *executors):
            process.await_ready()
        for process in executors:
            system.await_worker(process)


@pytest.fixture(scope="module")
def rig(
    request: pytest.FixtureRequest,
    make_database: Callable[[str, Path, str], str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("service-kills")
    with System(folder, make_database(request.param, folder, "service_kills")) as system:
        yield Rig(system)


@pytest.mark.parametrize(("rig", "seed"), CASES, indirect=["rig"], scope="module")
def test_orders_survive_the_deaths_of_journal_and_recovery(rig: Rig, seed: int) -> None:
    chance, system = random.Random(seed), rig.system
    print(f"seed {seed}")
    runs: list[run_pb2.Run] = []
    for number in range(ORDERS_PER_SEED):
        delays = {step: chance.uniform(0, STEP_DELAY_S_MAX) for step in ("reserve", "charge", "ship")}
        order_id = f"seed-{seed}-{number}"
        runs.append(system.client.create_run(system.order_input(order_id, delays=delays), order_id))
    for _ in range(KILLS_PER_SEED):
        time.sleep(chance.uniform(0, KILL_PAUSE_S_MAX))
        victims = chance.choice(([system.journal], [rig.recovery], [system.journal, rig.recovery]))
        for process in victims:
            process.kill()
        for process in victims:
            process.launch()
        for process in victims:
            process.await_ready()
    for run in runs:
        ended = system.await_state(run.run_id, run_pb2.Run.STATE_SUCCEEDED, FINISH_TIMEOUT_S)
        check_order(ended, system.client.events(run.run_id), system.shop, run.workflow_id)
