"""What every request of a client goes over: channels, calls with a deadline, user data by value or as a blob."""

import os
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Self, TypeVar

import grpc

from lantern.api.journal.v1 import approval_service_pb2_grpc as approval_grpc
from lantern.api.journal.v1 import blob_service_pb2_grpc as blob_grpc
from lantern.api.journal.v1 import journal_service_pb2 as pb
from lantern.api.journal.v1 import journal_service_pb2_grpc as pb_grpc
from lantern.client import blobs
from lantern.client.errors import to_error
from lantern.client.run import Taken, taken_from_wire
from lantern.program import conversion
from lantern_kernel import json_bytes
from lantern_kernel.bounds import MESSAGE_RECEIVE_BYTES_MAX

DEADLINE_S = 10.0
"""Of every unary call."""

PATIENCE_S = 30.0
"""How long `watch` and `result` go on while the journal cannot be reached."""

_OPTIONS: list[tuple[str, int]] = [
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.max_receive_message_length", MESSAGE_RECEIVE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_RECEIVE_BYTES_MAX),
]

T = TypeVar("T")


def new_request_id() -> str:
    """A random id (UUIDv4) for one logical request."""
    return str(uuid.UUID(bytes=os.urandom(16), version=4))


class Connection:
    """One journal and any number of executors; see Client."""

    def __init__(
        self,
        journal: str,
        executors: Sequence[str] = (),
        *,
        tenant_id: str = "default",
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._journal_address = journal
        self._executor_addresses = tuple(executors)
        self._tenant_id = tenant_id
        self._patience_s = patience_s
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._turn = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connections."""
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close()

    async def _send(self, run_id: str, kind: str, name: str, payload: bytes, request_id: str | None) -> Taken:
        request = pb.SendToRunRequest(
            request_id=request_id or new_request_id(),
            run_id=run_id,
            kind=kind,
            name=name,
            **(await self._content("payload", payload)),
        )
        return taken_from_wire(await self._call(self._journal.SendToRun, request))

    async def _content(self, field: str, body: bytes) -> dict[str, Any]:
        """The request's field for user data; what is too large for it is uploaded, and named instead."""
        return await blobs.as_field(self._blobs, self._journal_address, self._tenant_id, field, body)

    async def _call(self, method: Callable[..., Awaitable[T]], request: object, address: str = "") -> T:
        """One unary call, to the journal where no address is given."""
        try:
            return await method(request, timeout=DEADLINE_S)
        except grpc.aio.AioRpcError as error:
            raise to_error(error, address or self._journal_address) from None

    @property
    def _blobs(self) -> Any:
        return blob_grpc.JournalBlobServiceStub(self._channel(self._journal_address))

    @property
    def _journal(self) -> "pb_grpc.JournalServiceAsyncStub":
        return pb_grpc.JournalServiceStub(self._channel(self._journal_address))

    @property
    def _approvals(self) -> "approval_grpc.JournalApprovalServiceAsyncStub":
        return approval_grpc.JournalApprovalServiceStub(self._channel(self._journal_address))

    def _channel(self, address: str) -> grpc.aio.Channel:
        if address not in self._channels:
            self._channels[address] = grpc.aio.insecure_channel(address, options=_OPTIONS)
        return self._channels[address]

    def _executors_in_turn(self) -> Sequence[str]:
        """All executors, beginning with the next one each time."""
        if not self._executor_addresses:
            return ()
        first = self._turn % len(self._executor_addresses)
        self._turn += 1
        return self._executor_addresses[first:] + self._executor_addresses[:first]


def json_of(field: str, value: Any, raw: bytes | None) -> bytes:
    """A value as JSON bytes, or the bytes that stand for it."""
    return conversion.encode(value, field) if raw is None else json_bytes.check(raw, field)
