"""Goal: what workflows ask of others, and others of them, comes out the same whatever goes wrong.

Method: workflows in the environment in memory, alone and under every fault at every position of the journal; each
commit is followed by a replay by fresh code.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID

import pytest
import talking_flows as flows

import lantern
from lantern.program import conversion
from lantern.testing import Environment, check_every_fault
from lantern.testing.every_fault import SAME_OUTCOME
from lantern_kernel import kinds, payloads, reasons

Scenario = Callable[[Environment], None]


def signals(env: Environment) -> None:
    run = env.start(flows.signalled)
    run.signal("line", {"sku": "a", "price": "1.10"})
    run.signal("paid", 1)
    assert run.result() == [1, "1.10", []]


def signal_too_late(env: Environment) -> None:
    run = env.start(flows.signalled)
    run.signal("paid", 1)
    assert run.result() == [1, "late", []]


def approval(env: Environment) -> None:
    run = env.start(flows.approved, 40)
    run.approve("refund", by="ann", comment={"ok": 1})
    assert run.result() == ["approved", "ann", True, {"ok": 1}]


def approval_expires(env: Environment) -> None:
    assert env.start(flows.approved, 40).result() == ["expired", "", False, None]


def children(env: Environment) -> None:
    env.offer(flows.child)
    run = env.start(flows.parent)
    assert run.result() == [[2, 4], "NEGATIVE", "FAILED", 36]


def gives_up(env: Environment) -> None:
    env.offer(flows.child)
    run = env.start(flows.impatient)
    env.skip(35)
    run.signal("go", 7)
    assert run.result() == 7
    assert [each.state for each in run.children] == ["CANCELLED"]


def goes_on_as_new(env: Environment) -> None:
    env.start(flows.chain, 1, workflow_id="chain-1")
    env.finish()
    assert [each.state for each in env.runs] == ["SUCCEEDED"] * 3
    assert env.runs[-1].result() == 3


def compensates_a_failure(env: Environment) -> None:
    with pytest.raises(lantern.RunFailed) as failed:
        env.start(flows.booking, "car").result()
    assert (failed.value.code, failed.value.step_id) == ("NO_CAR", "car")
    assert _order_of(env) == ["flight", "hotel", "car", "unbook-hotel", "unbook-flight"]


def compensates_a_cancel(env: Environment) -> None:
    run = env.start(flows.booking, "")
    env.skip(60)
    run.cancel()
    env.finish()
    assert run.state == "CANCELLED"
    assert _order_of(env) == ["flight", "hotel", "unbook-hotel", "unbook-flight"]


def compensates_nothing(env: Environment) -> None:
    assert env.start(flows.booking, "").result() == "booked"
    assert _order_of(env) == ["flight", "hotel"]


def shields(env: Environment) -> None:
    run = env.start(flows.shielded)
    env.skip(30)
    run.cancel()
    env.finish()
    assert run.state == "CANCELLED"
    assert _order_of(env) == ["first", "second"]


def scopes(env: Environment) -> None:
    run = env.start(flows.scoped)
    env.settle()
    run.signal("left", 1)
    env.settle()
    run.signal("right", 2)
    assert run.result() == [["left", 1], True, 2]


def updates(env: Environment) -> None:
    run = env.start(flows.counter)
    assert run.update("add", 2) == 2
    assert run.update("add", 3) == 5
    for name, payload, message in (
        ("add", -1, "only upwards"),
        ("nothing", 1, "no update 'nothing'; it has stop, add"),
    ):
        with pytest.raises(Exception, match=message):
            run.update(name, payload)
    run.update("stop")
    assert run.result() == 5


def time_and_chance(env: Environment) -> None:
    now, number, unique, loop_time = env.start(flows.chancy).result()
    assert (now[:3], 0 <= number < 1, len(unique), loop_time) == ("202", True, 36, 0.0)


def types(env: Environment) -> None:
    order = {
        "id": "6f7f1c3e-0d1a-4b0e-8f0a-3f6f3f1f2f3f",
        "placed": "2026-12-01T03:00:00+00:00",
        "lines": [{"sku": "lamp", "price": "40.10", "size": "large"}, {"sku": "wick", "price": "0.90"}],
        "tags": ["new", "gift"],
    }
    result = env.start(flows.typed, order).result()
    assert (result["order"], Decimal(result["total"])) == (order["id"], Decimal("61.5"))
    assert result["by_sku"]["wick"] == {"sku": "wick", "price": "0.90", "size": "small"}


def types_at_the_edge(env: Environment) -> None:
    lines = [flows.Line("lamp", Decimal("40.10"), flows.Size.LARGE)]
    order = flows.Order(UUID(int=7), datetime(2026, 12, 1, tzinfo=UTC), lines, tags=("new", "gift"))
    receipt = conversion.read_result(env.start(flows.typed, order).result(), flows.typed)
    assert receipt == flows.Receipt(UUID(int=7), Decimal("60.15"), {"lamp": lines[0]})


def _order_of(env: Environment) -> list[str]:
    """Names of the steps, each at its first attempt."""
    return list(dict.fromkeys(each.name for each in env.attempts))


@pytest.mark.parametrize(
    "scenario",
    [
        signals,
        signal_too_late,
        approval,
        approval_expires,
        children,
        gives_up,
        goes_on_as_new,
        compensates_a_failure,
        compensates_a_cancel,
        compensates_nothing,
        shields,
        scopes,
        updates,
        time_and_chance,
        types,
        types_at_the_edge,
    ],
)
def test_no_fault_is_noticed(scenario: Scenario) -> None:
    with Environment() as env:
        scenario(env)
        env.check_replays()
    check_every_fault(scenario, kinds=SAME_OUTCOME)


def test_a_wrong_input_is_refused_by_its_path() -> None:
    order = {"id": "6f7f1c3e-0d1a-4b0e-8f0a-3f6f3f1f2f3f", "placed": "2026-12-01", "lines": [{"sku": "lamp"}]}
    with Environment() as env:
        run = env.start(flows.typed, order).finish()
    assert run.error is not None
    assert run.error.details is not None
    assert (run.error.code, run.error.details["reason"]) == (reasons.WORKFLOW_ERROR, reasons.INVALID_FIELD)
    assert run.error.details["field"] == "order.lines[0].price"


def test_a_cancelled_run_with_nothing_to_undo_ends_at_once() -> None:
    with Environment() as env:
        run = env.start(flows.approved, 1)
        env.settle()
        parked = payloads.unpack(run.events[-1].payload)
        run.cancel()
        env.settle()
    assert run.state == "CANCELLED"
    assert run.events[-2].kind == kinds.RUN_PARKED or parked.facts
