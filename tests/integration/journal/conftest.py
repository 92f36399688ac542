"""A real journal process over gRPC, on SQLite and on a private PostgreSQL."""

from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path

import pytest
from journal_process import JournalProcess

from lantern.cli.local_postgres import LocalPostgres

_numbers = count(1)


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:{tmp_path / 'journal.db'}"
    return fresh_postgres(request)


def fresh_postgres(request: pytest.FixtureRequest) -> str:
    server: LocalPostgres = request.getfixturevalue("postgres")
    return server.create_database(f"journal{next(_numbers)}")


@pytest.fixture
def postgres_database(request: pytest.FixtureRequest) -> str:
    """The URL of an empty database on PostgreSQL."""
    return fresh_postgres(request)


@pytest.fixture
async def journal(database: str) -> AsyncIterator[JournalProcess]:
    """A journal that serves."""
    process = JournalProcess(database)
    await process.start()
    yield process
    await process.close()
