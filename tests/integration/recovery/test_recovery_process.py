"""The recovery service as a process, between a journal and executors that are servicers of the test.

Method: real gRPC over the loopback interface; the test's journal hands out orphans and records what it is asked, its
executors take runs, refuse them or never answer; the journal is really stopped and started again.
"""

# ruff: noqa: N802 - gRPC names the methods

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from service_process import service_process

from lantern.api.executor.v1 import executor_service_pb2 as executor_pb
from lantern.api.executor.v1 import executor_service_pb2_grpc as executor_grpc
from lantern.api.journal.v1 import recovery_service_pb2 as pb
from lantern.api.journal.v1 import recovery_service_pb2_grpc as pb_grpc
from lantern.api.recovery.v1 import recovery_service_pb2 as recovery_pb
from lantern.api.recovery.v1 import recovery_service_pb2_grpc as recovery_grpc
from lantern_kernel import reasons
from lantern_kernel.errors import LanternError
from lantern_serving import channels, server, status

WAIT_S = 10.0


class Journal(pb_grpc.JournalRecoveryServiceServicer):
    """Hands out what is in `orphans` until it is acquired or deferred."""

    def __init__(self) -> None:
        self.orphans: dict[str, pb.Orphan] = {}
        self.workers: list[pb.Worker] = []
        self.acquired: list[tuple[str, str]] = []
        self.deferred: dict[str, float | None] = {}
        self.watches = 0
        self.announce = asyncio.Event()

    def add(self, run_id: str, agent: str = "order") -> None:
        self.orphans[run_id] = pb.Orphan(run_id=run_id, tenant_id="default", agent_name=agent, reason="crash")

    async def FindOrphans(self, request: pb.FindOrphansRequest, context: Any) -> pb.FindOrphansResponse:
        return pb.FindOrphansResponse(orphans=list(self.orphans.values())[: request.page_size])

    async def FindWorkers(self, request: pb.FindWorkersRequest, context: Any) -> pb.FindWorkersResponse:
        return pb.FindWorkersResponse(workers=self.workers)

    async def AcquireLease(self, request: pb.AcquireLeaseRequest, context: Any) -> pb.AcquireLeaseResponse:
        if self.orphans.pop(request.run_id, None) is None:
            return pb.AcquireLeaseResponse(acquired=False)
        self.acquired.append((request.run_id, request.lease_target.worker_id))
        return pb.AcquireLeaseResponse(acquired=True, epoch=2)

    async def DeferRun(self, request: pb.DeferRunRequest, context: Any) -> pb.DeferRunResponse:
        self.orphans.pop(request.run_id, None)
        delay = request.delay.ToMicroseconds() / 1e6 if request.HasField("delay") else None
        self.deferred[request.run_id] = delay
        return pb.DeferRunResponse()

    async def WatchOrphans(
        self, request: pb.WatchOrphansRequest, context: Any
    ) -> AsyncIterator[pb.WatchOrphansResponse]:
        self.watches += 1
        while True:
            await self.announce.wait()
            self.announce.clear()
            yield pb.WatchOrphansResponse(cause="queued")


class Executor(executor_grpc.ExecutorServiceServicer):
    """Takes every run, refuses with `error`, or never answers."""

    def __init__(self, error: LanternError | None = None, *, hangs: bool = False) -> None:
        self.driven: list[executor_pb.DriveRequest] = []
        self.error = error
        self.hangs = hangs

    async def StartRun(self, request: executor_pb.StartRunRequest, context: Any) -> executor_pb.StartRunResponse:
        raise AssertionError("recovery starts no runs")

    async def QueryRun(self, request: executor_pb.QueryRunRequest, context: Any) -> executor_pb.QueryRunResponse:
        raise AssertionError("nobody asks")

    async def Drive(self, request: executor_pb.DriveRequest, context: Any) -> executor_pb.DriveResponse:
        self.driven.append(request)
        if self.hangs:
            await asyncio.Event().wait()
        if self.error:
            raise self.error
        return executor_pb.DriveResponse()


async def serve_journal(journal: Journal, address: str = "127.0.0.1:0") -> server.Server:
    def add(grpc_server: grpc.aio.Server) -> None:
        pb_grpc.add_JournalRecoveryServiceServicer_to_server(journal, grpc_server)

    running = server.Server(address, {"lantern.api.journal.v1.JournalRecoveryService": add})
    await running.start()
    return running


async def serve_executor(executor: Executor) -> server.Server:
    def add(grpc_server: grpc.aio.Server) -> None:
        executor_grpc.add_ExecutorServiceServicer_to_server(executor, grpc_server)

    running = server.Server("127.0.0.1:0", {"lantern.api.executor.v1.ExecutorService": add})
    await running.start()
    return running


def worker(name: str, address: str, capacity: int = 100) -> pb.Worker:
    return pb.Worker(
        worker_id=name,
        session_number=1,
        address=address,
        capacity=capacity,
        tenant_id="default",
        agents=[pb.WorkerAgent(name="order", digest="d")],
    )


async def until(condition: Any) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110 - what changes is in another process
            await asyncio.sleep(0.01)


async def test_runs_are_found_at_start_and_when_announced_and_when_asked(tmp_path: Path):
    journal, executor = Journal(), Executor()
    serving, driving = await serve_journal(journal), await serve_executor(executor)
    journal.workers = [worker("w1", driving.address)]
    journal.add("at-start")
    async with service_process("lantern_recovery", tmp_path, LANTERN_JOURNAL=serving.address) as recovery:
        await until(lambda: journal.acquired == [("at-start", "w1")])
        await until(lambda: journal.watches == 1)
        journal.add("announced")
        journal.announce.set()
        await until(lambda: len(executor.driven) == 2)
        assert (executor.driven[1].run_id, executor.driven[1].epoch, executor.driven[1].worker_id) == (
            "announced",
            2,
            "w1",
        )
        async with channels.connect(recovery.address) as channel:
            journal.add("asked")
            journal.add("homeless", agent="nobody-offers-it")
            done = await recovery_grpc.RecoveryServiceStub(channel).RunPass(recovery_pb.RunPassRequest())
            assert (done.found, done.placed, done.lost, done.deferred) == (2, 1, 0, 1)
            assert journal.deferred == {"homeless": None}
            health: Any = health_pb2_grpc.HealthStub(channel)
            for name in ("", "lantern.api.recovery.v1.RecoveryService"):
                answer = await health.Check(health_pb2.HealthCheckRequest(service=name))
                assert answer.status == health_pb2.HealthCheckResponse.SERVING
    await serving.drain(0)
    await driving.drain(0)


@pytest.mark.parametrize("kind", ["busy", "gone", "silent"])
async def test_an_executor_that_does_not_take_a_run_costs_a_deferral(tmp_path: Path, kind: str):
    journal = Journal()
    busy = LanternError(reasons.EXECUTOR_BUSY, "full", retry_after_s=1.0)
    executor = Executor(busy if kind == "busy" else None, hangs=kind == "silent")
    serving, driving = await serve_journal(journal), await serve_executor(executor)
    journal.workers = [worker("w1", driving.address)]
    if kind == "gone":
        await driving.drain(0)
    journal.add("run")
    async with service_process("lantern_recovery", tmp_path, LANTERN_JOURNAL=serving.address):
        await until(lambda: "run" in journal.deferred)
        delay = journal.deferred["run"]
        assert delay is not None
        assert 0.5 <= delay <= 2.0
    await serving.drain(0)
    await driving.drain(0)


async def test_a_journal_that_comes_back_is_asked_at_once(tmp_path: Path):
    """The interval is far longer than the test: only the new connection can have led to the pass."""
    journal, executor = Journal(), Executor()
    serving, driving = await serve_journal(journal), await serve_executor(executor)
    address = serving.address
    journal.workers = [worker("w1", driving.address)]
    async with service_process(
        "lantern_recovery", tmp_path, LANTERN_JOURNAL=address, LANTERN_RECOVERY_INTERVAL="10m"
    ) as recovery:
        await until(lambda: journal.watches == 1)
        await serving.drain(0)
        async with channels.connect(recovery.address) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await recovery_grpc.RecoveryServiceStub(channel).RunPass(recovery_pb.RunPassRequest())
            assert status.to_error(caught.value).reason == reasons.UNAVAILABLE
        journal.add("meanwhile")
        serving = await serve_journal(journal, address)
        await until(lambda: journal.acquired == [("meanwhile", "w1")])
    await serving.drain(0)
    await driving.drain(0)


async def test_a_backlog_is_worked_off_in_passes_that_follow_each_other(tmp_path: Path):
    journal, executor = Journal(), Executor()
    serving, driving = await serve_journal(journal), await serve_executor(executor)
    journal.workers = [worker(f"w{n}", driving.address, capacity=1000) for n in range(3)]
    for n in range(150):
        journal.add(f"run-{n}")
    async with service_process("lantern_recovery", tmp_path, LANTERN_JOURNAL=serving.address):
        await until(lambda: len(executor.driven) == 150)
    by_worker = {name: sum(worker == name for _, worker in journal.acquired) for name in ("w0", "w1", "w2")}
    assert max(by_worker.values()) - min(by_worker.values()) <= 10
    await serving.drain(0)
    await driving.drain(0)


@pytest.mark.parametrize("setting", ["0", "off", "-5s"])
async def test_an_interval_that_would_switch_the_sweep_off_is_only_a_warning(tmp_path: Path, setting: str):
    async with service_process(
        "lantern_recovery", tmp_path, LANTERN_JOURNAL="127.0.0.1:1", LANTERN_RECOVERY_INTERVAL=setting
    ) as recovery:
        assert "sweep interval not usable" in recovery.log.read_text()
