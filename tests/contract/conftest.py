"""One store per test, on each database: a fresh SQLite file, an emptied database of a private PostgreSQL."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from doctor_kit import findings_of_runs
from feed_coverage import check_feed
from store_list import COLLECTED, STORES, database_of_a_language

from lantern.cli.local_postgres import LocalPostgres
from lantern_journal.adapters.clock import CarriedClock
from lantern_journal.adapters.engines import postgres_sync_engine
from lantern_journal.adapters.postgres import PostgresStore
from lantern_journal.adapters.schema import metadata
from lantern_journal.adapters.sql_store import SqlStore
from lantern_journal.adapters.sqlite import SqliteStore
from lantern_journal.domain.findings import Severity
from lantern_journal.ports import Store

TAMPERING = frozenset(
    {
        "test_store_doctor",
        "test_store_feed",
        "test_feed_late_commits",
        "test_an_attach_wakes_more_runs_than_a_statement_takes_parameters",
        "test_a_run_whose_events_are_not_whole_stays",
        "test_a_group_that_ends_drives_takes_their_locks_in_order",
    }
)
MISSING_EVENTS = frozenset({"test_store_doctor"})
"""Modules and tests that write to the database past the store, in ways that no operation would leave it."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keeps the whole list, before anybody takes something out of it."""
    config.stash[COLLECTED] = list(items)


@pytest.fixture(scope="session")
def postgres_url(postgres: LocalPostgres) -> str:
    """The URL of a database for this tier."""
    return database_of_a_language(postgres, "contract")


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """The store under contract."""
    opened: SqlStore
    if request.param == "sqlite":
        opened = await SqliteStore.open(tmp_path / "journal.db", CarriedClock())
    else:
        url: str = request.getfixturevalue("postgres_url")
        opened = await PostgresStore.open(url)
        engine = postgres_sync_engine(url)
        with engine.begin() as connection:
            connection.execute(sa.text("TRUNCATE " + ", ".join(metadata.tables)))
    yield opened
    # Whatever the test did: nothing of it may be missing for those who follow all runs.
    if request.module.__name__ not in MISSING_EVENTS:
        await check_feed(opened)
    if not {request.module.__name__, request.function.__name__} & TAMPERING:
        # Nor may anything be left behind that the doctor would not allow, or would set right.
        assert [f for f in await findings_of_runs(opened) if f.severity is Severity.FAULT] == []
    await opened.close()
