"""The load of bench_journal: runs in flight from a process of its own, over the executor's session adapter.

A step is one append of step_completed (200 bytes of payload) and the next step_started, durable before the next begins.
A run has 20 of them and three events before, as many rows as the yardstick writes. Runs are created before the clock
starts; with `--whole` they are created and ended while it runs. Prints one line of JSON.
"""

import argparse
import asyncio
import gc
import json
import os
import sys
import time
import uuid
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from lantern.api.journal.v1 import journal_service_pb2 as journal_pb
from lantern.api.journal.v1 import journal_service_pb2_grpc
from lantern_executor import wire
from lantern_executor.adapters.addresses import JournalAddresses
from lantern_executor.adapters.keeper_process import KeeperProcess
from lantern_executor.adapters.session import Session, WorkerIdentity
from lantern_executor.domain.run import Offer
from lantern_executor.domain.tail import Tail
from lantern_kernel import kinds, payloads
from lantern_kernel.event import NewEvent
from lantern_serving import channels

STEPS_PER_RUN = 20
WARM_S = 0.6
CREATE_AT_ONCE = 100
STALL_LIMIT_S = 60.0
AGENT, DIGEST = "bench", "b" * 64
CPU_HZ = os.sysconf("SC_CLK_TCK")


@dataclass(kw_only=True, slots=True)
class Measured:
    """What the lanes have done."""

    # How long each step took, seconds.
    step_s: list[float] = field(default_factory=list[float])
    # Runs begun.
    runs: int = 0


class Load:
    """Lanes that drive runs one after the other."""

    def __init__(self, address: str, payload_bytes: int, *, is_whole: bool) -> None:
        text = os.urandom(payload_bytes).hex()[: payload_bytes - len(payloads.pack({}, b'""'))]
        self._payload = payloads.pack({}, f'"{text}"'.encode())
        assert len(self._payload) == payload_bytes, "the payload has the size that is said"
        self._is_whole = is_whole
        identity = WorkerIdentity(
            worker_id=f"bench-{uuid.uuid4().hex}",
            capacity=10_000,
            offers=[Offer(name=AGENT, digest=DIGEST, program_kind="code")],
        )
        addresses = JournalAddresses([address])
        self._session = Session(addresses, identity, KeeperProcess(identity.worker_id, addresses, STALL_LIMIT_S))
        self._channel = channels.connect(address)
        self._journal = journal_service_pb2_grpc.JournalServiceStub(self._channel)
        self._pool: deque[Tail] = deque()

    async def start(self) -> None:
        """Attaches."""
        self._session.start("127.0.0.1:9")
        await self._session.wait_attached()

    async def close(self) -> None:
        """Leaves."""
        await self._session.close()
        await self._channel.close()

    async def fill(self, count: int) -> None:
        """Creates runs for the lanes to take."""
        for first in range(0, count, CREATE_AT_ONCE):
            made = await asyncio.gather(*(self._create() for _ in range(min(CREATE_AT_ONCE, count - first))))
            # Something is appended under each lease, which opens it, as it is in a run that is driven.
            await asyncio.gather(*(self._append(tail, [_event(kinds.MARKER_RECORDED, "made")]) for tail in made))
            self._pool.extend(made)

    async def drive(self, lanes: int, seconds: float) -> Measured:
        """All lanes for some time."""
        measured = Measured()
        deadline = time.perf_counter() + seconds
        await asyncio.gather(*(self._lane(measured, deadline) for _ in range(lanes)))
        return measured

    async def drive_one(self) -> str:
        """Drives one run to the end of its steps; its id."""
        tail = await self._create()
        await self._run(tail, Measured(), float("inf"))
        return tail.append([], 0).run_id

    async def append_once(self) -> None:
        """One step of a run that goes on for ever."""
        if not self._pool:
            await self.fill(1)
        await self._append(self._pool[0], [self._completed("s"), _event(kinds.STEP_STARTED, "s")])

    def _completed(self, step_id: str) -> NewEvent:
        return NewEvent(
            kind=kinds.STEP_COMPLETED, step_id=step_id, attempt=1, payload=self._payload, salt=os.urandom(16)
        )

    async def _lane(self, measured: Measured, deadline: float) -> None:
        while time.perf_counter() < deadline:
            tail = self._pool.popleft() if self._pool and not self._is_whole else await self._create()
            measured.runs += 1
            await self._run(tail, measured, deadline)

    async def _run(self, tail: Tail, measured: Measured, deadline: float) -> None:
        first = [_event(kinds.STEP_STARTED, "s0")]
        if not self._is_whole:
            # In place of what CreateRun wrote before the clock started.
            first = [_event(kinds.MARKER_RECORDED, "m0"), _event(kinds.MARKER_RECORDED, "m1"), *first]
        await self._append(tail, first)
        for step in range(STEPS_PER_RUN):
            began = time.perf_counter()
            completed = self._completed(f"s{step}")
            if self._is_whole and step == STEPS_PER_RUN - 1:
                result = NewEvent(kind=kinds.RUN_SUCCEEDED, payload=payloads.pack({}, b"1"), salt=os.urandom(16))
                await self._append(tail, [completed, result])
            else:
                await self._append(tail, [completed, _event(kinds.STEP_STARTED, f"s{step + 1}")])
            now = time.perf_counter()
            measured.step_s.append(now - began)
            if now > deadline and not self._is_whole:
                return

    async def _append(self, tail: Tail, events: list[NewEvent]) -> None:
        append = tail.append(events, 0)
        await self._session.append(append)
        tail.moved_by(append)

    async def _create(self) -> Tail:
        request = journal_pb.CreateRunRequest(
            request_id=uuid.uuid4().hex,
            agent_name=AGENT,
            input=b"{}",
            lease_target=journal_pb.LeaseTarget(
                worker_id=self._session.identity.worker_id, session_number=self._session.number
            ),
        )
        created = wire.to_created(await self._journal.CreateRun(request))
        assert created.epoch == 1, "the run is created with its lease"
        return Tail(created.run.run_id, created.epoch, created.events[-1])


def _event(kind: str, step_id: str) -> NewEvent:
    return NewEvent(kind=kind, step_id=step_id, attempt=1, salt=os.urandom(16))


def cpu_s(pid: int) -> float:
    """What a process and the children that it has seen end have used of the processors; 0 where it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / CPU_HZ


def family_cpu_s(pid: int) -> float:
    """What a process and its children have used; 0 for none."""
    if not pid:
        return 0.0
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return sum(cpu_s(int(each)) for each in [str(pid), *children])


async def measure(options: argparse.Namespace) -> dict[str, object]:
    """Warms up, fills the pool, measures."""

    def used() -> list[float]:
        return [time.process_time(), cpu_s(options.journal_pid), family_cpu_s(options.postgres_pid)]

    load = Load(options.journal, options.payload, is_whole=options.whole)
    await load.start()
    if not options.whole:
        await load.fill(2 * options.runs)
    warm = await load.drive(options.runs, WARM_S)
    if not options.whole:
        await load.fill(options.runs + int(1.5 * warm.runs * options.seconds / WARM_S))
    gc.collect()
    before, began = used(), time.perf_counter()
    measured = await load.drive(options.runs, options.seconds)
    took_s = time.perf_counter() - began
    spent = [after - first for after, first in zip(used(), before, strict=True)]
    await load.close()
    steps = sorted(measured.step_s)
    count = len(steps)
    return {
        "steps_s": round(count / took_s, 1),
        "p50_ms": round(steps[count // 2] * 1000, 3),
        "p99_ms": round(steps[count * 99 // 100] * 1000, 3),
        "cpu_us": dict(zip(("client", "journal", "postgres"), (round(s / count * 1e6, 1) for s in spent), strict=True)),
        "runs_s": round(measured.runs / took_s, 1),
    }


def main() -> None:
    """Runs the load and prints what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--journal", required=True, help="host:port")
    parser.add_argument("--journal-pid", type=int, default=0)
    parser.add_argument("--postgres-pid", type=int, default=0)
    parser.add_argument("--runs", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--payload", type=int, default=200, help="bytes")
    parser.add_argument("--whole", action="store_true")
    options = parser.parse_args()
    # As the executor's process does.
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)
    sys.stdout.write(json.dumps(uvloop.run(measure(options))) + "\n")


if __name__ == "__main__":
    main()
