"""Goal: a client's queries find an executor that can answer, and its updates wait for their own answer (SPEC 7.4).

Method: real gRPC over the loopback interface against servicers of the test.
"""

# ruff: noqa: N802 - gRPC names the methods

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

import lantern
from lantern.api.executor.v1 import executor_service_pb2 as executor_pb
from lantern.api.executor.v1 import executor_service_pb2_grpc as executor_grpc
from lantern.api.journal.v1 import journal_service_pb2 as pb
from lantern.api.journal.v1 import journal_service_pb2_grpc as pb_grpc
from lantern.api.journal.v1 import run_pb2
from lantern.client.run import UpdateFailed
from lantern_kernel import kinds, payloads, reasons
from lantern_kernel.errors import LanternError
from lantern_serving import server

RUN_ID = "0192f0c1-2222-7abc-8def-000000000001"
NOWHERE = "127.0.0.1:1"


class Executor(executor_grpc.ExecutorServiceServicer):
    """Answers every query in one way."""

    def __init__(self, answer: bytes | LanternError) -> None:
        self.answer = answer
        self.asked: list[executor_pb.QueryRunRequest] = []

    async def QueryRun(self, request: executor_pb.QueryRunRequest, context: Any) -> executor_pb.QueryRunResponse:
        self.asked.append(request)
        if isinstance(self.answer, LanternError):
            raise self.answer
        return executor_pb.QueryRunResponse(result=self.answer)


class Journal(pb_grpc.JournalServiceServicer):
    """Takes updates in, and shows a history that was written before."""

    def __init__(self, *events: run_pb2.Event) -> None:
        self.events = list(events)
        for seq, event in enumerate(self.events, 1):
            event.seq = seq
        self.sent: list[pb.SendToRunRequest] = []

    async def SendToRun(self, request: pb.SendToRunRequest, context: Any) -> pb.SendToRunResponse:
        self.sent.append(request)
        return pb.SendToRunResponse(number=7, run_state=run_pb2.Run.STATE_RUNNING)

    async def FollowEvents(
        self, request: pb.FollowEventsRequest, context: Any
    ) -> AsyncIterator[pb.FollowEventsResponse]:
        yield pb.FollowEventsResponse(events=self.events[request.after_seq :])


def answering(answer: bytes | LanternError) -> Executor:
    return Executor(answer)  # pyright: ignore[reportAbstractUsage] - nobody calls the other methods


def journal_of(*events: run_pb2.Event) -> Journal:
    return Journal(*events)  # pyright: ignore[reportAbstractUsage] - nobody calls the other methods


def completed(update_id: str, data: bytes | None, **facts: Any) -> run_pb2.Event:
    return run_pb2.Event(kind=kinds.UPDATE_COMPLETED, step_id=update_id, payload=payloads.pack(facts, data))


async def serve(*servicers: executor_grpc.ExecutorServiceServicer) -> list[server.Server]:
    service = executor_pb.DESCRIPTOR.services_by_name["ExecutorService"].full_name
    servers: list[server.Server] = []
    for each in servicers:

        def add(to: Any, each: executor_grpc.ExecutorServiceServicer = each) -> None:
            executor_grpc.add_ExecutorServiceServicer_to_server(each, to)

        servers.append(server.Server("127.0.0.1:0", {service: add}))
        await servers[-1].start()
    return servers


async def ask(*executors: Executor, extra: Sequence[str] = ()) -> Any:
    servers = await serve(*executors)
    try:
        async with lantern.Client(NOWHERE, [*extra, *(each.address for each in servers)]) as client:
            return await client.query(RUN_ID, "status", {"full": True})
    finally:
        for each in servers:
            await each.drain(0)


async def test_the_executor_that_has_the_code_answers():
    without = answering(LanternError(reasons.AGENT_NOT_FOUND, "not loaded here"))
    older = answering(LanternError(reasons.NONDETERMINISM, "another version"))
    able = answering(b'{"at":"charge"}')
    assert await ask(without, older, able, extra=[NOWHERE]) == {"at": "charge"}
    (request,) = able.asked
    assert (request.run_id, request.name, request.payload) == (RUN_ID, "status", b'{"full":true}')
    assert len(without.asked) == len(older.asked) == 1


@pytest.mark.parametrize("reason", [reasons.QUERY_FAILED, reasons.QUERY_NOT_FOUND, reasons.RUN_NOT_FOUND])
async def test_a_refusal_that_holds_everywhere_is_not_taken_elsewhere(reason: str):
    refusing, other = answering(LanternError(reason, "no")), answering(b"1")
    with pytest.raises(LanternError) as caught:
        await ask(refusing, other)
    assert caught.value.reason == reason
    assert other.asked == []


async def test_where_nobody_can_answer_the_last_one_says_why():
    with pytest.raises(LanternError) as caught:
        await ask()
    assert caught.value.reason == reasons.UNAVAILABLE
    with pytest.raises(LanternError) as caught:
        await ask(answering(LanternError(reasons.AGENT_NOT_FOUND, "not loaded here")))
    assert caught.value.reason == reasons.AGENT_NOT_FOUND


async def update(journal: Journal) -> Any:
    service = pb.DESCRIPTOR.services_by_name["JournalService"].full_name
    serving = server.Server(
        "127.0.0.1:0", {service: lambda to: pb_grpc.add_JournalServiceServicer_to_server(journal, to)}
    )
    await serving.start()
    try:
        async with lantern.Client(serving.address) as client:
            return await client.update(RUN_ID, "address", {"zip": "1"}, request_id="u1")
    finally:
        await serving.drain(0)


async def test_an_update_waits_for_its_own_answer():
    journal = journal_of(
        completed("update#6", b'"other"'),
        run_pb2.Event(kind=kinds.UPDATE_RECEIVED, step_id="update#7", payload=payloads.pack({"number": 7}, b"1")),
        completed("update#7", b'{"moved":true}'),
        run_pb2.Event(kind=kinds.RUN_SUCCEEDED, payload=payloads.pack({}, b"1")),
    )
    assert await update(journal) == {"moved": True}
    (request,) = journal.sent
    assert (request.kind, request.name, request.payload, request.request_id) == (
        "update",
        "address",
        b'{"zip":"1"}',
        "u1",
    )


async def test_a_refused_update_says_why():
    journal = journal_of(completed("update#7", None, error={"code": "TOO_LATE", "message": "it is packed"}))
    with pytest.raises(UpdateFailed) as caught:
        await update(journal)
    assert (caught.value.code, caught.value.message) == ("TOO_LATE", "it is packed")


async def test_a_run_that_ends_first_does_not_answer():
    journal = journal_of(run_pb2.Event(kind=kinds.RUN_SUCCEEDED, payload=payloads.pack({}, b"1")))
    with pytest.raises(LanternError) as caught:
        await update(journal)
    assert caught.value.reason == reasons.RUN_CLOSED
