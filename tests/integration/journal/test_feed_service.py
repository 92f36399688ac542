"""Goal: whoever follows all runs gets everything once, from whichever journal, and a slow one hurts nobody.

Method: real journal processes; followers over gRPC that break off and come back, and one that never reads.
"""

import asyncio
import statistics
import time
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from journal_process import Driven, JournalProcess, Worker, event, refusal, succeeded

from lantern.api.journal.v1 import feed_service_pb2 as fp
from lantern.api.journal.v1 import journal_service_pb2 as jp
from lantern_kernel import reasons
from lantern_serving import status

Place = tuple[str, int]


async def eventually(what: Callable[[], bool], within_s: float = 20) -> None:
    """Waits until `what()` is true."""
    async with asyncio.timeout(within_s):
        while True:
            if what():
                return
            await asyncio.sleep(0.01)


class Follower:
    """What a follower of all runs has got, and its cursor behind that."""

    def __init__(self, cursor: str = "") -> None:
        self.cursor = cursor
        self.places: list[Place] = []
        self.messages = 0
        self._call: Any = None

    async def follow(self, journal: JournalProcess, stub: Any = None, **request: Any) -> None:
        """For ever."""
        self._call = (stub or journal.feed()).FollowAll(
            fp.FollowAllRequest(cursor=self.cursor, **request), wait_for_ready=True
        )
        while (message := await self._call.read()) is not grpc.aio.EOF:
            self.messages += 1
            self.cursor = message.cursor
            self.places += [(entry.run_id, e.seq) for entry in message.entries for e in entry.events]

    async def until(self, count: int, journal: JournalProcess, **request: Any) -> list[Place]:
        """Follows until there are so many, and breaks off."""
        following = asyncio.create_task(self.follow(journal, **request))
        try:
            await eventually(lambda: len(self.places) >= count or following.done())
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            if self._call is not None:
                self._call.cancel()
        return self.places


async def test_all_runs_are_followed_from_the_beginning_and_from_a_cursor(journal: JournalProcess) -> None:
    worker = await Worker(journal, "w1").attach()
    runs = [await worker.create(f"r{i}") for i in range(3)]
    first = Follower()
    expected = [(run.run_id, seq) for run in runs for seq in (1, 2)]
    assert sorted(await first.until(6, journal)) == sorted(expected)
    live = asyncio.create_task(Follower(first.cursor).until(30, journal))
    ended = asyncio.create_task(Follower().until(1, journal, terminal_only=True))
    others = asyncio.create_task(Follower().until(1, journal, tenant_id="other"))
    new = Follower()
    from_now = asyncio.create_task(new.until(30, journal, start=fp.FollowAllRequest.START_NOW))
    await eventually(lambda: bool(new.cursor))
    for i in range(10):
        await worker.send(*(run.append(event() if i < 9 or run is not runs[0] else succeeded()) for run in runs))
    got = await live
    assert sorted(got) == sorted((run.run_id, seq) for run in runs for seq in range(3, 13))
    for run in runs:
        assert [seq for run_id, seq in got if run_id == run.run_id] == list(range(3, 13))
    assert await from_now == got
    assert await ended == [(runs[0].run_id, 12)]
    await Worker(journal, "w2", tenant_id="other").attach()
    answer = await journal.runs().CreateRun(jp.CreateRunRequest(request_id="x", agent_name="order", tenant_id="other"))
    assert await others == [(answer.run.run_id, 1)]


async def test_a_follower_that_waits_is_told_where_it_stands(journal: JournalProcess) -> None:
    follower = Follower()
    following = asyncio.create_task(follower.follow(journal))
    await eventually(lambda: follower.messages >= 2)
    following.cancel()
    assert follower.places == []


async def test_consumers_keep_their_cursors(journal: JournalProcess) -> None:
    feed = journal.feed()
    follower = Follower()
    worker = await Worker(journal, "w1").attach()
    await worker.create("r1")
    await follower.until(2, journal)
    for _ in range(2):
        await feed.CommitFeedConsumer(fp.CommitFeedConsumerRequest(name="spans", cursor=follower.cursor))
    assert (await feed.GetFeedConsumer(fp.GetFeedConsumerRequest(name="spans"))).cursor == follower.cursor
    await worker.create("r2")
    other = fp.CommitFeedConsumerRequest(name="spans", expected_cursor="x", cursor=await now(journal))
    assert (await refusal(feed.CommitFeedConsumer(other))).reason == reasons.FEED_CURSOR_MOVED
    garbled = fp.CommitFeedConsumerRequest(name="spans", cursor=follower.cursor[:-2])
    assert (await refusal(feed.CommitFeedConsumer(garbled))).reason == reasons.FEED_CURSOR_INVALID


async def now(journal: JournalProcess) -> str:
    call = journal.feed().FollowAll(fp.FollowAllRequest(start=fp.FollowAllRequest.START_NOW), wait_for_ready=True)
    message = await call.read()
    call.cancel()
    return message.cursor


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (fp.FollowAllRequest(cursor="AAAA"), reasons.FEED_CURSOR_INVALID),
        (fp.FollowAllRequest(cursor="é" * 70_000), reasons.FEED_CURSOR_INVALID),
        (fp.FollowAllRequest(cursor="AAAA", start=fp.FollowAllRequest.START_NOW), reasons.INVALID_FIELD),
        (fp.FollowAllRequest(tenant_id="no such\nname"), reasons.INVALID_FIELD),
    ],
)
async def test_what_is_refused(journal: JournalProcess, request_: fp.FollowAllRequest, reason: str) -> None:
    call = journal.feed().FollowAll(request_)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call.read()
    assert status.to_error(refused.value).reason == reason


async def test_a_follower_goes_on_at_another_journal(postgres_database: str) -> None:
    one, two = JournalProcess(postgres_database), JournalProcess(postgres_database)
    await asyncio.gather(one.start(), two.start())
    try:
        here, there = await Worker(one, "here").attach(), await Worker(two, "there").attach()
        follower = Follower()
        following = asyncio.create_task(follower.until(24, two))
        runs = [await worker.create(f"r-{worker.worker_id}") for worker in (here, there)]
        for _ in range(10):
            await asyncio.gather(*(w.accepted(r.append(event())) for w, r in zip((here, there), runs, strict=True)))
        await following
        await two.kill()
        for _ in range(10):
            await here.accepted(runs[0].append(event()))
        await follower.until(34, one)
        assert len(set(follower.places)) == len(follower.places) == 34
        for run, last in zip(runs, (22, 12), strict=True):
            assert [seq for run_id, seq in follower.places if run_id == run.run_id] == list(range(1, last + 1))
    finally:
        await asyncio.gather(one.close(), two.close())


FOLLOWERS, READING_ALL = 200, 8
APPENDS, PAYLOAD = 300, b"x" * 80_000
GROWTH_BYTES_MAX = 200 * 1024 * 1024
"""Of the journal: far less than what one follower that is never served would hold back, were it kept for it."""


async def latencies(worker: Worker, run: Driven, count: int, payload: bytes) -> list[float]:
    found: list[float] = []
    for _ in range(count):
        began = time.monotonic()
        await worker.accepted(run.append(event(payload=payload)))
        found.append(time.monotonic() - began)
    return found


async def test_a_slow_reader_hurts_nobody(journal: JournalProcess) -> None:
    """200 followers of all runs and of one run; one of each never reads what it is sent."""
    worker = await Worker(journal, "w1").attach()
    run = await worker.create("r1")
    alone = await latencies(worker, run, 50, PAYLOAD)
    stuck = journal.feed().FollowAll(fp.FollowAllRequest(), wait_for_ready=True)
    await stuck.read()
    stuck_too = journal.runs().FollowEvents(jp.FollowEventsRequest(run_id=run.run_id), wait_for_ready=True)
    await stuck_too.read()
    # A few connections for all of them; those who never read have each their own.
    stubs = [journal.feed() for _ in range(8)]
    followers = [Follower() for _ in range(FOLLOWERS - 2)]
    tasks = [
        asyncio.create_task(follower.follow(journal, stubs[index % len(stubs)], terminal_only=index >= READING_ALL))
        for index, follower in enumerate(followers)
    ]
    await eventually(lambda: all(follower.messages for follower in followers), 40)
    before = journal.resident_bytes()
    among = await latencies(worker, run, APPENDS, PAYLOAD)
    await worker.accepted(run.append(succeeded()))
    total = 50 + APPENDS + 3
    await eventually(
        lambda: all(len(f.places) >= (total if i < READING_ALL else 1) for i, f in enumerate(followers)), 60
    )
    growth = journal.resident_bytes() - before
    for follower in followers[:READING_ALL]:
        assert follower.places == [(run.run_id, seq) for seq in range(1, total + 1)]
    for follower in followers[READING_ALL:]:
        assert follower.places == [(run.run_id, total)]
    print("growth", growth, "alone", statistics.median(alone), "among", statistics.median(among))
    assert growth < GROWTH_BYTES_MAX
    assert statistics.median(among) < 10 * statistics.median(alone) + 0.1
    # What it left lying is still there for it, from where it stopped reading.
    got = 0
    async with asyncio.timeout(30):
        while got < total:
            got += sum(len(entry.events) for entry in (await stuck.read()).entries)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for call in (stuck, stuck_too):
        call.cancel()
