"""Goal: nonsense never breaks a service: each piece is refused with a reason for programs (SPEC 14, AIP-193).

Method: a real journal, and a real executor that drives a run whose only step the shop does not answer. Each piece of
nonsense is sent to them; the answer must be a Status with our ErrorInfo and its field, and the run's journal must be as
it was. At the end the shop answers, the run must succeed, and an order must go through.
"""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from checks import check_order
from client import start_run_at
from system import System

from lantern.api.executor.v1 import executor_service_pb2, executor_service_pb2_grpc
from lantern.api.journal.v1 import journal_service_pb2, run_pb2, worker_service_pb2
from lantern_kernel import kinds, reasons
from lantern_kernel.errors import LanternError
from lantern_serving import channels, status

INT64_MAX = 2**63 - 1
TIMEOUT_S = 30.0
NAN = b'{"a":[1,NaN]}'
DEEP = b"[" * 100 + b"]" * 100
SEVENTY_MIB = b'"' + b"x" * (70 * 1024 * 1024) + b'"'
UNKNOWN_RUN = "01890a5d-ac96-774b-bcce-b302099a8057"

START_NONSENSE: dict[str, tuple[dict[str, Any], str, str]] = {
    "unknown agent": ({"agent_name": "nobody"}, reasons.AGENT_NOT_FOUND, "agent_name"),
    "no agent": ({"agent_name": ""}, reasons.INVALID_FIELD, "agent_name"),
    "NaN": ({"input": NAN}, reasons.INVALID_JSON, "input.a[1]"),
    "100 levels": ({"input": DEEP}, reasons.INVALID_JSON, "input"),
    "no UTF-8": ({"input": b'"\xff"'}, reasons.INVALID_JSON, "input"),
    "half a JSON": ({"input": b'{"a":'}, reasons.INVALID_JSON, "input"),
    "70 MiB": ({"input": SEVENTY_MIB}, reasons.PAYLOAD_TOO_LARGE, "input"),
    "| in the request id": ({"request_id": "a|b"}, reasons.INVALID_FIELD, "request_id"),
    "no request id": ({"request_id": ""}, reasons.INVALID_FIELD, "request_id"),
    "| in the workflow id": ({"workflow_id": "a|b"}, reasons.INVALID_FIELD, "workflow_id"),
    "201 characters": ({"workflow_id": "x" * 201}, reasons.INVALID_FIELD, "workflow_id"),
}
APPEND_NONSENSE: dict[str, tuple[dict[str, Any], str, str]] = {
    "another digest": ({"previous_digest": b"\0" * 32}, reasons.APPEND_CONFLICT, ""),
    "a short digest": ({"previous_digest": b"\0" * 31}, reasons.INVALID_FIELD, "previous_digest"),
    "epoch 0": ({"epoch": 0}, reasons.INVALID_FIELD, "epoch"),
    "epoch -1": ({"epoch": -1}, reasons.INVALID_FIELD, "epoch"),
    "the largest epoch": ({"epoch": INT64_MAX}, reasons.INVALID_FIELD, "epoch"),
    "seq 0": ({"first_seq": 0}, reasons.INVALID_FIELD, "first_seq"),
    "seq -1": ({"first_seq": -1}, reasons.INVALID_FIELD, "first_seq"),
    "the largest seq": ({"first_seq": INT64_MAX}, reasons.INVALID_FIELD, "first_seq"),
    "a gap": ({"first_seq": 1000}, reasons.APPEND_CONFLICT, ""),
    "| in a step id": ({"step_id": "a|b"}, reasons.INVALID_FIELD, "step_id"),
    "a kind of the journal's own": ({"kind": kinds.LEASE_GRANTED}, reasons.INVALID_FIELD, "kind"),
    "a negative attempt": ({"attempt": -1}, reasons.INVALID_FIELD, "attempt"),
    "a short salt": ({"salt": b"s" * 15}, reasons.INVALID_FIELD, "salt"),
    "70 MiB": ({"payload": SEVENTY_MIB}, reasons.PAYLOAD_TOO_LARGE, "payload"),
    "no run id": ({"run_id": "|"}, reasons.INVALID_FIELD, "run_id"),
    "an unknown run": ({"run_id": UNKNOWN_RUN}, reasons.RUN_NOT_FOUND, "run_id"),
}
OF_THE_EVENT = {"kind", "step_id", "attempt", "payload", "salt"}


class Rig:
    """A journal, an executor, and a run in the middle of its only step."""

    def __init__(self, system: System) -> None:
        self.system = system
        modules = {"LANTERN_MODULES": "order.workflow,patient"}
        self.executor = system.add_executor("executor", modules).start()
        system.await_worker(self.executor)
        system.shop.order_fault("/charges", "hold")
        self.run = start_run_at(self.executor.address, system.order_input("nonsense"), agent="patient")
        deadline = time.monotonic() + TIMEOUT_S
        while system.shop.held() != 1:
            assert time.monotonic() < deadline, f"the charge did not come\n{system.tails()}"
            time.sleep(0.02)
        self.events = system.client.events(self.run.run_id)
        self._channel = grpc.insecure_channel(self.executor.address, options=channels.OPTIONS)
        self.executor_stub = executor_service_pb2_grpc.ExecutorServiceStub(self._channel)

    def append(self, changes: dict[str, Any]) -> worker_service_pb2.AppendEventsRequest:
        """An append that would go in on top of the run as it stands, but for the changes."""
        last = self.events[-1]
        append = worker_service_pb2.Append(
            run_id=self.run.run_id, epoch=last.epoch, first_seq=last.seq + 1, previous_digest=last.digest
        )
        event = worker_service_pb2.NewEvent(kind=kinds.STEP_COMPLETED, step_id="charge", payload=b"{}", salt=b"s" * 16)
        for name, value in changes.items():
            setattr(event if name in OF_THE_EVENT else append, name, value)
        append.events.append(event)
        return worker_service_pb2.AppendEventsRequest(append=append)

    def assert_untouched(self) -> None:
        """The run is as it was before any nonsense was sent, and both services answer."""
        assert self.system.client.events(self.run.run_id) == self.events
        assert self.system.client.get_run(self.run.run_id).state == run_pb2.Run.STATE_RUNNING
        assert [worker.address for worker in self.system.client.find_workers()] == [self.executor.address]

    def close(self) -> None:
        """Closes the channel to the executor."""
        self._channel.close()


@pytest.fixture(scope="module")
def rig(make_database: Callable[[str, Path, str], str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("nonsense")
    with System(folder, make_database("sqlite", folder, "nonsense")) as system:
        rig = Rig(system)
        yield rig
        rig.close()


def refusal(call: Callable[[], object]) -> LanternError:
    """What the service refused it with; fails where it did not, or where the refusal is gRPC's own."""
    with pytest.raises(grpc.RpcError) as caught:
        call()
    error = caught.value
    assert isinstance(error, grpc.Call), "a failed call has a status"
    named = status.to_error(error)
    trailers = str(error.trailing_metadata())
    assert "grpc-status-details-bin" in trailers, f"no ErrorInfo beside {named}"
    assert named.message, "a refusal says what is wrong"
    return named


@pytest.mark.parametrize("name", START_NONSENSE)
def test_a_nonsensical_start_is_refused_by_the_journal(rig: Rig, name: str) -> None:
    changes, reason, field = START_NONSENSE[name]
    fields: dict[str, Any] = {"request_id": "nonsense", "agent_name": "order", "input": b"{}", **changes}
    request = journal_service_pb2.CreateRunRequest(**fields)
    error = refusal(lambda: rig.system.client.journal.CreateRun(request, timeout=TIMEOUT_S))
    assert error.reason == reason, error
    assert error.details.get("field", "").startswith(field), error.details
    rig.assert_untouched()


@pytest.mark.parametrize("name", START_NONSENSE)
def test_a_nonsensical_start_is_refused_by_the_executor(rig: Rig, name: str) -> None:
    changes, reason, field = START_NONSENSE[name]
    fields: dict[str, Any] = {"request_id": "nonsense", "agent_name": "order", "input": b"{}", **changes}
    request = executor_service_pb2.StartRunRequest(**fields)
    error = refusal(lambda: rig.executor_stub.StartRun(request, timeout=TIMEOUT_S))
    assert error.reason == reason, error
    assert error.details.get("field", "").startswith(field), error.details
    rig.assert_untouched()


@pytest.mark.parametrize("name", APPEND_NONSENSE)
def test_a_nonsensical_append_is_refused(rig: Rig, name: str) -> None:
    changes, reason, field = APPEND_NONSENSE[name]
    request = rig.append(changes)
    error = refusal(lambda: rig.system.client.worker.AppendEvents(request, timeout=TIMEOUT_S))
    assert error.reason == reason, error
    assert error.details.get("field", "").endswith(field), error.details
    rig.assert_untouched()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"run_id": "|"}, reasons.INVALID_FIELD),
        ({"epoch": 0}, reasons.INVALID_FIELD),
        ({"epoch": -1}, reasons.INVALID_FIELD),
        ({"worker_id": "another"}, reasons.LEASE_LOST),
    ],
)
def test_a_nonsensical_drive_is_refused(rig: Rig, changes: dict[str, Any], reason: str) -> None:
    (worker,) = rig.system.client.find_workers()
    fields: dict[str, Any] = {
        "run_id": UNKNOWN_RUN,
        "epoch": 7,
        "worker_id": worker.worker_id,
        "agent_name": "order",
        **changes,
    }
    request = executor_service_pb2.DriveRequest(**fields)
    assert refusal(lambda: rig.executor_stub.Drive(request, timeout=TIMEOUT_S)).reason == reason
    rig.assert_untouched()


def test_drives_of_runs_that_are_not_there_leave_the_executor_well(rig: Rig) -> None:
    (worker,) = rig.system.client.find_workers()
    # An agent that is not loaded may be one that was published: the journal knows.
    for run_id, agent in ((UNKNOWN_RUN, "order"), (rig.run.run_id, "order"), (UNKNOWN_RUN, "nobody")):
        request = executor_service_pb2.DriveRequest(
            run_id=run_id, epoch=INT64_MAX, worker_id=worker.worker_id, agent_name=agent
        )
        rig.executor_stub.Drive(request, timeout=TIMEOUT_S)
    rig.assert_untouched()


def test_after_all_that_the_services_go_on_working(rig: Rig) -> None:
    rig.system.shop.release()
    ended = rig.system.await_state(rig.run.run_id, run_pb2.Run.STATE_SUCCEEDED, TIMEOUT_S)
    assert json.loads(ended.result)["amountPence"] == 100
    order = start_run_at(rig.executor.address, rig.system.order_input("sensible"), "sensible")
    order = rig.system.await_state(order.run_id, run_pb2.Run.STATE_SUCCEEDED, TIMEOUT_S)
    check_order(order, rig.system.client.events(order.run_id), rig.system.shop, "sensible")
