"""Goal: appends are judged in the normative order, and a group's plan keeps every run's order and fate apart.

Method: tables over the pure functions; hypothesis shuffles groups of many runs.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lantern_journal.domain import appends
from lantern_journal.domain.appends import Append, Head, Verdict, judge, plan_group
from lantern_kernel import chain, reasons
from lantern_kernel.bounds import EVENTS_PER_RUN_MAX
from lantern_kernel.event import Event, NewEvent, find_chain_fault

RUN = "01890000-0000-7000-8000-000000000001"
D, OTHER = b"d" * 32, b"o" * 32
OPEN = Head(5, D, D, 2, 1000, "step_started")
CLOSED = OPEN._replace(kind="run_failed")
PARKED = OPEN._replace(kind="run_parked")
FULL = OPEN._replace(seq=EVENTS_PER_RUN_MAX)


def new(kind: str = "step_started", payload: bytes = b"{}") -> NewEvent:
    return NewEvent(kind=kind, payload=payload, salt=b"s" * 16)


def made(epoch: int, first_seq: int, previous: bytes = D, *events: NewEvent, run_id: str = RUN) -> Append:
    return Append(run_id=run_id, epoch=epoch, first_seq=first_seq, previous_digest=previous, events=events or (new(),))


@pytest.mark.parametrize(
    ("head", "append", "verdict"),
    [
        (OPEN, made(2, 6), Verdict.FITS),
        (OPEN, made(1, 6), Verdict.STALE),
        (OPEN, made(1, 3), Verdict.STALE),
        (CLOSED, made(1, 6), Verdict.STALE),
        (OPEN, made(2, 5), Verdict.LOOK),
        (CLOSED, made(2, 5), Verdict.LOOK),
        (PARKED, made(2, 5), Verdict.LOOK),
        (OPEN, made(3, 5), Verdict.LOOK),
        (CLOSED, made(2, 6), Verdict.CLOSED),
        (CLOSED, made(3, 9), Verdict.CLOSED),
        (OPEN, made(3, 6), Verdict.NEVER_GRANTED),
        (PARKED, made(3, 6), Verdict.NEVER_GRANTED),
        (PARKED, made(2, 6), Verdict.PARKED),
        (OPEN, made(2, 7), Verdict.CONFLICT),
        (OPEN, made(2, 6, OTHER), Verdict.CONFLICT),
        (FULL, made(2, EVENTS_PER_RUN_MAX + 1), Verdict.FULL),
        (FULL, made(2, EVENTS_PER_RUN_MAX + 1, D, new("run_succeeded", b'{"data":1}')), Verdict.FITS),
    ],
)
def test_verdicts(head: Head, append: Append, verdict: Verdict) -> None:
    assert judge(append, head) is verdict


@pytest.mark.parametrize(
    ("verdict", "reason"),
    [
        (Verdict.STALE, reasons.LEASE_LOST),
        (Verdict.PARKED, reasons.LEASE_LOST),
        (Verdict.CLOSED, reasons.RUN_CLOSED),
        (Verdict.NEVER_GRANTED, reasons.INVALID_FIELD),
        (Verdict.CONFLICT, reasons.APPEND_CONFLICT),
        (Verdict.FULL, reasons.EVENTS_FULL),
    ],
)
def test_each_refusal_has_its_reason(verdict: Verdict, reason: str) -> None:
    assert appends.error_of(verdict, made(1, 6), OPEN).reason == reason


def stored(event: NewEvent, **changes: object) -> Event:
    values: dict[str, object] = {
        "seq": 6,
        "kind": event.kind,
        "step_id": event.step_id,
        "attempt": event.attempt,
        "epoch": 2,
        "time_us": 99,
        "payload": event.payload,
        "salt": event.salt,
        "digest": D,
        "hash": D,
    }
    return Event(**{**values, **changes})  # pyright: ignore[reportArgumentType]


def test_a_repeat_is_the_same_content_whatever_time_and_hash() -> None:
    append = made(2, 6)
    assert appends.is_repeat(append, [stored(append.events[0], time_us=7, hash=OTHER)])
    for change in (
        {"kind": "timer_fired"},
        {"step_id": "x"},
        {"attempt": 1},
        {"epoch": 1},
        {"payload": b"{ }"},
        {"salt": b"t" * 16},
    ):
        assert not appends.is_repeat(append, [stored(append.events[0], **change)])
    assert not appends.is_repeat(append, [])


def test_time_never_falls_within_a_run() -> None:
    plan = plan_group([made(2, 6)], {RUN: OPEN}, 10)
    assert [row.time_us for row in plan.rows] == [OPEN.time_us]
    plan = plan_group([made(2, 6)], {RUN: OPEN}, 2000)
    assert [row.time_us for row in plan.rows] == [2000]


def test_an_odd_append_makes_those_behind_it_wait() -> None:
    plan = plan_group([made(2, 9), made(2, 6), made(1, 6)], {RUN: OPEN}, 0)
    assert (plan.fits, plan.rows, plan.stale) == ([], [], [])
    assert [index for index, _ in plan.odd] == [0, 1, 2]


def test_a_run_without_a_head_is_odd() -> None:
    assert plan_group([made(2, 6)], {}, 0).odd == [(0, Verdict.LOOK)]


def test_what_ends_a_drive_changes_the_run_in_the_same_group() -> None:
    plan = plan_group([made(2, 6, D, new(), new("run_parked", b'{"on":"timer","dueUs":5}'))], {RUN: OPEN}, 7000)
    (change,) = plan.changes
    assert (change.ends_with, change.waiting_on, change.due_us, change.last_seq) == ("run_parked", "timer", 5, 7)
    assert plan_group([made(2, 6)], {RUN: OPEN}, 0).changes == []


@given(st.lists(st.integers(0, 4), max_size=40))
def test_a_group_keeps_each_runs_order_and_sorts_by_run(arrivals: list[int]) -> None:
    heads: dict[str, Head] = {}
    worker: dict[str, tuple[int, bytes]] = {}
    group: list[Append] = []
    for number, of in enumerate(arrivals):
        run_id = f"01890000-0000-7000-8000-00000000000{9 - of}"
        if run_id not in heads:
            heads[run_id] = appends.genesis(run_id)
            worker[run_id] = (0, chain.genesis(run_id))
        seq, digest = worker[run_id]
        event = new(payload=b"%d" % number)
        group.append(made(0, seq + 1, digest, event, run_id=run_id))
        worker[run_id] = (seq + 1, event.digest(run_id=run_id, seq=seq + 1, epoch=0))
    plan = plan_group(group, heads, 1)
    assert sorted(index for index, _ in plan.fits) == list(range(len(arrivals)))
    assert [row.run_id for row in plan.rows] == sorted(row.run_id for row in plan.rows)
    for run_id, head in plan.heads.items():
        mine = [row for row in plan.rows if row.run_id == run_id]
        events = [stored(new(), **{k: getattr(row, k) for k in Event.__slots__}) for row in mine]
        assert find_chain_fault(run_id, events) is None
        assert (head.seq, head.digest, head.hash) == (len(mine), worker[run_id][1], mine[-1].hash)
