"""Goal: a fault happens to the requests that it was ordered for, as often as was said, and nonsense orders are refused.

Method: the fault book alone, and the gate that makes a request suffer, on an event loop whose waits are released by the
test; no sockets, no sleeps.
"""

import asyncio
from typing import Any

import pytest
from order.shop.faults import FaultBook, parse
from order.shop.servers import Gate
from order.shop.validate import BadRequest


def order(**body: Any) -> dict[str, Any]:
    return {"path": "/charges", "action": "drop", **body}


def test_a_fault_happens_count_times_and_then_no_more() -> None:
    book = FaultBook()
    book.add(parse(order(count=2)))
    assert [book.take("/charges", "after") is not None for _ in range(4)] == [True, True, False, False]


def test_a_fault_is_for_its_path_and_its_moment_only() -> None:
    book = FaultBook()
    book.add(parse(order(when="before")))
    assert book.take("/parcels", "before") is None
    assert book.take("/charges", "after") is None
    assert book.take_refusal("/charges") is None
    assert book.take("/charges", "before") is not None


def test_faults_of_one_path_happen_in_the_order_in_which_they_were_asked_for() -> None:
    book = FaultBook()
    for action in ("delay", "hold", "drop"):
        book.add(parse(order(action=action)))
    taken = [book.take("/charges", "after") for _ in range(3)]
    assert [fault.action for fault in taken if fault is not None] == ["delay", "hold", "drop"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "action"),
        (order(action="explode"), "action"),
        (order(path="/nowhere"), "path"),
        (order(path=["/charges"]), "path"),
        (order(when="never"), "when"),
        (order(seconds=-1), "seconds"),
        (order(seconds="1"), "seconds"),
        (order(seconds=float("nan")), "seconds"),
        (order(count=0), "count"),
        (order(count=True), "count"),
        (order(action="refuse", status=200), "status"),
    ],
)
def test_a_nonsensical_order_is_refused(body: dict[str, Any], field: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse(body)
    assert caught.value.field == field


async def test_a_held_reply_waits_for_its_release() -> None:
    gate = Gate(FaultBook())
    gate.order(parse(order(action="hold")))
    waiting = asyncio.ensure_future(gate.passes("/charges", "after"))
    await asyncio.sleep(0)
    assert (gate.held, waiting.done()) == (1, False)
    assert gate.release() == 1
    assert await waiting is True
    assert gate.held == 0


async def test_a_dropped_request_does_not_pass_and_the_next_one_does() -> None:
    gate = Gate(FaultBook())
    gate.order(parse(order(action="drop")))
    assert await gate.passes("/charges", "after") is False
    assert await gate.passes("/charges", "after") is True


async def test_a_release_forgets_what_has_not_happened_yet() -> None:
    gate = Gate(FaultBook())
    gate.order(parse(order(action="drop")))
    assert gate.release() == 0
    assert await gate.passes("/charges", "after") is True
