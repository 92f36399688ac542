"""The services: wired as their own processes wire them, each in a simulated one, over simulated gRPC and database."""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, TypeVar

from lantern.api.executor.v1.executor_service_pb2_grpc import add_ExecutorServiceServicer_to_server
from lantern.api.journal.v1.journal_service_pb2_grpc import add_JournalServiceServicer_to_server
from lantern.api.journal.v1.recovery_service_pb2_grpc import add_JournalRecoveryServiceServicer_to_server
from lantern.api.journal.v1.worker_service_pb2_grpc import add_JournalWorkerServiceServicer_to_server
from lantern_executor.adapters.addresses import JournalAddresses
from lantern_executor.adapters.journal import GrpcJournal, JournalProcesses
from lantern_executor.adapters.programs import WorkflowPrograms
from lantern_executor.adapters.session import Session, WorkerIdentity
from lantern_executor.adapters.steps import LocalStepRunner, http_session
from lantern_executor.application.executor import Executor
from lantern_executor.domain.tail import Append
from lantern_executor.servicer import ExecutorServicer
from lantern_journal.adapters.clock import CarriedClock
from lantern_journal.application.announcements import DueTimer, Hub, Relay
from lantern_journal.application.committer import GroupCommitter
from lantern_journal.application.leases import Leases
from lantern_journal.application.runs import Runs
from lantern_journal.application.sessions import LocalSession, Sessions
from lantern_journal.domain.leases import Limits
from lantern_journal.ports import Disconnected
from lantern_journal.servicer.journal import JournalServicer
from lantern_journal.servicer.recovery import RecoveryServicer
from lantern_journal.servicer.streams import OpenStreams
from lantern_journal.servicer.worker import WorkerServicer
from lantern_kernel import reasons
from lantern_kernel.errors import LanternError
from lantern_recovery.adapters.executors import GrpcExecutors
from lantern_recovery.adapters.journal import GrpcJournal as RecoveryJournal
from lantern_recovery.adapters.process import Bell
from lantern_recovery.application.loop import SweepLoop, Watch
from lantern_recovery.application.sweep import Sweep
from oracle.memory_store import Database, MemoryStore
from simulation.loop import Process, SimulatedLoop
from simulation.network import Channel, Network, Server, begin
from simulation.world import World, definitions

T = TypeVar("T")

EPOCH_US = 1_700_000_000_000_000
LIMITS = Limits(lease_us=60_000_000, grant_us=5_000_000, silence_us=10_000_000)
GRACE_S = 0.25
CAPACITY = 4
SWEEP_S = 30.0


class Sources:
    """Time and chance of one process, as all three services ask for them."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self._random = Random(loop.random.getrandbits(64))

    def monotonic_s(self) -> float:
        return 1_000.0 + self._loop.now_s

    def monotonic_us(self) -> int:
        return round(self.monotonic_s() * 1e6)

    def random01(self) -> float:
        return self._random.random()

    def random_bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)

    def salt(self) -> bytes:
        return self._random.randbytes(16)

    def run_id(self, now_us: int) -> str:
        chance = self._random.randbytes(10).hex()
        stamp = f"{now_us // 1000:012x}"
        return f"{stamp[:8]}-{stamp[8:]}-7{chance[:3]}-8{chance[3:6]}-{chance[6:18]}"

    def traceparent(self) -> str:
        return f"00-{self._random.randbytes(16).hex()}-{self._random.randbytes(8).hex()}-01"


class DatabaseEdge:
    """A journal's way to the database: takes time, and is lost before or after a commit."""

    def __init__(self, loop: SimulatedLoop, name: str) -> None:
        self._loop, self._name = loop, name
        self.bad_luck = 0.0
        self.is_away = False

    async def cross(self, name: str, commit: Callable[[], T]) -> T:
        """See oracle.memory_store.Edge."""
        random = self._loop.random
        await asyncio.sleep(random.uniform(0.0002, 0.002))
        if self.is_away or random.random() < self.bad_luck:
            self._loop.note(f"{self._name} loses the database before {name}")
            raise Disconnected("before")
        outcome = commit()
        self._loop.note(f"{self._name} {name}")
        if random.random() < self.bad_luck:
            self._loop.note(f"{self._name} loses the answer of {name}")
            raise Disconnected("after")
        await asyncio.sleep(random.uniform(0.0002, 0.002))
        return outcome


class Watched(GrpcJournal):
    """What a worker is told is noted: acknowledged events must stay, who lost must do nothing more."""

    def __init__(self, processes: JournalProcesses, session: Session, cluster: "Cluster", process: Process) -> None:
        super().__init__(processes, session)
        self._cluster, self._process = cluster, process

    async def append(self, append: Append) -> None:
        """See GrpcJournal."""
        self._cluster.appends(self._process, append.run_id, append.epoch)
        try:
            await super().append(append)
        except LanternError as error:
            self._cluster.refused(self._process, append, error)
            raise
        self._cluster.acknowledged.append(append)


class WatchedSessions(Sessions):
    """Notes when streams break: nobody's session may be closed for that before its grace has passed."""

    def __init__(self, cluster: "Cluster", store: MemoryStore, clock: CarriedClock, hub: Hub) -> None:
        super().__init__(cluster.watched(store), clock, hub, LIMITS, grace_s=GRACE_S)
        self._cluster = cluster

    def stream_closed(self, session: LocalSession) -> None:
        """See Sessions."""
        self._cluster.broken_s[session.worker_id, session.number] = self._cluster.loop.now_s
        super().stream_closed(session)


class Cluster:
    """All processes, the database, the network, and what the checks need to know of them."""

    def __init__(self, loop: SimulatedLoop, world: World, database: Database, journals: int) -> None:
        self.loop, self.world, self.database = loop, world, database
        self.network = Network(loop)
        self.journals = [f"journal-{number}" for number in range(journals)]
        self.live: dict[str, Process] = {}
        self.edges: dict[str, DatabaseEdge] = {}
        self.acknowledged: list[Append] = []
        self.wall_offset_s = 0.0
        # How a service is told to stop in order, by name, and what it waits for then.
        self.drains: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {}
        # When the stream of a session broke, by worker and number.
        self.broken_s: dict[tuple[str, int], float] = {}
        self._drivers: dict[tuple[str, int], str] = {}
        self._starts = 0

    def connect(self, address: str) -> Any:
        """A channel from the present process."""
        return Channel(self.network, address)

    def watched(self, store: MemoryStore) -> Any:
        """A store that looks at the grace whenever a session is closed."""
        close = store.close_session

        async def close_session(worker_id: str, number: int) -> int | None:
            broken_s = self.broken_s.get((worker_id, number), self.loop.now_s)
            if self.loop.now_s - broken_s < GRACE_S - 1e-6:
                self.world.faults.append(f"the session of {worker_id} is closed within its grace")
            return await close(worker_id, number)

        store.close_session = close_session
        return store

    def appends(self, process: Process, run_id: str, epoch: int) -> None:
        """One driver per epoch."""
        if self._drivers.setdefault((run_id, epoch), process.name) != process.name:
            self.world.faults.append(f"two processes append to {run_id} under epoch {epoch}")

    def refused(self, process: Process, append: Append, error: LanternError) -> None:
        """A worker was told why its append did not go in."""
        self.loop.note(f"{process.name} is refused: {error.reason}")
        if error.reason in (reasons.LEASE_LOST, reasons.RUN_CLOSED):
            self.world.told_lost.add((process.name, append.run_id, append.epoch))
        elif error.reason == reasons.APPEND_CONFLICT:
            # The only driver of an epoch has nobody to be in conflict with.
            self.world.faults.append(f"{process.name}: {error}")

    # Starting processes.

    def start(self, name: str) -> None:
        """Starts a service in a fresh process; an executor gets a new name, as its worker id is new."""
        kind = name.rpartition("-")[0]
        self._starts += 1
        self.drains.pop(name, None)
        process = self.live[name] = self.loop.process(f"{name}.{self._starts}" if kind == "executor" else name)
        self.loop.note(f"start {process.name}")
        begin(
            process,
            {"journal": self._journal, "executor": self._executor, "recovery": self._recovery}[kind](process, name),
        )

    def kill(self, name: str) -> None:
        """It is gone."""
        self.loop.note(f"kill {name}")
        self.live[name].kill()

    async def _journal(self, process: Process, name: str) -> None:
        sources = Sources(self.loop)
        offset_s, self.wall_offset_s = self.wall_offset_s, 0.0
        clock = CarriedClock(
            lambda: int(EPOCH_US * 1000 + (self.loop.now_s + offset_s) * 1e9), lambda: int(sources.monotonic_s() * 1e9)
        )
        edge = self.edges.setdefault(name, DatabaseEdge(self.loop, name))
        store: Any = MemoryStore(self.database, edge=edge, random=Random(self.loop.random.getrandbits(64)))
        while True:  # a supervisor starts it again until it finds its database
            try:
                clock.calibrate(await store.ping())
                break
            except Disconnected:
                await asyncio.sleep(0.5)
        hub, streams = Hub(), OpenStreams()
        sessions = WatchedSessions(self, store, clock, hub)
        committer = GroupCommitter(store, clock, hub)
        leases = Leases(store, clock, sources, hub, committer, LIMITS)
        runs = Runs(store, clock, sources, hub, sessions, committer, LIMITS)
        while True:
            try:
                await sessions.adopt()
                break
            except LanternError:
                await asyncio.sleep(0.5)
        server: Any = Server(process)
        add_JournalServiceServicer_to_server(JournalServicer(runs, store, streams), server)
        worker = WorkerServicer(runs, sessions, committer, leases, store, clock, streams)
        add_JournalWorkerServiceServicer_to_server(worker, server)
        add_JournalRecoveryServiceServicer_to_server(RecoveryServicer(leases, hub, streams), server)
        begin(process, sessions.run())
        begin(process, DueTimer(store, clock, hub).run())
        begin(process, Relay(store, hub).run())
        begin(process, _calibrate(clock, store))
        self.network.servers[name] = server

        async def drain() -> None:
            sessions.stop()
            await asyncio.sleep(1.0)
            await committer.finish()
            await runs.finish()
            await hub.finish(5.0)

        self.drains[name] = drain

    async def _executor(self, process: Process, name: str) -> None:
        sources = Sources(self.loop)
        programs = WorkflowPrograms(definitions(), LocalStepRunner(http_session))
        identity = WorkerIdentity(worker_id=process.name, capacity=CAPACITY, offers=programs.offers())
        first = self.loop.random.randrange(len(self.journals))
        addresses = JournalAddresses((*self.journals[first:], *self.journals[:first]))
        session = Session(addresses, identity, connect=self.connect, clock_s=sources.monotonic_s)
        journal = Watched(JournalProcesses(addresses, self.connect), session, self, process)
        executor = Executor(journal=journal, programs=programs, sources=sources, capacity=CAPACITY)
        server: Any = Server(process)
        add_ExecutorServiceServicer_to_server(ExecutorServicer(executor), server)
        self.drains[name] = lambda: executor.drain(3.0)
        session.start(f"{name}:1")
        await session.wait_attached()
        self.network.servers[f"{name}:1"] = server

    async def _recovery(self, process: Process, name: str) -> None:
        del name
        sources = Sources(self.loop)
        # A recovery process speaks to one address; behind it is whichever journal lives.
        journal = RecoveryJournal(self.connect(self.journals[self.loop.random.randrange(len(self.journals))]))
        sweep = Sweep(journal, GrpcExecutors(self.connect), sources)
        bell = Bell()
        begin(process, SweepLoop(sweep, bell, SWEEP_S).run())
        begin(process, Watch(journal, bell, Bell(), sources).run())


async def _calibrate(clock: CarriedClock, store: MemoryStore) -> None:
    """As the journal's own process does."""
    while True:
        await asyncio.sleep(1.0)
        try:
            clock.calibrate(await store.ping())
        except Disconnected:
            continue
