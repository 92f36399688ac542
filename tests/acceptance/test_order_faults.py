"""Goal: the faults that an order meets in the outside world end as the guarantees say (SPEC E2, E4, R4, R5).

Method: real services on SQLite and a shop that delays, drops, holds or refuses replies on order; executors are killed
with SIGKILL while the shop holds a reply. What counts is the shop's own ledger.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from checks import check_journal, check_order, grants
from order_rig import Rig
from system import System

from lantern.api.journal.v1 import run_pb2
from lantern_kernel import kinds
from lantern_kernel.payloads import unpack

LATE_S = 3.0
"""Later than the 2 s after which the charge's caller gives up."""


@pytest.fixture(scope="module")
def rig(make_database: Callable[[str, Path, str], str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("order-faults")
    with System(folder, make_database("sqlite", folder, "order_faults")) as system:
        yield Rig(system)


def test_a_crash_in_the_charge_charges_once_with_a_key(rig: Rig) -> None:
    run = rig.kill_while_held("/charges", "crash-keyed")
    check_order(run, rig.events(run), rig.shop, "crash-keyed")
    assert [request["outcome"] for request in _charges(rig, "crash-keyed")] == ["acted", "deduplicated"]


def test_a_crash_in_the_charge_charges_twice_without_one(rig: Rig) -> None:
    run = rig.kill_while_held("/charges", "crash-unkeyed", useKey=False)
    check_journal(run.run_id, rig.events(run))
    assert rig.shop.ledger("crash-unkeyed")["chargedPence"] == 8000
    assert [request["key"] for request in _charges(rig, "crash-unkeyed")] == ["", ""]


def test_the_step_that_was_in_flight_runs_again_as_the_same_attempt_under_the_same_key(rig: Rig) -> None:
    run = rig.kill_while_held("/charges", "crash-attempt")
    started = [e for e in rig.events(run) if (e.kind, e.step_id) == (kinds.STEP_STARTED, "charge")]
    assert [(event.attempt, event.epoch) for event in started] == [(1, 1), (1, 2)]
    assert len({unpack(event.payload).facts["key"] for event in started}) == 1
    assert [reason for _, _, reason in grants(rig.events(run))] == ["start", "crash"]


def test_a_crash_in_shipping_does_not_choose_again(rig: Rig) -> None:
    run = rig.kill_while_held("/parcels", "crash-shipping")
    events = rig.events(run)
    check_order(run, events, rig.shop, "crash-shipping")
    (marker,) = [event for event in events if event.kind == kinds.MARKER_RECORDED]
    recorded = unpack(marker.payload).data
    assert recorded is not None
    assert json.loads(recorded) == json.loads(run.result)["option"]


def test_a_crash_while_the_mail_is_sent_sends_it_once(rig: Rig) -> None:
    run = rig.kill_while_held("/mail", "crash-mail")
    check_order(run, rig.events(run), rig.shop, "crash-mail")


@pytest.mark.parametrize("action", ["delay", "drop"])
def test_a_lost_reply_charges_once_with_a_key(rig: Rig, action: str) -> None:
    order_id = f"lost-keyed-{action}"
    rig.shop.order_fault("/charges", action, seconds=LATE_S)
    run = rig.finish(rig.start(order_id))
    check_order(run, rig.events(run), rig.shop, order_id)
    (retrying,) = [event for event in rig.events(run) if event.kind == kinds.STEP_RETRYING]
    assert unpack(retrying.payload).facts["outcome"] == "unknown"
    assert [request["outcome"] for request in _charges(rig, order_id)] == ["acted", "deduplicated"]


@pytest.mark.parametrize("action", ["delay", "drop"])
def test_a_lost_reply_charges_twice_without_one(rig: Rig, action: str) -> None:
    order_id = f"lost-unkeyed-{action}"
    rig.shop.order_fault("/charges", action, seconds=LATE_S)
    rig.finish(rig.start(order_id, useKey=False))
    assert rig.shop.ledger(order_id)["chargedPence"] == 8000


def test_a_lost_reply_of_the_mail_server_sends_one_mail(rig: Rig) -> None:
    rig.shop.order_fault("/mail", "drop")
    run = rig.finish(rig.start("lost-mail"))
    check_order(run, rig.events(run), rig.shop, "lost-mail")


def test_a_documented_refusal_is_tried_again_under_a_new_key(rig: Rig) -> None:
    rig.shop.order_fault("/charges", "refuse", status=402)
    run = rig.finish(rig.start("refused-once"))
    assert rig.shop.ledger("refused-once")["chargedPence"] == 4000
    keys = [request["key"] for request in _charges(rig, "refused-once")]
    assert len(keys) == len(set(keys)) == 2
    check_journal(run.run_id, rig.events(run))


def test_an_unknown_outcome_keeps_its_key_to_the_end(rig: Rig) -> None:
    rig.shop.order_fault("/charges", "refuse", status=503)
    run = rig.finish(rig.start("refused-unknown"), run_pb2.Run.STATE_FAILED)
    assert run.error.step_id == "charge"
    assert rig.shop.ledger("refused-unknown")["charges"] == []
    requests = _charges(rig, "refused-unknown")
    assert [request["outcome"] for request in requests] == ["refused", "deduplicated", "deduplicated"]
    assert len({request["key"] for request in requests}) == 1


def test_what_is_out_of_stock_is_never_charged(rig: Rig) -> None:
    run = rig.finish(rig.start("no-unicorn", item="unicorn"), run_pb2.Run.STATE_FAILED)
    assert run.error.step_id == "reserve"
    ledger = rig.shop.ledger("no-unicorn")
    assert (ledger["reservations"], ledger["charges"], ledger["parcels"], ledger["mails"]) == ([], [], [], [])


def test_an_order_that_is_started_twice_is_charged_once(rig: Rig) -> None:
    first, second = (rig.finish(rig.start("twice")) for _ in range(2))
    assert first.run_id != second.run_id
    charges = [json.loads(run.result)["charge"] for run in (first, second)]
    assert charges[0] == charges[1]
    assert rig.shop.ledger("twice")["chargedPence"] == 4000


def _charges(rig: Rig, order_id: str) -> list[dict[str, Any]]:
    return [request for request in rig.shop.requests(order_id) if request["path"] == "/charges"]
