"""Goal: wherever an executor dies, the order goes through as if it had not: same result, each effect once (SPEC R1).

Method: one journal, recovery, shop and standby executor for all cases. Each case starts an executor that kills itself
with SIGKILL at one of its calls to the journal, before it is sent or after it is committed and before the answer is
acted on; starts an order there; and lets the standby finish it. The matrix holds every call that an order makes, which
the first test proves. At the end, a system in which every driver dies at its first append.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from checks import check_order, grants, without_ids
from client import start_run_at
from conftest import DATABASES
from system import Process, System

from lantern.api.journal.v1 import run_pb2

CALLS = {"append": 5, "claim_side_effect": 1, "settle_side_effect": 1}
MATRIX = [
    (call, number, moment)
    for call, count in CALLS.items()
    for number in range(1, count + 1)
    for moment in ("before", "after")
]
DOOMED = Path(__file__).with_name("doomed_executor.py")
FINISH_TIMEOUT_S = 20.0
DEATH_TIMEOUT_S = 20.0
DYING_DRIVERS = 3
SECOND_GRANT = {
    # Nobody has driven it yet: it is started once more, not resumed.
    ("append", 1, "before"): ["start"],
    # It has ended.
    ("append", CALLS["append"], "after"): [],
}
"""Why the run is granted again; because of a crash where nothing is said here."""


class Rig:
    """What all cases share."""

    def __init__(self, system: System) -> None:
        self.system = system
        system.add_recovery().launch()
        self.standby = system.add_executor("standby").launch()
        # The undisturbed run goes through the same entry point as the doomed ones, with a death that never comes.
        first = self._doomed("append", 0, "before")
        self.run = self.start_order("undisturbed", first)
        self.run = system.await_state(self.run.run_id, run_pb2.Run.STATE_SUCCEEDED, FINISH_TIMEOUT_S)
        self.calls = Counter(line["call"] for line in first.log_lines() if line.get("action") == "doomed_call")
        first.kill()
        self.standby.await_ready()
        system.await_worker(self.standby)

    def _doomed(self, call: str, number: int, moment: str) -> Process:
        entry = (str(DOOMED), call, str(number), moment)
        process = self.system.add_executor(f"doomed-{call}-{number}-{moment}", entry=entry).start()
        self.system.await_worker(process)
        return process

    def crash_once(self, call: str, number: int, moment: str) -> run_pb2.Run:
        """Starts an order at an executor that dies there, and returns the run when it has succeeded elsewhere."""
        process = self._doomed(call, number, moment)
        run = self.start_order(f"{call}-{number}-{moment}", process)
        assert process.await_end(DEATH_TIMEOUT_S) == -9
        return self.system.await_state(run.run_id, run_pb2.Run.STATE_SUCCEEDED, FINISH_TIMEOUT_S)

    def start_order(self, order_id: str, process: Process) -> run_pb2.Run:
        """Starts an order at an executor, which may die before it answers."""
        try:
            return start_run_at(process.address, self.system.order_input(order_id), order_id)
        except grpc.RpcError:
            (run,) = [run for run in self.system.client.list_runs() if run.workflow_id == order_id]
            return run


@pytest.fixture(scope="module", params=DATABASES)
def rig(
    request: pytest.FixtureRequest,
    make_database: Callable[[str, Path, str], str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("crash-matrix")
    with System(folder, make_database(request.param, folder, "crash_matrix")) as system:
        yield Rig(system)


def test_the_undisturbed_order_makes_the_calls_of_the_matrix_and_no_others(rig: Rig) -> None:
    assert dict(rig.calls) == CALLS
    events = rig.system.client.events(rig.run.run_id)
    check_order(rig.run, events, rig.system.shop, "undisturbed")
    assert [reason for _, _, reason in grants(events)] == ["start"]


@pytest.mark.parametrize(("call", "number", "moment"), MATRIX)
def test_an_order_survives_the_death_of_its_executor_there(rig: Rig, call: str, number: int, moment: str) -> None:
    run = rig.crash_once(call, number, moment)
    events = rig.system.client.events(run.run_id)
    check_order(run, events, rig.system.shop, run.workflow_id)
    assert without_ids(json.loads(run.result)) == without_ids(json.loads(rig.run.result))
    resumed = SECOND_GRANT.get((call, number, moment), ["crash"])
    assert [reason for _, _, reason in grants(events)] == ["start", *resumed]


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("database", DATABASES)
def test_an_order_survives_although_one_driver_after_the_other_dies(
    database: str, moment: str, make_database: Callable[[str, Path, str], str], tmp_path: Path
) -> None:
    """After: each driver gets one append further. Before: none gets anywhere, until one comes that lives."""
    with System(tmp_path, make_database(database, tmp_path, f"one_after_the_other_{moment}")) as system:
        entry = (str(DOOMED), "append", "1", moment)
        doomed = [system.add_executor(f"doomed-{number}", entry=entry).launch() for number in range(DYING_DRIVERS)]
        for process in doomed:
            system.await_worker(process.await_ready())
        run = system.client.create_run(system.order_input("order-1042"), "order-1042")
        system.add_recovery().start()
        for process in doomed:
            assert process.await_end(DEATH_TIMEOUT_S) == -9
        system.add_executor("standby").start()
        run = system.await_state(run.run_id, run_pb2.Run.STATE_SUCCEEDED, FINISH_TIMEOUT_S)
        events = system.client.events(run.run_id)
        check_order(run, events, system.shop, "order-1042")
        granted = grants(events)
        assert [epoch for epoch, _, _ in granted] == list(range(1, DYING_DRIVERS + 2))
        assert len({worker for _, worker, _ in granted}) == DYING_DRIVERS + 1
