"""Goal: the order as a graph goes through as the order in code does, wherever its executor dies: each effect once.

Method: the graph of the examples is published; each case starts it at an executor that kills itself at one of its calls
to the journal, before it is sent or after it is committed, and lets a standby finish it. The matrix holds every call
that such an order makes, which the first test proves.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from checks import check_ledger, check_requests, grants, without_ids
from client import start_run_at
from conftest import DATABASES
from system import Process, System

from lantern.api.journal.v1 import journal_service_pb2, run_pb2
from lantern.client.agents import Agents
from lantern_kernel import kinds
from lantern_kernel.event import Event, find_chain_fault

EXAMPLE = Path(__file__).resolve().parents[2] / "clients/python/examples/order"
AGENT = "order-graph"
CALLS = {"append": 6, "claim_side_effect": 1, "settle_side_effect": 1}
MATRIX = [
    (call, number, moment)
    for call, count in CALLS.items()
    for number in range(1, count + 1)
    for moment in ("before", "after")
]
DOOMED = Path(__file__).with_name("doomed_executor.py")
SETTINGS = {"LANTERN_MODULES": str(EXAMPLE / "graph_tools.py")}
STEPS = ("reserve", "charge", "option", "ship", "mail")
TIMEOUT_S = 20.0


class Rig:
    """What all cases share."""

    def __init__(self, system: System) -> None:
        self.system = system
        system.add_recovery().launch()
        self.standby = system.add_executor("standby", SETTINGS).launch()
        asyncio.run(self._publish())
        first = self._doomed("append", 0, "before")
        self.run = self._start("undisturbed", first)
        self.run = system.await_state(self.run.run_id, run_pb2.Run.STATE_SUCCEEDED, TIMEOUT_S)
        self.calls = Counter(line["call"] for line in first.log_lines() if line.get("action") == "doomed_call")
        first.kill()
        self.standby.await_ready()
        system.await_worker(self.standby)

    async def _publish(self) -> None:
        async with Agents(self.system.journal_address) as agents:
            definition = (EXAMPLE / "order.graph.json").read_bytes()
            assert await agents.check(definition) == ()
            await agents.publish(AGENT, definition)

    def _doomed(self, call: str, number: int, moment: str) -> Process:
        entry = (str(DOOMED), call, str(number), moment)
        process = self.system.add_executor(f"doomed-{call}-{number}-{moment}", SETTINGS, entry=entry).start()
        self.system.await_worker(process)
        return process

    def _start(self, order_id: str, process: Process) -> run_pb2.Run:
        try:
            return start_run_at(process.address, self.system.order_input(order_id), order_id, agent=AGENT)
        except grpc.RpcError:
            request = journal_service_pb2.ListRunsRequest(agent_name=AGENT, workflow_id=order_id)
            (run,) = self.system.client.journal.ListRuns(request, timeout=TIMEOUT_S).runs
            return run

    def crash_once(self, call: str, number: int, moment: str) -> run_pb2.Run:
        process = self._doomed(call, number, moment)
        run = self._start(f"{call}-{number}-{moment}", process)
        assert process.await_end(TIMEOUT_S) == -9
        return self.system.await_state(run.run_id, run_pb2.Run.STATE_SUCCEEDED, TIMEOUT_S)


@pytest.fixture(scope="module", params=DATABASES)
def rig(
    request: pytest.FixtureRequest,
    make_database: Callable[[str, Path, str], str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("order-graph")
    with System(folder, make_database(request.param, folder, "order_graph")) as system:
        yield Rig(system)


def check(rig: Rig, run: run_pb2.Run, events: list[Event]) -> None:
    """The chain verifies, each step completed once, each effect is in the ledger once, nothing is asked twice."""
    assert find_chain_fault(run.run_id, events) is None
    completed = Counter(event.step_id for event in events if event.kind == kinds.STEP_COMPLETED)
    assert completed == Counter(STEPS)
    assert [event.kind for event in events if event.kind in kinds.TERMINAL] == [kinds.RUN_SUCCEEDED]
    check_ledger(rig.system.shop.ledger(run.workflow_id), json.loads(run.result))
    check_requests(events, rig.system.shop.requests(run.workflow_id))


def test_the_undisturbed_order_makes_the_calls_of_the_matrix_and_no_others(rig: Rig) -> None:
    assert dict(rig.calls) == CALLS
    events = rig.system.client.events(rig.run.run_id)
    check(rig, rig.run, events)
    assert [reason for _, _, reason in grants(events)] == ["start"]


@pytest.mark.parametrize(("call", "number", "moment"), MATRIX)
def test_an_order_survives_the_death_of_its_executor_there(rig: Rig, call: str, number: int, moment: str) -> None:
    run = rig.crash_once(call, number, moment)
    events = rig.system.client.events(run.run_id)
    check(rig, run, events)
    assert without_ids(json.loads(run.result)) == without_ids(json.loads(rig.run.result))
    assert grants(events)[0][2] == "start"
