"""RecoveryService over gRPC."""

from typing import Any

from lantern.api.recovery.v1 import recovery_service_pb2 as pb
from lantern.api.recovery.v1 import recovery_service_pb2_grpc as pb_grpc
from lantern_recovery import wire
from lantern_recovery.application.sweep import Sweep


class RecoveryServicer(pb_grpc.RecoveryServiceServicer):
    """Makes a pass for whoever asks."""

    def __init__(self, sweep: Sweep) -> None:
        self._sweep = sweep

    async def RunPass(self, request: pb.RunPassRequest, context: Any) -> pb.RunPassResponse:
        """Makes one pass now."""
        return wire.pass_response(await self._sweep.run_pass())
