"""Goal: whenever the answer to a commit is lost, the caller hears what became of it, and nothing happens twice (B16).

Method: a proxy cuts the journal's connection to PostgreSQL at the commit of one kind of transaction after the other:
before the commit is sent, while it is executed, and after the server has answered. Each call must end as if nothing had
happened, and the database must hold its work exactly once.
"""

import asyncio
import os
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import ledger
import pytest
from cutting_proxy import CuttingProxy, Moment
from load import AGENT, Driver, Promises
from rig import MakeDatabase, scaled
from system import Process

from lantern.api.journal.v1 import journal_service_pb2 as journal_pb
from lantern.api.journal.v1 import recovery_service_pb2 as recovery_pb
from lantern_executor.domain.run import CreatedRun, HandBack, StartRequest
from lantern_executor.domain.step import StepContext
from lantern_executor.domain.tail import Tail
from lantern_kernel import kinds, payloads
from lantern_kernel.event import NewEvent

RPC_S = 20.0
KINDS = {"start", "group", "send", "taking in", "end", "claim", "settle", "release", "grant", "open"}
BYSTANDERS = 5
ROUNDS = scaled(3)
"""Of every cut: the one in the middle of a commit goes either way."""


def event(kind: str = kinds.STEP_STARTED, payload: bytes = b"{}") -> NewEvent:
    return NewEvent(kind=kind, step_id="s", attempt=1, payload=payload, salt=os.urandom(16))


@dataclass(eq=False, kw_only=True)
class Cutting:
    """A driver whose journal loses its database at chosen commits."""

    proxy: CuttingProxy
    driver: Driver
    moment: Moment
    done: list[str] = field(default_factory=list[str])
    _starts: int = 0

    async def cut(self, statement: str, name: str, work: Callable[[], Awaitable[None]], times: int = 1) -> None:
        """Does something while the commits of such transactions are cut."""
        before = self.proxy.cuts
        self.proxy.arm(statement, self.moment, times)
        try:
            await work()
        except Exception as error:
            raise AssertionError(f"{name}, cut {self.moment.value} its commit, was told {error!r}") from error
        assert self.proxy.armed_count == 0, f"{name}: nothing was cut"
        assert self.proxy.cuts == before + times
        self.done.append(name)

    async def start(self) -> CreatedRun:
        self._starts += 1
        request = StartRequest(
            request_id=f"start{self._starts}",
            tenant_id="default",
            agent_name=AGENT,
            input=b"1",
            workflow_id="",
            workflow_id_policy=0,
            traceparent="",
        )
        return await self.driver.journal.create_run(request, with_lease=True)

    async def driven(self) -> Tail:
        created = await self.start()
        return Tail(created.run.run_id, created.epoch, created.events[-1])

    async def append(self, tail: Tail, *events: NewEvent, consumed: int = 0) -> None:
        append = tail.append(events, consumed)
        await self.driver.session.append(append)
        self.driver.promises.appended(append)
        tail.moved_by(append)

    async def round(self) -> None:
        """Every kind of transaction once."""
        await self._starts_and_appends()
        await self._inbox_and_ends()
        await self._deliveries()
        await self._leases()

    async def _starts_and_appends(self) -> None:
        created: list[CreatedRun] = []

        async def start() -> None:
            created.append(await self.start())

        await self.cut("INSERT INTO runs", "start", start)
        (first,) = created
        assert (first.created, first.epoch) == (True, 1), "it was made by this very call, with its lease"
        tails = [Tail(first.run.run_id, 1, first.events[-1]), *[await self.driven() for _ in range(BYSTANDERS)]]

        async def group() -> None:
            await asyncio.gather(*(self.append(tail, event(), event()) for tail in tails))

        await self.cut("INSERT INTO journal_events", "group", group)
        if self.moment is Moment.BEFORE:
            # Again and again: the journal insists.
            await self.cut("INSERT INTO journal_events", "group, thrice", group, times=3)

    async def _inbox_and_ends(self) -> None:
        tail = await self.driven()
        run_id = tail.append([event()], 0).run_id
        numbers: list[int] = []

        async def send() -> None:
            request = journal_pb.SendToRunRequest(request_id="e", run_id=run_id, kind="signal", name="go")
            numbers.append((await self.driver.runs.SendToRun(request, timeout=RPC_S)).number)

        await self.cut("INSERT INTO run_inbox", "send", send)
        assert numbers == [1]

        async def take_in() -> None:
            await self.append(tail, event(kinds.SIGNAL_RECEIVED, payloads.pack({"number": 1})), consumed=1)

        await self.cut("INSERT INTO journal_events", "taking in", take_in)

        async def end() -> None:
            await self.append(tail, event(kinds.RUN_SUCCEEDED, payloads.pack({}, b"[1]")), consumed=1)

        await self.cut("INSERT INTO journal_events", "end", end)

    async def _deliveries(self) -> None:
        created = await self.start()
        context = StepContext(
            run_id=created.run.run_id,
            workflow_id="",
            step_id="mail",
            attempt=1,
            key_attempt=1,
            key=f"{created.run.run_id}.mail",
            epoch=1,
        )

        async def claim() -> None:
            claimed = await self.driver.journal.claim_side_effect(context, "mail", os.urandom(16))
            assert claimed.claimed, "it was the first and only claim"

        async def settle() -> None:
            await self.driver.journal.settle_side_effect(context, delivered=True, result=b'"ok"')

        await self.cut("INSERT INTO side_effect_receipts", "claim", claim)
        await self.cut("UPDATE side_effect_receipts", "settle", settle)

    async def _leases(self) -> None:
        created = await self.start()
        run_id = created.run.run_id
        epochs: list[int] = []

        async def release() -> None:
            await self.driver.journal.release_lease(run_id, 1, HandBack.DRAIN)

        async def acquire() -> None:
            target = journal_pb.LeaseTarget(
                worker_id=self.driver.session.identity.worker_id, session_number=self.driver.session.number
            )
            request = recovery_pb.AcquireLeaseRequest(run_id=run_id, lease_target=target, reason="upgrade")
            epochs.append((await self.driver.recovery.AcquireLease(request, timeout=RPC_S)).epoch)

        async def open_run() -> None:
            assert (await self.driver.journal.open_run(run_id, 2)).head_seq == 3

        await self.cut("UPDATE run_locks", "release", release)
        await self.cut("INSERT INTO run_locks", "grant", acquire)
        assert epochs == [2]
        await self.cut("UPDATE run_locks", "open", open_run)


@pytest.mark.parametrize("moment", Moment, ids=lambda moment: moment.value)
async def test_a_lost_answer_to_a_commit_is_found_out(
    moment: Moment, make_database: MakeDatabase, start_journal: Callable[..., Process], tmp_path: Path
) -> None:
    database = make_database("postgres")
    port = int(database.rpartition(":")[2].partition("/")[0])
    async with CuttingProxy.open(port) as proxy:
        through = database.replace(f":{port}/", f":{proxy.port}/")
        journal = await asyncio.to_thread(start_journal, "journal", through, settings={"LANTERN_GRANT_TTL": "30s"})
        driver = Driver(journal.address, "cut", Promises(tmp_path / "promises"))
        driver.session.start("127.0.0.1:1")
        await driver.session.wait_attached()
        cutting = Cutting(proxy=proxy, driver=driver, moment=moment)
        for _ in range(ROUNDS):
            await cutting.round()
        await driver.one_run("last", random.Random(1))
        await driver.close()
    stored = ledger.read(database)
    assert ledger.find_faults(tmp_path / "promises", stored, all_ended=False) == []
    assert len(stored.claims) == ROUNDS + 1
    assert journal.is_alive()
    assert set(cutting.done) >= KINDS
