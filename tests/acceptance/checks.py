"""What must be true of every order that went through, however often its executors died (SPEC J2, J5, R1, R5, E5)."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from client import ShopClient

from lantern.api.journal.v1 import run_pb2
from lantern_kernel import kinds
from lantern_kernel.event import Event, find_chain_fault
from lantern_kernel.payloads import unpack

STEP_OF_PATH = {"/stock/reservations": "reserve", "/charges": "charge", "/parcels": "ship", "/mail": "mail"}
STEPS = tuple(STEP_OF_PATH.values())
CLOCK_SKEW_US = 100_000
"""The journal's clock is calibrated once a second by the database's, and is late by as long as that answer took."""


def check_order(run: run_pb2.Run, events: Sequence[Event], shop: ShopClient, order_id: str) -> None:
    """An order that succeeded: its journal, its effects and its result agree, and each effect happened once."""
    assert run.state == run_pb2.Run.STATE_SUCCEEDED, run_pb2.Run.State.Name(run.state)
    result, ledger, requests = json.loads(run.result), shop.ledger(order_id), shop.requests(order_id)
    check_journal(run.run_id, events)
    check_ledger(ledger, result)
    check_requests(events, requests)


def check_journal(run_id: str, events: Sequence[Event]) -> None:
    """The chain verifies, each step completed exactly once, the marker was recorded once, one final event."""
    fault = find_chain_fault(run_id, events)
    assert fault is None, fault
    completed = Counter(event.step_id for event in events if event.kind == kinds.STEP_COMPLETED)
    assert completed == Counter(STEPS), f"each step completes exactly once, not {dict(completed)}"
    markers = Counter(event.step_id for event in events if event.kind == kinds.MARKER_RECORDED)
    assert markers == Counter(["option"]), f"the choice is recorded exactly once, not {dict(markers)}"
    terminal = [event.kind for event in events if event.kind in kinds.TERMINAL]
    assert terminal == [kinds.RUN_SUCCEEDED], f"one final event, not {terminal}"
    assert events[-1].kind == kinds.RUN_SUCCEEDED, f"nothing stands after the final event, not {events[-1].kind}"
    epochs = [event.epoch for event in events]
    assert epochs == sorted(epochs), f"epochs never fall: {epochs}"


def check_ledger(ledger: Mapping[str, Any], result: Mapping[str, Any]) -> None:
    """Each effect is in the shop's ledger once, and is the one that the run's result names."""
    counts = {name: len(ledger[name]) for name in ("reservations", "charges", "parcels", "mails")}
    assert counts == {"reservations": 1, "charges": 1, "parcels": 1, "mails": 1}, f"each effect once, not {counts}"
    assert ledger["chargedPence"] == 4000, f"GBP 40.00 once, not {ledger['chargedPence']} pence"
    assert result["reservation"]["reservationId"] == f"res-{ledger['reservations'][0]['number']}"
    assert result["charge"]["chargeId"] == f"ch-{ledger['charges'][0]['number']}"
    assert result["parcel"]["parcelId"] == f"par-{ledger['parcels'][0]['number']}"
    assert result["option"] == ledger["parcels"][0]["option"], "what was chosen first is what was shipped"
    assert result["mail"]["messageId"] == ledger["mails"][0]["messageId"]


def check_requests(events: Sequence[Event], requests: Sequence[Mapping[str, Any]]) -> None:
    """Nothing was asked of the shop that the journal did not know of before, or for a step that it knew to be done.

    Before: each request has a step_started of its own, under its epoch, with its key. After: no request under a later
    epoch than the one that completed the step (a replay that executed what was recorded), none later in time by more
    than the clocks may differ.
    """
    started = [event for event in events if event.kind == kinds.STEP_STARTED]
    keys = {event.step_id: unpack(event.payload).facts["key"] for event in started}
    allowed = Counter((event.step_id, event.epoch) for event in started)
    completed = {event.step_id: event for event in events if event.kind == kinds.STEP_COMPLETED}
    for request in requests:
        step_id, epoch = STEP_OF_PATH[request["path"]], int(request["epoch"])
        sent, end = request["key"].removeprefix("<").removesuffix("@lantern>"), completed[step_id]
        assert sent == keys[step_id], f"{step_id}: sent under {sent}, recorded {keys[step_id]}"
        allowed[step_id, epoch] -= 1
        assert allowed[step_id, epoch] >= 0, f"{step_id}: asked under epoch {epoch} without a step_started: {request}"
        assert epoch <= end.epoch, f"{step_id}: completed under epoch {end.epoch}, then asked again: {request}"
        late_us = request["timeUs"] - end.time_us
        assert late_us < CLOCK_SKEW_US, f"{step_id}: asked {late_us} us after its step_completed"


def without_ids(result: Mapping[str, Any]) -> dict[str, Any]:
    """What of a result must be the same in every run: all but ids, the Message-ID and the choice by the clock."""
    varying = {"reservationId", "chargeId", "parcelId", "messageId", "option"}
    return {
        name: {key: value for key, value in part.items() if key not in varying}
        for name, part in result.items()
        if isinstance(part, dict)
    }


def grants(events: Sequence[Event]) -> list[tuple[int, str, str]]:
    """Who was given the run: (epoch, worker id, reason), in order."""
    found = [event for event in events if event.kind == kinds.LEASE_GRANTED]
    facts = [unpack(event.payload).facts for event in found]
    return [(event.epoch, fact["worker"], fact["reason"]) for event, fact in zip(found, facts, strict=True)]
