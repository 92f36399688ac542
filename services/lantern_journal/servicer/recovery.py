"""JournalRecoveryService: see its proto for what each RPC promises."""

from collections.abc import AsyncIterator
from typing import Any

from lantern.api.journal.v1 import recovery_service_pb2 as pb
from lantern.api.journal.v1 import recovery_service_pb2_grpc
from lantern_journal import validate, wire
from lantern_journal.application.announcements import Hub
from lantern_journal.application.leases import Leases
from lantern_journal.servicer.streams import OpenStreams, page_token, position_of
from lantern_kernel.bounds import PAGE_BYTES_MAX


class RecoveryServicer(recovery_service_pb2_grpc.JournalRecoveryServiceServicer):
    """For the sweep that re-drives runs."""

    def __init__(self, leases: Leases, hub: Hub, streams: OpenStreams) -> None:
        self._leases, self._hub, self._streams = leases, hub, streams

    async def FindOrphans(self, request: pb.FindOrphansRequest, context: Any) -> pb.FindOrphansResponse:
        """Returns runs that need a driver."""
        limit = validate.find_orphans(request)
        return pb.FindOrphansResponse(orphans=map(wire.orphan, await self._leases.orphans(limit)))

    async def FindWorkers(self, request: pb.FindWorkersRequest, context: Any) -> pb.FindWorkersResponse:
        """Returns the live workers."""
        position = position_of(request.page_token, 1)
        after = position[0] if position else ""
        found = sorted(await self._leases.workers(), key=lambda worker: worker.worker_id)
        response, size = pb.FindWorkersResponse(), 0
        for worker in found:
            if worker.worker_id <= after:
                continue
            message = wire.worker(worker)
            size += message.ByteSize()
            if response.workers and size > PAGE_BYTES_MAX:
                response.next_page_token = page_token(response.workers[-1].worker_id)
                break
            response.workers.append(message)
        return response

    async def AcquireLease(self, request: pb.AcquireLeaseRequest, context: Any) -> pb.AcquireLeaseResponse:
        """Grants a lease to a worker's session."""
        validate.acquire_lease(request)
        epoch = await self._leases.acquire(request.run_id, wire.lease_target(request.lease_target), request.reason)
        return pb.AcquireLeaseResponse(acquired=epoch > 0, epoch=epoch)

    async def DeferRun(self, request: pb.DeferRunRequest, context: Any) -> pb.DeferRunResponse:
        """Sets a run aside."""
        await self._leases.defer(request.run_id, validate.defer_run(request))
        return pb.DeferRunResponse()

    async def WatchOrphans(
        self, request: pb.WatchOrphansRequest, context: Any
    ) -> AsyncIterator[pb.WatchOrphansResponse]:
        """Announces that there may be orphans."""
        with self._streams.registered(), self._hub.watch() as subscription:
            # Tells the caller at once that from here on it hears everything.
            await context.send_initial_metadata(())
            async for cause in subscription.causes():
                yield pb.WatchOrphansResponse(cause=cause)
