"""Goal: weekly partitions are made ahead, by any number of journals, and a named run touches exactly one of them.

Method: a private PostgreSQL; plans by EXPLAIN; the statements are those that the store sends.
"""

import asyncio
from collections.abc import AsyncIterator

import journal_kit as kit
import pytest
import sqlalchemy as sa

from lantern_journal.adapters import sql_agents, sql_partitions
from lantern_journal.adapters.engines import postgres_sync_engine
from lantern_journal.adapters.postgres import PostgresStore
from lantern_journal.adapters.sql_events import POSTGRES_HEADS, Transaction
from lantern_journal.domain import partitions
from lantern_kernel.errors import LanternError

OUTSIDE_US = partitions.EPOCH_MONDAY_US


@pytest.fixture
def engine(postgres_url: str) -> sa.Engine:
    made = postgres_sync_engine(postgres_url)
    with made.begin() as connection:
        connection.execute(sa.text("DROP SCHEMA public CASCADE"))
        connection.execute(sa.text("CREATE SCHEMA public"))
    return made


@pytest.fixture
async def stores(engine: sa.Engine, postgres_url: str) -> AsyncIterator[list[PostgresStore]]:
    opened = [await PostgresStore.open(postgres_url) for _ in range(3)]
    await kit.attach(opened[0])
    yield opened
    for store in opened:
        await store.close()


async def this_week(store: PostgresStore) -> partitions.Week:
    return partitions.week_of(await store.ping())


def scanned(engine: sa.Engine, query: str, parameters: tuple[object, ...]) -> set[str]:
    """The partitions that a statement looked into, by its plan for any parameters."""
    with engine.begin() as connection:
        connection.exec_driver_sql("SET LOCAL plan_cache_mode = force_generic_plan")
        plan = connection.exec_driver_sql(f"EXPLAIN (ANALYZE, FORMAT JSON) {query}", parameters).scalar_one()
    found: set[str] = set()

    def walk(node: dict[str, object]) -> None:
        if "Relation Name" in node and node["Actual Loops"]:
            found.add(str(node["Relation Name"]))
        for child in node.get("Plans", []):  # pyright: ignore[reportGeneralTypeIssues, reportUnknownVariableType]
            walk(child)  # pyright: ignore[reportUnknownArgumentType]

    walk(plan[0]["Plan"])
    return found


async def test_partitions_are_made_ahead_and_once(stores: list[PostgresStore], engine: sa.Engine) -> None:
    week = await this_week(stores[0])
    weeks = [w.table for w in partitions.weeks_ahead(week.start_us, 4)]
    assert await stores[0].make_partitions(0) == [week.table]
    assert await stores[0].make_partitions(0) == []
    # All at once: a loser finds another at it and leaves it to that one.
    for _ in range(20):
        await asyncio.gather(*(store.make_partitions(4) for store in stores), return_exceptions=True)
        with engine.connect() as connection:
            if sql_partitions.existing(connection) == [partitions.DEFAULT, *weeks]:
                return
    raise AssertionError("the partitions were not made")


async def test_events_go_where_their_run_id_says(stores: list[PostgresStore], engine: sa.Engine) -> None:
    store = stores[0]
    week = await this_week(store)
    await store.make_partitions(1)
    edges = {
        week.table: (week.start_us, week.end_us - 1000),
        week_after(week).table: (week.end_us, week_after(week).end_us - 1000),
        partitions.DEFAULT: (OUTSIDE_US, week.start_us - 1000, week_after(week).end_us),
    }
    for number, (table, times) in enumerate(edges.items()):
        for place, time_us in enumerate(times):
            run_id = kit.SOURCES.run_id(time_us)
            await kit.start_new(store, kit.new_run(f"r{number}-{place}", run_id=run_id))
            with engine.connect() as connection:
                query = sa.text("SELECT DISTINCT tableoid::regclass::text FROM journal_events WHERE run_id = :run")
                assert connection.execute(query, {"run": run_id}).scalars().all() == [table]
            assert (await store.heads([run_id]))[run_id].seq == 1
            assert len((await store.list_events(run_id, 0, 10, 1 << 20))[0]) == 1


def week_after(week: partitions.Week) -> partitions.Week:
    return partitions.week_of(week.end_us)


async def test_a_named_run_touches_one_partition(stores: list[PostgresStore], engine: sa.Engine) -> None:
    store = stores[0]
    await store.make_partitions(4)
    week = await this_week(store)
    run_id = kit.SOURCES.run_id(week.start_us)
    await kit.start_new(store, kit.new_run(run_id=run_id))
    heads = POSTGRES_HEADS.replace("%b", "%s")
    assert scanned(engine, heads, ([run_id],)) == {week.table}
    page = "SELECT * FROM journal_events WHERE run_id = %s AND seq > %s ORDER BY seq LIMIT 10"
    assert scanned(engine, page, (run_id, 0)) == {week.table}


async def test_a_week_that_lies_in_the_default_partition_stays_there(
    stores: list[PostgresStore], engine: sa.Engine
) -> None:
    store = stores[0]
    week = await this_week(store)
    await kit.start_new(store, kit.new_run(run_id=kit.SOURCES.run_id(week.start_us)))
    assert await store.make_partitions(1) == [week_after(week).table]


async def test_a_large_default_partition_is_not_looked_through_under_a_lock(
    stores: list[PostgresStore], engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_partitions, "SCANNED_BYTES_MAX", 0)
    store = stores[0]
    week = await this_week(store)
    await kit.start_new(store, kit.new_run(run_id=kit.SOURCES.run_id(OUTSIDE_US)))
    # The week that has begun stays in the default partition; the others are vouched for.
    assert await store.make_partitions(1) == [week_after(week).table]
    with engine.connect() as connection:
        left = connection.exec_driver_sql(
            "SELECT conname FROM pg_constraint WHERE conrelid = 'journal_events_default'::regclass AND contype = 'c'"
        )
        assert left.all() == []


async def test_a_partition_waits_for_no_lock(stores: list[PostgresStore], engine: sa.Engine) -> None:
    store = stores[0]
    with engine.begin() as connection:
        connection.exec_driver_sql("SELECT count(*) FROM journal_events")
        began = asyncio.get_running_loop().time()
        with pytest.raises(LanternError):
            await store.make_partitions(0)
        assert asyncio.get_running_loop().time() - began < 5
    assert len(await store.make_partitions(0)) == 1


async def test_of_two_that_change_partitions_one_does(stores: list[PostgresStore], engine: sa.Engine) -> None:
    week = await this_week(stores[0])
    with engine.begin() as connection:
        assert sql_partitions.make_partition(Transaction(connection=connection, now_us=week.start_us), week)
        assert await stores[1].make_partitions(0) == []
    with engine.connect() as connection:
        assert week.table in sql_partitions.existing(connection)


async def test_workers_come_while_partitions_are_changed(stores: list[PostgresStore], engine: sa.Engine) -> None:
    with engine.begin() as connection:
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(sql_partitions.HOUSEKEEPING_LOCK)))
        async with asyncio.timeout(3):
            assert (await kit.attach(stores[0], "late")).session_number == 1
    with engine.begin() as connection:
        sql_agents.lock(connection)
        assert await stores[0].make_partitions(0) == [(await this_week(stores[0])).table]


async def test_a_week_that_is_not_looked_through_in_time_holds_up_no_other(
    stores: list[PostgresStore], engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    week, after = partitions.weeks_ahead((await this_week(stores[0])).start_us, 1)
    assert await stores[0].make_partitions(1) == [week.table, after.table]
    look = sql_partitions._is_nearly_empty  # pyright: ignore[reportPrivateUsage] - what is counted

    def slow(connection: sa.Connection, looked_at: partitions.Week) -> bool:
        if looked_at == week:
            connection.exec_driver_sql("SET LOCAL statement_timeout = 50")
            connection.exec_driver_sql("SELECT pg_sleep(10)")
        return look(connection, looked_at)

    monkeypatch.setattr(sql_partitions, "_is_nearly_empty", slow)
    assert await stores[0].drop_partitions(after.end_us) == [after.table]
    with engine.connect() as connection:
        assert week.table in sql_partitions.existing(connection)
