"""Real processes for the executor's integration tests: a journal on SQLite, executors, their workflows.

Each process is killed by its own id at the end, whatever the test did.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc

from lantern.api.executor.v1 import executor_service_pb2 as executor_pb
from lantern.api.executor.v1 import executor_service_pb2_grpc as executor_grpc
from lantern.api.journal.v1 import journal_service_pb2 as journal_pb
from lantern.api.journal.v1 import journal_service_pb2_grpc as journal_grpc
from lantern.api.journal.v1 import recovery_service_pb2 as recovery_pb
from lantern.api.journal.v1 import recovery_service_pb2_grpc as recovery_grpc
from lantern.api.journal.v1 import run_pb2
from lantern_serving import channels

WORKFLOWS = Path(__file__).with_name("executor_workflows.py")
WAIT_S = 30.0


class Service:
    """One process of ours, started and restarted with the same settings."""

    def __init__(self, module: str, environment: dict[str, str], log: Path, entry: tuple[str, ...] = ()) -> None:
        """`entry` is a script with its arguments that is run in the place of the module."""
        self._module = module
        self._entry = entry or ("-m", module)
        self._environment = {k: v for k, v in os.environ.items() if not k.startswith("LANTERN_")} | environment
        self._log = log
        self._process: asyncio.subprocess.Process | None = None
        self.address = ""

    async def start(self) -> None:
        """Starts it and waits until it serves."""
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, *self._entry, env=self._environment, stdout=asyncio.subprocess.PIPE, stderr=log
            )
        assert self._process.stdout is not None
        async with asyncio.timeout(WAIT_S):
            line = await self._process.stdout.readline()
        assert line, f"{self._module} ended: {self._log.read_text()[-3_000:]}"
        self.address = json.loads(line)["address"]
        self._environment["LANTERN_LISTEN"] = self.address

    async def signal(self, number: signal.Signals) -> int:
        """Ends it with a signal and returns its exit code."""
        assert self._process is not None
        if self._process.returncode is None:
            self._process.send_signal(number)
        async with asyncio.timeout(WAIT_S):
            return await self._process.wait()

    async def ended(self) -> int:
        """Waits until it has ended by itself; its exit code."""
        assert self._process is not None
        async with asyncio.timeout(WAIT_S):
            return await self._process.wait()

    async def kill(self) -> None:
        """Kill -9."""
        await self.signal(signal.SIGKILL)

    def pause(self) -> None:
        """Stops it for a while, as a long garbage collection or a laptop's lid does."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Lets it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    @property
    def log(self) -> str:
        """What it has logged."""
        return self._log.read_text()

    async def until_logged(self, action: str) -> None:
        """Waits until it has logged something."""
        async with asyncio.timeout(WAIT_S):
            while action not in self.log:  # noqa: ASYNC110 - of a file
                await asyncio.sleep(0.05)


class Proxy:
    """A connection that can be cut and mended, between an executor and its journal."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._server: asyncio.Server | None = None
        self._pipes: set[asyncio.StreamWriter] = set()
        self._pumps: set[asyncio.Task[None]] = set()
        self.address = ""

    async def mend(self) -> None:
        """Connects from now on."""
        host, _, port = (self.address or "127.0.0.1:0").rpartition(":")
        self._server = await asyncio.start_server(self._connected, host, int(port))
        self.address = "{}:{}".format(*self._server.sockets[0].getsockname())

    async def cut(self) -> None:
        """Breaks every connection and refuses new ones."""
        if self._server is not None:
            self._server.close()
        for writer in self._pipes:
            writer.transport.abort()
        if self._pumps:
            await asyncio.wait(self._pumps)
        self._pipes.clear()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self._target.rpartition(":")
        there_reader, there_writer = await asyncio.open_connection(host, int(port))
        self._pipes |= {writer, there_writer}
        for source, sink in ((reader, there_writer), (there_reader, writer)):
            task = asyncio.create_task(_pump(source, sink))
            self._pumps.add(task)
            task.add_done_callback(self._pumps.discard)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


class Cluster:
    """A journal, some executors, and the clients to speak to them."""

    def __init__(self, folder: Path, **journal: str) -> None:
        self.folder = folder
        self.ledger = folder / "ledger"
        self.ledger.touch()
        self.journal = Service(
            "lantern_journal",
            {"LANTERN_DATABASE": f"sqlite:{folder / 'journal.db'}", **journal},
            folder / "journal.log",
        )
        self.executors: list[Service] = []
        self._channels: list[grpc.aio.Channel] = []

    async def add_executor(self, entry: tuple[str, ...] = (), /, **settings: str) -> Service:
        """One more executor; `entry` as in Service."""
        number = len(self.executors)
        environment = {
            "LANTERN_JOURNAL": self.journal.address,
            "LANTERN_MODULES": str(WORKFLOWS),
            "TEST_LEDGER": str(self.ledger),
            **settings,
        }
        service = Service("lantern_executor", environment, self.folder / f"executor{number}.log", entry)
        self.executors.append(service)
        await service.start()
        return service

    def channel(self, address: str) -> grpc.aio.Channel:
        """A connection that is closed at the end."""
        channel = channels.connect(address)
        self._channels.append(channel)
        return channel

    def executor(self, number: int = 0) -> "executor_grpc.ExecutorServiceAsyncStub":
        """A client of an executor."""
        return executor_grpc.ExecutorServiceStub(self.channel(self.executors[number].address))

    def runs(self) -> "journal_grpc.JournalServiceAsyncStub":
        """A client of the journal."""
        return journal_grpc.JournalServiceStub(self.channel(self.journal.address))

    def recovery(self) -> "recovery_grpc.JournalRecoveryServiceAsyncStub":
        """The journal, as recovery speaks to it."""
        return recovery_grpc.JournalRecoveryServiceStub(self.channel(self.journal.address))

    async def start_run(self, agent: str, data: object = None, request_id: str = "r1", number: int = 0) -> run_pb2.Run:
        """Starts a run at an executor."""
        request = executor_pb.StartRunRequest(request_id=request_id, agent_name=agent, input=json.dumps(data).encode())
        return (await self.executor(number).StartRun(request)).run

    async def until(self, run_id: str, *states: str) -> run_pb2.Run:
        """Waits until a run is in one of these states."""
        runs = self.runs()
        async with asyncio.timeout(WAIT_S):
            while True:
                run = (await runs.GetRun(journal_pb.GetRunRequest(run_id=run_id), wait_for_ready=True)).run
                if run_pb2.Run.State.Name(run.state).removeprefix("STATE_") in states:
                    return run
                await asyncio.sleep(0.05)

    async def events(self, run_id: str) -> list[run_pb2.Event]:
        """All events of a run."""
        return list((await self.runs().ListEvents(journal_pb.ListEventsRequest(run_id=run_id))).events)

    async def recover(self, run_id: str, number: int) -> int:
        """Does by hand what the sweep does: waits until the run is an orphan and has an executor drive it."""
        recovery = self.recovery()
        async with asyncio.timeout(WAIT_S):
            while True:
                orphans = (await recovery.FindOrphans(recovery_pb.FindOrphansRequest())).orphans
                orphan = next((orphan for orphan in orphans if orphan.run_id == run_id), None)
                if orphan is not None:
                    break
                await asyncio.sleep(0.05)
        workers = (await recovery.FindWorkers(recovery_pb.FindWorkersRequest())).workers
        worker = next(worker for worker in workers if worker.address == self.executors[number].address)
        target = journal_pb.LeaseTarget(worker_id=worker.worker_id, session_number=worker.session_number)
        granted = await recovery.AcquireLease(
            recovery_pb.AcquireLeaseRequest(run_id=run_id, lease_target=target, reason=orphan.reason)
        )
        assert granted.acquired
        await self.executor(number).Drive(
            executor_pb.DriveRequest(
                run_id=run_id, epoch=granted.epoch, worker_id=worker.worker_id, agent_name=orphan.agent_name
            )
        )
        return granted.epoch

    def effects(self) -> list[str]:
        """What steps did: `begin|end step key epoch`, in order."""
        return self.ledger.read_text().splitlines()

    async def until_effect(self, beginning: str) -> None:
        """Waits for an effect."""
        async with asyncio.timeout(WAIT_S):
            while not any(line.startswith(beginning) for line in self.effects()):  # noqa: ASYNC110 - of a file
                await asyncio.sleep(0.02)

    async def close(self) -> None:
        """Ends all that was started."""
        for channel in self._channels:
            await channel.close()
        for service in [*self.executors, self.journal]:
            if service.address:
                await service.kill()


@asynccontextmanager
async def cluster(folder: Path, executors: int = 1, silence: str = "10s", **settings: str) -> AsyncGenerator[Cluster]:
    """A running journal with executors that have these settings."""
    made = Cluster(folder, LANTERN_SESSION_SILENCE=silence)
    try:
        await made.journal.start()
        await asyncio.gather(*(made.add_executor((), **settings) for _ in range(executors)))
        yield made
    finally:
        await made.close()
