"""The order example under every fault, told by a ledger: one charge with a key, up to two without.

Method: the example's own workflow; its shop is a ledger in memory that takes each key once, and anything without one.
"""

from typing import Any

import pytest
from order.workflow import order, send_receipt

from lantern.testing import Environment, Fault, FaultKind, FaultNoticed, HttpRequest, Injector, check_every_fault

ORDER = {"orderId": "1042", "shop": "http://shop", "smtp": "mail:25"}


class Ledger:
    """What the shop did, by path."""

    def __init__(self) -> None:
        self.effects: dict[str, list[dict[str, Any]]] = {}
        self.replies: dict[str, dict[str, Any]] = {}
        self.mails: set[str] = set()

    def serve(self, request: HttpRequest) -> tuple[int, dict[str, Any]]:
        path = request.url.removeprefix("http://shop")
        key = request.headers.get("Idempotency-Key", "")
        if key and key in self.replies:
            return 200, self.replies[key]
        done = self.effects.setdefault(path, [])
        done.append(request.json)
        reply = {"reservationId": f"r{len(done)}", "chargeId": f"c{len(done)}", "parcelId": f"p{len(done)}"}
        if key:
            self.replies[key] = reply
        return 201, reply

    def mail(self, smtp: str, order_id: str, charge_id: str) -> dict[str, str]:
        del smtp
        self.mails.add(f"{order_id} {charge_id}")
        return {"messageId": order_id}


def play(env: Environment, *, use_key: bool = True) -> Ledger:
    ledger = Ledger()
    env.http(ledger.serve)
    env.fake("mail", ledger.mail)
    run = env.start(order, {**ORDER, "useKey": use_key}, workflow_id="order-1042")
    assert run.result()["mail"] == {"messageId": "1042"}
    return ledger


def test_the_stand_in_has_the_step_s_arguments():
    assert send_receipt.__code__.co_varnames[:3] == Ledger.mail.__code__.co_varnames[1:4]


def test_every_effect_is_made_once_under_every_fault():
    def scenario(env: Environment) -> None:
        ledger = play(env)
        assert {path: len(done) for path, done in ledger.effects.items()} == {
            "/stock/reservations": 1,
            "/charges": 1,
            "/parcels": 1,
        }
        assert ledger.mails == {"1042 c1"}

    faults = check_every_fault(scenario)
    assert len(faults) > 50


# The first event of `charge` is the third that drivers append.
@pytest.mark.parametrize(("use_key", "charges"), [(True, 1), (False, 2)])
@pytest.mark.parametrize(
    "fault",
    [
        Fault(kind=FaultKind.LOST_REPLY, position=3),
        Fault(kind=FaultKind.CRASH_BEFORE_COMMIT, position=4),
    ],
)
def test_what_the_key_is_for(fault: Fault, use_key: bool, charges: int):
    with Environment(faults=Injector(fault)) as env:
        ledger = play(env, use_key=use_key)
    assert [charge["amountPence"] for charge in ledger.effects["/charges"]] == [4000] * charges


@pytest.mark.parametrize("use_key", [True, False])
def test_a_crash_after_the_charge_charges_once(use_key: bool):
    with Environment(faults=Injector(Fault(kind=FaultKind.CRASH_AFTER_COMMIT, position=4))) as env:
        assert len(play(env, use_key=use_key).effects["/charges"]) == 1


def test_without_a_key_the_double_charge_is_found():
    def scenario(env: Environment) -> None:
        assert len(play(env, use_key=False).effects["/charges"]) == 1

    with pytest.raises(FaultNoticed, match=r"lost-reply at event 3 \(step_started charge\)"):
        check_every_fault(scenario)
