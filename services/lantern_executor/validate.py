"""What a request must be like before the executor does anything with it; each fault names its field."""

from lantern.api.executor.v1 import executor_service_pb2 as executor_pb
from lantern.api.journal.v1 import journal_service_pb2 as journal_pb
from lantern_kernel import json_bytes
from lantern_kernel.bounds import PAYLOAD_INLINE_BYTES_MAX, SEQ_MAX
from lantern_kernel.chain import DIGEST_BYTES
from lantern_kernel.errors import InvalidField
from lantern_kernel.names import check_run_id, check_user_id
from lantern_kernel.payloads import DURABILITIES

TRACEPARENT_CHARACTERS_MAX = 200
WORKER_ID_CHARACTERS_MAX = 200
WAIT_S_MAX = 3600
"""How long a start may wait for the end of its run."""


def check_start(message: executor_pb.StartRunRequest) -> None:
    """Raises InvalidField where a start is not acceptable. What the journal knows better is left to it."""
    check_user_id("request_id", message.request_id)
    if message.tenant_id:
        check_user_id("tenant_id", message.tenant_id)
    check_user_id("agent_name", message.agent_name)
    if message.workflow_id:
        check_user_id("workflow_id", message.workflow_id)
    if message.workflow_id_policy not in journal_pb.CreateRunRequest.WorkflowIdPolicy.values():
        raise InvalidField("workflow_id_policy", f"{message.workflow_id_policy} is no policy")
    if len(message.traceparent) > TRACEPARENT_CHARACTERS_MAX:
        raise InvalidField("traceparent", f"longer than {TRACEPARENT_CHARACTERS_MAX} characters")
    if message.HasField("input_blob"):
        _check_blob(message)
    elif message.input:
        json_bytes.check(message.input, "input", bytes_max=PAYLOAD_INLINE_BYTES_MAX)
    if message.HasField("signal"):
        check_user_id("signal.name", message.signal.name)
        if message.signal.payload:
            json_bytes.check(message.signal.payload, "signal.payload", bytes_max=PAYLOAD_INLINE_BYTES_MAX)
    if message.HasField("wait") and not 0 <= message.wait.ToMicroseconds() <= WAIT_S_MAX * 1_000_000:
        raise InvalidField("wait", f"not within 0 and {WAIT_S_MAX} s")
    if message.durability and message.durability not in DURABILITIES:
        raise InvalidField("durability", f"{message.durability[:64]!r} is none of {', '.join(DURABILITIES)}")


def _check_blob(message: executor_pb.StartRunRequest) -> None:
    if message.input:
        raise InvalidField("input_blob", "stands beside input: give one of them")
    if len(message.input_blob.sha256) != DIGEST_BYTES:
        raise InvalidField("input_blob.sha256", f"{len(message.input_blob.sha256)} bytes, not {DIGEST_BYTES}")
    if message.input_blob.size < 0:
        raise InvalidField("input_blob.size", f"{message.input_blob.size} is negative")


def check_query(message: executor_pb.QueryRunRequest) -> None:
    """Raises InvalidField where a query is not acceptable."""
    check_run_id("run_id", message.run_id)
    check_user_id("name", message.name)
    if message.payload:
        json_bytes.check(message.payload, "payload", bytes_max=PAYLOAD_INLINE_BYTES_MAX)


def check_drive(message: executor_pb.DriveRequest) -> None:
    """Raises InvalidField where a drive is not acceptable."""
    check_run_id("run_id", message.run_id)
    if not 1 <= message.epoch <= SEQ_MAX:
        raise InvalidField("epoch", f"{message.epoch} is not within 1 and {SEQ_MAX}")
    if not 1 <= len(message.worker_id) <= WORKER_ID_CHARACTERS_MAX:
        raise InvalidField("worker_id", f"1 to {WORKER_ID_CHARACTERS_MAX} characters are required")
    check_user_id("agent_name", message.agent_name)
