"""Goal: PostgreSQL may crash under a running system; no acknowledged event is lost, no order is done twice (L7, J8).

Method: orders are in flight on a PostgreSQL of the test's own, which is stopped with an immediate shutdown (its crash
mode: no checkpoint, connections cut) and started again; and that three times. Then every order must go through, also
one that is started while the database is away.
"""

import random
import threading
import time
from pathlib import Path

import pytest
from checks import check_order
from system import System

from lantern.api.journal.v1 import run_pb2
from lantern.cli.local_postgres import LocalPostgres

SEED = 7
CRASHES = 3
ORDERS_PER_CRASH = 8
AWAY_S = 0.5
BETWEEN_S = 1.0
STEP_DELAY_S_MAX = 0.8
FINISH_TIMEOUT_S = 60.0


@pytest.mark.timeout(180)
def test_orders_survive_crashes_of_the_database(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    with LocalPostgres() as postgres, System(tmp_path, postgres.create_database("crashes")) as system:
        system.add_recovery().start()
        for name in ("executor-1", "executor-2"):
            system.await_worker(system.add_executor(name).start())
        runs: list[run_pb2.Run] = []

        def start_order() -> None:
            delays = {step: chance.uniform(0, STEP_DELAY_S_MAX) for step in ("reserve", "charge", "ship")}
            order_id = f"crash-{len(runs)}"
            runs.append(system.client.create_run(system.order_input(order_id, delays=delays), order_id))

        for _ in range(CRASHES):
            for _ in range(ORDERS_PER_CRASH):
                start_order()
            time.sleep(chance.uniform(0, BETWEEN_S))
            postgres.stop("immediate")
            started = threading.Thread(target=start_order)
            started.start()
            time.sleep(AWAY_S)
            postgres.start()
            started.join()
        for run in runs:
            ended = system.await_state(run.run_id, run_pb2.Run.STATE_SUCCEEDED, FINISH_TIMEOUT_S)
            check_order(ended, system.client.events(run.run_id), system.shop, run.workflow_id)
        assert len(runs) == CRASHES * (ORDERS_PER_CRASH + 1)
