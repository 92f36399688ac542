"""Goal: runs started at a real executor end as they should, whichever process is killed on the way.

Method: a real journal (SQLite) and real executors as processes; kill -9, SIGSTOP, SIGTERM and nonsense are injected for
real; the journal's events and the ledger of effects are then looked at. Recovery is done by hand.
"""

import asyncio
import json
import signal
import sys
from collections import Counter
from pathlib import Path

import grpc
import pytest
from executor_processes import Cluster, Proxy, Service, cluster
from google.protobuf import duration_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc

from lantern.api.executor.v1 import executor_service_pb2 as executor_pb
from lantern.api.journal.v1 import journal_service_pb2 as journal_pb
from lantern.api.journal.v1 import recovery_service_pb2 as recovery_pb
from lantern.api.journal.v1 import run_pb2
from lantern.api.journal.v1 import worker_service_pb2 as worker_pb
from lantern.api.journal.v1 import worker_service_pb2_grpc as worker_grpc
from lantern_executor import wire
from lantern_kernel import kinds, reasons
from lantern_kernel.event import find_chain_fault
from lantern_serving import status


def _waiting(request_id: str, agent: str, given: object, wait_s: float) -> executor_pb.StartRunRequest:
    """A start that waits for the end."""
    wait = duration_pb2.Duration()
    wait.FromNanoseconds(round(wait_s * 1e9))
    return executor_pb.StartRunRequest(
        request_id=request_id, agent_name=agent, input=json.dumps(given).encode(), wait=wait
    )


def _steps(lines: list[str], what: str) -> Counter[str]:
    return Counter(line.split()[1] for line in lines if line.startswith(what))


def _kinds(events: list[run_pb2.Event], step_id: str | None = None) -> list[str]:
    return [event.kind for event in events if step_id is None or event.step_id == step_id]


async def test_run_starts_and_ends(tmp_path: Path) -> None:
    async with cluster(tmp_path) as at:
        run = await at.start_run("chain", {"steps": 5, "ms": 5})
        assert run.state == run_pb2.Run.STATE_RUNNING
        ended = await at.until(run.run_id, "SUCCEEDED", "FAILED")
        assert json.loads(ended.result)["done"] == [0, 1, 2, 3, 4]
        again = await at.start_run("chain", {"steps": 5, "ms": 5})
        assert again.run_id == run.run_id
        events = await at.events(run.run_id)
        assert find_chain_fault(run.run_id, wire.to_events(events)) is None
        assert set(_steps(at.effects(), "end").values()) == {1}
        health = health_pb2_grpc.HealthStub(at.channel(at.executors[0].address))
        asked = health_pb2.HealthCheckRequest(service="lantern.api.executor.v1.ExecutorService")
        checked = await health.Check(asked)  # pyright: ignore[reportAttributeAccessIssue] - untyped
        assert checked.status == health_pb2.HealthCheckResponse.SERVING


async def test_a_start_may_wait_for_the_end(tmp_path: Path) -> None:
    async with cluster(tmp_path) as at:
        executor = at.executor()
        done = await executor.StartRun(_waiting("r1", "chain", {"steps": 3, "ms": 5}, 20))
        assert done.created
        assert done.end.state == run_pb2.Run.STATE_SUCCEEDED
        ended = (await at.runs().GetRun(journal_pb.GetRunRequest(run_id=done.run.run_id))).run
        assert (ended.state, ended.result) == (done.end.state, done.end.result), "it was told what had been committed"

        failed = await executor.StartRun(_waiting("r2", "chain", {"steps": "many", "ms": 5}, 20))
        assert failed.end.state == run_pb2.Run.STATE_FAILED
        ended = (await at.runs().GetRun(journal_pb.GetRunRequest(run_id=failed.run.run_id))).run
        assert ended.error == failed.end.error

        slow = {"steps": 1, "ms": 1_500}
        early = await executor.StartRun(_waiting("r3", "chain", slow, 0.2))
        assert early.created
        assert not early.HasField("end"), "it is not over by then"
        again = await executor.StartRun(_waiting("r3", "chain", slow, 20))
        assert (again.run.run_id, again.created) == (early.run.run_id, False)
        assert again.end.state == run_pb2.Run.STATE_SUCCEEDED
        late = await executor.StartRun(_waiting("r3", "chain", slow, 20))
        assert late.run.state == run_pb2.Run.STATE_SUCCEEDED, "it was over before: the run itself says so"

        parked = await executor.StartRun(_waiting("r4", "patient", {"ms": 1, "s": 60}, 20))
        assert not parked.HasField("end"), "it has left the executor"

        for wrong_s in (-1, 3_601):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await executor.StartRun(_waiting("r5", "chain", {"steps": 1, "ms": 1}, wrong_s))
            assert status.to_error(caught.value).reason == reasons.INVALID_FIELD


async def test_many_runs_at_once(tmp_path: Path) -> None:
    async with cluster(tmp_path) as at:
        runs = await asyncio.gather(*(at.start_run("chain", {"steps": 3, "ms": 1}, f"r{n}") for n in range(100)))
        for run in runs:
            await at.until(run.run_id, "SUCCEEDED")
        assert _steps(at.effects(), "end") == {"s0": 100, "s1": 100, "s2": 100}


async def test_killed_executor_costs_one_step(tmp_path: Path) -> None:
    async with cluster(tmp_path, executors=2) as at:
        run = await at.start_run("chain", {"steps": 5, "ms": 300})
        await at.until_effect("begin s2")
        await at.executors[0].kill()
        epoch = await at.recover(run.run_id, 1)
        ended = await at.until(run.run_id, "SUCCEEDED", "FAILED")
        assert json.loads(ended.result)["done"] == [0, 1, 2, 3, 4]
        effects = at.effects()
        assert _steps(effects, "begin") == {"s0": 1, "s1": 1, "s2": 2, "s3": 1, "s4": 1}
        assert len({line.split()[2] for line in effects if line.split()[1] == "s2"}) == 1  # under the same key
        assert {line.split()[3] for line in effects if line.split()[1] == "s3"} == {str(epoch)}
        events = await at.events(run.run_id)
        assert _kinds(events).count(kinds.STEP_COMPLETED) == 5
        assert _kinds(events).count(kinds.MARKER_RECORDED) == 1
        assert [event.attempt for event in events if event.kind == kinds.STEP_STARTED] == [1] * 6
        assert find_chain_fault(run.run_id, wire.to_events(events)) is None


async def test_paused_executor_loses_its_run_and_leaves_it_alone(tmp_path: Path) -> None:
    async with cluster(tmp_path, executors=2, silence="2s") as at:
        run = await at.start_run("chain", {"steps": 3, "ms": 400})
        await at.until_effect("begin s1")
        at.executors[0].pause()
        try:
            await at.recover(run.run_id, 1)
            await at.until(run.run_id, "SUCCEEDED")
        finally:
            at.executors[0].resume()
        await at.executors[0].until_logged("drive_lost")
        effects = at.effects()
        assert _steps(effects, "begin") == {"s0": 1, "s1": 2, "s2": 1}
        assert "drive_lost" in at.executors[0].log
        assert "drive_failed" not in at.executors[0].log


@pytest.mark.parametrize("taken_over", [True, False])
async def test_executor_that_is_cut_off_begins_nothing(tmp_path: Path, taken_over: bool) -> None:
    at = Cluster(tmp_path)
    try:
        await at.journal.start()
        proxy = Proxy(at.journal.address)
        await proxy.mend()
        await at.add_executor(LANTERN_JOURNAL=proxy.address)
        await at.add_executor()
        run = await at.start_run("chain", {"steps": 3, "ms": 400})
        await at.until_effect("begin s1")
        await proxy.cut()
        await at.until_effect("end s1")
        await asyncio.sleep(1)
        assert _steps(at.effects(), "begin") == {"s0": 1, "s1": 1}
        if taken_over:
            await at.recover(run.run_id, 1)
            await at.until_effect("begin s2")
        await proxy.mend()
        await at.until(run.run_id, "SUCCEEDED")
        begun = _steps(at.effects(), "begin")
        assert begun == {"s0": 1, "s1": 2 if taken_over else 1, "s2": 1}
        if taken_over:
            await at.executors[0].until_logged("drive_lost")
        assert ("drive_lost" in at.executors[0].log) == taken_over
        events = await at.events(run.run_id)
        assert _kinds(events).count(kinds.STEP_COMPLETED) == 3
        await proxy.cut()
    finally:
        await at.close()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_journal_ends_and_comes_back_under_running_runs(tmp_path: Path, how: signal.Signals) -> None:
    async with cluster(tmp_path) as at:
        runs = await asyncio.gather(*(at.start_run("chain", {"steps": 5, "ms": 100}, f"r{n}") for n in range(20)))
        for _ in range(2):
            await asyncio.sleep(0.15)
            await at.journal.signal(how)
            await asyncio.sleep(0.3)
            await at.journal.start()
        for run in runs:
            await at.until(run.run_id, "SUCCEEDED")
        # The executor lived on and its leases with it: nothing ran twice.
        assert set(_steps(at.effects(), "begin").values()) == {20}
        for run in runs:
            events = await at.events(run.run_id)
            assert _kinds(events).count(kinds.LEASE_GRANTED) == 1
            assert find_chain_fault(run.run_id, wire.to_events(events)) is None


async def test_long_wait_is_parked_and_taken_up_again(tmp_path: Path) -> None:
    async with cluster(tmp_path) as at:
        run = await at.start_run("patient", {"ms": 1, "s": 11})
        waiting = await at.until(run.run_id, "WAITING")
        assert waiting.waiting_on == "timer"
        assert waiting.due_time.ToMicroseconds() > 0
        await at.recover(run.run_id, 0)
        assert (await at.until(run.run_id, "SUCCEEDED")).result == b'"done"'
        assert _steps(at.effects(), "begin") == {"before": 1, "after": 1}


async def test_cancel_stops_a_running_step(tmp_path: Path) -> None:
    async with cluster(tmp_path) as at:
        run = await at.start_run("chain", {"steps": 1, "ms": 60_000})
        await at.until_effect("begin s0")
        await at.runs().SendToRun(journal_pb.SendToRunRequest(request_id="c1", run_id=run.run_id, kind="cancel"))
        ended = await at.until(run.run_id, "CANCELLED")
        assert ended.error.code == reasons.CANCEL_REQUESTED
        events = await at.events(run.run_id)
        assert _kinds(events)[-2:] == [kinds.CANCEL_REQUESTED, kinds.RUN_CANCELLED]


async def test_drain_hands_over_between_steps(tmp_path: Path) -> None:
    async with cluster(tmp_path, executors=2) as at:
        run = await at.start_run("chain", {"steps": 4, "ms": 400})
        await at.until_effect("begin s1")
        assert await at.executors[0].signal(signal.SIGTERM) == 0
        await at.recover(run.run_id, 1)
        await at.until(run.run_id, "SUCCEEDED")
        assert set(_steps(at.effects(), "begin").values()) == {1}
        assert "run handed back" in at.executors[0].log


@pytest.mark.parametrize("steps", [1, 2])  # an async one hangs, or one in a thread
async def test_drain_does_not_wait_for_ever(tmp_path: Path, steps: int) -> None:
    async with cluster(tmp_path, executors=1, LANTERN_DRAIN="500ms") as at:
        run = await at.start_run("chain", {"steps": steps, "ms": 3_000})
        await at.until_effect(f"begin s{steps - 1}")
        began = asyncio.get_running_loop().time()
        assert await at.executors[0].signal(signal.SIGTERM) == 0
        assert asyncio.get_running_loop().time() - began < 2.5
        await at.until(run.run_id, "QUEUED")


async def test_unknown_delivery_waits_for_an_operator(tmp_path: Path) -> None:
    async with cluster(tmp_path, executors=2) as at:
        run = await at.start_run("mail", {"ms": 60_000})
        await at.until_effect("begin mail")
        key = at.effects()[0].split()[2]
        await at.executors[0].kill()
        await at.recover(run.run_id, 1)
        waiting = await at.until(run.run_id, "WAITING")
        assert (waiting.waiting_on, waiting.error.code) == ("operator", reasons.STEP_OUTCOME_UNKNOWN)
        worker = worker_grpc.JournalWorkerServiceStub(at.channel(at.journal.address))
        await worker.SettleSideEffect(
            worker_pb.SettleSideEffectRequest(
                key=key,
                state=worker_pb.SideEffect.STATE_DELIVERED,
                result=b'"it was in the outbox"',
                run_id=run.run_id,
                worker_id="operator",
            )
        )
        await at.recover(run.run_id, 1)
        assert (await at.until(run.run_id, "SUCCEEDED")).result == b'"it was in the outbox"'
        assert _steps(at.effects(), "begin") == {"mail": 1}


def _start(**changes: object) -> executor_pb.StartRunRequest:
    return executor_pb.StartRunRequest(**({"request_id": "r1", "agent_name": "chain"} | changes))  # pyright: ignore[reportArgumentType]


NONSENSE = [
    (_start(agent_name="nobody"), reasons.AGENT_NOT_FOUND, None),
    (_start(agent_name="a|b"), reasons.INVALID_FIELD, "agent_name"),
    (_start(request_id=""), reasons.INVALID_FIELD, "request_id"),
    (_start(input=b'{"a":NaN}'), reasons.INVALID_JSON, "input.a"),
    (_start(input=b"[" * 100 + b"]" * 100), reasons.INVALID_JSON, "input"),
    (_start(input=b'"' + b"x" * (70 * 1024 * 1024) + b'"'), reasons.PAYLOAD_TOO_LARGE, "input"),
    (executor_pb.DriveRequest(run_id="x"), reasons.INVALID_FIELD, "run_id"),
]


async def _refusal(
    at: Cluster, request: executor_pb.StartRunRequest | executor_pb.DriveRequest
) -> tuple[str, str | None]:
    stub = at.executor()
    calling = stub.Drive(request) if isinstance(request, executor_pb.DriveRequest) else stub.StartRun(request)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await calling
    error = status.to_error(caught.value)
    return error.reason, error.details.get("field")


async def test_nonsense_is_refused_by_name(tmp_path: Path) -> None:
    async with cluster(tmp_path) as at:
        for request, reason, field in NONSENSE:
            refused, named = await _refusal(at, request)
            assert (refused, named if field else None) == (reason, field)
        workers = (await at.recovery().FindWorkers(recovery_pb.FindWorkersRequest())).workers
        good = {"run_id": "0192f0c1-2345-7abc-8def-0123456789ab", "worker_id": workers[0].worker_id}
        for epoch, reason in ((0, reasons.INVALID_FIELD), (-1, reasons.INVALID_FIELD)):
            drive = executor_pb.DriveRequest(epoch=epoch, agent_name="chain", **good)
            assert (await _refusal(at, drive))[0] == reason
        # Of a run that is not there: taken, and found out when it is opened.
        await at.executor().Drive(executor_pb.DriveRequest(epoch=2**63 - 1, agent_name="chain", **good))
        other = executor_pb.DriveRequest(run_id=good["run_id"], worker_id="other", epoch=1, agent_name="chain")
        assert await _refusal(at, other) == (reasons.LEASE_LOST, None)
        # Whether somebody has published an agent of that name is for the journal to say: found out as well.
        unknown = good | {"run_id": "0192f0c1-2345-7abc-8def-0123456789ac"}
        await at.executor().Drive(executor_pb.DriveRequest(epoch=1, agent_name="nobody", **unknown))
        run = await at.start_run("chain", {"steps": 1, "ms": 1}, "fine")
        await at.until(run.run_id, "SUCCEEDED")


async def test_full_executor_queues_and_refuses(tmp_path: Path) -> None:
    async with cluster(tmp_path, LANTERN_EXECUTOR_CAPACITY="1") as at:
        first = await at.start_run("chain", {"steps": 1, "ms": 2_000}, "r1")
        await at.until(first.run_id, "RUNNING")
        second = await at.start_run("chain", {"steps": 1, "ms": 1}, "r2")
        assert second.state == run_pb2.Run.STATE_QUEUED
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await at.recover(second.run_id, 0)
        error = status.to_error(caught.value)
        assert (error.reason, error.retry_after_s is not None) == (reasons.EXECUTOR_BUSY, True)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"LANTERN_MODULES": "no.such.module"}, "no.such.module"),
        ({"LANTERN_MODULES": __file__}, "holds no workflow"),
        ({"LANTERN_JOURNAL": "nowhere"}, "LANTERN_JOURNAL"),
        ({"LANTERN_LISTEN": "127.0.0.1:1", "LANTERN_ADVERTISE": "x"}, "LANTERN_ADVERTISE"),
    ],
)
async def test_unusable_settings_end_with_2_and_say_why(tmp_path: Path, settings: dict[str, str], named: str) -> None:
    environment = {"LANTERN_JOURNAL": "127.0.0.1:1", "LANTERN_MODULES": "x", **settings}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "lantern_executor",
        env=environment,
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 30)
    assert (process.returncode, out) == (2, b"")
    assert named in err.decode()


async def test_executor_waits_for_a_journal_that_is_not_there_yet(tmp_path: Path) -> None:
    at = Cluster(tmp_path)
    try:
        await at.journal.start()
        address = at.journal.address
        await at.journal.kill()
        starting = asyncio.create_task(at.add_executor())
        await asyncio.sleep(1.5)
        assert not starting.done()
        await at.journal.start()
        assert at.journal.address == address
        assert isinstance(await starting, Service)
    finally:
        await at.close()


async def test_executor_whose_loop_is_stuck_says_where_and_ends(tmp_path: Path) -> None:
    async with cluster(tmp_path, LANTERN_SESSION_SILENCE="3s") as system:
        service = await system.add_executor(LANTERN_STALL_LIMIT="4s")
        await system.start_run("spin", {}, number=1)
        await service.until_logged("loop_stalled")
        assert await service.ended() == 70
        assert "executor_workflows.py" in service.log
        assert "loop_stuck" in service.log
