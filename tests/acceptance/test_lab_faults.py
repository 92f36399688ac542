"""Goal: the four faults of an order, each with and without key and marker, end as the guarantees say (SPEC H4, R3, R4).

Method: real services on both databases. Orders of `order-lab` with all switches stand in the fault at once; their
executor is killed with SIGKILL while the shop holds a reply, or the shop replies later than the caller waits. What
counts is the shop's own ledger. Where the clock was read without a marker, each order is judged by what the clock said
the second time; among so many, the same for all is as good as impossible. At the end mended code is deployed.
"""

import ast
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import DATABASES
from order import lab as lab_module
from order_rig import TIMEOUT_S, Rig
from system import System

from lantern.api.journal.v1 import run_pb2
from lantern_kernel import kinds, reasons
from lantern_kernel.event import Event, find_chain_fault
from lantern_kernel.payloads import unpack

AFTER_CHARGE, IN_CHARGE, LOST_REPLY, IN_SHIPPING = FAULTS = (
    "crash after the charge",
    "crash in the charge",
    "lost reply",
    "crash in shipping",
)
CRASHES_HELD = {
    AFTER_CHARGE: ("/parcels", "before"),
    IN_CHARGE: ("/charges", "after"),
    IN_SHIPPING: ("/parcels", "after"),
}
"""Where the shop holds its replies when the executor is killed, and whether it has acted by then."""

ASKS_THE_CLOCK_AGAIN = {AFTER_CHARGE, IN_SHIPPING}
"""In the other two nobody has chosen yet, or nobody is driven again."""

UNKEYED_CHARGES = {AFTER_CHARGE: 1, IN_CHARGE: 2, LOST_REPLY: 2, IN_SHIPPING: 1}
LATE_S = 3.0
"""Later than the 2,000 ms after which the charge's caller gives up."""

FORGETFUL_ORDERS = 8
"""Without a marker, for each key: each is driven again with another choice in two of three cases."""

SWITCHES = [(use_key, use_marker) for use_key in (True, False) for use_marker in (True, False)]


@dataclass(frozen=True, kw_only=True)
class Settled:
    """An order that has ended, or waits for mended code."""

    run: run_pb2.Run
    # What the shop had done for it by then.
    ledger: dict[str, Any]
    events: list[Event]


class Lab:
    """The system, and what became of the orders in each fault."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.rig = Rig(system, {"LANTERN_MODULES": "order.lab"})
        self._played: dict[str, dict[tuple[bool, bool], list[Settled]]] = {}

    def played(self, fault: str) -> dict[tuple[bool, bool], list[Settled]]:
        """The orders that stood in the fault, by switches, as they ended or wait."""
        if fault not in self._played:
            self._played[fault] = self._play(fault)
        return self._played[fault]

    def _play(self, fault: str) -> dict[tuple[bool, bool], list[Settled]]:
        orders = [
            (f"{fault.replace(' ', '-')}-{use_key}-{use_marker}-{number}", use_key, use_marker)
            for use_key, use_marker in SWITCHES
            for number in range(FORGETFUL_ORDERS if fault in ASKS_THE_CLOCK_AGAIN and not use_marker else 1)
        ]
        rig = self.rig
        if fault == LOST_REPLY:
            rig.shop.order_fault("/charges", "delay", seconds=LATE_S, count=len(orders))
        else:
            path, when = CRASHES_HELD[fault]
            rig.shop.order_fault(path, "hold", when=when, count=len(orders))
        runs = [
            rig.start(order_id, agent="order-lab", useKey=use_key, useMarker=use_marker)
            for order_id, use_key, use_marker in orders
        ]
        if fault != LOST_REPLY:
            rig.await_held(len(orders))
            rig.victim.kill()
        settled = [self._settled(run_id) for run_id in runs]
        if fault != LOST_REPLY:
            rig.shop.release()  # what the dead one asked for is done now, where it was not yet
            rig.revive_victim()
        found: dict[tuple[bool, bool], list[Settled]] = {switches: [] for switches in SWITCHES}
        for each, (_, use_key, use_marker) in zip(settled, orders, strict=True):
            found[use_key, use_marker].append(each)
        return found

    def _settled(self, run_id: str) -> "Settled":
        states = [run_pb2.Run.STATE_SUCCEEDED, run_pb2.Run.STATE_FAILED, run_pb2.Run.STATE_WAITING]
        run = self.system.await_one_of(run_id, states, TIMEOUT_S)
        return Settled(run=run, ledger=self.rig.shop.ledger(run.workflow_id), events=self.rig.events(run))

    def waiting(self) -> list[Settled]:
        """The orders that wait for mended code, of all faults that play without a marker."""
        return [
            each
            for fault in sorted(ASKS_THE_CLOCK_AGAIN)
            for use_key in (True, False)
            for each in self.played(fault)[use_key, False]
            if each.run.state == run_pb2.Run.STATE_WAITING
        ]


@pytest.fixture(scope="module", params=DATABASES)
def lab(
    request: pytest.FixtureRequest,
    make_database: Callable[[str, Path, str], str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("lab-faults")
    with System(folder, make_database(request.param, folder, "lab_faults")) as system:
        yield Lab(system)


@pytest.mark.parametrize(("use_key", "use_marker"), SWITCHES)
@pytest.mark.parametrize("fault", FAULTS)
def test_the_shops_ledger_says_what_the_switches_promise(lab: Lab, fault: str, use_key: bool, use_marker: bool) -> None:
    for each in lab.played(fault)[use_key, use_marker]:
        run, ledger, events = each.run, each.ledger, each.events
        expected = 1 if use_key else UNKEYED_CHARGES[fault]
        assert (len(ledger["charges"]), ledger["chargedPence"]) == (expected, 4000 * expected)
        assert find_chain_fault(run.run_id, events) is None
        assert [e.step_id for e in events if e.kind == kinds.STEP_COMPLETED].count("charge") == 1
        if fault in ASKS_THE_CLOCK_AGAIN and not use_marker and run.state == run_pb2.Run.STATE_WAITING:
            assert run.waiting_on == "code_fix"
            assert len(ledger["parcels"]) == (1 if fault == IN_SHIPPING else 0)
            assert ledger["mails"] == []
        else:
            _check_shipped(run, events, ledger, use_marker)


def _check_shipped(run: run_pb2.Run, events: Sequence[Event], ledger: dict[str, Any], use_marker: bool) -> None:
    """One parcel by the option that was chosen first, one mail, and a result that says so."""
    assert run.state == run_pb2.Run.STATE_SUCCEEDED, run.error
    result = json.loads(run.result)
    assert [parcel["option"] for parcel in ledger["parcels"]] == [result["option"]] == [_first_choice(events)]
    assert len(ledger["mails"]) == 1
    markers = [unpack(event.payload).data for event in events if event.kind == kinds.MARKER_RECORDED]
    assert markers == ([json.dumps(result["option"]).encode()] if use_marker else [])


@pytest.mark.parametrize("fault", sorted(ASKS_THE_CLOCK_AGAIN))
def test_a_choice_that_nobody_recorded_is_noticed_where_it_first_differs(lab: Lab, fault: str) -> None:
    waiting = [each for each in lab.waiting() if each.run.workflow_id.startswith(fault.replace(" ", "-"))]
    assert waiting, "the clock said the same to all of them"
    lines = _lines_of_shipping()
    for each in waiting:
        run, events = each.run, each.events
        (noticed,) = [event for event in events if event.kind == kinds.NONDETERMINISM_DETECTED]
        facts = unpack(noticed.payload).facts
        recorded = next(event for event in events if event.seq == facts["seq"])
        assert (recorded.kind, recorded.step_id) == (kinds.STEP_STARTED, f"ship-{_first_choice(events)}")
        assert facts["recorded"] == f"step {recorded.step_id} (http)"
        asked = str(facts["asked"]).removeprefix("step ").removesuffix(" (http)")
        assert asked in lines.keys() - {recorded.step_id}
        assert facts["recordedSource"] == f"order/lab.py:{lines[recorded.step_id]}"
        assert facts["askedSource"] == f"order/lab.py:{lines[asked]}"
        assert run.error.code == reasons.NONDETERMINISM
        for part in (recorded.step_id, facts["recordedSource"], asked, facts["askedSource"]):
            assert part in run.error.message
        assert [event.kind for event in events[-2:]] == [kinds.NONDETERMINISM_DETECTED, kinds.RUN_PARKED]


def test_what_waits_completes_once_mended_code_is_deployed(lab: Lab, tmp_path: Path) -> None:
    waiting = lab.waiting()
    assert waiting, "the clock said the same to all of them"
    chosen = {each.run.workflow_id: _first_choice(each.events) for each in waiting}
    table = tmp_path / "chosen.json"
    table.write_text(json.dumps(chosen))
    module = str(Path(__file__).with_name("mended_lab.py"))
    settings = {"LANTERN_MODULES": module, "LANTERN_TEST_CHOSEN": str(table)}
    lab.system.add_executor("mended", settings).start()
    for run in (each.run for each in waiting):
        ended = lab.rig.finish(run.run_id)
        ledger = lab.rig.shop.ledger(run.workflow_id)
        use_key = "-True-" in run.workflow_id
        assert len(ledger["charges"]) == 1, f"replay never charges again, key ({use_key}) or not"
        _check_shipped(ended, lab.rig.events(ended), ledger, use_marker=False)
        assert find_chain_fault(run.run_id, lab.rig.events(ended)) is None


def _first_choice(events: Sequence[Event]) -> str:
    """The option by which the order was first shipped, as the journal has it."""
    started = [event.step_id for event in events if event.kind == kinds.STEP_STARTED]
    return next(step_id for step_id in started if step_id.startswith("ship-")).removeprefix("ship-")


def _lines_of_shipping() -> dict[str, int]:
    """The line of the lab's code that asks for each way of shipping."""
    calls = [node for node in ast.walk(ast.parse(Path(lab_module.__file__).read_text())) if isinstance(node, ast.Call)]
    names = [(node.args[0], node.lineno) for node in calls if node.args]
    return {
        name.value: line
        for name, line in names
        if isinstance(name, ast.Constant) and isinstance(name.value, str) and name.value.startswith("ship-")
    }
