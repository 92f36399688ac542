"""A journal process under test, and a worker that speaks to it as an executor does."""

import asyncio
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import grpc

from lantern.api.journal.v1 import (
    feed_service_pb2_grpc,
    journal_service_pb2_grpc,
    recovery_service_pb2_grpc,
    run_pb2,
    worker_service_pb2_grpc,
)
from lantern.api.journal.v1 import journal_service_pb2 as jp
from lantern.api.journal.v1 import recovery_service_pb2 as rp
from lantern.api.journal.v1 import worker_service_pb2 as wp
from lantern_kernel import payloads
from lantern_kernel.errors import LanternError
from lantern_kernel.event import Event, NewEvent, find_chain_fault
from lantern_kernel.payloads import ParkFacts
from lantern_serving import channels, status

DIGEST = "a" * 64


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class JournalProcess:
    """`python -m lantern_journal` on a port of its own, which it keeps when it is started again."""

    def __init__(self, database: str, **settings: str) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self._environment = {
            **os.environ,
            **settings,
            "LANTERN_DATABASE": database,
            "LANTERN_LISTEN": self.address,
            "LANTERN_EXIT_WITH_PARENT": str(os.getpid()),
            "LANTERN_LOG_LEVEL": "WARNING",
        }
        self._process: asyncio.subprocess.Process | None = None
        self._channels: list[grpc.aio.Channel] = []

    async def start(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "lantern_journal", stdout=asyncio.subprocess.PIPE, env=self._environment
        )
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), 20)
        assert json.loads(line) == {"address": self.address}
        return self

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        await self._process.wait()

    async def freeze(self, for_s: float) -> None:
        """Stops the process in its tracks for a while, as a suspended machine does."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(for_s)
        finally:
            self._process.send_signal(signal.SIGCONT)

    async def terminate(self) -> int:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return await asyncio.wait_for(self._process.wait(), 15)

    async def close(self) -> None:
        for channel in self._channels:
            await channel.close()
        if self._process is not None and self._process.returncode is None:
            await self.kill()

    def channel(self) -> grpc.aio.Channel:
        channel = channels.connect(self.address)
        self._channels.append(channel)
        return channel

    def runs(self) -> Any:
        return journal_service_pb2_grpc.JournalServiceStub(self.channel())

    def feed(self) -> Any:
        return feed_service_pb2_grpc.JournalFeedServiceStub(self.channel())

    def resident_bytes(self) -> int:
        """How much memory the process takes."""
        assert self._process is not None
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def workers(self) -> Any:
        return worker_service_pb2_grpc.JournalWorkerServiceStub(self.channel())

    def recovery(self) -> Any:
        return recovery_service_pb2_grpc.JournalRecoveryServiceStub(self.channel())


async def refusal(call: Any) -> LanternError:
    """The error that a call ends with."""
    try:
        answer = await call
    except grpc.aio.AioRpcError as error:
        return status.to_error(error)
    raise AssertionError(f"was not refused but answered {answer}")


class Watch:
    """What WatchOrphans says, with the moment of each message (monotonic)."""

    def __init__(self, journal: JournalProcess) -> None:
        self._call = journal.recovery().WatchOrphans(rp.WatchOrphansRequest())
        self.heard: list[tuple[str, float]] = []
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        try:
            async for message in self._call:
                self.heard.append((message.cause, time.monotonic()))
        except (grpc.aio.AioRpcError, asyncio.CancelledError):
            return

    def causes(self) -> list[str]:
        return [cause for cause, _ in self.heard]

    async def hears(self, cause: str, within_s: float) -> float:
        """The moment at which a cause is heard."""
        async with asyncio.timeout(within_s):
            while True:
                for heard, at in self.heard:
                    if heard == cause:
                        return at
                await asyncio.sleep(0.005)

    async def begun(self) -> Self:
        await self._call.initial_metadata()
        return self

    def stop(self) -> None:
        self._call.cancel()


class Driven:
    """A run as its driver knows it: seq and digest of its last event."""

    def __init__(self, run_id: str, epoch: int, events: Sequence[run_pb2.Event]) -> None:
        self.run_id, self.epoch = run_id, epoch
        self.seq, self.digest = events[-1].seq, events[-1].digest

    def append(self, *events: NewEvent, consumed: int = 0, append_id: int = 0) -> wp.Append:
        """The append of these events on top; the driver goes on from there at once, as a pipeline does."""
        made = wp.Append(
            append_id=append_id,
            run_id=self.run_id,
            epoch=self.epoch,
            first_seq=self.seq + 1,
            previous_digest=self.digest,
            consumed_inbox_number=consumed,
            events=[
                wp.NewEvent(kind=e.kind, step_id=e.step_id, attempt=e.attempt, payload=e.payload, salt=e.salt)
                for e in events
            ],
        )
        for e in events:
            self.seq += 1
            self.digest = e.digest(run_id=self.run_id, seq=self.seq, epoch=self.epoch)
        return made


class Worker:
    """A worker's session stream."""

    def __init__(self, journal: JournalProcess, worker_id: str, *, tenant_id: str = "") -> None:
        self.journal, self.worker_id, self._tenant_id = journal, worker_id, tenant_id
        self.number = 0
        self.results: dict[int, wp.AppendResult] = {}
        self.started: dict[int, wp.StartResult] = {}
        self.inbox: list[str] = []
        self.pongs: list[int] = []
        self.moved = False
        self.error: LanternError | None = None
        self._sent = 0
        self._call: Any = None
        self._reader: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        # Two writers on one call would hang it.
        self._writing = asyncio.Lock()

    async def attach(self, journal: JournalProcess | None = None, *, draining: bool = False) -> Self:
        self.journal = journal or self.journal
        self._call = self.journal.workers().Session()
        offers = [wp.AgentOffer(name="order", digest=DIGEST, program_kind="code")]
        attach = wp.Attach(
            worker_id=self.worker_id,
            address="127.0.0.1:1",
            capacity=10,
            agents=offers,
            tenant_id=self._tenant_id,
            draining=draining,
        )
        await self._call.write(wp.SessionRequest(attach=attach))
        first = await self._call.read()
        assert first is not grpc.aio.EOF, "the stream ended instead"
        self.number = first.attached.session_number
        self.error = None
        self._reader = asyncio.create_task(self._read(self._call))
        return self

    async def _read(self, call: Any) -> None:
        try:
            # read(), not iteration: a call that is written to with write() knows no other way.
            while (message := await call.read()) is not grpc.aio.EOF:
                for result in message.results:
                    self.results[result.append_id] = result
                for started in message.started:
                    assert started.start_id not in self.started, "each start is answered once"
                    self.started[started.start_id] = started
                self.inbox += message.inbox_run_ids
                self.moved = self.moved or message.move
                if message.pong:
                    self.pongs.append(message.pong)
                self._news.set()
        except grpc.aio.AioRpcError as error:
            self.error = status.to_error(error)
        except asyncio.CancelledError:
            self.error = LanternError("CANCELLED", "by the test")
        self._news.set()

    async def until(self, what: Any, within_s: float = 10.0) -> None:
        """Waits until `what()` is true."""
        async with asyncio.timeout(within_s):
            while not what():
                self._news.clear()
                await self._news.wait()

    async def ping(self, number: int) -> None:
        await self.write(wp.SessionRequest(ping=number))

    async def write(self, message: wp.SessionRequest) -> None:
        """Writes a message; one at a time."""
        async with self._writing:
            await self._call.write(message)

    async def send(self, *appends: wp.Append) -> list[wp.AppendResult]:
        """Sends appends in one message and waits for what became of them."""
        for append in appends:
            self._sent += 1
            append.append_id = self._sent
        await self.write(wp.SessionRequest(appends=appends))
        await self.until(lambda: self.error or all(a.append_id in self.results for a in appends))
        assert self.error is None, self.error
        return [self.results.pop(a.append_id) for a in appends]

    async def start(self, *requests: jp.CreateRunRequest, appends: Sequence[wp.Append] = ()) -> list[wp.StartResult]:
        """Sends starts in one message, with appends perhaps, and waits for what became of the starts."""
        first = max(self.started, default=0) + 1
        starts = [wp.Start(start_id=first + n, request=request) for n, request in enumerate(requests)]
        await self.write(wp.SessionRequest(starts=starts, appends=appends))
        await self.until(lambda: self.error or all(start.start_id in self.started for start in starts))
        assert self.error is None, self.error
        return [self.started[start.start_id] for start in starts]

    async def accepted(self, append: wp.Append) -> int:
        """Sends an append that must go in; its last seq."""
        (result,) = await self.send(append)
        assert not result.HasField("error"), result.error
        return result.last_seq

    async def refused(self, append: wp.Append) -> LanternError:
        """Sends an append that must not go in; why it did not."""
        (result,) = await self.send(append)
        assert result.HasField("error"), result
        return status.from_status(result.error)

    def target(self) -> jp.LeaseTarget:
        return jp.LeaseTarget(worker_id=self.worker_id, session_number=self.number)

    async def create(self, request_id: str, payload: bytes = b'{"n":1}') -> Driven:
        """Creates a run with its lease."""
        answer = await self.journal.runs().CreateRun(
            jp.CreateRunRequest(
                request_id=request_id,
                tenant_id=self._tenant_id,
                agent_name="order",
                input=payload,
                lease_target=self.target(),
            )
        )
        assert answer.epoch == 1, answer
        return Driven(answer.run.run_id, answer.epoch, answer.events)

    async def take(self, run_id: str, reason: str = "crash") -> Driven | None:
        """Acquires and opens a run, as recovery and an executor do; None where somebody else has it."""
        acquired = await self.journal.recovery().AcquireLease(
            rp.AcquireLeaseRequest(run_id=run_id, lease_target=self.target(), reason=reason)
        )
        if not acquired.acquired:
            return None
        opened = await self.journal.workers().OpenRun(
            wp.OpenRunRequest(run_id=run_id, epoch=acquired.epoch, lease_target=self.target())
        )
        return Driven(run_id, acquired.epoch, opened.events)

    def drop(self) -> None:
        """Breaks the stream."""
        self._call.cancel()


def event(kind: str = "step_started", payload: bytes = b"{}", step_id: str = "s") -> NewEvent:
    return NewEvent(kind=kind, step_id=step_id, attempt=1, payload=payload, salt=os.urandom(16))


def succeeded(result: bytes = b"[1]") -> NewEvent:
    return NewEvent(kind="run_succeeded", payload=payloads.pack({}, result), salt=os.urandom(16))


def parked(on: str, due_us: int | None = None) -> NewEvent:
    return NewEvent(kind="run_parked", payload=ParkFacts(waiting_on=on, due_us=due_us).pack(), salt=os.urandom(16))


async def history(journal: JournalProcess, run_id: str) -> list[Event]:
    """All events of a run, their chain checked."""
    stub = journal.runs()
    events: list[Event] = []
    token = ""
    while True:
        page = await stub.ListEvents(jp.ListEventsRequest(run_id=run_id, page_token=token))
        events += [
            Event(
                seq=e.seq,
                kind=e.kind,
                step_id=e.step_id,
                attempt=e.attempt,
                epoch=e.epoch,
                time_us=e.time_us,
                payload=e.payload,
                salt=e.salt,
                digest=e.digest,
                hash=e.hash,
            )
            for e in page.events
        ]
        token = page.next_page_token
        if not token:
            assert find_chain_fault(run_id, events) is None
            return events


async def orphans(journal: JournalProcess) -> list[str]:
    answer = await journal.recovery().FindOrphans(rp.FindOrphansRequest(page_size=1000))
    return [orphan.run_id for orphan in answer.orphans]
