"""Application layers of a journal over a store, and drivers and operators that race in them by a seed."""

import asyncio
import os
import random
from collections.abc import Sequence

import sqlalchemy as sa
from journal_kit import EPOCH_START_US, SOURCES, attach, event, grant, limits, new_run, succeeded

from lantern_journal.adapters.clock import CarriedClock
from lantern_journal.adapters.schema import EVENT_COLUMNS, journal_events
from lantern_journal.adapters.sql_store import SqlStore
from lantern_journal.application.announcements import Hub
from lantern_journal.application.approvals import Approvals
from lantern_journal.application.committer import GroupCommitter
from lantern_journal.application.runs import Runs
from lantern_journal.application.sessions import Sessions
from lantern_journal.domain.appends import Append, Head, Row, event_of
from lantern_journal.domain.records import InboxEntry, LeaseTarget, SentEntry, StartedRun
from lantern_journal.ports import Store
from lantern_kernel import kinds, payloads
from lantern_kernel.errors import LanternError
from lantern_kernel.event import Event, NewEvent
from lantern_kernel.payloads import ParkFacts

SCALE = float(os.environ.get("LANTERN_TEST_RACES", "1"))
"""Times as many seeds as CI runs."""

SEED = int(os.environ.get("LANTERN_TEST_SEED", "0")) or random.SystemRandom().randrange(1, 2**31)

AT_ONCE = 40
"""Races under way at the same time: enough for groups, and for transactions to wait for each other."""


LIMITS = limits(silence_us=3_600_000_000)
"""Nobody pings here: the worker counts as heard from for as long as a race may take."""


async def waver(chance: random.Random) -> None:
    """A few turns of the loop, and sometimes a moment of real time, so that the database decides who is first."""
    for _ in range(chance.randrange(12)):
        await asyncio.sleep(0)
    if chance.random() < 0.3:
        await asyncio.sleep(chance.random() * 0.004)


class Rig:
    """One journal process without its servers."""

    def __init__(self, store: Store) -> None:
        clock = CarriedClock()
        self.store, self.hub = store, Hub()
        self.committer = GroupCommitter(store, clock, self.hub)
        sessions = Sessions(store, clock, self.hub, LIMITS, grace_s=0.25)
        self.runs = Runs(store, clock, SOURCES, self.hub, sessions, self.committer, LIMITS)
        self.approvals = Approvals(store, clock, self.hub, sessions)
        self.clock = clock

    async def begin(self, first: int, count: int) -> "list[Driver]":
        """So many runs, each driven by the one worker."""
        self.clock.calibrate(await self.store.ping())
        target = await attach(self.store)
        # Ids that ascend from batch to batch: the newest page of the list is this batch.
        now_us = EPOCH_START_US + first * 1_000
        news = [
            new_run(f"r{first + i}", run_id=SOURCES.run_id(now_us + i * 1_000), target=target) for i in range(count)
        ]
        started = await self.store.start_runs(news, LIMITS)
        assert all(isinstance(each, StartedRun) for each in started)
        return [Driver(self, each, target) for each in started if isinstance(each, StartedRun)]

    async def cancel(self, run_id: str, request_id: str) -> SentEntry:
        return await self.runs.send(request_id, run_id, "cancel", "", b"null")

    async def events(self, run_id: str) -> list[Event]:
        events, more = await self.store.list_events(run_id, 0, 10_000, 1 << 30)
        assert not more
        return events

    async def events_of_all(self, run_ids: Sequence[str]) -> dict[str, list[Event]]:
        """The events of some runs, in one query."""
        assert isinstance(self.store, SqlStore)
        query = (
            sa.select(*(journal_events.c[name] for name in EVENT_COLUMNS))
            .where(journal_events.c.run_id.in_(run_ids))
            .order_by(journal_events.c.run_id, journal_events.c.seq)
        )
        rows = await self.store._look(lambda connection: connection.execute(query).all())  # pyright: ignore[reportPrivateUsage]
        found: dict[str, list[Event]] = {run_id: [] for run_id in run_ids}
        for row in rows:
            found[row.run_id].append(event_of(Row(*row)))
        return found


class Driver:
    """Who drives one run: it knows what a worker knows, epoch, seq and digest."""

    def __init__(self, rig: Rig, started: StartedRun, target: LeaseTarget) -> None:
        self.rig, self.run_id, self.target = rig, started.run.run_id, target
        last = started.events[-1]
        self.epoch, self.seq, self.digest = last.epoch, last.seq, last.digest
        self.consumed = 0

    async def append(self, *events: NewEvent) -> str:
        """Appends; the reason of the refusal, empty where it went in."""
        append = Append(
            run_id=self.run_id,
            epoch=self.epoch,
            first_seq=self.seq + 1,
            previous_digest=self.digest,
            events=events,
            consumed_inbox_number=self.consumed,
        )
        try:
            self.seq = await self.rig.committer.append(append)
        except LanternError as error:
            return error.reason
        self.digest = events[-1].digest(run_id=self.run_id, seq=self.seq, epoch=self.epoch)
        return ""

    async def unread(self) -> list[InboxEntry]:
        """The inbox behind what is consumed."""
        entries, _ = await self.rig.store.list_inbox(self.run_id, self.consumed, 1_000, 1 << 20)
        return entries

    async def taken_in(self) -> list[NewEvent]:
        """The inbox as events, each entry one; counts as consumed from now on."""
        taken: list[NewEvent] = []
        for entry in await self.unread():
            self.consumed = entry.number
            kind = kinds.CANCEL_REQUESTED if entry.kind == "cancel" else kinds.SIGNAL_RECEIVED
            taken.append(event(kind, payloads.pack({"number": entry.number, "name": entry.name}), "", 0))
        return taken

    def parked(self, on: str, signals: tuple[str, ...] = (), *, nothing: bool = False) -> NewEvent:
        facts = ParkFacts(waiting_on=on, signals=signals, nothing_to_compensate=nothing)
        return event(kinds.RUN_PARKED, facts.pack(), "", 0)

    def ended(self, kind: str) -> NewEvent:
        return succeeded() if kind == kinds.RUN_SUCCEEDED else event(kind, b'{"code":"E","message":""}', "", 0)

    async def again(self) -> bool:
        """A lease for the run where it needs a driver, as recovery gets one; whether it did."""
        epoch = await self.rig.store.acquire_lease(grant(self.run_id, self.target, "signal"), LIMITS)
        if not epoch:
            return False
        self.rig.committer.forget(self.run_id)
        head: Head = await self.rig.store.head(self.run_id)
        self.epoch, self.seq, self.digest = epoch, head.seq, head.digest
        return True
