"""Goal: events that a dump brought from another server are read by whoever begins at the beginning, and dropped as old.

Method: rows of the feed get ids of transactions that the server has not begun, as a dump would bring them, and the
journal's store is opened again.
"""

from collections.abc import AsyncIterator

import pytest
import sqlalchemy as sa
from doctor_kit import faults
from feed_coverage import check_feed
from journal_kit import driven, event, write

from lantern_journal.adapters.engines import postgres_sync_engine
from lantern_journal.adapters.postgres import PostgresStore
from lantern_journal.adapters.schema import journal_feed, journal_marks, metadata
from lantern_journal.domain.feed import FeedFilter
from lantern_kernel import reasons
from lantern_kernel.errors import LanternError

AHEAD = 2**40


@pytest.fixture
async def restored(postgres_url: str) -> AsyncIterator[PostgresStore]:
    """A store whose rows of the feed are all ahead of the server."""
    store = await PostgresStore.open(postgres_url)
    engine = postgres_sync_engine(postgres_url)
    with engine.begin() as connection:
        connection.execute(sa.text("TRUNCATE " + ", ".join(metadata.tables)))
    started, _ = await driven(store)
    for _ in range(5):
        await write(store, started.run.run_id, event(), event())
    with engine.begin() as connection:
        connection.execute(journal_feed.update().values(xid=journal_feed.c.xid + AHEAD))
        connection.execute(journal_marks.insert().values(name="feed_floor_xid", value=AHEAD))
    engine.dispose()
    yield store
    await store.close()


async def test_they_are_read_from_the_beginning(restored: PostgresStore, postgres_url: str) -> None:
    assert await faults(restored) == ["feed.restored"]
    old = await restored.begin_feed(at_beginning=True)
    again = await PostgresStore.open(postgres_url)
    try:
        assert await faults(again) == []
        await check_feed(again)
        run_id = (await again.list_run_ids("", 1))[0]
        await write(again, run_id, event())
        await check_feed(again)
        with pytest.raises(LanternError) as caught:
            await again.read_feed(old, FeedFilter())
        assert caught.value.reason == reasons.FEED_CURSOR_INVALID
    finally:
        await again.close()


async def test_they_are_dropped_together(restored: PostgresStore, postgres_url: str) -> None:
    again = await PostgresStore.open(postgres_url)
    try:
        page = await again.read_feed(await again.begin_feed(at_beginning=True), FeedFilter())
        youngest = max(one.time_us for entry in page.entries for one in entry.events)
        assert await again.trim_feed(youngest, 3) == 0
        await check_feed(again)
        assert await again.trim_feed(youngest + 1, 3) == 3
        run_id = (await again.list_run_ids("", 1))[0]
        await write(again, run_id, event())
        page = await again.read_feed(await again.begin_feed(at_beginning=True), FeedFilter())
        assert [len(entry.events) for entry in page.entries] == [1], "what is left of them is as good as dropped"
    finally:
        await again.close()
