"""What the client makes of messages and of failed calls.

Method: messages and errors made by hand; no channel is opened.
"""

import grpc
import pytest
from google.protobuf import duration_pb2
from google.rpc import error_details_pb2, status_pb2

from lantern.api.journal.v1 import journal_service_pb2 as journal_pb
from lantern.api.journal.v1 import run_pb2 as pb
from lantern.client.connection import new_request_id
from lantern.client.errors import to_error
from lantern.client.run import STATES, Run, RunFailed, run_from_wire, state_to_wire
from lantern_kernel import reasons
from lantern_kernel.errors import InvalidField

EMPTY = grpc.aio.Metadata()


def failed(code: grpc.StatusCode, message: str = "m", trailing: grpc.aio.Metadata = EMPTY) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, EMPTY, trailing, details=message)


def test_a_lantern_status_keeps_reason_facts_and_retry():
    status = status_pb2.Status(code=8, message="full")
    info = error_details_pb2.ErrorInfo(reason="EXECUTOR_BUSY", domain="lantern", metadata={"field": "x"})
    status.details.add().Pack(info)
    retry = error_details_pb2.RetryInfo(retry_delay=duration_pb2.Duration(nanos=250_000_000))
    status.details.add().Pack(retry)
    trailing = grpc.aio.Metadata(("grpc-status-details-bin", status.SerializeToString()))
    error = to_error(failed(grpc.StatusCode.RESOURCE_EXHAUSTED, "full", trailing))
    assert (error.reason, error.message, dict(error.details)) == ("EXECUTOR_BUSY", "full", {"field": "x"})
    assert error.retry_after_s == pytest.approx(0.25)


def test_a_foreign_status_is_judged_by_its_code():
    status = status_pb2.Status(code=14, message="m")
    status.details.add().Pack(error_details_pb2.ErrorInfo(reason="OTHER", domain="example.com"))
    trailing = grpc.aio.Metadata(("grpc-status-details-bin", status.SerializeToString()))
    assert to_error(failed(grpc.StatusCode.UNAVAILABLE, "m", trailing)).reason == reasons.UNAVAILABLE


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (grpc.StatusCode.UNAVAILABLE, reasons.UNAVAILABLE),
        (grpc.StatusCode.CANCELLED, reasons.UNAVAILABLE),
        (grpc.StatusCode.DEADLINE_EXCEEDED, reasons.DEADLINE_EXCEEDED),
        (grpc.StatusCode.UNIMPLEMENTED, reasons.UNIMPLEMENTED),
        (grpc.StatusCode.INTERNAL, reasons.INTERNAL),
        (grpc.StatusCode.UNKNOWN, reasons.INTERNAL),
    ],
)
def test_what_grpc_itself_failed(code: grpc.StatusCode, reason: str):
    assert to_error(failed(code)).reason == reason


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (grpc.StatusCode.UNAVAILABLE, "nothing answers at j:1"),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "no answer in time from j:1"),
        (grpc.StatusCode.UNIMPLEMENTED, "j:1: m"),
    ],
)
def test_what_grpc_itself_failed_names_the_address(code: grpc.StatusCode, said: str):
    assert to_error(failed(code), "j:1").message == said


@pytest.mark.parametrize("code", [grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.UNKNOWN])
def test_what_does_not_speak_grpc_is_no_lantern(code: grpc.StatusCode):
    error = to_error(failed(code, "Received http2 header with status: 404"), "j:1")
    assert error.reason == reasons.UNAVAILABLE
    assert error.message == "what answers at j:1 is no Lantern: Received http2 header with status: 404"


def test_a_run_without_its_optional_parts():
    run = run_from_wire(pb.Run(run_id="r", state=pb.Run.STATE_QUEUED))
    assert (run.state, run.due_us, run.end_us, run.error, run.result_value) == ("QUEUED", None, None, None, None)
    assert not run.is_terminal


def test_a_failed_run_says_why():
    message = pb.Run(run_id="r", state=pb.Run.STATE_FAILED)
    message.error.code, message.error.message, message.error.step_id = "CARD", "no money", "charge"
    message.end_time.FromMicroseconds(1_700_000_000_000_001)
    run = run_from_wire(message)
    assert run.is_terminal
    assert run.end_us == 1_700_000_000_000_001
    error = RunFailed(run)
    assert (error.code, error.message, error.step_id) == ("CARD", "no money", "charge")
    assert str(error) == "run r FAILED: CARD: no money (step charge)"


def test_a_result_is_read_exactly():
    run: Run = run_from_wire(pb.Run(state=pb.Run.STATE_SUCCEEDED, result=b'{"n":12345678901234567890123}'))
    assert run.result_value == {"n": 12345678901234567890123}


def test_every_state_goes_over_the_wire_and_back():
    request = journal_pb.ListRunsRequest(states=[state_to_wire(state) for state in STATES])
    assert [pb.Run.State.Name(value) for value in request.states] == [f"STATE_{state}" for state in STATES]
    with pytest.raises(InvalidField):
        state_to_wire("DONE")


def test_request_ids_are_version_4_and_differ():
    ids = {new_request_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(len(i) == 36 and i[14] == "4" for i in ids)
