"""Goal: a run that is archived is whole in its file and answered as archived; nothing else is ever deleted.

Method: real files in a temporary folder, both databases; two stores on one PostgreSQL for what races.
"""

import asyncio
import gzip
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import journal_kit as kit
import pytest
import sqlalchemy as sa

from lantern_journal.adapters import sql_partitions
from lantern_journal.adapters.archive_files import FolderFiles
from lantern_journal.adapters.clock import CarriedClock
from lantern_journal.adapters.engines import postgres_sync_engine
from lantern_journal.adapters.postgres import PostgresStore
from lantern_journal.adapters.sql_events import Transaction
from lantern_journal.application.feed import FeedTrimmer
from lantern_journal.application.retention import Retention
from lantern_journal.domain import feed_cursor, partitions
from lantern_journal.domain.archives import ArchivedRun, PassCounts
from lantern_journal.ports import Store
from lantern_kernel import archive, reasons
from lantern_kernel.errors import LanternError
from lantern_kernel.event import find_chain_fault

ALL_US = -60_000_000
"""An age that every run that has ended has reached."""

PAYLOAD = b'{"text": "\x00 \xc3\xa9 9007199254740993"}'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "archive"


def retention(store: Store, folder: Path, age_us: int = ALL_US) -> Retention:
    return Retention(store, FolderFiles(folder), CarriedClock(), age_us=age_us)


async def ended_run(store: Store, request_id: str, run_id: str = "", steps: int = 2) -> str:
    new = kit.new_run(request_id)
    started = await kit.start_new(store, replace(new, run_id=run_id or new.run_id))
    run_id = started.run.run_id
    await store.send(kit.entry(run_id, f"signal-{request_id}"), kit.LIMITS)
    target = await kit.attach(store)
    assert await store.acquire_lease(kit.grant(run_id, target, "started"), kit.LIMITS)
    await kit.write(store, run_id, *(kit.event(payload=PAYLOAD) for _ in range(steps)), kit.succeeded(), consumed=1)
    return run_id


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def checked(folder: Path, name: str) -> dict[str, archive.CheckedRun]:
    with gzip.open(folder / name, "rb") as lines:
        return {run.run_id: run for run in archive.check_file(lines)}


async def refusal_of(asked: object) -> LanternError:
    with pytest.raises(LanternError) as caught:
        await asked  # pyright: ignore[reportGeneralTypeIssues]
    return caught.value


async def test_an_archived_run_is_whole_and_answered(store: Store, folder: Path) -> None:
    await kit.attach(store)
    run_id = await ended_run(store, "r1")
    still_open = (await kit.start(store, "r2")).run.run_id
    events, _ = await store.list_events(run_id, 0, 100, 1 << 20)
    counts = await retention(store, folder).run_pass()
    assert counts == PassCounts(runs=1, events=len(events), files=1)

    run = await store.get_run(run_id)
    assert run.archived
    assert run.archive is not None
    assert (run.archive.event_count, run.archive.head_hash) == (len(events), events[-1].hash)
    assert run.state.value == "SUCCEEDED"
    found = checked(folder, run.archive.file)[run_id]
    assert found.fault is None
    assert found.head_hash == events[-1].hash
    with gzip.open(folder / run.archive.file, "rb") as lines:
        values = [archive.read_line(line) for line in lines]
    assert [archive.read_event(value) for value in values if value["type"] == archive.EVENT] == events
    assert [value["name"] for value in values if value["type"] == archive.INBOX] == ["paid"]

    target = await kit.attach(store)
    for asked in (
        store.list_events(run_id, 0, 10, 1 << 20),
        store.list_inbox(run_id, 0, 10, 1 << 20),
        store.open_run(run_id, 1, target, kit.LIMITS),
    ):
        error = await refusal_of(asked)
        assert (error.reason, error.details["file"]) == (reasons.RUN_ARCHIVED, run.archive.file)
    assert (await refusal_of(store.send(kit.entry(run_id), kit.LIMITS))).reason == reasons.RUN_CLOSED
    again = await kit.start(store, "r1")
    assert (again.created, again.run.run_id) == (False, run_id)
    assert not (await store.get_run(still_open)).archived
    assert await store.head(still_open)
    assert (await retention(store, folder).run_pass()).runs == 0


async def test_a_run_that_ended_of_late_stays(store: Store, folder: Path) -> None:
    await kit.attach(store)
    run_id = await ended_run(store, "r1")
    assert await retention(store, folder, age_us=3_600_000_000).run_pass() == PassCounts()
    assert not (await store.get_run(run_id)).archived
    assert names_in(folder) == set()


async def test_a_run_whose_events_are_not_whole_stays(store: Store, folder: Path) -> None:
    await kit.attach(store)
    faulty, good = await ended_run(store, "r1"), await ended_run(store, "r2")
    change = sa.text("UPDATE journal_events SET payload = :payload WHERE run_id = :run AND seq = 3")

    def damage(tx: Transaction) -> None:
        tx.connection.execute(change, {"payload": b"{}", "run": faulty})

    await store._transact(damage)  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue, reportUnknownMemberType]
    counts = await retention(store, folder).run_pass()
    assert (counts.runs, counts.faulty) == (1, 1)
    assert not (await store.get_run(faulty)).archived
    assert len((await store.list_events(faulty, 0, 10, 1 << 20))[0]) == 5
    assert (await store.get_run(good)).archived


async def test_a_file_that_was_never_taken_into_use_is_removed(store: Store, folder: Path) -> None:
    await kit.attach(store)
    run_id = await ended_run(store, "r1")
    files = FolderFiles(folder)
    turn = await store.take_archive_turn(0)
    assert turn is not None
    for name in ("one.gz", "two.gz"):
        await store.begin_archive_file(turn.number, name)
        writer = await files.create(name, archive.header_line(0))
        if name == "one.gz":
            await writer.publish()
    (folder / "of-somebody-else.gz").touch()
    await retention(store, folder).run_pass()
    run = await store.get_run(run_id)
    assert run.archive is not None
    assert names_in(folder) == {run.archive.file, "of-somebody-else.gz"}
    # Whoever held the turn before can no longer do anything.
    for late in (store.let_go(turn.number, "one.gz", []), store.extend_archive_turn(turn.number, 1)):
        assert (await refusal_of(late)).reason == reasons.LEASE_LOST


async def test_letting_go_twice_is_letting_go_once(store: Store, folder: Path) -> None:
    await kit.attach(store)
    run_id = await ended_run(store, "r1")
    head = await store.head(run_id)
    turn = await store.take_archive_turn(60_000_000)
    assert turn is not None
    assert await store.take_archive_turn(60_000_000) is None
    await store.begin_archive_file(turn.number, "file")
    written = ArchivedRun(run_id=run_id, offset=1, length=2, event_count=head.seq, head_hash=head.hash)
    other = ArchivedRun(run_id=run_id, offset=1, length=2, event_count=head.seq - 1, head_hash=head.hash)
    assert await store.let_go(turn.number, "file", [other]) == 0
    assert await store.let_go(turn.number, "file", [written]) == 1
    assert await store.let_go(turn.number, "file", [written]) == 1
    run = await store.get_run(run_id)
    assert run.archive is not None
    assert run.archive.file == "file"
    await store.extend_archive_turn(turn.number, 0)
    await retention(store, folder).run_pass()


async def test_what_a_consumer_has_not_read_stays_in_the_feed(store: Store) -> None:
    await kit.attach(store)
    await ended_run(store, "r1")
    trimmer = FeedTrimmer(store, CarriedClock(), ALL_US)
    beginning = await store.begin_feed(at_beginning=True)
    await store.commit_feed_consumer("receipts", "", feed_cursor.to_token(beginning))
    assert await trimmer.trim() == 0
    end = await store.begin_feed(at_beginning=False)
    await store.commit_feed_consumer("receipts", feed_cursor.to_token(beginning), feed_cursor.to_token(end))
    assert await trimmer.trim() > 0


@pytest.fixture
async def two(store: Store, request: pytest.FixtureRequest) -> list[PostgresStore]:
    """Two stores on one PostgreSQL, emptied."""
    del store
    url: str = request.getfixturevalue("postgres_url")
    return [await PostgresStore.open(url) for _ in range(2)]


@pytest.mark.parametrize("store", ["postgres"], indirect=True)
async def test_two_journals_archive_each_run_once(two: list[PostgresStore], folder: Path) -> None:
    await kit.attach(two[0])
    run_ids = {await ended_run(two[0], f"r{number}") for number in range(12)}
    passes = [retention(store, folder) for store in two]
    counts = await asyncio.gather(*(each.run_pass() for each in passes))
    assert sum(count.runs for count in counts) == len(run_ids)
    found = [run for name in names_in(folder) for run in checked(folder, name).values()]
    assert sorted(run.run_id for run in found) == sorted(run_ids)
    for store in two:
        await store.close()


@pytest.mark.parametrize("store", ["postgres"], indirect=True)
async def test_an_old_week_goes_and_its_stragglers_are_appended_to_meanwhile(
    two: list[PostgresStore], folder: Path, request: pytest.FixtureRequest
) -> None:
    now_us = await two[0].ping()
    week = partitions.week_of(now_us - 8 * partitions.WEEK_US)
    engine = postgres_sync_engine(request.getfixturevalue("postgres_url"))
    with engine.begin() as connection:
        sql_partitions.make_partition(Transaction(connection=connection, now_us=now_us), week)
    await kit.attach(two[0])
    old = await ended_run(two[0], "old", kit.SOURCES.run_id(week.start_us))
    open_ = (await kit.start_new(two[0], kit.new_run("open", run_id=kit.SOURCES.run_id(week.end_us - 1000)))).run.run_id
    target = await kit.attach(two[0])
    assert await two[0].acquire_lease(kit.grant(open_, target), kit.LIMITS)
    stop = asyncio.Event()

    async def append() -> int:
        head = await kit.head(two[0], open_)
        while not stop.is_set():
            head = await kit.write(two[0], open_, kit.event(payload=PAYLOAD), on=head)
            assert (await two[0].heads([open_]))[open_].seq == head.seq
        return head.seq

    appending = asyncio.create_task(append())
    try:
        async with asyncio.timeout(20):
            await until_appended(two[0], open_, 20)
            while week.table in existing(engine):
                await retention(two[1], folder).run_pass()
            after = (await two[1].head(open_)).seq
            await until_appended(two[0], open_, after + 20)
    finally:
        stop.set()
        last = await appending
    events, _ = await two[1].list_events(open_, 0, 1000, 1 << 20)
    assert len(events) == min(last, 1000)
    assert find_chain_fault(open_, events) is None
    assert (await two[1].get_run(old)).archived
    with engine.connect() as connection:
        query = sa.text("SELECT DISTINCT tableoid::regclass::text FROM journal_events WHERE run_id = :run")
        assert connection.execute(query, {"run": open_}).scalars().all() == [partitions.DEFAULT]
    for store in two:
        await store.close()


async def until_appended(store: Store, run_id: str, seq: int) -> None:
    while (await store.head(run_id)).seq < seq:  # noqa: ASYNC110 - it is the database that knows
        await asyncio.sleep(0.005)


def existing(engine: sa.Engine) -> list[str]:
    with engine.connect() as connection:
        return sql_partitions.existing(connection)


def edited(change: Callable[[list[bytes]], list[bytes]], path: Path) -> list[archive.CheckedRun]:
    with gzip.open(path, "rb") as file:
        lines = list(file)
    return list(archive.check_file(change(lines)))


async def test_a_file_that_was_changed_is_found_out(store: Store, folder: Path) -> None:
    await kit.attach(store)
    await ended_run(store, "r1")
    await ended_run(store, "r2")
    await retention(store, folder).run_pass()
    (name,) = names_in(folder)
    path = folder / name
    assert [run.fault for run in edited(list, path)] == [None, None]
    whole = edited(list, path)[0].event_count

    def without(number: int) -> Callable[[list[bytes]], list[bytes]]:
        return lambda lines: lines[:number] + lines[number + 1 :]

    assert [run.fault for run in edited(without(3), path)] == ["event 2 is missing: 3 stands in its place", None]
    assert "events are found" in str(edited(without(1 + whole), path)[0].fault)
    assert edited(lambda lines: lines[:-1], path)[-1].fault == (
        f"the file ends within run {edited(list, path)[1].run_id}, after event {whole}"
    )
    changed = edited(lambda lines: [line.replace(b'"attempt":1', b'"attempt":2') for line in lines], path)
    assert all("digest does not follow" in str(run.fault) for run in changed)
    assert edited(lambda lines: lines[1:], path)[0].fault == (
        "this is no archive of Lantern's: its first line does not say so"
    )
