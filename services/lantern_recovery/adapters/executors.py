"""The Executors port over ExecutorService: one channel per address, dropped when no worker has it any more."""

from collections.abc import Callable
from collections.abc import Set as AbstractSet

import grpc

from lantern.api.executor.v1 import executor_service_pb2_grpc as pb_grpc
from lantern_recovery import wire
from lantern_recovery.adapters.answers import translated
from lantern_recovery.domain.orphan import Orphan
from lantern_recovery.domain.worker import Worker

DRIVE_DEADLINE_S = 3.0
"""An executor answers Drive at once; well below the 5 s that an unopened grant lasts."""


class GrpcExecutors:
    """Channels to executors.

    Args:
        connect: Makes a channel to an address.
    """

    def __init__(self, connect: Callable[[str], grpc.aio.Channel]) -> None:
        self._connect = connect
        self._channels: dict[str, grpc.aio.Channel] = {}

    async def drive(self, orphan: Orphan, worker: Worker, epoch: int) -> None:
        """See ports.Executors."""
        channel = self._channels.get(worker.address)
        if channel is None:
            channel = self._channels[worker.address] = self._connect(worker.address)
        request = wire.drive_request(orphan, worker, epoch)
        with translated():
            await pb_grpc.ExecutorServiceStub(channel).Drive(request, timeout=DRIVE_DEADLINE_S)

    async def keep_only(self, addresses: AbstractSet[str]) -> None:
        """See ports.Executors."""
        for address in self._channels.keys() - addresses:
            await self._channels.pop(address).close()

    async def close(self) -> None:
        """Closes all."""
        await self.keep_only(frozenset())
