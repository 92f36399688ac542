"""Goal: an executor that comes back from the dead changes nothing (SPEC J2: the journal itself is the fence).

Method: the shop takes the money and holds its reply; the executor is stopped with SIGSTOP until its lease is taken and
another has finished the run; the reply is let go, and the executor continues with SIGCONT: what it then appends is
refused as LEASE_LOST, and neither journal nor shop changes.
"""

import time
from collections.abc import Callable
from pathlib import Path
from signal import SIGCONT, SIGSTOP
from typing import Any

import pytest
from checks import check_order, grants
from client import start_run_at
from conftest import DATABASES
from system import System

from lantern.api.journal.v1 import run_pb2
from lantern_kernel.event import Event

SILENCE = "2s"
TIMEOUT_S = 20.0
QUIET_S = 2.0


@pytest.mark.parametrize("database", DATABASES)
def test_a_zombie_changes_nothing(
    database: str, make_database: Callable[[str, Path, str], str], tmp_path: Path
) -> None:
    settings = {"LANTERN_SESSION_SILENCE": SILENCE}
    with System(tmp_path, make_database(database, tmp_path, "zombie"), settings) as system:
        system.add_recovery().start()
        zombie = system.add_executor("zombie").start()
        system.await_worker(zombie)
        system.shop.order_fault("/charges", "hold")
        run = start_run_at(zombie.address, system.order_input("order-1042"), "order-1042")
        _wait(lambda: system.shop.held() == 1, "the shop holds the reply")
        zombie.signal(SIGSTOP)
        standby = system.add_executor("standby").start()
        system.await_worker(standby)
        run = system.await_state(run.run_id, run_pb2.Run.STATE_SUCCEEDED, TIMEOUT_S)
        events, ledger, requests = _outside(system, run)
        check_order(run, events, system.shop, "order-1042")
        assert [epoch for epoch, _, _ in grants(events)] == [1, 2]

        system.shop.release()
        zombie.signal(SIGCONT)
        _wait(lambda: _lease_lost(zombie.log_lines(), run.run_id), "the zombie's log says LEASE_LOST")
        system.await_worker(zombie)
        time.sleep(QUIET_S)
        assert _outside(system, run) == (events, ledger, requests), "nothing has changed"
        assert zombie.is_alive()
        again = start_run_at(zombie.address, system.order_input("order-1043"), "order-1043")
        again = system.await_state(again.run_id, run_pb2.Run.STATE_SUCCEEDED, TIMEOUT_S)
        check_order(again, system.client.events(again.run_id), system.shop, "order-1043")


def _outside(system: System, run: run_pb2.Run) -> tuple[list[Event], dict[str, Any], list[dict[str, Any]]]:
    events = system.client.events(run.run_id)
    return events, system.shop.ledger(run.workflow_id), system.shop.requests(run.workflow_id)


def _lease_lost(lines: list[dict[str, Any]], run_id: str) -> bool:
    return any("LEASE_LOST" in str(line) and run_id in str(line) for line in lines)


def _wait(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not holds():
        assert time.monotonic() < deadline, f"waited {TIMEOUT_S} s in vain: {what}"
        time.sleep(0.02)
