"""A load on the journal that writes down what it was promised; runs as a process of its own.

`python load.py --journal HOST:PORT [--journal ...] --promises FILE --runs N`: keeps N runs going over real session
streams, one session per journal, until a line comes in on standard input. It then ends its runs and prints one line of
JSON: what was promised, how often, and every refusal that a worker with a good lease should never see.

Each run: a start with its lease, appends of one to three events, a signal taken in, a claim and its settlement, perhaps
a release and a new grant, and a final append. Each answer is written down at once as a line of the promises' file, so
that a fault may hit anything but this process.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import IO, TypeVar

import grpc

from lantern.api.journal.v1 import journal_service_pb2 as journal_pb
from lantern.api.journal.v1 import journal_service_pb2_grpc as journal_grpc
from lantern.api.journal.v1 import recovery_service_pb2 as recovery_pb
from lantern.api.journal.v1 import recovery_service_pb2_grpc as recovery_grpc
from lantern.api.journal.v1 import worker_service_pb2_grpc as worker_grpc
from lantern_executor.adapters.addresses import JournalAddresses
from lantern_executor.adapters.journal import GrpcJournal, JournalProcesses
from lantern_executor.adapters.session import REPEATABLE, Session, WorkerIdentity
from lantern_executor.domain.run import HandBack, Offer, StartRequest
from lantern_executor.domain.step import StepContext
from lantern_executor.domain.tail import Append, Tail
from lantern_kernel import kinds, payloads
from lantern_kernel.errors import LanternError
from lantern_kernel.event import Event, NewEvent
from lantern_serving import channels, status

AGENT = "load"
DIGEST = "d" * 64
STEPS_MAX = 6
PAYLOAD_BYTES_MAX = 600
PAUSE_S = 0.05
RPC_S = 10.0
FINISH_S = 60.0

T = TypeVar("T")


class Promises:
    """The file of what the journal has answered: one JSON list a line, written through at once."""

    def __init__(self, path: Path) -> None:
        self._file: IO[str] = path.open("w", buffering=1)
        self.counts: Counter[str] = Counter()
        self.refusals: list[str] = []
        # The longest time between two answers.
        self.gap_s = 0.0
        self._last_s = time.monotonic()

    def note(self, what: str, *facts: str | int) -> None:
        """An answer: what it promises, and of what."""
        now_s = time.monotonic()
        self.gap_s, self._last_s = max(self.gap_s, now_s - self._last_s), now_s
        self.counts[what] += 1
        self._file.write(json.dumps([what, *facts]) + "\n")

    def appended(self, append: Append) -> None:
        """An append went in."""
        for seq, event in enumerate(append.events, start=append.first_seq):
            digest = event.digest(run_id=append.run_id, seq=seq, epoch=append.epoch)
            self.note("event", append.run_id, seq, digest.hex())


class Driver:
    """A worker: its session at one journal, and what it needs besides."""

    def __init__(self, address: str, name: str, promises: Promises) -> None:
        identity = WorkerIdentity(
            worker_id=f"{name}-{os.getpid()}",
            capacity=1000,
            offers=[Offer(name=AGENT, digest=DIGEST, program_kind="code")],
        )
        addresses = JournalAddresses([address])
        self.session = Session(addresses, identity)
        self.promises = promises
        self._channel = channel = channels.connect(address)
        self.journal = GrpcJournal(JournalProcesses(addresses, lambda _: channel), self.session)
        self.runs = journal_grpc.JournalServiceStub(channel)
        self.workers = worker_grpc.JournalWorkerServiceStub(channel)
        self.recovery = recovery_grpc.JournalRecoveryServiceStub(channel)

    async def close(self) -> None:
        """Ends session and channel."""
        await self.session.close()
        await self._channel.close()

    async def one_run(self, name: str, chance: random.Random) -> None:
        """A run from its start to its end."""
        request = StartRequest(
            request_id=name,
            tenant_id="default",
            agent_name=AGENT,
            input=json.dumps({"name": name}).encode(),
            workflow_id="",
            workflow_id_policy=0,
            traceparent="",
        )
        created = await persist(lambda: self.journal.create_run(request, with_lease=True))
        run_id, epoch = created.run.run_id, created.epoch
        self.promises.note("run", run_id, name)
        if epoch:
            tail = Tail(run_id, epoch, created.events[-1])
        else:
            # The answer to the start was lost, and with it the lease: as in life, the run is granted anew.
            tail, epoch = await self._take(run_id)
        consumed = 0
        for step in range(chance.randint(2, STEPS_MAX)):
            await self._append(tail, [_event(chance, f"step{step}") for _ in range(chance.randint(1, 3))], consumed)
            if step == 1:
                consumed = await self._signal(tail, run_id)
            if step == 2:
                await self._deliver(run_id, epoch, f"step{step}")
            if step == 3 and chance.random() < 0.5:
                tail, epoch = await self._hand_over(run_id, epoch)
        end = NewEvent(kind=kinds.RUN_SUCCEEDED, payload=payloads.pack({}, b"[1]"), salt=os.urandom(16))
        await self._append(tail, [end], consumed)
        self.promises.note("ended", run_id, tail.seq)

    async def _append(self, tail: Tail, events: Sequence[NewEvent], consumed: int) -> None:
        append = tail.append(events, consumed)
        await self.session.append(append)
        self.promises.appended(append)
        tail.moved_by(append)

    async def _signal(self, tail: Tail, run_id: str) -> int:
        request = journal_pb.SendToRunRequest(request_id=f"{run_id}.s", run_id=run_id, kind="signal", name="go")
        sent = await persist(lambda: self.runs.SendToRun(request, timeout=RPC_S))
        self.promises.note("entry", run_id, sent.number, request.request_id)
        taken = payloads.pack({"number": sent.number, "name": "go"}, b"null")
        event = NewEvent(kind=kinds.SIGNAL_RECEIVED, step_id="go", payload=taken, salt=os.urandom(16))
        await self._append(tail, [event], sent.number)
        return sent.number

    async def _deliver(self, run_id: str, epoch: int, step_id: str) -> None:
        context = StepContext(
            run_id=run_id,
            workflow_id="",
            step_id=step_id,
            attempt=1,
            key_attempt=1,
            key=f"{run_id}.{step_id}",
            epoch=epoch,
        )
        nonce = os.urandom(16)
        claim = await persist(lambda: self.journal.claim_side_effect(context, "mail", nonce))
        if not claim.claimed:
            self.promises.refusals.append(f"{run_id}: its own claim is told to be another's")
        self.promises.note("claim", context.key, nonce.hex())
        await persist(lambda: self.journal.settle_side_effect(context, delivered=True, result=b'"ok"'))
        self.promises.note("settled", context.key)

    async def _hand_over(self, run_id: str, epoch: int) -> tuple[Tail, int]:
        await persist(lambda: self.journal.release_lease(run_id, epoch, HandBack.DRAIN))
        self.promises.note("released", run_id, epoch)
        return await self._take(run_id)

    async def _take(self, run_id: str) -> tuple[Tail, int]:
        """The run's next lease, as recovery and an executor get it."""
        while True:
            request = recovery_pb.AcquireLeaseRequest(
                run_id=run_id,
                lease_target=journal_pb.LeaseTarget(
                    worker_id=self.session.identity.worker_id, session_number=self.session.number
                ),
                reason="upgrade",
            )
            granted = await persist(lambda request=request: self.recovery.AcquireLease(request, timeout=RPC_S))
            if not granted.acquired:
                await asyncio.sleep(PAUSE_S)  # an unopened grant of ours whose answer was lost must expire first
                continue
            self.promises.note("granted", run_id, granted.epoch)
            try:
                opened = await self.journal.open_run(run_id, granted.epoch)
            except LanternError as error:
                self.promises.counts[f"open: {error.reason}"] += 1
                continue  # the database was away for longer than a grant lasts
            last: Event = opened.events[-1]
            return Tail(run_id, granted.epoch, last), granted.epoch


async def persist(call: Callable[[], Awaitable[T]]) -> T:
    """What a call returns, made again for as long as its outcome is open."""
    while True:
        try:
            return await call()
        except (grpc.aio.AioRpcError, LanternError) as problem:
            error = status.to_error(problem) if isinstance(problem, grpc.aio.AioRpcError) else problem
            if error.reason not in REPEATABLE:
                raise error from None
        await asyncio.sleep(PAUSE_S)


def _event(chance: random.Random, step_id: str) -> NewEvent:
    payload = payloads.pack({"name": step_id}, json.dumps("x" * chance.randint(0, PAYLOAD_BYTES_MAX)).encode())
    return NewEvent(kind=kinds.STEP_STARTED, step_id=step_id, attempt=1, payload=payload, salt=os.urandom(16))


async def keep_going(driver: Driver, lane: str, promises: Promises, stop: asyncio.Event) -> None:
    """One run after the other, until it is told to stop."""
    for number in itertools.count():
        if stop.is_set():
            return
        name = f"{lane}.{number}"
        try:
            await driver.one_run(name, random.Random(name))
        except LanternError as error:
            promises.refusals.append(f"{name}: {error}")


async def main() -> None:
    """Loads the journals until a line comes in."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--journal", action="append", required=True)
    parser.add_argument("--promises", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=16)
    chosen = parser.parse_args()
    promises, stop = Promises(chosen.promises), asyncio.Event()
    drivers = [Driver(address, f"load{index}", promises) for index, address in enumerate(chosen.journal)]
    for driver in drivers:
        driver.session.start("127.0.0.1:1")
        await driver.session.wait_attached()
    lanes = [
        asyncio.create_task(keep_going(drivers[lane % len(drivers)], f"lane{lane}", promises, stop))
        for lane in range(chosen.runs)
    ]
    print(json.dumps({"ready": True}), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    stop.set()
    _, hanging = await asyncio.wait(lanes, timeout=FINISH_S)
    failures = [repr(lane.exception()) for lane in lanes if lane.done() and lane.exception() is not None]
    print(
        json.dumps(
            {
                "counts": promises.counts,
                "refusals": promises.refusals + failures,
                "hanging": len(hanging),
                "gap_s": round(promises.gap_s, 3),
            }
        ),
        flush=True,
    )
    for driver in drivers:
        with contextlib.suppress(Exception):
            await driver.close()


if __name__ == "__main__":
    asyncio.run(main())
