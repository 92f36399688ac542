"""Stale writers against new owners over two journals, and whether the journal tells one story of it.

Each round: worker 1 appends through the journal that has its run's head in memory, on its own idea of the head, until
it is refused; meanwhile its lease is handed over through the other journal to worker 2, which appends there. Requests
are sent twice at once, repeated after their answer, and forged (same place, other content), through either journal.
Bystanders share the groups and must never be refused. Afterwards each request is in the database whole or not at all,
as its sender was told.
"""

import asyncio
import os
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import ledger
from ledger import Stored
from load import AGENT, Driver, persist

from lantern.api.journal.v1 import journal_service_pb2 as journal_pb
from lantern.api.journal.v1 import recovery_service_pb2 as recovery_pb
from lantern.api.journal.v1 import worker_service_pb2 as worker_pb
from lantern_executor.domain.run import StartRequest
from lantern_executor.domain.tail import Append, Tail
from lantern_kernel import kinds, payloads, reasons
from lantern_kernel.errors import LanternError
from lantern_kernel.event import NewEvent

OK = "OK"
STALE_REQUESTS_MAX = 12
OWNER_REQUESTS = 3
AT_ONCE = 48
BYSTANDERS = 12
DELAY_S = 0.002
BYSTANDER_PAUSE_S = 0.02
RPC_S = 20.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Sent:
    """A request and what its sender was told."""

    append: Append
    told: str
    forged: bool


@dataclass(eq=False, kw_only=True)
class Races:
    """Rounds over the drivers of two journals."""

    drivers: tuple[Driver, Driver]
    sent: list[Sent] = field(default_factory=list[Sent])
    told: Counter[str] = field(default_factory=Counter[str])
    # What should not have been said to somebody.
    wrong: list[str] = field(default_factory=list[str])

    async def run(self, rounds: int) -> None:
        """All rounds, some of them at once, among bystanders."""
        turn, over = asyncio.Semaphore(AT_ONCE), asyncio.Event()

        async def limited(number: int) -> None:
            async with turn:
                if self.wrong:
                    return
                try:
                    await self._round(number)
                except LanternError as error:
                    self.wrong.append(f"round {number}: {error}")

        bystanders = [asyncio.create_task(self._bystander(number, over)) for number in range(BYSTANDERS)]
        try:
            await asyncio.gather(*map(limited, range(rounds)))
        finally:
            over.set()
            await asyncio.gather(*bystanders)

    async def _start(self, driver: Driver, name: str) -> Tail:
        request = StartRequest(
            request_id=name,
            tenant_id="default",
            agent_name=AGENT,
            input=b"1",
            workflow_id="",
            workflow_id_policy=0,
            traceparent="",
        )
        created = await persist(lambda: driver.journal.create_run(request, with_lease=True))
        run_id = created.run.run_id
        if created.epoch:
            return Tail(run_id, created.epoch, created.events[-1])
        return await self._take(driver, run_id)

    async def _round(self, number: int) -> None:
        chance = random.Random(number)
        home, away = self.drivers if number % 2 else self.drivers[::-1]
        tail = await self._start(home, f"round{number}")
        run_id, epoch = tail.append([_event()], 0).run_id, tail.append([_event()], 0).epoch

        async def owner() -> None:
            await asyncio.sleep(chance.random() * DELAY_S * 4)
            await self._hand_over(run_id, epoch, home.session.identity.worker_id, 0 if number % 2 else 1)
            mine = await self._take(away, run_id)
            refused = await self._write(chance, away, home, mine, OWNER_REQUESTS)
            if refused:
                self.wrong.append(f"round {number}: the owner was refused: {refused}")

        stale, _ = await asyncio.gather(self._write(chance, home, away, tail, STALE_REQUESTS_MAX), owner())
        self.told["stale writers stopped" if stale else "stale writers that were done before"] += 1

    async def _hand_over(self, run_id: str, epoch: int, worker_id: str, through: int) -> None:
        """Gives worker 1's lease back behind its back, through the other journal."""
        stub = self.drivers[through].workers
        request = worker_pb.ReleaseLeaseRequest(run_id=run_id, epoch=epoch, worker_id=worker_id)
        await persist(lambda: stub.ReleaseLease(request, timeout=RPC_S))

    async def _take(self, driver: Driver, run_id: str) -> Tail:
        while True:
            target = journal_pb.LeaseTarget(
                worker_id=driver.session.identity.worker_id, session_number=driver.session.number
            )
            request = recovery_pb.AcquireLeaseRequest(run_id=run_id, lease_target=target, reason="crash")
            granted = await persist(lambda request=request: driver.recovery.AcquireLease(request, timeout=RPC_S))
            if granted.acquired:
                try:
                    opened = await driver.journal.open_run(run_id, granted.epoch)
                    return Tail(run_id, granted.epoch, opened.events[-1])
                except LanternError:
                    continue  # it took longer than a grant lasts
            await asyncio.sleep(0.05)

    async def _write(self, chance: random.Random, home: Driver, away: Driver, tail: Tail, requests: int) -> str:
        """Appends on its own idea of the head; why it was refused in the end."""
        for _ in range(requests):
            await asyncio.sleep(chance.random() * DELAY_S)
            append = tail.append([_event() for _ in range(chance.randint(1, 3))], 0)
            if chance.random() < 0.1:
                both = await asyncio.gather(self._send(home, append), self._send(chance.choice((home, away)), append))
                told = OK if OK in both else both[0]
            else:
                told = await self._send(home, append)
            if told != OK:
                return told
            if chance.random() < 0.2:
                again = await self._send(chance.choice((home, away)), append)
                if again not in (OK, reasons.LEASE_LOST):
                    self.wrong.append(f"a repeat was told {again}")
            if chance.random() < 0.2:
                forged = tail.append([_event() for _ in append.events], 0)
                told = await self._send(chance.choice((home, away)), forged, forged=True)
                if told not in (reasons.APPEND_CONFLICT, reasons.LEASE_LOST):
                    self.wrong.append(f"a forged request was told {told}")
            tail.moved_by(append)
        return ""

    async def _send(self, driver: Driver, append: Append, *, forged: bool = False) -> str:
        try:
            await driver.session.append(append)
            told = OK
        except LanternError as error:
            told = error.reason
        self.told[told] += 1
        self.sent.append(Sent(append=append, told=told, forged=forged))
        return told

    async def _bystander(self, number: int, over: asyncio.Event) -> None:
        driver = self.drivers[number % 2]
        tail = await self._start(driver, f"bystander{number}")
        while not over.is_set():
            append = tail.append([_event(), _event()], 0)
            told = await self._send(driver, append)
            if told != OK:
                self.wrong.append(f"a bystander was told {told}")
                return
            tail.moved_by(append)
            await asyncio.sleep(BYSTANDER_PAUSE_S)

    def faults(self, stored: Stored) -> list[str]:
        """Where the database tells another story than its senders were told."""
        faults = [fault for run_id in stored.runs for fault in ledger.run_faults(run_id, stored, all_ended=False)]
        where = {event.salt: (run_id, event) for run_id, events in stored.events.items() for event in events}
        for sent in self.sent:
            append = sent.append
            there = [where.get(event.salt) for event in append.events]
            name = f"{append.run_id} from {append.first_seq} on, epoch {append.epoch}"
            if any(there) and not all(there):
                faults.append(f"{name}: in part")
            if sent.told == OK and not _stands_where_said(append, there):
                faults.append(f"{name}: acknowledged, but not there")
            if sent.forged and any(there):
                faults.append(f"{name}: forged, but there")
        return [*self.wrong, *faults]


def _stands_where_said(append: Append, there: "Sequence[tuple[str, ledger.Event] | None]") -> bool:
    return all(
        found is not None and (found[0], found[1].seq, found[1].epoch) == (append.run_id, seq, append.epoch)
        for seq, found in enumerate(there, start=append.first_seq)
    )


def _event() -> NewEvent:
    payload = payloads.pack({}, b'"' + os.urandom(60).hex().encode() + b'"')
    return NewEvent(kind=kinds.STEP_COMPLETED, step_id="s", attempt=1, payload=payload, salt=os.urandom(16))
