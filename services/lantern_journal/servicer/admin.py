"""JournalAdminService: see its proto for what each RPC promises."""

from typing import Any

from lantern.api.journal.v1 import admin_service_pb2 as pb
from lantern.api.journal.v1 import admin_service_pb2_grpc
from lantern_journal.application.housekeeping import Housekeeping


class AdminServicer(admin_service_pb2_grpc.JournalAdminServiceServicer):
    """For whoever operates the journal."""

    def __init__(self, housekeeping: Housekeeping) -> None:
        self._housekeeping = housekeeping

    async def ArchiveRuns(self, request: pb.ArchiveRunsRequest, context: Any) -> pb.ArchiveRunsResponse:
        """Archives what is old enough."""
        counts = await self._housekeeping.archive()
        return pb.ArchiveRunsResponse(
            run_count=counts.runs,
            event_count=counts.events,
            file_count=counts.files,
            faulty_run_count=counts.faulty,
            dropped_partition_count=counts.partitions,
            busy=counts.is_busy,
        )
