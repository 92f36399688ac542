"""The Journal port over JournalRecoveryService, and the one call of JournalWorkerService that gives a lease back."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence

import grpc

from lantern.api.journal.v1 import recovery_service_pb2 as pb
from lantern.api.journal.v1 import recovery_service_pb2_grpc as pb_grpc
from lantern.api.journal.v1 import worker_service_pb2_grpc as worker_grpc
from lantern_kernel.errors import InvalidField
from lantern_recovery import validate, wire
from lantern_recovery.adapters.answers import translated
from lantern_recovery.domain.orphan import Orphan
from lantern_recovery.domain.worker import Worker

log = logging.getLogger(__name__)

HEADERS_TIMEOUT_S = 1.0
"""How long a journal may take to confirm a watch; one that never does so early is taken to watch by then."""


class GrpcJournal:
    """Speaks to one journal address; every unary call has the channel's default deadline."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel
        self._stub = pb_grpc.JournalRecoveryServiceStub(channel)
        self._worker_stub = worker_grpc.JournalWorkerServiceStub(channel)

    async def find_orphans(self, limit: int) -> Sequence[Orphan]:
        """See ports.Journal."""
        with translated():
            response = await self._stub.FindOrphans(pb.FindOrphansRequest(page_size=limit))
        return [wire.orphan(message) for message in response.orphans]

    async def _worker_messages(self) -> list[pb.Worker]:
        messages: list[pb.Worker] = []
        request = pb.FindWorkersRequest()
        while True:
            with translated():
                response = await self._stub.FindWorkers(request)
            messages += response.workers
            if not response.next_page_token:
                return messages
            request = pb.FindWorkersRequest(page_token=response.next_page_token)

    async def find_workers(self) -> Sequence[Worker]:
        """See ports.Journal. A worker that cannot be called is left out."""
        workers: list[Worker] = []
        for message in await self._worker_messages():
            try:
                workers.append(validate.worker(wire.worker(message)))
            except InvalidField as error:
                log.warning(
                    "worker left out",
                    extra={"action": "worker_left_out", "worker_id": message.worker_id, "fault": error.message},
                )
        return workers

    async def acquire_lease(self, orphan: Orphan, worker: Worker) -> int | None:
        """See ports.Journal."""
        with translated():
            response = await self._stub.AcquireLease(wire.acquire_request(orphan, worker))
        return response.epoch if response.acquired else None

    async def release_refused(self, orphan: Orphan, worker: Worker, epoch: int) -> None:
        """See ports.Journal."""
        with translated():
            await self._worker_stub.ReleaseLease(wire.release_request(orphan, worker, epoch))

    async def defer_run(self, run_id: str, delay_s: float | None) -> None:
        """See ports.Journal."""
        with translated():
            await self._stub.DeferRun(wire.defer_request(run_id, delay_s))

    async def watch_orphans(self) -> AsyncGenerator[str, None]:
        """See ports.Journal."""
        call = self._stub.WatchOrphans(pb.WatchOrphansRequest(), wait_for_ready=True)
        try:
            with translated():
                await self._channel.channel_ready()
                yield "connected"
                # What was announced before the journal took the call in is not known either: once more when that is
                # certain, by its headers or by the time that has passed.
                headers = asyncio.ensure_future(call.initial_metadata())
                await asyncio.wait({headers}, timeout=HEADERS_TIMEOUT_S)
                headers.cancel()
                yield "confirmed"
                async for message in call:
                    yield message.cause
        finally:
            call.cancel()
