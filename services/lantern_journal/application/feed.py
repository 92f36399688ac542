"""Following all runs: one reader for all who keep up, pages of their own for those who lag.

A cursor names a place exactly, so a page that was read once serves everybody who stands at that place. The tail reads
on as things are committed and keeps its last pages; whoever lags further reads the database up to a place where the
tail has been, and joins it there. Memory: the kept pages, and one page for each follower that is being sent to.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Generator

from lantern_journal.application.announcements import Hub
from lantern_journal.domain.feed import FeedFilter, FeedPage, chosen
from lantern_journal.domain.feed_cursor import Cursor, Snapshot
from lantern_journal.ports import Clock, Store

log = logging.getLogger(__name__)

LOOK_S = 1.0
"""The feed is looked at again after this long: another journal process may have written to it, or a word was lost."""

PAUSE_S = 0.005
PAUSE_PER_FOLLOWER_S = 0.001
"""Between two looks: what is committed meanwhile goes along, and many followers are told less often, but more."""

RETRY_S = 1.0
"""After the database could not be asked."""

HEARTBEAT_S = 5.0
"""A follower that is sent nothing is sent its cursor after this long."""

KEPT_PAGES_MAX = 64
KEPT_BYTES_MAX = 8 * 1024 * 1024
READS_AT_ONCE_MAX = 2
"""Of followers that lag: however many they are, appends find the database free."""

TRIM_INTERVAL_S = 60.0
TRIM_ROWS = 2_000
"""Dropped in one transaction: none that keeps appends waiting."""

ALL = FeedFilter()


class FeedTail:
    """The last pages of the feed, read once for all followers; it reads only while there are some."""

    def __init__(self, store: Store, hub: Hub) -> None:
        self._store, self._hub = store, hub
        self._followers = 0
        self._task: asyncio.Task[None] | None = None
        self._pages: dict[Cursor, FeedPage] = {}
        self._bytes = 0
        self._moved = asyncio.Event()
        # Where it stands; None until it has begun.
        self.cursor: Cursor | None = None

    @contextlib.contextmanager
    def followed(self) -> Generator[None]:
        """For as long as somebody follows."""
        self._followers += 1
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="feed tail")
        try:
            yield
        finally:
            self._followers -= 1
            if not self._followers:
                self._task.cancel()
                self._task = None
                self._forget()

    def page(self, cursor: Cursor) -> FeedPage | None:
        """The page after a cursor, if it is kept."""
        return self._pages.get(cursor)

    def boundary(self) -> Snapshot | None:
        """Up to where a follower that lags is to read so as to join."""
        return None if self.cursor is None else self.cursor.base

    async def moved(self, within_s: float) -> None:
        """Returns when the tail has moved, or after so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._moved.wait()

    async def _run(self) -> None:
        while True:
            try:
                await self._follow()
            except Exception as error:
                # Nothing ends this loop: followers that keep up read nothing themselves.
                log.warning("the feed is not read", extra={"action": "feed_failed", "cause": type(error).__name__})
                self._forget()
                await asyncio.sleep(RETRY_S)

    async def _follow(self) -> None:
        cursor = await self._store.begin_feed(at_beginning=False)
        self._move(cursor)
        with self._hub.watch_feed() as news:
            while True:
                # Cleared before the look: what is committed while the database answers is looked for at once.
                news.clear()
                page = await self._store.read_feed(cursor, ALL)
                if page.cursor != cursor:
                    self._keep(cursor, page)
                    cursor = page.cursor
                    self._move(cursor)
                if page.is_end:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(LOOK_S):
                            await news.wait()
                await asyncio.sleep(PAUSE_S + PAUSE_PER_FOLLOWER_S * self._followers)

    def _keep(self, cursor: Cursor, page: FeedPage) -> None:
        self._pages[cursor] = page
        self._bytes += page.size
        while len(self._pages) > KEPT_PAGES_MAX or (self._bytes > KEPT_BYTES_MAX and len(self._pages) > 1):
            oldest = next(iter(self._pages))
            self._bytes -= self._pages.pop(oldest).size

    def _move(self, cursor: Cursor) -> None:
        self.cursor = cursor
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    def _forget(self) -> None:
        self._pages.clear()
        self._bytes = 0
        self.cursor = None


class Feed:
    """Use cases of JournalFeedService."""

    def __init__(self, store: Store, clock: Clock, hub: Hub) -> None:
        self._store, self._clock = store, clock
        self._tail = FeedTail(store, hub)
        self._reading = asyncio.Semaphore(READS_AT_ONCE_MAX)

    async def begin(self, *, at_beginning: bool) -> Cursor:
        """Where a follower begins that brings no cursor."""
        return await self._store.begin_feed(at_beginning=at_beginning)

    async def follow(self, cursor: Cursor, wanted: FeedFilter) -> AsyncGenerator[FeedPage]:
        """Pages after a cursor, for ever; without entries where nothing came for a while.

        A page is taken when the one before was sent: a slow reader lags, and costs one page of memory.
        """
        sent_s = self._clock.monotonic_s()
        with self._tail.followed():
            while True:
                page = await self._next(cursor, wanted)
                if page is not None:
                    cursor = page.cursor
                now_s = self._clock.monotonic_s()
                if page is not None and page.entries:
                    sent_s = now_s
                    yield page
                elif now_s - sent_s >= HEARTBEAT_S:
                    sent_s = now_s
                    yield FeedPage(entries=(), cursor=cursor, is_end=True)

    async def _next(self, cursor: Cursor, wanted: FeedFilter) -> FeedPage | None:
        """The next page; None where nothing has come for a while."""
        if (page := self._tail.page(cursor)) is not None:
            return chosen(page, wanted)
        if cursor == self._tail.cursor:
            await self._tail.moved(HEARTBEAT_S)
            return None
        async with self._reading:
            page = await self._store.read_feed(cursor, wanted, self._tail.boundary())
        if page.is_end and not page.entries and page.cursor != self._tail.cursor:
            # Further than the tail, which has yet to look.
            await self._tail.moved(LOOK_S)
        return page

    async def consumer(self, name: str) -> str:
        """The cursor of a named consumer; empty where it has none."""
        return await self._store.feed_consumer(name)

    async def commit(self, name: str, before: str, after: str) -> None:
        """Moves the cursor of a named consumer by compare-and-set."""
        await self._store.commit_feed_consumer(name, before, after)


class FeedTrimmer:
    """Drops what is older than the feed is kept; several journals may do so at once."""

    def __init__(self, store: Store, clock: Clock, retention_us: int) -> None:
        self._store, self._clock, self._retention_us = store, clock, retention_us

    async def run(self) -> None:
        """For the life of the process."""
        while True:
            await self.trim()
            await asyncio.sleep(TRIM_INTERVAL_S)

    async def trim(self) -> int:
        """Drops what is old by now, a little at a time; how many rows."""
        dropped = 0
        try:
            # Whatever its age, what a named consumer has not read yet stays.
            before_us = await self._store.feed_unread_since(self._clock.now_us() - self._retention_us)
            while rows := await self._store.trim_feed(before_us, TRIM_ROWS):
                dropped += rows
        except Exception as error:
            # Nothing that ends the process: the next time drops more.
            log.warning("feed not trimmed", extra={"action": "trim_failed", "cause": type(error).__name__})
        if dropped:
            log.info("feed trimmed", extra={"action": "feed_trimmed", "rows": dropped})
        return dropped
