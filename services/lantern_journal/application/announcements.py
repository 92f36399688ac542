"""Who waits for what within this process: hints about orphans, commits of runs that somebody follows, due times."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Sequence
from contextlib import contextmanager
from itertools import groupby
from operator import attrgetter
from typing import Any, TypeVar

from lantern_journal.domain.appends import Row, event_of
from lantern_journal.domain.family import Aftermath
from lantern_journal.ports import Clock, Store
from lantern_kernel.bounds import PAGE_BYTES_MAX, PAGE_ROWS_MAX
from lantern_kernel.event import Event

log = logging.getLogger(__name__)

T = TypeVar("T")

LEASE_EXPIRED, QUEUED, WOKEN, DUE = "lease_expired", "queued", "woken", "due"
"""The causes of an announcement."""

CAUSES = frozenset({LEASE_EXPIRED, QUEUED, WOKEN, DUE})

RELAY_PAUSE_S = 0.05
"""Causes that arise within this go to the other journal processes together."""

DUE_LOOK_S_MAX = 30.0
"""The due times are read again after this long: another journal process may have written one."""

DUE_RETRY_S = 1.0
"""After the database could not be asked."""


class Subscription:
    """One watcher's causes since it last looked; merged, so that a slow watcher costs nothing."""

    def __init__(self) -> None:
        self._causes: set[str] = set()
        self._ready = asyncio.Event()

    def add(self, cause: str) -> None:
        """Notes a cause."""
        self._causes.add(cause)
        self._ready.set()

    async def causes(self) -> AsyncIterator[str]:
        """Causes as they come."""
        while True:
            await self._ready.wait()
            self._ready.clear()
            causes, self._causes = self._causes, set()
            for cause in sorted(causes):
                yield cause


class Follower:
    """One reader of one run: the events committed since it last took some, as long as it keeps up.

    Those up to `after_seq` it has or does not want: it is not woken for them.
    """

    def __init__(self, after_seq: int = 0) -> None:
        self.after_seq = after_seq
        self._events: list[Event] = []
        self._bytes = 0
        self._must_look = False
        self._ready = asyncio.Event()

    def offer(self, events: Sequence[Event]) -> None:
        """Events were committed. A reader that lags too far reads them from the database instead."""
        self._bytes += sum(len(event.payload) for event in events)
        if len(self._events) + len(events) > PAGE_ROWS_MAX or self._bytes > PAGE_BYTES_MAX:
            self.look()
            return
        self._events.extend(events)
        self._ready.set()

    def look(self) -> None:
        """The reader must look into the database."""
        self._events.clear()
        self._bytes = 0
        self._must_look = True
        self._ready.set()

    async def take(self) -> list[Event]:
        """Waits; the events that follow `after_seq` without a gap, or none where the reader must look."""
        while True:
            await self._ready.wait()
            self._ready.clear()
            events, self._events, self._bytes = [e for e in self._events if e.seq > self.after_seq], [], 0
            must_look, self._must_look = self._must_look, False
            if must_look or (events and events[0].seq != self.after_seq + 1):
                return []
            if events:
                return events


class Hub:
    """Passes news on within this process."""

    def __init__(self) -> None:
        # In the order in which they came, as all that is told.
        self._watchers: dict[Subscription, None] = {}
        self._followers: dict[str, dict[Follower, None]] = {}
        self._feed_watchers: set[asyncio.Event] = set()
        self.sent: Counter[str] = Counter()
        self.next_due_us: int | None = None
        self.due_changed = asyncio.Event()
        # Told of entries that the journal itself put into the inboxes of driven runs: worker, run, number.
        self.entry_listeners: list[Callable[[str, str, int], None]] = []
        # An approval that expires was asked for.
        self.expiry_changed = asyncio.Event()
        # What the other journal processes are still to be told.
        self.outgoing = Subscription()
        self._begun: set[asyncio.Task[Any]] = set()

    async def see_through(self, work: Coroutine[Any, Any, T]) -> T:
        """Does work to its end, also where its caller goes away meanwhile.

        For whatever commits and then tells of it: a caller that is cancelled in between would leave a change that
        nobody hears of.
        """
        return await asyncio.shield(self.begin(work))

    def begin(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Begins work that `finish` waits for; whoever waits for the task shields it."""
        task = asyncio.create_task(work)
        self._begun.add(task)
        task.add_done_callback(self._begun.discard)
        return task

    async def finish(self, within_s: float) -> None:
        """Waits until all work that was begun is done, or for so long."""
        if self._begun:
            await asyncio.wait(self._begun, timeout=within_s)

    def announce(self, cause: str) -> None:
        """There may be orphans."""
        self.outgoing.add(cause)
        self.hear(cause)

    def hear(self, cause: str) -> None:
        """There may be orphans, as this or another journal process says."""
        self.sent[cause] += 1
        for watcher in self._watchers:
            watcher.add(cause)

    @contextmanager
    def watch(self) -> Generator[Subscription]:
        """A subscription to announcements."""
        subscription = Subscription()
        self._watchers[subscription] = None
        try:
            yield subscription
        finally:
            del self._watchers[subscription]

    def committed(self, rows: Sequence[Row]) -> None:
        """Rows were committed, sorted by run and place: hands them to the followers of their runs."""
        if rows:
            self.fed()
        if not self._followers:
            return
        for run_id, group in groupby(rows, key=attrgetter("run_id")):
            followers = self._followers.get(run_id)
            if followers:
                events = [event_of(row) for row in group]
                for follower in followers:
                    if events[-1].seq > follower.after_seq:
                        follower.offer(events)

    def moved(self, run_id: str) -> None:
        """Something of a run was committed elsewhere than in a group: its followers must look."""
        self.fed()
        for follower in self._followers.get(run_id, ()):
            follower.look()

    def tell(self, aftermath: Aftermath) -> None:
        """What a commit did to runs besides those that it was about."""
        if aftermath.queued:
            self.announce(WOKEN)
        for run_id in aftermath.moved:
            self.moved(run_id)
        for entry in aftermath.entries:
            for listener in self.entry_listeners:
                listener(*entry)

    def fed(self) -> None:
        """Something was committed to the feed over all runs."""
        for watcher in self._feed_watchers:
            watcher.set()

    @contextmanager
    def watch_feed(self) -> Generator[asyncio.Event]:
        """An event that is set whenever this process has committed something to the feed."""
        watcher = asyncio.Event()
        self._feed_watchers.add(watcher)
        try:
            yield watcher
        finally:
            self._feed_watchers.discard(watcher)

    @contextmanager
    def follow(self, run_id: str, after_seq: int = 0) -> Generator["Follower"]:
        """What is committed to a run in this process from now on, behind that event."""
        follower = Follower(after_seq)
        self._followers.setdefault(run_id, {})[follower] = None
        try:
            yield follower
        finally:
            followers = self._followers[run_id]
            del followers[follower]
            if not followers:
                del self._followers[run_id]

    def due_at(self, us: int) -> None:
        """A run becomes due then: the timer wakes earlier if it must."""
        if self.next_due_us is None or us < self.next_due_us:
            self.next_due_us = us
            self.due_changed.set()


class DueTimer:
    """Announces due runs when they become due (SPEC L8): sleeps until the next due time, or an earlier one arrives."""

    def __init__(self, store: Store, clock: Clock, hub: Hub) -> None:
        self._store, self._clock, self._hub = store, clock, hub

    async def run(self) -> None:
        """For the life of the process."""
        announced_us = 0
        while True:
            # Cleared before the look: what is parked while the database answers wakes us at once.
            self._hub.due_changed.clear()
            self._hub.next_due_us = None
            try:
                found = await self._store.next_due_us(announced_us)
            except Exception as error:
                # Nothing may end this loop: due runs would wait for the sweep.
                log.warning("due times not read", extra={"action": "due_failed", "cause": type(error).__name__})
                await asyncio.sleep(DUE_RETRY_S)
                continue
            if found is not None:
                self._hub.due_at(found)
            next_us, now_us = self._hub.next_due_us, self._clock.now_us()
            if next_us is not None and next_us <= now_us:
                announced_us = now_us
                self._hub.announce(DUE)
                continue
            wait_s = DUE_LOOK_S_MAX if next_us is None else min((next_us - now_us) / 1e6, DUE_LOOK_S_MAX)
            try:
                async with asyncio.timeout(wait_s):
                    await self._earlier_than(next_us)
            except TimeoutError:
                continue

    async def _earlier_than(self, next_us: int | None) -> None:
        """Returns when a due time before `next_us` has come in."""
        while self._hub.next_due_us == next_us:
            await self._hub.due_changed.wait()
            self._hub.due_changed.clear()


class Relay:
    """Exchanges announcements with the other journal processes on the same database.

    They are hints: losing one costs the time until the next sweep.
    """

    def __init__(self, store: Store, hub: Hub) -> None:
        self._store, self._hub = store, hub

    async def run(self) -> None:
        """For the life of the process."""
        await asyncio.gather(self._tell(), self._listen())

    async def _tell(self) -> None:
        async for cause in self._hub.outgoing.causes():
            try:
                await self._store.publish(cause)
            except Exception as error:
                log.warning("not announced", extra={"action": "relay_failed", "cause": type(error).__name__})
            await asyncio.sleep(RELAY_PAUSE_S)

    async def _listen(self) -> None:
        while True:
            try:
                async for cause in self._store.announcements():
                    if cause in CAUSES:
                        self._hub.hear(cause)
            except Exception as error:
                log.warning("not listening", extra={"action": "relay_failed", "cause": type(error).__name__})
            await asyncio.sleep(DUE_RETRY_S)
