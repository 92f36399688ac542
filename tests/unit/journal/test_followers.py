"""Goal: a follower is handed what is committed, without a gap, and looks into the database only where it must.

Method: offers and takes by hand; no store, no clock.
"""

import asyncio

import pytest

from lantern_journal.application.announcements import Follower, Hub
from lantern_journal.domain.appends import Row
from lantern_kernel.bounds import PAGE_ROWS_MAX
from lantern_kernel.event import Event


def row(seq: int, run_id: str = "a", payload: bytes = b"{}") -> Row:
    return Row(run_id, seq, "step_started", "s", 1, 1, seq, payload, b"", b"", b"")


def event(seq: int, payload: bytes) -> Event:
    return Event(
        seq=seq, kind="k", step_id="", attempt=0, epoch=1, time_us=seq, payload=payload, salt=b"", digest=b"", hash=b""
    )


def events(*seqs: int, payload: bytes = b"{}") -> list[Event]:
    return [event(seq, payload) for seq in seqs]


def seqs(taken: list[Event]) -> list[int]:
    return [event.seq for event in taken]


async def test_events_come_in_order_and_what_is_known_is_left_out():
    follower = Follower(3)
    follower.offer(events(3, 4))
    follower.offer(events(5))
    assert seqs(await follower.take()) == [4, 5]
    follower.after_seq = 5
    waiting = asyncio.create_task(follower.take())
    await asyncio.sleep(0)
    follower.offer(events(5))
    await asyncio.sleep(0)
    assert not waiting.done(), "what the reader has seen wakes it for nothing"
    follower.offer(events(6))
    assert seqs(await waiting) == [6]


@pytest.mark.parametrize("spoil", ["gap", "look", "many", "large"])
async def test_a_reader_looks_where_it_cannot_be_handed_everything(spoil: str):
    follower = Follower(1)
    follower.offer(events(2))
    match spoil:
        case "gap":
            follower = Follower(1)
            follower.offer(events(3))
        case "look":
            follower.look()
        case "many":
            follower.offer(events(*range(3, PAGE_ROWS_MAX + 3)))
        case _:
            follower.offer(events(*range(3, 10), payload=b"x" * 200_000))
    assert await follower.take() == []
    follower.after_seq = 3
    follower.offer(events(4))
    assert seqs(await follower.take()) == [4]


async def test_the_hub_hands_each_run_its_own():
    hub = Hub()
    hub.committed([row(1)])
    with hub.follow("a", 1) as one, hub.follow("a", 1) as other, hub.follow("b") as elsewhere:
        hub.committed([row(2), row(3), row(7, "c")])
        assert seqs(await one.take()) == seqs(await other.take()) == [2, 3]
        hub.moved("b")
        assert await elsewhere.take() == []
        elsewhere.after_seq = 7
        hub.committed([row(8, "b")])
        assert seqs(await elsewhere.take()) == [8]
    hub.committed([row(9)])


async def test_who_waits_for_the_end_is_not_told_of_the_way_there():
    hub = Hub()
    with hub.follow("a", 5) as follower:
        waiting = asyncio.create_task(follower.take())
        for seq in range(1, 6):
            hub.committed([row(seq)])
            await asyncio.sleep(0)
        assert not waiting.done()
        hub.committed([row(6)])
        assert seqs(await waiting) == [6]
