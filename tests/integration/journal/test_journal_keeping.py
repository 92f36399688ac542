"""Goal: whoever speaks for a worker keeps its open session, and no other, in whichever journal it is said (SPEC L2).

Method: real journal processes with a short silence; the test is the worker, whose stream says nothing, and its helper.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Self

import grpc
import pytest
from journal_process import JournalProcess, Worker, event, orphans

from lantern.api.journal.v1 import worker_service_pb2 as wp
from lantern_kernel import reasons
from lantern_serving import status

SILENCE_S = 1.5
KEPT_S = 2.4
PING_S = 0.3


class Helper:
    """A worker's helper process, as a journal hears it."""

    def __init__(self, journal: JournalProcess) -> None:
        self._call: Any = journal.workers().KeepSession()
        self._pings = 0

    async def ping(self, worker_id: str, number: int) -> bool:
        """Speaks for a session; whether it is the worker's open one."""
        self._pings += 1
        await self._call.write(wp.KeepSessionRequest(worker_id=worker_id, session_number=number, ping=self._pings))
        async with asyncio.timeout(5):
            answer = await self._call.read()
        assert isinstance(answer, wp.KeepSessionResponse), "the stream stays"
        assert (answer.pong, answer.session_number) == (self._pings, number)
        return answer.current

    async def ended(self) -> grpc.StatusCode:
        """How the stream ended."""
        return await self._call.code()

    async def keep(self, worker: Worker, seconds: float) -> Self:
        """Speaks for a worker for so long."""
        async with asyncio.timeout(seconds + 5):
            for _ in range(round(seconds / PING_S)):
                assert await self.ping(worker.worker_id, worker.number)
                await asyncio.sleep(PING_S)
        return self


async def test_a_silent_stream_is_kept_by_its_helper_and_by_no_stranger(database: str) -> None:
    journal = await JournalProcess(database, LANTERN_SESSION_SILENCE=f"{SILENCE_S}s").start()
    try:
        silent, kept = [await Worker(journal, name).attach() for name in ("silent", "kept")]
        helper = Helper(journal)
        run = await kept.create("r1")
        lost = await silent.create("r2")
        assert not await helper.ping("kept", kept.number + 1)
        assert not await helper.ping("nobody", 1)
        await helper.keep(kept, KEPT_S)
        assert silent.error is not None, "nobody spoke for it"
        assert await orphans(journal) == [lost.run_id]
        await kept.accepted(run.append(event()))
        assert not await helper.ping("silent", silent.number), "what is closed stays closed"
        former = kept.number
        await kept.attach()
        assert not await helper.ping("kept", former)
        assert await helper.ping("kept", kept.number), "on the same stream"
        await kept.until(lambda: kept.error, 2 * SILENCE_S)
        assert kept.error is not None
        assert kept.error.reason == reasons.SESSION_NOT_ATTACHED, "its helper said nothing more"
    finally:
        await journal.close()


async def test_a_session_is_kept_in_another_journal_than_its_stream_ends_in(postgres_database: str) -> None:
    settings = {"LANTERN_SESSION_SILENCE": f"{SILENCE_S}s"}
    here, there = [JournalProcess(postgres_database, **settings) for _ in range(2)]
    try:
        await here.start()
        await there.start()
        worker = await Worker(here, "w1").attach()
        run = await worker.create("r1")
        helper = await Helper(there).keep(worker, KEPT_S)
        await worker.accepted(run.append(event()))
        await asyncio.gather(here.freeze(KEPT_S), helper.keep(worker, KEPT_S))
        await worker.accepted(run.append(event("step_completed")))
        assert await orphans(there) == []
        await here.kill()
        await helper.keep(worker, KEPT_S)
        assert await orphans(there) == [], "its stream broke with its journal, which can tell nobody"
        await worker.until(lambda: worker.error)
        await worker.attach(there)
        await worker.accepted(run.append(event("step_started", step_id="s2")))
    finally:
        await here.close()
        await there.close()


@pytest.mark.parametrize(
    ("nonsense", "field"),
    [
        (wp.KeepSessionRequest(session_number=1, ping=1), "worker_id"),
        (wp.KeepSessionRequest(worker_id="w|1", session_number=1, ping=1), "worker_id"),
        (wp.KeepSessionRequest(worker_id="w1", ping=1), "session_number"),
        (wp.KeepSessionRequest(worker_id="w1", session_number=1), "ping"),
    ],
)
async def test_nonsense_is_refused_by_name(
    journal: JournalProcess, nonsense: wp.KeepSessionRequest, field: str
) -> None:
    async def requests() -> AsyncIterator[wp.KeepSessionRequest]:
        yield nonsense

    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await anext(aiter(journal.workers().KeepSession(requests())))
    error = status.to_error(refused.value)
    assert (error.reason, error.details["field"]) == (reasons.INVALID_FIELD, field)


async def test_a_journal_that_stops_ends_the_helpers_stream(database: str) -> None:
    journal = await JournalProcess(database).start()
    try:
        worker = await Worker(journal, "w1").attach()
        helper = Helper(journal)
        assert await helper.ping("w1", worker.number)
        await journal.terminate()
        assert await helper.ended() == grpc.StatusCode.UNAVAILABLE
    finally:
        await journal.close()
