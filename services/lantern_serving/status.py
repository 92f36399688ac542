"""The one map between Lantern's errors and gRPC status; the only module that names StatusCode (AIP-193).

Every failed RPC carries a google.rpc.Status with one ErrorInfo (reason, domain `lantern`, metadata) and, where a repeat
makes sense, a RetryInfo. `to_error` turns what a client got back into the same LanternError.
"""

import grpc
from google.protobuf import duration_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from lantern_kernel import reasons
from lantern_kernel.errors import LanternError

DOMAIN = "lantern"

_CODES: dict[str, grpc.StatusCode] = {
    reasons.INVALID_FIELD: grpc.StatusCode.INVALID_ARGUMENT,
    reasons.INVALID_JSON: grpc.StatusCode.INVALID_ARGUMENT,
    reasons.PAYLOAD_TOO_LARGE: grpc.StatusCode.INVALID_ARGUMENT,
    reasons.BLOB_MISMATCH: grpc.StatusCode.INVALID_ARGUMENT,
    reasons.DEFINITION_INVALID: grpc.StatusCode.INVALID_ARGUMENT,
    reasons.MESSAGE_TOO_LARGE: grpc.StatusCode.RESOURCE_EXHAUSTED,
    reasons.RUN_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    reasons.AGENT_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    reasons.SIDE_EFFECT_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    reasons.ARCHIVE_OFF: grpc.StatusCode.FAILED_PRECONDITION,
    reasons.RUN_ARCHIVED: grpc.StatusCode.FAILED_PRECONDITION,
    reasons.BLOB_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    reasons.APPROVAL_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    reasons.QUERY_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    reasons.QUERY_FAILED: grpc.StatusCode.FAILED_PRECONDITION,
    reasons.NONDETERMINISM: grpc.StatusCode.FAILED_PRECONDITION,
    reasons.WORKFLOW_ID_IN_USE: grpc.StatusCode.ALREADY_EXISTS,
    reasons.REQUEST_ID_REUSED: grpc.StatusCode.FAILED_PRECONDITION,
    reasons.AGENT_KIND_CONFLICT: grpc.StatusCode.FAILED_PRECONDITION,
    reasons.LEASE_LOST: grpc.StatusCode.FAILED_PRECONDITION,
    reasons.CHILD_TOO_DEEP: grpc.StatusCode.FAILED_PRECONDITION,
    reasons.RUN_CLOSED: grpc.StatusCode.FAILED_PRECONDITION,
    reasons.APPEND_CONFLICT: grpc.StatusCode.FAILED_PRECONDITION,
    reasons.INBOX_AHEAD: grpc.StatusCode.FAILED_PRECONDITION,
    reasons.CANCEL_REQUESTED: grpc.StatusCode.FAILED_PRECONDITION,
    reasons.SESSION_NOT_ATTACHED: grpc.StatusCode.FAILED_PRECONDITION,
    reasons.SIDE_EFFECT_SETTLED: grpc.StatusCode.FAILED_PRECONDITION,
    reasons.FEED_CURSOR_INVALID: grpc.StatusCode.INVALID_ARGUMENT,
    reasons.FEED_CURSOR_EXPIRED: grpc.StatusCode.OUT_OF_RANGE,
    reasons.FEED_CURSOR_MOVED: grpc.StatusCode.FAILED_PRECONDITION,
    reasons.APPROVAL_DECIDED: grpc.StatusCode.FAILED_PRECONDITION,
    reasons.INBOX_FULL: grpc.StatusCode.RESOURCE_EXHAUSTED,
    reasons.EVENTS_FULL: grpc.StatusCode.RESOURCE_EXHAUSTED,
    reasons.EXECUTOR_BUSY: grpc.StatusCode.RESOURCE_EXHAUSTED,
    reasons.UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
    reasons.UNKNOWN_OUTCOME: grpc.StatusCode.UNAVAILABLE,
    reasons.DEADLINE_EXCEEDED: grpc.StatusCode.DEADLINE_EXCEEDED,
    reasons.UNIMPLEMENTED: grpc.StatusCode.UNIMPLEMENTED,
}
"""Whatever is not named here is INTERNAL."""

_REASONS: dict[grpc.StatusCode, str] = {
    grpc.StatusCode.UNAVAILABLE: reasons.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED: reasons.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED: reasons.UNAVAILABLE,
    grpc.StatusCode.RESOURCE_EXHAUSTED: reasons.MESSAGE_TOO_LARGE,
    grpc.StatusCode.UNIMPLEMENTED: reasons.UNIMPLEMENTED,
}
"""What a status without our ErrorInfo means: it was made by gRPC itself."""


def to_status(error: LanternError) -> status_pb2.Status:
    """The google.rpc.Status of an error, for a stream's message or an RPC's end."""
    code = _CODES.get(error.reason, grpc.StatusCode.INTERNAL)
    status = status_pb2.Status(code=code.value[0], message=error.message)
    info = error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN, metadata=error.details)
    status.details.add().Pack(info)
    if error.retry_after_s is not None:
        delay = duration_pb2.Duration()
        delay.FromNanoseconds(int(error.retry_after_s * 1e9))
        status.details.add().Pack(error_details_pb2.RetryInfo(retry_delay=delay))
    return status


def to_grpc(error: LanternError) -> grpc.Status:
    """What `ServicerContext.abort_with_status` takes."""
    return rpc_status.to_status(to_status(error))


def from_status(status: status_pb2.Status) -> LanternError:
    """The error that a Status tells of."""
    reason, details, retry_after_s = "", {}, None
    for detail in status.details:
        info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
        if detail.Unpack(info) and info.domain == DOMAIN:
            reason, details = info.reason, dict(info.metadata)
        elif detail.Unpack(retry):
            retry_after_s = retry.retry_delay.ToNanoseconds() / 1e9
    if not reason:
        code = next((c for c in grpc.StatusCode if c.value[0] == status.code), grpc.StatusCode.UNKNOWN)
        reason = _REASONS.get(code, reasons.INTERNAL)
    return LanternError(reason, status.message, retry_after_s=retry_after_s, **details)


def to_error(error: grpc.RpcError) -> LanternError:
    """The LanternError that a failed call tells of, also where gRPC itself failed it."""
    assert isinstance(error, grpc.aio.AioRpcError | grpc.Call), "only calls fail with a status"
    status = rpc_status.from_call(error)  # pyright: ignore[reportArgumentType] - an AioRpcError has the same two readers
    if status is not None:
        return from_status(status)
    code: grpc.StatusCode = error.code()
    return LanternError(_REASONS.get(code, reasons.INTERNAL), error.details() or code.name)
