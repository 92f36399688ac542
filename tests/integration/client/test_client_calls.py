"""The Python client against servicers of the test: failover, fallback, streams that break, ends.

Method: real gRPC over the loopback interface; executors and the journal are really stopped and started again.
"""

# ruff: noqa: N802 - gRPC names the methods

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

import lantern
from lantern.api.executor.v1 import executor_service_pb2 as executor_pb
from lantern.api.executor.v1 import executor_service_pb2_grpc as executor_grpc
from lantern.api.journal.v1 import journal_service_pb2 as pb
from lantern.api.journal.v1 import journal_service_pb2_grpc as pb_grpc
from lantern.api.journal.v1 import run_pb2
from lantern_kernel import reasons
from lantern_kernel.errors import LanternError
from lantern_serving import server

RUN_ID = "0192f0c1-2222-7abc-8def-000000000001"
NOWHERE = "127.0.0.1:1"
KINDS = ["run_started", "lease_granted", "step_started", "step_completed", "run_succeeded"]


class Journal(pb_grpc.JournalServiceServicer):
    """One run, whose events come out `batch` at a time, the stream breaking after each batch where `breaks`."""

    def __init__(self, *, state: str = "STATE_RUNNING", batch: int = 100) -> None:
        self.run = run_pb2.Run(run_id=RUN_ID, agent_name="order", state=state)
        self.batch = batch
        self.breaks = False
        self.created: list[pb.CreateRunRequest] = []
        self.followed: list[int] = []
        self.sent: list[pb.SendToRunRequest] = []
        self.error: LanternError | None = None

    async def CreateRun(self, request: pb.CreateRunRequest, context: Any) -> pb.CreateRunResponse:
        if self.error:
            raise self.error
        self.created.append(request)
        return pb.CreateRunResponse(run=self.run, created=True)

    async def GetRun(self, request: pb.GetRunRequest, context: Any) -> pb.GetRunResponse:
        if self.error:
            raise self.error
        return pb.GetRunResponse(run=self.run)

    async def ListRuns(self, request: pb.ListRunsRequest, context: Any) -> pb.ListRunsResponse:
        return pb.ListRunsResponse(runs=[self.run], next_page_token="more")

    async def ListEvents(self, request: pb.ListEventsRequest, context: Any) -> pb.ListEventsResponse:
        first = int(request.page_token or request.after_seq)
        last = first + self.batch
        events = [self._event(seq) for seq in range(first + 1, min(last, len(KINDS)) + 1)]
        return pb.ListEventsResponse(events=events, next_page_token=str(last) if last < len(KINDS) else "")

    async def FollowEvents(
        self, request: pb.FollowEventsRequest, context: Any
    ) -> AsyncIterator[pb.FollowEventsResponse]:
        self.followed.append(request.after_seq)
        at = request.after_seq
        while at < len(KINDS):
            last = min(at + self.batch, len(KINDS))
            if last == len(KINDS):
                self.run.state = run_pb2.Run.STATE_SUCCEEDED
                self.run.result = b'{"paid":true}'
            yield pb.FollowEventsResponse(events=[self._event(seq) for seq in range(at + 1, last + 1)])
            at = last
            if self.breaks:
                raise LanternError(reasons.UNAVAILABLE, "the service is stopping")

    async def SendToRun(self, request: pb.SendToRunRequest, context: Any) -> pb.SendToRunResponse:
        self.sent.append(request)
        return pb.SendToRunResponse(number=len(self.sent), run_state=run_pb2.Run.STATE_WAITING)

    async def ResetRun(self, request: pb.ResetRunRequest, context: Any) -> pb.ResetRunResponse:
        return pb.ResetRunResponse()

    async def ListAgents(self, request: pb.ListAgentsRequest, context: Any) -> pb.ListAgentsResponse:
        return pb.ListAgentsResponse()

    def _event(self, seq: int) -> run_pb2.Event:
        return run_pb2.Event(seq=seq, kind=KINDS[seq - 1], time_us=seq, payload=b"{}")


class Executor(executor_grpc.ExecutorServiceServicer):
    """Starts runs, or refuses with `error`."""

    def __init__(self, error: LanternError | None = None) -> None:
        self.started: list[executor_pb.StartRunRequest] = []
        self.error = error

    async def StartRun(self, request: executor_pb.StartRunRequest, context: Any) -> executor_pb.StartRunResponse:
        self.started.append(request)
        if self.error:
            raise self.error
        return executor_pb.StartRunResponse(run=run_pb2.Run(run_id=RUN_ID, state=run_pb2.Run.STATE_RUNNING))

    async def Drive(self, request: executor_pb.DriveRequest, context: Any) -> executor_pb.DriveResponse:
        raise AssertionError("clients drive nothing")

    async def QueryRun(self, request: executor_pb.QueryRunRequest, context: Any) -> executor_pb.QueryRunResponse:
        raise AssertionError("nobody asks")


async def serve(servicer: Journal | Executor, address: str = "127.0.0.1:0") -> server.Server:
    def add(grpc_server: grpc.aio.Server) -> None:
        if isinstance(servicer, Journal):
            pb_grpc.add_JournalServiceServicer_to_server(servicer, grpc_server)
        else:
            executor_grpc.add_ExecutorServiceServicer_to_server(servicer, grpc_server)

    name = "Journal" if isinstance(servicer, Journal) else "Executor"
    running = server.Server(address, {f"lantern.api.{name.lower()}.v1.{name}Service": add})
    await running.start()
    return running


async def test_a_run_is_started_by_an_executor_in_turn():
    one, two = Executor(), Executor()
    first, second = await serve(one), await serve(two)
    async with lantern.Client(NOWHERE, [first.address, second.address]) as client:
        runs = [await client.start("order", {"n": 1}, workflow_id="order-1") for _ in range(4)]
    assert runs[0].state == "RUNNING"
    assert (len(one.started), len(two.started)) == (2, 2)
    assert (one.started[0].input, one.started[0].workflow_id) == (b'{"n":1}', "order-1")
    assert len({request.request_id for request in (*one.started, *two.started)}) == 4
    await first.drain(0)
    await second.drain(0)


async def test_the_next_executor_gets_the_same_request_then_the_journal():
    stopping = Executor(LanternError(reasons.UNAVAILABLE, "stopping"))
    unsure = Executor(LanternError(reasons.UNKNOWN_OUTCOME, "lost"))
    journal = Journal()
    running = [await serve(stopping), await serve(unsure), await serve(journal)]
    executors = [NOWHERE, running[0].address, running[1].address]
    async with lantern.Client(running[2].address, executors) as client:
        await client.start("order")
    request_ids = {stopping.started[0].request_id, unsure.started[0].request_id, journal.created[0].request_id}
    assert len(request_ids) == 1
    assert journal.created[0].input == b"null"
    for each in running:
        await each.drain(0)


async def test_a_refusal_is_the_answer_and_nobody_else_is_asked():
    refusing = Executor(LanternError(reasons.WORKFLOW_ID_IN_USE, "taken", field="workflow_id"))
    other, journal = Executor(), Journal()
    running = [await serve(refusing), await serve(other), await serve(journal)]
    async with lantern.Client(running[2].address, [running[0].address, running[1].address]) as client:
        with pytest.raises(LanternError) as caught:
            await client.start("order", request_id="mine", workflow_id="order-1")
    assert caught.value.reason == reasons.WORKFLOW_ID_IN_USE
    assert caught.value.details == {"field": "workflow_id"}
    assert refusing.started[0].request_id == "mine"
    assert (other.started, journal.created) == ([], [])
    for each in running:
        await each.drain(0)


@pytest.mark.parametrize("value", [float("nan"), {"a": object()}, {1: 2}, "\ud800", b"bytes"])
async def test_what_json_cannot_say_is_refused_before_anything_is_sent(value: object):
    async with lantern.Client(NOWHERE) as client:
        with pytest.raises(LanternError) as caught:
            await client.start("order", value)
        assert caught.value.reason == reasons.INVALID_JSON
        with pytest.raises(LanternError, match="policy"):
            await client.start("order", policy="whatever")


@pytest.mark.parametrize("batch", [1, 2, 5])
@pytest.mark.parametrize("breaks", [False, True])
async def test_watch_sees_each_event_once_whatever_breaks(batch: int, breaks: bool):
    journal = Journal(batch=batch)
    journal.breaks = breaks
    running = await serve(journal)
    async with lantern.Client(running.address) as client:
        assert [event.seq async for event in client.watch(RUN_ID)] == [1, 2, 3, 4, 5]
        assert [event.seq async for event in client.watch(RUN_ID, after_seq=3)] == [4, 5]
        assert [event.seq async for event in client.watch(RUN_ID, after_seq=5)] == []
        assert [event.seq for event in await client.events(RUN_ID)] == [1, 2, 3, 4, 5]
    await running.drain(0)


async def test_result_waits_through_a_restart_of_the_journal():
    journal = Journal(batch=2)
    journal.breaks = True
    running = await serve(journal)
    address = running.address
    async with lantern.Client(address) as client:
        assert not (await client.get(RUN_ID)).is_terminal
        await running.drain(0)
        waiting = asyncio.create_task(client.watch(RUN_ID).__anext__())
        await asyncio.sleep(0.3)
        assert not waiting.done()
        running = await serve(journal, address)
        assert (await waiting).seq == 1
        assert await client.result(RUN_ID) == {"paid": True}
    await running.drain(0)


async def test_patience_ends():
    async with lantern.Client(NOWHERE, patience_s=0.2) as client:
        with pytest.raises(LanternError) as caught:
            async for _ in client.watch(RUN_ID):
                pass
    assert caught.value.reason == reasons.UNAVAILABLE


@pytest.mark.parametrize("state", ["STATE_FAILED", "STATE_CANCELLED"])
async def test_result_of_a_run_without_one_raises(state: str):
    journal = Journal(state=state)
    journal.run.error.code = "CARD"
    running = await serve(journal)
    async with lantern.Client(running.address) as client:
        with pytest.raises(lantern.RunFailed) as caught:
            await client.result(RUN_ID)
        assert caught.value.code == "CARD"
        assert (await client.wait(RUN_ID)).is_terminal
    await running.drain(0)


async def test_not_found_is_not_retried():
    journal = Journal()
    journal.error = LanternError(reasons.RUN_NOT_FOUND, "no such run")
    running = await serve(journal)
    async with lantern.Client(running.address) as client:
        with pytest.raises(LanternError) as caught:
            await client.result(RUN_ID)
    assert caught.value.reason == reasons.RUN_NOT_FOUND
    await running.drain(0)


async def test_signal_cancel_and_list():
    journal = Journal()
    running = await serve(journal)
    async with lantern.Client(running.address, tenant_id="acme") as client:
        assert await client.signal(RUN_ID, "address", {"street": "x"}, request_id="s1") == 1
        cancelled = await client.cancel(RUN_ID)
        assert (cancelled.number, cancelled.state, cancelled.already_ended) == (2, "WAITING", False)
        page = await client.list(states=["RUNNING"], agent="order")
        assert (len(page.runs), page.next_page_token) == (1, "more")
    signal, cancel = journal.sent
    assert (signal.kind, signal.name, signal.payload, signal.request_id) == (
        "signal",
        "address",
        b'{"street":"x"}',
        "s1",
    )
    assert (cancel.kind, len(cancel.request_id)) == ("cancel", 36)
    await running.drain(0)
