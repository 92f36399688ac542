"""ExecutorService: requests checked, turned into domain values, answered."""

from typing import Any

import grpc

from lantern.api.executor.v1 import executor_service_pb2 as pb
from lantern.api.executor.v1 import executor_service_pb2_grpc as pb_grpc
from lantern_executor import validate, wire
from lantern_executor.application.executor import Executor


class ExecutorServicer(pb_grpc.ExecutorServiceServicer):
    """The gRPC shell of the executor; errors become a Status in the interceptor around it."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    async def StartRun(
        self, request: pb.StartRunRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.StartRunResponse:
        """See the proto."""
        validate.check_start(request)
        created = await self._executor.start_run(wire.to_start(request))
        end = None
        if request.HasField("wait"):
            end = await self._executor.wait_for_end(created.run.run_id, request.wait.ToMicroseconds() / 1e6)
        return pb.StartRunResponse(run=wire.from_run(created.run), created=created.created, end=wire.from_end(end))

    async def Drive(self, request: pb.DriveRequest, context: grpc.aio.ServicerContext[Any, Any]) -> pb.DriveResponse:
        """See the proto."""
        validate.check_drive(request)
        await self._executor.drive(
            run_id=request.run_id, epoch=request.epoch, worker_id=request.worker_id, agent_name=request.agent_name
        )
        return pb.DriveResponse()

    async def QueryRun(
        self, request: pb.QueryRunRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.QueryRunResponse:
        """See the proto."""
        validate.check_query(request)
        result = await self._executor.query(request.run_id, request.name, request.payload or b"null")
        return pb.QueryRunResponse(result=result)
