"""Lantern under the three workloads of bench_peers: services as processes, PostgreSQL, each step durable."""

import asyncio
import json
import os
import signal
import statistics
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from lantern.api.executor.v1 import executor_service_pb2 as executor_pb
from lantern.api.executor.v1 import executor_service_pb2_grpc as executor_grpc
from lantern.api.journal.v1 import journal_service_pb2 as journal_pb
from lantern.api.journal.v1 import journal_service_pb2_grpc as journal_grpc
from lantern.api.journal.v1 import run_pb2
from lantern_serving import channels

WORKFLOWS = Path(__file__).with_name("peers_workflows.py")
KILL_AT = 0.4
"""Of all executions of W3, before the executor is killed."""

RUN_WITHIN_S = 60
RECOVERED_WITHIN_S = 120
W1_WARM, W2_WARM_RUNS = 2, 64
W3_RUNS, W3_STEPS, W3_PAUSE_MS = 50, 10, 20


@asynccontextmanager
async def service(module: str, environment: dict[str, str]) -> AsyncGenerator[tuple[str, asyncio.subprocess.Process]]:
    """A service and its address."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LANTERN_")}
    ours = {"LANTERN_LOG_LEVEL": "WARNING", "LANTERN_EXIT_WITH_PARENT": str(os.getpid())}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module), env=kept | ours | environment, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        yield json.loads(await process.stdout.readline())["address"], process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def _request(agent: str, given: Any) -> executor_pb.StartRunRequest:
    return executor_pb.StartRunRequest(
        request_id=os.urandom(8).hex(), agent_name=agent, input=json.dumps(given).encode()
    )


class Clients:
    """Starts runs and waits for their ends."""

    def __init__(self, executor: Any, journal: Any) -> None:
        self._executor, self._journal = executor, journal

    async def start(self, agent: str, given: Any) -> str:
        """Starts a run; its id."""
        return (await self._executor.StartRun(_request(agent, given))).run.run_id

    async def finished(self, run_id: str) -> None:
        """Returns once it has succeeded."""
        request = journal_pb.FollowEventsRequest(run_id=run_id)
        kind = ""
        async for message in self._journal.FollowEvents(request):
            kind = message.events[-1].kind
        assert kind == "run_succeeded", kind

    async def run(self, count: int) -> None:
        """One whole run of so many steps: started and waited for in one call, as the peers' clients do."""
        request = _request("steps", count)
        request.wait.seconds = RUN_WITHIN_S
        answer = await self._executor.StartRun(request, timeout=RUN_WITHIN_S)
        assert answer.end.state == run_pb2.Run.STATE_SUCCEEDED, answer


@asynccontextmanager
async def engine(database: str) -> AsyncGenerator[tuple[Clients, str]]:
    """Journal, executor and recovery; clients of them, and the journal's address."""
    async with AsyncExitStack() as stack:
        journal, _ = await stack.enter_async_context(service("lantern_journal", {"LANTERN_DATABASE": database}))
        await stack.enter_async_context(service("lantern_recovery", {"LANTERN_JOURNAL": journal}))
        executor, _ = await stack.enter_async_context(service("lantern_executor", _executor(journal)))
        yield await _clients(stack, executor, journal), journal


def _executor(journal: str) -> dict[str, str]:
    return {"LANTERN_JOURNAL": journal, "LANTERN_MODULES": str(WORKFLOWS)}


async def _clients(stack: AsyncExitStack, executor: str, journal: str) -> Clients:
    to_executor = await stack.enter_async_context(channels.connect(executor))
    to_journal = await stack.enter_async_context(channels.connect(journal))
    return Clients(executor_grpc.ExecutorServiceStub(to_executor), journal_grpc.JournalServiceStub(to_journal))


async def measure(
    database: str, *, runs: int, in_flight: int, steps: int, w1_steps: int, w1_reps: int
) -> dict[str, Any]:
    """W1: ms a step of one run alone. W2: steps/s with runs in flight."""
    async with engine(database) as (clients, _):
        alone: list[float] = []
        for _ in range(W1_WARM + w1_reps):
            began_s = time.perf_counter()
            await clients.run(w1_steps)
            alone.append((time.perf_counter() - began_s) * 1e3 / w1_steps)
        waiting = asyncio.Semaphore(in_flight)

        async def one() -> None:
            async with waiting:
                await clients.run(steps)

        await asyncio.gather(*(one() for _ in range(W2_WARM_RUNS)))
        began_s = time.perf_counter()
        await asyncio.gather(*(one() for _ in range(runs)))
        together_s = time.perf_counter() - began_s
    return {"w1_ms": statistics.median(alone[W1_WARM:]), "w2_steps_s": runs * steps / together_s}


async def recover(database: str, folder: Path) -> dict[str, Any]:
    """W3: from the start of a new executor, after kill -9 of the one before, until all runs are done."""
    log = folder / f"recovery-{os.urandom(4).hex()}.log"
    async with AsyncExitStack() as stack:
        journal, _ = await stack.enter_async_context(service("lantern_journal", {"LANTERN_DATABASE": database}))
        await stack.enter_async_context(service("lantern_recovery", {"LANTERN_JOURNAL": journal}))
        address, first = await stack.enter_async_context(service("lantern_executor", _executor(journal)))
        clients = await _clients(stack, address, journal)
        run_ids = await asyncio.gather(
            *(
                clients.start("logged", {"run": str(n), "count": W3_STEPS, "log": str(log), "pause_ms": W3_PAUSE_MS})
                for n in range(W3_RUNS)
            )
        )
        await _until_executed(log, int(W3_RUNS * W3_STEPS * KILL_AT))
        first.send_signal(signal.SIGKILL)
        await first.wait()
        began_s = time.time()
        await stack.enter_async_context(service("lantern_executor", _executor(journal) | {"PHASE": "B"}))
        async with asyncio.timeout(RECOVERED_WITHIN_S):
            await asyncio.gather(*map(clients.finished, run_ids))
        done_s = time.time() - began_s
    return judged(_lines(log), began_s, done_s)


async def _until_executed(log: Path, count: int) -> None:
    while len(_lines(log)) < count:  # noqa: ASYNC110 - another process writes the file
        await asyncio.sleep(0.002)


def _lines(log: Path) -> list[list[str]]:
    return [line.split() for line in log.read_text().splitlines()] if log.exists() else []


def judged(lines: list[list[str]], began_s: float, done_s: float) -> dict[str, Any]:
    """What the log of W3 says, in the words of the peers' scripts.

    A step below the highest that its run had begun before the kill had been recorded then: it must not run again.
    """
    begun: dict[str, int] = {}
    for phase, run, step, _ in lines:
        if phase == "A":
            begun[run] = max(begun.get(run, -1), int(step))
    again = [(run, int(step), float(at)) for phase, run, step, at in lines if phase == "B"]
    return {
        "w3_all_done_s": done_s,
        "w3_first_step_s": min((at for *_, at in again), default=began_s + done_s) - began_s,
        "w3_recorded_rerun": sum(step < begun.get(run, -1) for run, step, _ in again),
        "w3_in_flight_rerun": sum(step == begun.get(run, -1) for run, step, _ in again),
    }
