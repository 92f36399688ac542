"""Checking a journal, and rebuilding what it keeps beside its events."""

from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import Any, Self

import grpc

from lantern.api.journal.v1 import doctor_service_pb2 as pb
from lantern.api.journal.v1 import doctor_service_pb2_grpc
from lantern.client.errors import to_error
from lantern_kernel.bounds import MESSAGE_RECEIVE_BYTES_MAX

_OPTIONS: list[tuple[str, int]] = [
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.max_receive_message_length", MESSAGE_RECEIVE_BYTES_MAX),
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One thing that is not as it should be, or that is worth knowing."""

    # Whether it must not be; else it is only worth knowing.
    is_fault: bool
    # chain, projection, wake_source, lease, session, feed or database.
    check: str
    # What of it: a column, `payload`, `integrity` ...
    subject: str
    # For people.
    message: str
    # The run; empty where it is not about one.
    run_id: str
    # Whether rebuilding mends it.
    mendable: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """What was found since the last report."""

    # In the order in which they were made.
    findings: tuple[Finding, ...]
    # Runs and events checked so far.
    run_count: int
    # See `run_count`.
    event_count: int
    # Everything has been checked.
    complete: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One value that was set right."""

    # The run.
    run_id: str
    # The column, or `lock`.
    column: str
    # What was there.
    before: str
    # What is there now.
    after: str


class Doctor:
    """Speaks to one journal; every method may raise LanternError. Use it as an async context manager.

    Args:
        journal: Its `host:port`.
    """

    def __init__(self, journal: str) -> None:
        self._address = journal
        self._channel = grpc.aio.insecure_channel(journal, options=_OPTIONS)
        self._stub: Any = doctor_service_pb2_grpc.JournalDoctorServiceStub(self._channel)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()

    async def check(self, run_id: str = "") -> AsyncGenerator[Report]:
        """What is wrong with one run, or with all of them, the feed and the database."""
        async for message in self._messages(self._stub.CheckInvariants(pb.CheckInvariantsRequest(run_id=run_id))):
            yield Report(
                findings=tuple(map(_finding, message.findings)),
                run_count=message.run_count,
                event_count=message.event_count,
                complete=message.complete,
            )

    async def rebuild(self, run_id: str = "") -> AsyncGenerator[list[Change]]:
        """Rebuilds the rows of one run or of all from their events; what was changed."""
        async for message in self._messages(self._stub.RebuildProjections(pb.RebuildProjectionsRequest(run_id=run_id))):
            yield [
                Change(run_id=change.run_id, column=change.column, before=change.before, after=change.after)
                for change in message.changes
            ]

    async def _messages(self, call: Any) -> AsyncIterator[Any]:
        try:
            async for message in call:
                yield message
        except grpc.aio.AioRpcError as error:
            raise to_error(error, self._address) from None
        finally:
            call.cancel()


def _finding(message: pb.Finding) -> Finding:
    return Finding(
        is_fault=message.severity != pb.Finding.SEVERITY_NOTE,
        check=message.check,
        subject=message.subject,
        message=message.message,
        run_id=message.run_id,
        mendable=message.mendable,
    )
