"""An executor as the journal and recovery see one, without any engine: a session, and a Drive that is recorded."""

# ruff: noqa: N802 - gRPC names the methods

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc

from lantern.api.executor.v1 import executor_service_pb2 as executor_pb
from lantern.api.executor.v1 import executor_service_pb2_grpc as executor_grpc
from lantern.api.journal.v1 import journal_service_pb2 as pb
from lantern.api.journal.v1 import worker_service_pb2 as worker_pb
from lantern.api.journal.v1 import worker_service_pb2_grpc as worker_grpc
from lantern_kernel.errors import LanternError
from lantern_serving import channels, server

PING_S = 0.5


class JournalWorker(executor_grpc.ExecutorServiceServicer):
    """Records what it is asked to drive, and opens it where `opens`."""

    def __init__(self, name: str, channel: grpc.aio.Channel) -> None:
        self.name = name
        self.driven: list[tuple[str, int]] = []
        self.opens = True
        self.error: LanternError | None = None
        self.session_number = 0
        self._stub = worker_grpc.JournalWorkerServiceStub(channel)

    async def StartRun(self, request: executor_pb.StartRunRequest, context: Any) -> executor_pb.StartRunResponse:
        raise AssertionError("recovery starts no runs")

    async def QueryRun(self, request: executor_pb.QueryRunRequest, context: Any) -> executor_pb.QueryRunResponse:
        raise AssertionError("nobody asks")

    async def Drive(self, request: executor_pb.DriveRequest, context: Any) -> executor_pb.DriveResponse:
        assert request.worker_id == self.name
        if self.error:
            raise self.error
        self.driven.append((request.run_id, request.epoch))
        if self.opens:
            target = pb.LeaseTarget(worker_id=self.name, session_number=self.session_number)
            await self._stub.OpenRun(
                worker_pb.OpenRunRequest(run_id=request.run_id, epoch=request.epoch, lease_target=target)
            )
        return executor_pb.DriveResponse()

    async def keep_session(self, address: str, agents: Sequence[str], attached: asyncio.Event) -> None:
        """Attaches and pings until cancelled; the stream then closes, as when the process dies."""

        async def requests() -> AsyncIterator[worker_pb.SessionRequest]:
            offers = [worker_pb.AgentOffer(name=agent, digest="d" * 64, program_kind="code") for agent in agents]
            attach = worker_pb.Attach(worker_id=self.name, address=address, capacity=1000, agents=offers)
            yield worker_pb.SessionRequest(attach=attach)
            while True:
                await asyncio.sleep(PING_S)
                yield worker_pb.SessionRequest(ping=1)

        call = self._stub.Session(requests())
        try:
            async for response in call:
                if response.HasField("attached"):
                    self.session_number = response.attached.session_number
                    attached.set()
        finally:
            call.cancel()


@asynccontextmanager
async def journal_worker(journal: str, name: str, agents: Sequence[str] = ("order",)) -> AsyncGenerator[JournalWorker]:
    """A worker that is attached to the journal for the length of the block."""
    async with channels.connect(journal) as channel:
        worker = JournalWorker(name, channel)

        def add(grpc_server: grpc.aio.Server) -> None:
            executor_grpc.add_ExecutorServiceServicer_to_server(worker, grpc_server)

        serving = server.Server("127.0.0.1:0", {"lantern.api.executor.v1.ExecutorService": add})
        await serving.start()
        attached = asyncio.Event()
        session = asyncio.create_task(worker.keep_session(serving.address, agents, attached))
        try:
            async with asyncio.timeout(10):
                await attached.wait()
            yield worker
        finally:
            session.cancel()
            await asyncio.gather(session, return_exceptions=True)
            await serving.drain(0)
