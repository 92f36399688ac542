"""Goal: the shop is a fair judge of exactly-once: it acts once per key, and says of every request what it did with it.

Method: the shop's application over a ledger in memory and a clock that counts; no sockets. Each test makes calls and
compares the answers, the ledger and the request log.
"""

import itertools
import json
from collections.abc import Mapping
from email.message import EmailMessage
from typing import Any

import pytest
from order.shop.application import Answer, Call, Caller, Shop
from order.shop.faults import FaultBook, parse
from order.shop.ledger import OUT_OF_STOCK_ITEM, Ledger

CHARGE = {"orderId": "order-1042", "amountPence": 4000, "currency": "GBP"}
RESERVE = {"orderId": "order-1042", "item": "lantern", "quantity": 1}
PARCEL = {"orderId": "order-1042", "reservationId": "res-1", "option": "express"}
BODIES = {"/stock/reservations": RESERVE, "/charges": CHARGE, "/parcels": PARCEL}


class World:
    """A shop with all that belongs to it."""

    def __init__(self) -> None:
        clock = itertools.count(1_000_000)
        self.ledger = Ledger(":memory:")
        self.faults = FaultBook()
        self.shop = Shop(self.ledger, self.faults, lambda: next(clock))

    def post(self, path: str, body: Mapping[str, Any] | bytes, key: str | None = None) -> Answer:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.shop.answer(Call(path=path, key=key, body=raw, caller=Caller(run_id="r", epoch="2")))

    def outcomes(self) -> list[str]:
        return [entry["outcome"] for entry in self.ledger.list_requests("", 0)]

    def charged_pence(self) -> int:
        return self.ledger.show("")["chargedPence"]


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("path", BODIES)
def test_used_key_gets_the_first_answer_and_nothing_happens_again(world: World, path: str) -> None:
    first = world.post(path, BODIES[path], "k")
    state = world.ledger.show("")
    again = world.post(path, BODIES[path], "k")
    assert (first.status, first.outcome, again.outcome) == (201, "acted", "deduplicated")
    assert (again.status, again.reply) == (first.status, first.reply)
    assert world.ledger.show("") == state
    assert world.outcomes() == ["acted", "deduplicated"]


@pytest.mark.parametrize("path", BODIES)
def test_another_key_or_none_acts_again(world: World, path: str) -> None:
    for key in ("k1", "k2", None, None):
        assert world.post(path, BODIES[path], key).outcome == "acted"
    assert world.outcomes() == ["acted"] * 4


def test_two_charges_without_a_key_are_eighty_pounds(world: World) -> None:
    world.post("/charges", CHARGE)
    world.post("/charges", CHARGE)
    assert world.charged_pence() == 8000


def test_a_key_belongs_to_its_path(world: World) -> None:
    assert world.post("/charges", CHARGE, "k").outcome == "acted"
    assert world.post("/parcels", PARCEL, "k").outcome == "acted"


def test_same_key_with_another_body_is_refused_and_does_not_spoil_the_key(world: World) -> None:
    first = world.post("/charges", CHARGE, "k")
    other = world.post("/charges", {**CHARGE, "amountPence": 1}, "k")
    assert (other.status, other.reply["error"]["code"], other.outcome) == (422, "key_reused", "refused")
    assert world.post("/charges", CHARGE, "k").reply == first.reply
    assert world.charged_pence() == 4000


def test_a_recorded_refusal_is_replayed_for_its_key_and_a_new_key_may_act(world: World) -> None:
    world.faults.add(parse({"path": "/charges", "action": "refuse", "status": 402}))
    assert (world.post("/charges", CHARGE, "k1").status, world.charged_pence()) == (402, 0)
    again = world.post("/charges", CHARGE, "k1")
    assert (again.status, again.outcome, world.charged_pence()) == (402, "deduplicated", 0)
    assert (world.post("/charges", CHARGE, "k2").status, world.charged_pence()) == (201, 4000)


def test_a_used_key_does_not_spend_an_ordered_refusal(world: World) -> None:
    world.post("/charges", CHARGE, "k1")
    world.faults.add(parse({"path": "/charges", "action": "refuse"}))
    assert world.post("/charges", CHARGE, "k1").status == 201
    assert world.post("/charges", CHARGE, "k2").status == 402


def test_out_of_stock_is_a_refusal_that_takes_nothing(world: World) -> None:
    answer = world.post("/stock/reservations", {**RESERVE, "item": OUT_OF_STOCK_ITEM}, "k")
    assert (answer.status, answer.reply["error"]["code"]) == (422, "out_of_stock")
    assert world.ledger.show("")["reservations"] == []


def test_stock_goes_down_by_the_quantity(world: World) -> None:
    world.post("/stock/reservations", {**RESERVE, "quantity": 3}, "k")
    before = world.ledger.show("")["stock"]["lantern"]
    world.post("/stock/reservations", {**RESERVE, "quantity": 4})
    assert before - world.ledger.show("")["stock"]["lantern"] == 4


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/charges", b"{", "body"),
        ("/charges", b"[]", "body"),
        ("/charges", b"\xff", "body"),
        ("/charges", b"[" * 50_000, "body"),
        ("/charges", b" " * 70_000, "body"),
        ("/charges", b'{"orderId": "o", "amountPence": NaN, "currency": "GBP"}', "body"),
        ("/charges", {**CHARGE, "orderId": ""}, "orderId"),
        ("/charges", {**CHARGE, "orderId": "a\nb"}, "orderId"),
        ("/charges", {**CHARGE, "orderId": 7}, "orderId"),
        ("/charges", {**CHARGE, "amountPence": 40.0}, "amountPence"),
        ("/charges", {**CHARGE, "amountPence": True}, "amountPence"),
        ("/charges", {**CHARGE, "amountPence": 0}, "amountPence"),
        ("/charges", {**CHARGE, "amountPence": -4000}, "amountPence"),
        ("/charges", {**CHARGE, "amountPence": 10**30}, "amountPence"),
        ("/charges", {**CHARGE, "currency": "EUR"}, "currency"),
        ("/charges", {**CHARGE, "delaySeconds": -1}, "delaySeconds"),
        ("/charges", {**CHARGE, "delaySeconds": 1e9}, "delaySeconds"),
        ("/stock/reservations", {**RESERVE, "quantity": 0}, "quantity"),
        ("/stock/reservations", {**RESERVE, "item": None}, "item"),
        ("/parcels", {**PARCEL, "option": "catapult"}, "option"),
        ("/parcels", {k: v for k, v in PARCEL.items() if k != "reservationId"}, "reservationId"),
    ],
)
def test_nonsense_is_answered_with_the_field_and_nothing_is_done(
    world: World, path: str, body: Mapping[str, Any] | bytes, field: str
) -> None:
    untouched = world.ledger.show("")
    answer = world.post(path, body, "k")
    assert (answer.status, answer.reply["error"]["field"], answer.outcome) == (400, field, "invalid")
    assert world.ledger.show("") == untouched
    assert world.outcomes() == ["invalid"]
    assert world.post(path, BODIES[path], "k").outcome == "acted", "a bad request must not use the key up"


def test_a_key_that_is_too_long_is_refused(world: World) -> None:
    assert world.post("/charges", CHARGE, "k" * 201).status == 400
    assert world.post("/charges", CHARGE, "").status == 400
    assert world.charged_pence() == 0


def test_a_nonsensical_request_does_not_spend_an_ordered_refusal(world: World) -> None:
    world.faults.add(parse({"path": "/charges", "action": "refuse"}))
    assert world.post("/charges", {**CHARGE, "currency": "EUR"}, "k1").status == 400
    assert world.post("/charges", CHARGE, "k1").status == 402


def test_the_request_log_says_who_called(world: World) -> None:
    world.post("/charges", CHARGE, "k")
    (entry,) = world.ledger.list_requests("order-1042", 0)
    assert (entry["path"], entry["key"], entry["runId"], entry["epoch"]) == ("/charges", "k", "r", "2")
    assert world.ledger.list_requests("another", 0) == []
    assert world.ledger.list_requests("", entry["number"]) == []


def _mail(message_id: str | None) -> EmailMessage:
    mail = EmailMessage()
    mail["Subject"], mail["X-Order-Id"] = "Receipt", "order-1042"
    if message_id is not None:
        mail["Message-ID"] = message_id
    return mail


def test_a_mail_is_delivered_once_per_message_id(world: World) -> None:
    codes = [world.shop.take_mail(_mail(i), "you@example.org", Caller())[0] for i in ("<a@x>", "<a@x>", "<b@x>")]
    assert codes == [250, 250, 250]
    assert [mail["messageId"] for mail in world.ledger.show("order-1042")["mails"]] == ["<a@x>", "<b@x>"]
    assert world.outcomes() == ["acted", "deduplicated", "acted"]


@pytest.mark.parametrize("message_id", [None, "", "<" + "x" * 300 + ">"])
def test_a_mail_without_a_usable_message_id_is_refused(world: World, message_id: str | None) -> None:
    assert world.shop.take_mail(_mail(message_id), "you@example.org", Caller())[0] == 550
    assert world.ledger.show("")["mails"] == []


def test_what_fails_in_the_middle_leaves_nothing_behind(world: World) -> None:
    with pytest.raises(ZeroDivisionError), world.ledger.transaction():
        world.ledger.keep_mail("o", "<m@x>", "r", "s", 1 // 0)
    assert world.ledger.show("")["mails"] == []
    assert world.post("/charges", CHARGE, "k").outcome == "acted"
