"""One store per test, on each database: a fresh SQLite file, an emptied database of a private PostgreSQL."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from feed_coverage import check_feed
from store_list import COLLECTED, STORES, database_of_a_language

from lantern.cli.local_postgres import LocalPostgres
from lantern_journal.adapters.clock import CarriedClock
from lantern_journal.adapters.engines import postgres_sync_engine
from lantern_journal.adapters.postgres import PostgresStore
from lantern_journal.adapters.schema import metadata
from lantern_journal.adapters.sql_store import SqlStore
from lantern_journal.adapters.sqlite import SqliteStore
from lantern_journal.ports import Store


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
    await check_feed(opened)
    await opened.close()
