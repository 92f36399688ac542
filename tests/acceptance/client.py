"""What the tests say to the services: plain blocking gRPC, and HTTP to the shop."""

import json
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import grpc

from lantern.api.executor.v1 import executor_service_pb2, executor_service_pb2_grpc
from lantern.api.journal.v1 import (
    journal_service_pb2,
    journal_service_pb2_grpc,
    recovery_service_pb2,
    recovery_service_pb2_grpc,
    run_pb2,
    worker_service_pb2_grpc,
)
from lantern_kernel import reasons
from lantern_kernel.event import Event
from lantern_serving import channels, status

OPEN_STATES = (run_pb2.Run.STATE_QUEUED, run_pb2.Run.STATE_RUNNING, run_pb2.Run.STATE_WAITING)
RPC_TIMEOUT_S = 10.0
RETRY_PAUSE_S = 0.05
RETRY_TIMEOUT_S = 30.0
AWAY = {reasons.UNAVAILABLE, reasons.DEADLINE_EXCEEDED, reasons.UNKNOWN_OUTCOME}

T = TypeVar("T")


class Client:
    """Speaks to the journal, and to an executor where a test wants a run to begin there."""

    def __init__(self, journal_address: str) -> None:
        self._channel = grpc.insecure_channel(journal_address, options=channels.OPTIONS)
        self.journal = journal_service_pb2_grpc.JournalServiceStub(self._channel)
        self.recovery = recovery_service_pb2_grpc.JournalRecoveryServiceStub(self._channel)
        self.worker = worker_service_pb2_grpc.JournalWorkerServiceStub(self._channel)

    def close(self) -> None:
        """Closes the channel."""
        self._channel.close()

    def create_run(self, run_input: Mapping[str, Any], workflow_id: str = "") -> run_pb2.Run:
        """Queues a run of `order`, asking again under the same request id while the journal is away."""
        request = journal_service_pb2.CreateRunRequest(
            request_id=str(uuid.uuid4()),
            agent_name="order",
            input=json.dumps(run_input).encode(),
            workflow_id=workflow_id,
        )
        return persist(lambda: self.journal.CreateRun(request, timeout=RPC_TIMEOUT_S)).run

    def get_run(self, run_id: str) -> run_pb2.Run:
        """One run."""
        request = journal_service_pb2.GetRunRequest(run_id=run_id)
        return persist(lambda: self.journal.GetRun(request, timeout=RPC_TIMEOUT_S)).run

    def list_runs(self, states: "Sequence[run_pb2.Run.State]" = ()) -> list[run_pb2.Run]:
        """The runs of `order` that are in one of these states; all where none is given."""
        runs: list[run_pb2.Run] = []
        request = journal_service_pb2.ListRunsRequest(page_size=1000, agent_name="order", states=states)
        while True:
            page = persist(lambda: self.journal.ListRuns(request, timeout=RPC_TIMEOUT_S))
            runs.extend(page.runs)
            if not page.next_page_token:
                return runs
            request.page_token = page.next_page_token

    def events(self, run_id: str) -> list[Event]:
        """All events of a run."""
        return list(self._events(run_id))

    def find_workers(self) -> list[recovery_service_pb2.Worker]:
        """The workers with a live session."""
        request = recovery_service_pb2.FindWorkersRequest()
        return list(persist(lambda: self.recovery.FindWorkers(request, timeout=RPC_TIMEOUT_S)).workers)

    def _events(self, run_id: str) -> Iterator[Event]:
        request = journal_service_pb2.ListEventsRequest(run_id=run_id)
        while True:
            page = persist(lambda: self.journal.ListEvents(request, timeout=RPC_TIMEOUT_S))
            for event in page.events:
                yield to_event(event)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token


def start_run_at(
    executor_address: str, run_input: Mapping[str, Any], workflow_id: str = "", *, agent: str = "order"
) -> run_pb2.Run:
    """Starts a run at one executor, which drives it."""
    request = executor_service_pb2.StartRunRequest(
        request_id=str(uuid.uuid4()), agent_name=agent, input=json.dumps(run_input).encode(), workflow_id=workflow_id
    )
    with grpc.insecure_channel(executor_address, options=channels.OPTIONS) as channel:
        stub = executor_service_pb2_grpc.ExecutorServiceStub(channel)
        return stub.StartRun(request, timeout=RPC_TIMEOUT_S).run


def persist(call: Callable[[], T]) -> T:
    """Calls again while the service is away; everything else is the test's to see, as a LanternError."""
    deadline = time.monotonic() + RETRY_TIMEOUT_S
    while True:
        try:
            return call()
        except grpc.RpcError as error:
            named = status.to_error(error)
            if named.reason not in AWAY or time.monotonic() > deadline:
                raise named from error
        time.sleep(RETRY_PAUSE_S)


def to_event(event: run_pb2.Event) -> Event:
    """A wire event as the kernel's."""
    return Event(
        seq=event.seq,
        kind=event.kind,
        step_id=event.step_id,
        attempt=event.attempt,
        epoch=event.epoch,
        time_us=event.time_us,
        payload=event.payload,
        salt=event.salt,
        digest=event.digest,
        hash=event.hash,
    )


class ShopClient:
    """Reads the shop's ledger and orders its faults; `ready` is the line that the shop printed."""

    def __init__(self, ready: Mapping[str, Any] | None = None) -> None:
        self.http = str((ready or {}).get("http", ""))
        self.smtp = str((ready or {}).get("smtp", ""))

    def ledger(self, order_id: str = "") -> dict[str, Any]:
        """What it did, for one order or for all."""
        return self._get(f"/ledger?orderId={order_id}")

    def requests(self, order_id: str = "") -> list[dict[str, Any]]:
        """What reached it."""
        return self._get(f"/requests?orderId={order_id}")["requests"]

    def held(self) -> int:
        """How many replies it is holding now."""
        return self._get("/faults")["held"]

    def order_fault(self, path: str, action: str, **more: Any) -> None:
        """Orders a fault."""
        self.post("/faults", {"path": path, "action": action, **more})

    def release(self) -> None:
        """Lets go what it holds and forgets the other faults."""
        self.post("/faults/release", {})

    def post(self, path: str, body: Mapping[str, Any], key: str = "") -> tuple[int, dict[str, Any]]:
        """Posts; status and reply."""
        headers = {"Content-Type": "application/json", **({"Idempotency-Key": key} if key else {})}
        request = urllib.request.Request(self.http + path, json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=RPC_TIMEOUT_S) as reply:
                return reply.status, json.loads(reply.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(self.http + path, timeout=RPC_TIMEOUT_S) as reply:
            return json.loads(reply.read())
