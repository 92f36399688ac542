"""Goal: retries keep their key as long as one request may have taken effect, across refusals and crashes (SPEC E2, R5).

Method: real services on SQLite. A proxy in front of the shop loses a reply, then answers 429 by itself, as a gateway
does; an executor is killed with SIGKILL in the second of three attempts. What counts is the shop's own ledger, and
whether the journal, read from start to end, tells one story.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from checks import check_journal, check_order, grants
from front_proxy import BUSY, LOSE, FrontProxy
from order_rig import Rig
from system import System

from lantern_kernel import kinds
from lantern_kernel.event import Event
from lantern_kernel.payloads import unpack


@pytest.fixture(scope="module")
def rig(make_database: Callable[[str, Path, str], str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("order-retries")
    with System(folder, make_database("sqlite", folder, "order_retries")) as system:
        yield Rig(system)


@pytest.fixture(scope="module")
def proxy(rig: Rig) -> Iterator[FrontProxy]:
    with FrontProxy(rig.shop.http) as opened:
        yield opened


@pytest.mark.parametrize(
    ("name", "actions", "key_attempts"),
    [
        # The trap: the first request took the money. The 429 is documented to have done nothing, and is not about it.
        ("lost-then-busy", [LOSE, BUSY], [1, 1, 1]),
        # A refusal alone lets the key grow; a lost reply after it freezes the new one.
        ("busy-then-lost", [BUSY, LOSE], [1, 2, 2]),
        ("busy-twice", [BUSY, BUSY], [1, 2, 3]),
        ("lost-twice", [LOSE, LOSE], [1, 1, 1]),
    ],
)
def test_one_charge_whatever_comes_between(
    rig: Rig, proxy: FrontProxy, name: str, actions: list[str], key_attempts: list[int]
) -> None:
    proxy.order(actions)
    run = rig.finish(rig.start(name, shop=proxy.url))
    events = rig.events(run)
    check_journal(run.run_id, events)
    assert rig.shop.ledger(name)["chargedPence"] == 4000
    started = _facts(events, kinds.STEP_STARTED)
    assert [facts["keyAttempt"] for facts in started] == key_attempts
    assert [facts["key"] for facts in started] == proxy.keys
    assert len(set(proxy.keys)) == len(set(key_attempts))
    outcomes = {LOSE: "unknown", BUSY: "not_executed"}
    assert [facts["outcome"] for facts in _facts(events, kinds.STEP_RETRYING)] == [outcomes[each] for each in actions]


def test_the_trap_charges_twice_where_no_key_is_sent(rig: Rig, proxy: FrontProxy) -> None:
    proxy.order([LOSE, BUSY])
    rig.finish(rig.start("lost-then-busy-unkeyed", shop=proxy.url, useKey=False))
    assert rig.shop.ledger("lost-then-busy-unkeyed")["chargedPence"] == 8000


def test_a_crash_in_the_second_of_three_attempts_goes_on_with_the_second(rig: Rig) -> None:
    """The first request is lost on its way; the second takes the money, and its caller dies."""
    rig.shop.order_fault("/charges", "drop", when="before")
    run = rig.kill_while_held("/charges", "second-of-three")
    events = rig.events(run)
    check_order(run, events, rig.shop, "second-of-three")
    assert _story(events) == [
        (kinds.STEP_STARTED, 1, 1),
        (kinds.STEP_RETRYING, 1, 1),
        (kinds.STEP_STARTED, 2, 1),
        (kinds.LEASE_GRANTED, 0, 2),
        (kinds.STEP_STARTED, 2, 2),
        (kinds.STEP_COMPLETED, 2, 2),
    ]
    assert [reason for _, _, reason in grants(events)] == ["start", "crash"]
    _check_one_key(events)


def test_a_crash_neither_counts_as_a_failure_nor_begins_the_count_anew(rig: Rig) -> None:
    """After the crash the second attempt fails once more, and the third is the last that there is."""
    for action in ("drop", "hold", "drop"):
        rig.shop.order_fault("/charges", action, when="before")
    run_id = rig.start("crash-is-no-failure")
    rig.await_held(1)
    rig.victim.kill()
    run = rig.finish(run_id)
    rig.shop.release()  # the request of the dead arrives last of all
    rig.revive_victim()
    events = rig.events(run)
    check_journal(run.run_id, events)
    assert rig.shop.ledger("crash-is-no-failure")["chargedPence"] == 4000
    assert _story(events) == [
        (kinds.STEP_STARTED, 1, 1),
        (kinds.STEP_RETRYING, 1, 1),
        (kinds.STEP_STARTED, 2, 1),
        (kinds.LEASE_GRANTED, 0, 2),
        (kinds.STEP_STARTED, 2, 2),
        (kinds.STEP_RETRYING, 2, 2),
        (kinds.STEP_STARTED, 3, 2),
        (kinds.STEP_COMPLETED, 3, 2),
    ]
    assert {facts["of"] for facts in _facts(events, kinds.STEP_STARTED)} == {3}
    _check_one_key(events)


def _story(events: Sequence[Event]) -> list[tuple[str, int, int]]:
    """The charge as the journal tells it: kind, attempt and epoch; and who took over in its midst."""
    of_charge = [at for at, event in enumerate(events) if event.step_id == "charge"]
    midst = events[of_charge[0] : of_charge[-1] + 1]
    return [
        (event.kind, event.attempt, event.epoch)
        for event in midst
        if event.step_id == "charge" or event.kind == kinds.LEASE_GRANTED
    ]


def _facts(events: Sequence[Event], kind: str) -> list[dict[str, Any]]:
    """What the events of the charge say."""
    return [dict(unpack(event.payload).facts) for event in events if (event.kind, event.step_id) == (kind, "charge")]


def _check_one_key(events: Sequence[Event]) -> None:
    started = _facts(events, kinds.STEP_STARTED)
    assert len({facts["key"] for facts in started}) == 1
    assert {facts["keyAttempt"] for facts in started} == {1}
