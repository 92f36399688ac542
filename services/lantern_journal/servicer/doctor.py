"""JournalDoctorService: see its proto for what each RPC promises."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from lantern.api.journal.v1 import doctor_service_pb2 as pb
from lantern.api.journal.v1 import doctor_service_pb2_grpc
from lantern_journal import validate, wire
from lantern_journal.application.doctor import Doctor
from lantern_journal.servicer.streams import OpenStreams


class DoctorServicer(doctor_service_pb2_grpc.JournalDoctorServiceServicer):
    """For whoever looks after the journal."""

    def __init__(self, doctor: Doctor, streams: OpenStreams) -> None:
        self._doctor, self._streams = doctor, streams

    async def CheckInvariants(
        self, request: pb.CheckInvariantsRequest, context: Any
    ) -> AsyncIterator[pb.CheckInvariantsResponse]:
        """Checks the invariants."""
        validate.doctor(request)
        with self._streams.registered():
            async with aclosing(self._doctor.check(request.run_id, request.after_run_id)) as reports:
                async for report in reports:
                    yield wire.report(report)

    async def RebuildProjections(
        self, request: pb.RebuildProjectionsRequest, context: Any
    ) -> AsyncIterator[pb.RebuildProjectionsResponse]:
        """Rebuilds the rows of runs from their events."""
        validate.doctor(request)
        with self._streams.registered():
            async with aclosing(self._doctor.rebuild(request.run_id, request.after_run_id)) as pages:
                async for changes in pages:
                    yield wire.projection_changes(changes)
