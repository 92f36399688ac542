"""Goal: the session survives whatever its stream does: nothing appended is lost, trust ends in time.

Method: the real Session over real sockets against a scripted JournalWorkerService that breaks streams, withholds
answers, refuses, and says what it received.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from lantern.api.journal.v1 import worker_service_pb2 as pb
from lantern.api.journal.v1 import worker_service_pb2_grpc as pb_grpc
from lantern_executor.adapters.addresses import JournalAddresses
from lantern_executor.adapters.session import Session, WorkerIdentity
from lantern_executor.domain.run import Offer
from lantern_executor.domain.tail import Append
from lantern_kernel import reasons
from lantern_kernel.errors import LanternError
from lantern_kernel.event import NewEvent
from lantern_serving import status
from lantern_serving.server import Server


class ScriptedJournal(pb_grpc.JournalWorkerServiceServicer):
    """Answers as `answer` says; None withholds the answer."""

    def __init__(self) -> None:
        self.attaches: list[pb.Attach] = []
        self.messages: list[pb.SessionRequest] = []
        self.answer: Callable[[pb.Append], pb.AppendResult | None] = _taken
        self.break_after = 0  # messages with appends; 0: never
        self.pongs = True
        self.silence_s = 10.0
        self.push: asyncio.Queue[pb.SessionResponse] = asyncio.Queue()

    async def Session(  # noqa: N802 - gRPC names it
        self, request_iterator: AsyncIterator[pb.SessionRequest], context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[pb.SessionResponse]:
        seen = 0
        async for message in request_iterator:
            if message.HasField("attach"):
                self.attaches.append(message.attach)
                attached = pb.Attached(session_number=len(self.attaches))
                attached.silence.FromMilliseconds(round(self.silence_s * 1_000))
                yield pb.SessionResponse(attached=attached)
                continue
            self.messages.append(message)
            if message.appends:
                seen += 1
                if self.break_after and seen == self.break_after:
                    self.break_after = 0
                    await context.abort(grpc.StatusCode.UNAVAILABLE, "gone")
            results = [result for result in map(self.answer, message.appends) if result is not None]
            pong = message.ping if self.pongs else 0
            if results or pong:
                yield pb.SessionResponse(results=results, pong=pong)
            while not self.push.empty():
                yield self.push.get_nowait()


def _scripted() -> ScriptedJournal:
    return ScriptedJournal()  # pyright: ignore[reportAbstractUsage] - only the session is called


def _taken(append: pb.Append) -> pb.AppendResult:
    return pb.AppendResult(append_id=append.append_id, last_seq=append.first_seq)


def _append(n: int, size: int = 10) -> Append:
    event = NewEvent(kind="step_started", payload=b'"' + b"x" * size + b'"', salt=bytes(16))
    return Append(
        run_id=f"run{n}",
        epoch=1,
        first_seq=3,
        previous_digest=bytes(32),
        events=(event,),
        consumed_inbox_number=0,
    )


@asynccontextmanager
async def _attached(journal: ScriptedJournal) -> AsyncGenerator[Session]:
    server = Server(
        "127.0.0.1:0",
        {
            "lantern.api.journal.v1.JournalWorkerService": lambda to: (
                pb_grpc.add_JournalWorkerServiceServicer_to_server(journal, to)
            )
        },
    )
    await server.start()
    identity = WorkerIdentity(worker_id="w1", capacity=7, offers=[Offer(name="flow", digest="d1", program_kind="code")])
    session = Session(JournalAddresses([server.address]), identity)
    session.start("127.0.0.1:9")
    try:
        async with asyncio.timeout(10):
            await session.wait_attached()
            yield session
    finally:
        await session.close()
        await server.drain(0)


async def test_attach_says_who_we_are() -> None:
    journal = _scripted()
    async with _attached(journal) as session:
        (attach,) = journal.attaches
        assert (attach.worker_id, attach.address, attach.capacity, attach.draining) == ("w1", "127.0.0.1:9", 7, False)
        assert [(offer.name, offer.digest) for offer in attach.agents] == [("flow", "d1")]
        assert session.trusted()
        await session.set_draining()
        assert journal.attaches[-1].draining
        assert session.number == 2


async def test_what_is_ready_together_travels_together() -> None:
    journal = _scripted()
    async with _attached(journal) as session:
        await asyncio.gather(*(session.append(_append(n)) for n in range(500)))
        with_appends = [message for message in journal.messages if message.appends]
        assert len(with_appends) <= 3
        assert sum(len(message.appends) for message in with_appends) == 500


async def test_messages_stay_under_a_mebibyte() -> None:
    journal = _scripted()
    async with _attached(journal) as session:
        await asyncio.gather(*(session.append(_append(n, 200_000)) for n in range(40)))
        assert max(message.ByteSize() for message in journal.messages) < 1024 * 1024


async def test_no_more_than_two_messages_await_answers_and_pings_pass() -> None:
    journal = _scripted()
    journal.answer = lambda append: None
    async with _attached(journal) as session:
        waiting = [asyncio.create_task(session.append(_append(n))) for n in range(2)]
        for n in range(2, 6):
            await asyncio.sleep(0.05)
            waiting.append(asyncio.create_task(session.append(_append(n))))
        await asyncio.sleep(1.5)
        assert sum(bool(message.appends) for message in journal.messages) == 2
        assert max(message.ping for message in journal.messages) >= 2
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


@pytest.mark.parametrize("break_after", [1, 2, 5])
async def test_broken_stream_loses_nothing(break_after: int) -> None:
    journal = _scripted()
    journal.break_after = break_after
    async with _attached(journal) as session:

        async def run(n: int) -> None:
            for _ in range(10):
                await session.append(_append(n))

        await asyncio.gather(*(run(n) for n in range(20)))
        assert [attach.worker_id for attach in journal.attaches] == ["w1", "w1"]


async def test_unanswered_appends_are_sent_again_as_they_were() -> None:
    journal = _scripted()
    journal.answer = lambda append: None
    async with _attached(journal) as session:
        waiting = asyncio.create_task(session.append(_append(1)))
        await asyncio.sleep(0.1)
        journal.answer = _taken
        await session.set_draining()  # a new stream
        await waiting
        first, second = (message.appends[0] for message in journal.messages if message.appends)
        assert first == second


async def test_refusal_reaches_its_own_append_only() -> None:
    journal = _scripted()

    def refuse_odd(append: pb.Append) -> pb.AppendResult:
        result = _taken(append)
        if append.run_id == "run1":
            result.error.CopyFrom(status.to_status(LanternError(reasons.LEASE_LOST, "gone")))
        return result

    journal.answer = refuse_odd
    async with _attached(journal) as session:
        answers = await asyncio.gather(*(session.append(_append(n)) for n in range(3)), return_exceptions=True)
        assert [type(answer) for answer in answers] == [type(None), LanternError, type(None)]


async def test_unknown_outcome_is_asked_again() -> None:
    journal = _scripted()
    tries: list[int] = []

    def unknown_once(append: pb.Append) -> pb.AppendResult:
        tries.append(1)
        result = _taken(append)
        if len(tries) == 1:
            result.error.CopyFrom(status.to_status(LanternError(reasons.UNKNOWN_OUTCOME, "perhaps")))
        return result

    journal.answer = unknown_once
    async with _attached(journal) as session:
        await session.append(_append(1))
        assert len(tries) == 2


async def test_notices_are_passed_on() -> None:
    journal = _scripted()
    heard: list[str] = []
    async with _attached(journal) as session:
        session.inbox_listener = heard.extend
        journal.push.put_nowait(pb.SessionResponse(inbox_run_ids=["run1", "run2"]))
        journal.push.put_nowait(pb.SessionResponse(move=True))
        await session.append(_append(1))
        await asyncio.sleep(0.3)
        assert heard == ["run1", "run2"]
        assert len(journal.attaches) == 2


async def test_trust_ends_when_pings_are_not_answered() -> None:
    journal = _scripted()
    journal.silence_s = 0.8
    async with _attached(journal) as session:
        await asyncio.sleep(1)
        assert session.trusted()
        journal.pongs = False
        while session.trusted():  # noqa: ASYNC110 - it ends by the passing of time
            await asyncio.sleep(0.01)
        journal.pongs = True
        await session.wait_trusted()  # a silent stream is given up for a new one
        assert len(journal.attaches) <= 2


async def test_without_a_stream_there_is_no_trust() -> None:
    identity = WorkerIdentity(worker_id="w1", capacity=1, offers=[])
    session = Session(JournalAddresses(["127.0.0.1:1"]), identity)
    session.start("127.0.0.1:9")
    await asyncio.sleep(0.2)
    assert not session.trusted()
    await session.close()
