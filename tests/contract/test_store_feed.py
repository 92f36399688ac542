"""Goal: a reader of the feed gets every event once, in order per run, in pages of bounded size, from any cursor on.

Method: operations of all kinds over both databases, then reading from the beginning and again from every cursor; what
only PostgreSQL can do, commit in another order than it counted in, is held open by hand.
"""

from dataclasses import replace

import pytest
import sqlalchemy as sa
from journal_kit import (
    LIMITS,
    attach,
    driven,
    entry,
    event,
    grant,
    new_run,
    offer,
    park,
    start,
    start_new,
    succeeded,
    write,
)

from lantern_journal.adapters.engines import postgres_sync_engine
from lantern_journal.adapters.sql_events import insert_rows
from lantern_journal.domain import feed_cursor
from lantern_journal.domain.appends import Row
from lantern_journal.domain.feed import FeedFilter, FeedPage
from lantern_journal.domain.feed_cursor import Cursor, Snapshot
from lantern_journal.domain.records import Attach
from lantern_journal.ports import Store
from lantern_kernel import kinds, reasons
from lantern_kernel.bounds import PAGE_BYTES_MAX
from lantern_kernel.errors import LanternError

ALL = FeedFilter()


async def read_all(store: Store, cursor: Cursor, wanted: FeedFilter = ALL) -> list[FeedPage]:
    """Pages up to the end of what is there."""
    pages: list[FeedPage] = []
    while not pages or not pages[-1].is_end:
        pages.append(await store.read_feed(pages[-1].cursor if pages else cursor, wanted))
    return pages


def places(pages: list[FeedPage]) -> list[tuple[str, int]]:
    return [(entry.run_id, event.seq) for page in pages for entry in page.entries for event in entry.events]


async def read_places(store: Store, cursor: Cursor, wanted: FeedFilter = ALL) -> list[tuple[str, int]]:
    return places(await read_all(store, cursor, wanted))


async def beginning(store: Store) -> Cursor:
    return await store.begin_feed(at_beginning=True)


async def do_something(store: Store) -> list[str]:
    """Runs with every way in which events are written; their ids."""
    first, target = await driven(store, "f1")
    await write(store, first.run.run_id, event(), event("step_completed"))
    await park(store, first.run.run_id, "signal")
    await store.send(entry(first.run.run_id), LIMITS)
    await store.acquire_lease(grant(first.run.run_id, target), LIMITS)
    await write(store, first.run.run_id, succeeded(), consumed=1)
    queued = await start(store, "f2")
    await store.send(entry(queued.run.run_id, kind="cancel"), LIMITS)
    deferred = await start(store, "f3")
    await store.close_session("w1", target.session_number)
    await store.defer_run(deferred.run.run_id, None, b"s" * 16, LIMITS)
    return [first.run.run_id, queued.run.run_id, deferred.run.run_id]


async def test_everything_comes_once_and_in_order(store: Store) -> None:
    nothing_yet = await store.begin_feed(at_beginning=False)
    run_ids = await do_something(store)
    pages = await read_all(store, await beginning(store))
    read = places(pages)
    for run_id in run_ids:
        events, _ = await store.list_events(run_id, 0, 100, 1 << 20)
        assert [seq for of_run, seq in read if of_run == run_id] == [e.seq for e in events]
        assert [e for page in pages for x in page.entries if x.run_id == run_id for e in x.events] == events
    assert len(read) == len(set(read))
    assert {entry.tenant_id for page in pages for entry in page.entries} == {"default"}
    assert await read_places(store, nothing_yet) == read
    assert await read_places(store, pages[-1].cursor) == []
    assert await read_places(store, await store.begin_feed(at_beginning=False)) == []


async def test_a_reader_goes_on_from_any_cursor(store: Store) -> None:
    started, _ = await driven(store)
    run_id = started.run.run_id
    for _ in range(6):
        await write(store, run_id, *(event(payload=b"x" * 150_000) for _ in range(5)))
    pages = await read_all(store, await beginning(store))
    assert len(pages) >= 4, "a row of the feed does not fit into a page"
    for page in pages:
        assert sum(len(e.payload) for x in page.entries for e in x.events) <= PAGE_BYTES_MAX
    for index, page in enumerate(pages):
        cursor = feed_cursor.from_token(feed_cursor.to_token(page.cursor))
        assert cursor == page.cursor
        assert await read_places(store, cursor) == places(pages[index + 1 :])
    assert places(pages) == [(run_id, seq) for seq in range(1, 33)]


async def test_a_page_holds_one_event_however_large(store: Store) -> None:
    started, _ = await driven(store)
    await write(store, started.run.run_id, event(payload=b"x" * (PAGE_BYTES_MAX + 1)), event())
    assert await read_places(store, await beginning(store)) == [(started.run.run_id, seq) for seq in range(1, 5)]


async def test_many_rows_are_read_by_pages(store: Store) -> None:
    started, _ = await driven(store)
    for _ in range(300):
        await write(store, started.run.run_id, event())
    pages = await read_all(store, await beginning(store))
    assert len(pages) > 1
    assert places(pages) == [(started.run.run_id, seq) for seq in range(1, 303)]


async def test_readers_choose(store: Store) -> None:
    run_ids = await do_something(store)
    await attach(store, "w9")
    await store.attach(replace_tenant("w8", "other"))
    other = await start_new(store, new_run("f9", tenant_id="other"))
    cursor = await beginning(store)
    assert await read_places(store, cursor, FeedFilter(tenant_id="other")) == [(other.run.run_id, 1)]
    assert {run_id for run_id, _ in await read_places(store, cursor, FeedFilter(tenant_id="default"))} == set(run_ids)
    pages = await read_all(store, cursor, FeedFilter(terminal_only=True))
    ended = [e for page in pages for x in page.entries for e in x.events]
    assert {e.kind for e in ended} == {kinds.RUN_SUCCEEDED, kinds.RUN_CANCELLED}
    assert len(ended) == 2


def replace_tenant(worker_id: str, tenant_id: str) -> Attach:
    return Attach(
        worker_id=worker_id,
        address="127.0.0.1:1",
        capacity=1,
        offers=(offer(),),
        tenant_id=tenant_id,
        draining=False,
    )


async def test_a_round_ends_where_another_reader_stands(store: Store) -> None:
    cursor = await beginning(store)
    await start_after_attach(store, "u1")
    first = (await read_all(store, cursor))[-1].cursor
    await start(store, "u2")
    page = await store.read_feed(cursor, ALL, until=first.base)
    assert (len(places([page])), page.cursor) == (1, first)
    assert len(places([await store.read_feed(first, ALL, until=cursor.base)])) == 1, "never back"


async def start_after_attach(store: Store, request_id: str) -> None:
    await attach(store)
    await start(store, request_id)


async def test_what_is_dropped_is_told(store: Store) -> None:
    old = await store.begin_feed(at_beginning=False)
    await do_something(store)
    middle = (await read_all(store, old))[-1].cursor
    await start(store, "g1")
    everything = await read_places(store, old)
    assert await store.trim_feed(0, 1000) == 0
    assert await store.trim_feed(2**62, 3) == 3
    with pytest.raises(LanternError) as refused:
        await store.read_feed(old, ALL)
    assert refused.value.reason == reasons.FEED_CURSOR_EXPIRED
    left = await read_places(store, await beginning(store))
    assert left == everything[-len(left) :]
    assert 0 < len(left) < len(everything)
    assert len(await read_places(store, middle)) == 1, "what it has yet to read is still there"
    assert await store.trim_feed(2**62, 1000) > 0
    assert await read_places(store, await beginning(store)) == []
    now = await store.begin_feed(at_beginning=False)
    await start(store, "g2")
    assert len(await read_places(store, now)) == 1
    assert len(await read_places(store, await beginning(store))) == 1


async def test_cursors_of_other_databases_are_refused(store: Store) -> None:
    await start_after_attach(store, "h1")
    cursor = await store.begin_feed(at_beginning=False)
    ahead = replace(cursor, base=Snapshot(end=cursor.base.end + 1_000_000))
    for wrong in (ahead, cursor.within(ahead.base, from_id=1, upto_id=1)):
        with pytest.raises(LanternError) as refused:
            await store.read_feed(wrong, ALL)
        assert refused.value.reason == reasons.FEED_CURSOR_INVALID
    if cursor.database_id:
        with pytest.raises(LanternError, match="another database"):
            await store.read_feed(replace(cursor, database_id=cursor.database_id + 1), ALL)


async def test_consumers_move_their_cursors_by_compare_and_set(store: Store) -> None:
    assert await store.feed_consumer("receipts") == ""
    await store.commit_feed_consumer("receipts", "", "a")
    await store.commit_feed_consumer("receipts", "", "a")
    await store.commit_feed_consumer("receipts", "a", "b")
    await store.commit_feed_consumer("receipts", "a", "b")
    for before, after in (("", "c"), ("a", "c"), ("x", "a")):
        with pytest.raises(LanternError) as refused:
            await store.commit_feed_consumer("receipts", before, after)
        assert (refused.value.reason, refused.value.details["cursor"]) == (reasons.FEED_CURSOR_MOVED, "b")
    assert await store.feed_consumer("receipts") == "b"
    assert await store.feed_consumer("spans") == ""


@pytest.mark.parametrize("store", ["postgres"], indirect=True)
async def test_what_is_committed_late_comes_late(store: Store, postgres_url: str) -> None:
    """The lower id is committed after the higher one was read; somebody else's open transaction holds nothing up."""
    target = await attach(store)
    runs = [await start(store, f"l{i}", target=target) for i in range(3)]
    cursor = (await read_all(store, await beginning(store)))[-1].cursor
    engine = postgres_sync_engine(postgres_url)
    with engine.connect() as unrelated, engine.connect() as late, engine.connect() as never:
        unrelated.execute(sa.text("SELECT pg_current_xact_id()"))
        insert_rows(late, [row(runs[0].run.run_id)])
        insert_rows(never, [row(runs[1].run.run_id)])
        await write(store, runs[2].run.run_id, event())
        pages = await read_all(store, cursor)
        assert places(pages) == [(runs[2].run.run_id, 3)]
        assert pages[-1].cursor.base.under_way
        again = feed_cursor.from_token(feed_cursor.to_token(pages[-1].cursor))
        late.commit()
        never.rollback()
        await write(store, runs[2].run.run_id, event())
        assert await read_places(store, again) == [(runs[0].run.run_id, 3), (runs[2].run.run_id, 4)]
        both = [(runs[2].run.run_id, 3), (runs[0].run.run_id, 3), (runs[2].run.run_id, 4)]
        assert sorted(await read_places(store, cursor)) == sorted(both)
        unrelated.rollback()


def row(run_id: str) -> Row:
    return Row(run_id, 3, "step_started", "s", 1, 1, 1, b"{}", b"s" * 16, b"d" * 32, b"h" * 32)
