"""A failed call as the LanternError that the service meant (google.rpc.Status, AIP-193)."""

from typing import Any

import grpc
from google.rpc import code_pb2, error_details_pb2, status_pb2

from lantern_kernel import reasons
from lantern_kernel.errors import LanternError

DOMAIN = "lantern"

_STATUS_METADATA_KEY = "grpc-status-details-bin"

_REASONS: dict[int, str] = {
    code_pb2.UNAVAILABLE: reasons.UNAVAILABLE,
    code_pb2.CANCELLED: reasons.UNAVAILABLE,
    code_pb2.DEADLINE_EXCEEDED: reasons.DEADLINE_EXCEEDED,
    code_pb2.RESOURCE_EXHAUSTED: reasons.MESSAGE_TOO_LARGE,
    code_pb2.UNIMPLEMENTED: reasons.UNIMPLEMENTED,
}
"""What a code means that gRPC itself made; what is not named here is INTERNAL."""

_UNANSWERED: dict[int, str] = {
    code_pb2.UNAVAILABLE: "nothing answers at",
    code_pb2.DEADLINE_EXCEEDED: "no answer in time from",
}
"""What is said in the place of gRPC's own words, which are about its insides."""

_NO_GRPC = "Received http2 header with status"
"""How gRPC begins where something else than gRPC answers, a proxy for instance."""

UNREACHED = frozenset({reasons.UNAVAILABLE, reasons.UNKNOWN_OUTCOME, reasons.DEADLINE_EXCEEDED})
"""Reasons after which the same request may be sent again, elsewhere too: every request is idempotent."""


def to_error(error: grpc.aio.AioRpcError, address: str = "") -> LanternError:
    """The LanternError that a failed call tells of; what gRPC itself says of it gets the address that was called."""
    code: int = error.code().value[0]
    message, reason, facts, retry_after_s = error.details() or error.code().name, "", {}, None
    for detail in _details(error):
        info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
        if detail.Unpack(info) and info.domain == DOMAIN:
            reason, facts = info.reason, dict(info.metadata)
        elif detail.Unpack(retry):
            retry_after_s = retry.retry_delay.ToNanoseconds() / 1e9
    if not reason:
        reason = _REASONS.get(code, reasons.INTERNAL)
        if message.startswith(_NO_GRPC):
            reason = reasons.UNAVAILABLE
            message = f"what answers at {address or 'the address'} is no Lantern: {message}"
        elif address:
            message = f"{_UNANSWERED[code]} {address}" if code in _UNANSWERED else f"{address}: {message}"
    return LanternError(reason, message, retry_after_s=retry_after_s, **facts)


def _details(error: grpc.aio.AioRpcError) -> list[Any]:
    for key, value in error.trailing_metadata() or ():
        if key == _STATUS_METADATA_KEY:
            status = status_pb2.Status()
            status.ParseFromString(value if isinstance(value, bytes) else value.encode("latin-1"))
            return list(status.details)
    return []
