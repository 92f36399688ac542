"""One simulation: a seed makes a cluster, callers and faults; then all is mended, and everything must end well."""

import asyncio
import gc
import logging
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import grpc

from lantern.api.executor.v1 import executor_service_pb2 as executor_pb
from lantern.api.executor.v1 import executor_service_pb2_grpc as executor_grpc
from lantern.api.journal.v1 import journal_service_pb2 as journal_pb
from lantern.api.journal.v1 import journal_service_pb2_grpc as journal_grpc
from lantern.api.journal.v1 import worker_service_pb2 as worker_pb
from lantern.api.journal.v1 import worker_service_pb2_grpc as worker_grpc
from lantern_kernel import reasons
from lantern_serving import status
from oracle.memory_store import Database
from simulation import checks
from simulation.chaos import Chaos
from simulation.cluster import EPOCH_US, Cluster
from simulation.loop import SimulatedLoop
from simulation.world import WORLD, World

AGENTS = ("order", "fan", "mail")
QUIET_S_MAX = 300.0
"""By then, at the latest, everything has ended after the last fault."""

EXPECTED_ERRORS = frozenset({"outcome_unknown", "session_broken", "release_failed", "close_failed"})
"""Errors in the log that tell of a fault which was injected."""

WORDS: tuple[tuple[str, ...], ...] = (
    (),
    (),
    ("signal",),
    ("signal", "signal"),
    ("cancel",),
    ("signal", "cancel"),
    ("pause", "resume"),
    ("pause", "signal", "resume", "pause", "resume"),
    ("pause", "cancel"),
)
"""What a caller says to its run, one after the other. Whoever pauses it resumes it, or ends it."""

MENDED = frozenset({reasons.RUN_CLOSED, reasons.SIDE_EFFECT_SETTLED})


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of one seed."""

    seed: int
    # Of everything that happened, in order.
    digest: str
    # What must not have happened.
    faults: tuple[str, ...]
    # For people.
    facts: str


class _Errors(logging.Handler):
    """Errors that the services log."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._faults = faults

    def emit(self, record: logging.LogRecord) -> None:
        action = getattr(record, "action", "")
        if action not in EXPECTED_ERRORS:
            cause = repr(record.exc_info[1]) if record.exc_info else ""
            self._faults.append(f"logged: {action} {record.getMessage()} {cause}")


class Callers:
    """Who starts runs, cancels some, signals others, and settles deliveries that the system asks about."""

    def __init__(self, cluster: Cluster, executors: list[str], count: int) -> None:
        self._cluster, self._executors, self.count = cluster, executors, count
        self._random = Random(cluster.loop.random.getrandbits(64))
        self.started: dict[str, str] = {}
        self._said = 0

    async def run(self) -> None:
        """For as long as it takes."""
        await asyncio.gather(*(self._one(number) for number in range(self.count)), self._operate())

    async def _one(self, number: int) -> None:
        await asyncio.sleep(self._random.uniform(0, 15))
        request = executor_pb.StartRunRequest(
            request_id=f"r{number}",
            agent_name=self._random.choice(AGENTS),
            input=b"%d" % number,
            workflow_id=f"w{number}" if number % 2 else "",
        )
        response = await self._insist(
            self._executors, lambda channel: executor_grpc.ExecutorServiceStub(channel).StartRun(request)
        )
        run_id = self.started[request.request_id] = response.run.run_id
        for kind in self._random.choice(WORDS):
            await asyncio.sleep(self._random.uniform(0, 6))
            self._said += 1
            said = journal_pb.SendToRunRequest(
                request_id=f"e{self._said}",
                run_id=run_id,
                kind=kind,
                name="paid" if kind == "signal" else "",
                payload=b"1" if kind == "signal" else b"null",
            )
            await self._insist(
                self._cluster.journals,
                lambda channel, said=said: journal_grpc.JournalServiceStub(channel).SendToRun(said),
            )

    async def _operate(self) -> None:
        """Answers what the system cannot know."""
        tables = self._cluster.database.tables
        while True:
            await asyncio.sleep(2.0)
            waiting = {run.run_id for run in tables.runs.values() if run.waiting_on == "operator"}
            for receipt in list(tables.receipts.values()):
                if receipt.run_id in waiting and receipt.state == "claimed":
                    settled = worker_pb.SettleSideEffectRequest(
                        key=receipt.key,
                        state=worker_pb.SideEffect.STATE_DELIVERED,
                        result=b"1",
                        run_id=receipt.run_id,
                        worker_id="operator",
                    )
                    await self._insist(
                        self._cluster.journals,
                        lambda channel, settled=settled: worker_grpc.JournalWorkerServiceStub(channel).SettleSideEffect(
                            settled
                        ),
                    )

    async def _insist(self, addresses: list[str], call: Callable[[Any], Any]) -> Any:
        while True:
            try:
                return await call(self._cluster.connect(self._random.choice(addresses)))
            except grpc.aio.AioRpcError as problem:
                error = status.to_error(problem)
                if error.reason in MENDED:
                    return None
                if error.reason not in (reasons.UNAVAILABLE, reasons.UNKNOWN_OUTCOME, reasons.DEADLINE_EXCEEDED):
                    self._cluster.world.faults.append(f"a caller is told {error}")
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
            await asyncio.sleep(self._random.uniform(0.1, 1.0))


async def _main(loop: SimulatedLoop, world: World, database: Database) -> str:
    random = loop.random
    cluster = Cluster(loop, world, database, journals=2)
    executors = [f"executor-{number}" for number in range(random.choice((2, 3)))]
    for name in (*cluster.journals, *executors, *(f"recovery-{n}" for n in range(random.choice((1, 2))))):
        cluster.start(name)
    callers = Callers(cluster, [f"{name}:1" for name in executors], random.randint(3, 7))
    loop.process("callers").spawn(callers.run())
    await asyncio.sleep(1.0)
    await Chaos(cluster).rage(random.choice((5.0, 15.0, 30.0)))
    tables, until_s = database.tables, loop.now_s + QUIET_S_MAX
    while len(callers.started) < callers.count or any(run.is_open for run in tables.runs.values()):
        await asyncio.sleep(0.5)
        world.faults += checks.without_wake_source(tables)
        if loop.now_s > until_s:
            world.faults += [f"{r.run_id} is still {r.state} {r.waiting_on}" for r in tables.runs.values() if r.is_open]
            world.faults += [f"{callers.count - len(callers.started)} starts unanswered"]
        if world.faults or loop.faults:
            break
    world.faults += checks.of_histories(tables, cluster.acknowledged)
    events, grants = sum(map(len, tables.events.values())), sum(run.epoch for run in tables.runs.values())
    return (
        f"{len(tables.runs)} runs, {events} events, {grants} grants, {world.requests} requests,"
        f" {len(cluster.acknowledged)} appends, {loop.callbacks} callbacks, {loop.now_s:.0f} s"
    )


def simulate(seed: int, write: Callable[[str], None] | None = None) -> Outcome:
    """Simulates one seed."""
    loop = SimulatedLoop(seed, write)
    database = Database(now_us=lambda: EPOCH_US + int(loop.now_s * 1e6))
    world = World(loop=loop, random=Random(loop.random.getrandbits(64)), tables=database.tables)
    token = WORLD.set(world)
    errors, root = _Errors(world.faults), logging.getLogger()
    root.addHandler(errors)
    level, propagated = root.level, gc.isenabled()
    root.setLevel(logging.ERROR)
    gc.disable()  # what it finalizes, and when, is no seed's choice
    try:
        loop.processes[0].context.run(WORLD.set, world)
        facts = loop.run_until_complete(_main(loop, world, database))
    except AssertionError as error:
        facts = ""
        world.faults.append(f"{type(error).__name__}: {error}")
    finally:
        digest, faults = loop.digest, tuple(dict.fromkeys([*world.faults, *loop.faults]))
        WORLD.reset(token)
        root.removeHandler(errors)
        root.setLevel(logging.CRITICAL + 1)
        loop.finish()
        root.setLevel(level)
        if propagated:
            gc.enable()
    return Outcome(seed=seed, digest=digest, faults=faults, facts=facts)
