"""MemoryStore: the journal's Store over dictionaries, each method one atomic step, with faults at its edge."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Protocol, TypeVar

from lantern_journal.domain.agents import Definition, Publication, Published, Wanted
from lantern_journal.domain.appends import Head, Row, Top, genesis
from lantern_journal.domain.blobs import NamedBlobs
from lantern_journal.domain.family import Aftermath
from lantern_journal.domain.leases import Limits
from lantern_journal.domain.records import (
    Agent,
    Attach,
    Attached,
    Claim,
    Grant,
    InboxEntry,
    LeaseTarget,
    NewEntry,
    NewRun,
    OpenedRun,
    Orphan,
    ReleaseCause,
    Run,
    RunFilter,
    SentEntry,
    Settlement,
    SideEffect,
    StartedRun,
    Tended,
    Tending,
    Worker,
)
from lantern_journal.domain.run_state import RunChange
from lantern_journal.ports import Disconnected
from lantern_kernel import reasons
from lantern_kernel.bounds import PAGE_BYTES_MAX, PAGE_ROWS_MAX
from lantern_kernel.errors import LanternError
from lantern_kernel.event import Event
from oracle import agents, deliveries, leasing, runs, sessions, waking
from oracle.tables import Tables

T = TypeVar("T")

TRIES = 8
"""Of what insists."""


class Edge(Protocol):
    """What lies between a journal process and its database. May wait, and raise Disconnected before or after."""

    async def cross(self, name: str, commit: Callable[[], T]) -> T:
        """Commits; the name is the method's."""
        ...


class NoEdge:
    """Nothing in between."""

    async def cross(self, name: str, commit: Callable[[], T]) -> T:
        """See Edge."""
        return commit()


@dataclass(kw_only=True)
class Database:
    """What several stores share: the tables, the time, and who hears what is published."""

    # The database's clock, microseconds.
    now_us: Callable[[], int]
    # All that is kept.
    tables: Tables = field(default_factory=Tables)
    # Those who listen, with the stores that they belong to.
    listeners: "list[tuple[MemoryStore, asyncio.Queue[str]]]" = field(
        default_factory=list["tuple[MemoryStore, asyncio.Queue[str]]"]
    )


class MemoryStore:
    """See `lantern_journal.ports.Store`.

    Args:
        database: What is kept.
        edge: Where faults come from.
        is_shared: As the port says.
        random: For the waits between tries.
    """

    def __init__(
        self, database: Database, *, edge: Edge | None = None, is_shared: bool = True, random: Random | None = None
    ) -> None:
        self.database = database
        self.generation = 1
        self.is_shared = is_shared
        self._edge = edge or NoEdge()
        self._random = random or Random(0)

    @property
    def _tables(self) -> Tables:
        return self.database.tables

    async def _once(self, name: str, commit: Callable[[int], T]) -> T:
        try:
            return await self._edge.cross(name, lambda: commit(self.database.now_us()))
        except Disconnected:
            self.generation += 1
            raise

    async def _insist(self, name: str, commit: Callable[[int], T]) -> T:
        return await self._tried(lambda: self._once(name, commit))

    async def _tried(self, attempt: Callable[[], Awaitable[T]]) -> T:
        backoff_s = 0.01
        for tries in range(1, TRIES + 1):
            try:
                return await attempt()
            except Disconnected as error:
                if tries == TRIES:
                    raise LanternError(reasons.UNKNOWN_OUTCOME, "database away", retry_after_s=1.0) from error
            await asyncio.sleep(backoff_s * (1.0 + self._random.random()))
            backoff_s = min(backoff_s * 2, 0.5)
        raise AssertionError("the last try returns or raises")

    async def close(self) -> None:
        """See Store."""

    async def ping(self) -> int:
        """See Store."""
        return await self._once("ping", lambda now_us: now_us)

    async def heads(self, run_ids: Sequence[str]) -> dict[str, Head]:
        """See Store."""
        return await self._once(
            "heads",
            lambda _: {run_id: _head(self._tables, run_id) for run_id in run_ids if run_id in self._tables.runs},
        )

    async def head(self, run_id: str) -> Head:
        """See Store."""
        return await self._insist("head", lambda _: _head(self._tables, run_id))

    async def insert_group(
        self,
        rows: Sequence[Row],
        changes: Sequence[RunChange],
        *,
        blobs: Sequence[NamedBlobs] = (),
        tops: Sequence[Top] = (),
    ) -> Aftermath:
        """See Store. There are no blobs here, and no failover loses commits."""
        assert not blobs, "the oracle keeps no blobs"
        del tops
        return await self._once("insert_group", lambda now: runs.insert_group(self._tables, rows, changes, now))

    async def start_runs(self, starts: Sequence[NewRun], limits: Limits) -> list[StartedRun | LanternError]:
        """See Store."""

        def one(new: NewRun, now_us: int) -> StartedRun | LanternError:
            try:
                return runs.start(self._tables, new, limits, now_us)
            except LanternError as error:
                return error

        return await self._insist("start_runs", lambda now: [one(new, now) for new in starts])

    async def get_run(self, run_id: str) -> Run:
        """See Store."""
        return await self._insist(
            "get_run", lambda _: runs.shown(self._tables, leasing.run_of(self._tables, run_id), with_data=True)
        )

    async def list_runs(self, wanted: RunFilter, before: str, limit: int, bytes_max: int) -> tuple[list[Run], bool]:
        """See Store."""

        def read(_: int) -> tuple[list[Run], bool]:
            rows = [
                row
                for row in sorted(self._tables.runs.values(), key=lambda row: row.run_id, reverse=True)
                if row.tenant_id == wanted.tenant_id
                and (not before or row.run_id < before)
                and (not wanted.states or row.state in wanted.states)
                and wanted.workflow_id in ("", row.workflow_id)
                and wanted.agent_name in ("", row.agent_name)
            ]
            taken, has_more = runs.page(rows, lambda row: len(row.error or b"") + runs.RUN_ROOM, limit, bytes_max)
            return [runs.shown(self._tables, row, with_data=False) for row in taken], has_more

        return await self._insist("list_runs", read)

    async def list_events(self, run_id: str, after_seq: int, limit: int, bytes_max: int) -> tuple[list[Event], bool]:
        """See Store."""
        return await self._insist("list_events", lambda _: _events(self._tables, run_id, after_seq, limit, bytes_max))

    async def list_inbox(self, run_id: str, after: int, limit: int, bytes_max: int) -> tuple[list[InboxEntry], bool]:
        """See Store."""
        return await self._insist("list_inbox", lambda _: runs.entries(self._tables, run_id, after, limit, bytes_max))

    async def list_agents(self, tenant_id: str, after: tuple[str, int], limit: int) -> list[Agent]:
        """See Store."""
        return await self._insist("list_agents", lambda _: agents.page(self._tables, tenant_id, after, limit))

    async def find_definition(self, wanted: Wanted) -> Definition:
        """See Store."""
        return await self._insist("find_definition", lambda _: agents.find(self._tables, wanted))

    async def publish_agent(self, publication: Publication) -> Published:
        """See Store."""
        return await self._insist("publish_agent", lambda now_us: agents.publish(self._tables, publication, now_us))

    async def send(self, entry: NewEntry, limits: Limits) -> SentEntry:
        """See Store."""
        return await self._insist("send", lambda now: runs.send(self._tables, entry, now))

    async def open_run(self, run_id: str, epoch: int, target: LeaseTarget, limits: Limits) -> OpenedRun:
        """See Store."""

        def commit(now_us: int) -> OpenedRun:
            tables = self._tables
            leasing.open_lease(tables, run_id, epoch, target, limits, now_us)
            run = tables.runs[run_id]
            events, _ = _events(tables, run_id, 0, PAGE_ROWS_MAX, PAGE_BYTES_MAX)
            inbox, _ = runs.entries(tables, run_id, run.consumed_inbox, PAGE_ROWS_MAX, PAGE_BYTES_MAX)
            return OpenedRun(
                run=runs.shown(tables, run, with_data=True),
                events=tuple(events),
                head_seq=len(tables.events[run_id]),
                inbox=tuple(inbox),
            )

        return await self._insist("open_run", commit)

    async def acquire_lease(self, grant: Grant, limits: Limits) -> int:
        """See Store."""
        return await self._insist("acquire_lease", lambda now: leasing.acquire(self._tables, grant, limits, now))

    async def release_lease(
        self, run_id: str, epoch: int, worker_id: str, cause: ReleaseCause = ReleaseCause.DRAIN
    ) -> int:
        """See Store."""
        return await self._insist(
            "release_lease", lambda now: leasing.release(self._tables, run_id, epoch, worker_id, cause, now)
        )

    async def defer_run(self, run_id: str, delay_us: int | None, salt: bytes, limits: Limits) -> None:
        """See Store."""
        await self._insist("defer_run", lambda now: leasing.defer(self._tables, run_id, delay_us, salt, limits, now))

    async def attach(self, attach: Attach) -> Attached:
        """See Store."""
        return await self._insist("attach", lambda now: sessions.attach(self._tables, attach, now))

    async def close_session(self, worker_id: str, number: int) -> int | None:
        """See Store."""
        return await self._insist("close_session", lambda now: sessions.close(self._tables, worker_id, number, now))

    async def tend_sessions(self, tending: Tending, limits: Limits) -> Tended:
        """See Store; tried once."""
        try:
            return await self._once("tend_sessions", lambda now: sessions.tend(self._tables, tending, limits, now))
        except Disconnected as error:
            raise LanternError(reasons.UNAVAILABLE, "database away", retry_after_s=1.0) from error

    async def is_open_session(self, worker_id: str, number: int) -> bool:
        """See Store."""
        return await self._insist("is_open_session", lambda _: sessions.is_open(self._tables, worker_id, number))

    async def adopt_sessions(self) -> None:
        """See Store."""
        await self._insist("adopt_sessions", lambda now: sessions.adopt(self._tables, now))

    async def find_orphans(self, limit: int, limits: Limits) -> list[Orphan]:
        """See Store."""
        return await self._insist("find_orphans", lambda now: waking.find_orphans(self._tables, limit, now, limits))

    async def find_workers(self, limits: Limits) -> list[Worker]:
        """See Store."""
        return await self._insist("find_workers", lambda now: sessions.workers(self._tables, limits, now))

    async def next_due_us(self, after_us: int) -> int | None:
        """See Store."""
        return await self._insist("next_due_us", lambda _: waking.next_due_us(self._tables, after_us))

    async def make_partitions(self, ahead: int) -> list[str]:
        """See Store; there are none."""
        del ahead
        return []

    async def publish(self, cause: str) -> None:
        """See Store."""

        def tell(_: int) -> None:
            for store, queue in self.database.listeners:
                if store is not self:
                    queue.put_nowait(cause)

        await self._once("publish", tell)

    async def announcements(self) -> AsyncIterator[str]:
        """See Store; the connection lasts as long as each crossing of the edge goes well."""
        queue: asyncio.Queue[str] = asyncio.Queue()
        listener = (self, queue)
        await self._once("listen", lambda _: self.database.listeners.append(listener))
        try:
            while True:
                cause = await queue.get()
                await self._once("hear", lambda _: None)
                yield cause
        finally:
            self.database.listeners.remove(listener)

    async def claim_side_effect(self, claim: Claim) -> tuple[bool, SideEffect]:
        """See Store."""
        return await self._insist("claim_side_effect", lambda now: deliveries.claim(self._tables, claim, now))

    async def settle_side_effect(self, settlement: Settlement) -> tuple[SideEffect, bool]:
        """See Store."""
        return await self._insist("settle_side_effect", lambda now: deliveries.settle(self._tables, settlement, now))


def _head(tables: Tables, run_id: str) -> Head:
    events = tables.events.get(run_id)
    if not events:
        return genesis(run_id)
    last = events[-1]
    return Head(last.seq, last.digest, last.hash, last.epoch, last.time_us, last.kind)


def _events(tables: Tables, run_id: str, after_seq: int, limit: int, bytes_max: int) -> tuple[list[Event], bool]:
    leasing.run_of(tables, run_id)
    rest = tables.events[run_id][after_seq:]
    return runs.page(rest, lambda event: len(event.payload) + runs.EVENT_ROOM, limit, bytes_max)
