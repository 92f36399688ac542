"""Databases for the acceptance tier: SQLite files, and databases on a PostgreSQL of the test run's own."""

from collections.abc import Callable
from pathlib import Path

import pytest

from lantern.cli.local_postgres import LocalPostgres

DATABASES = ("sqlite", "postgres")


@pytest.fixture(scope="session")
def make_database(request: pytest.FixtureRequest) -> Callable[[str, Path, str], str]:
    """Makes an empty database: `make_database(kind, folder, name)` returns its LANTERN_DATABASE."""

    def make(kind: str, folder: Path, name: str) -> str:
        if kind == "sqlite":
            return f"sqlite:{folder / 'journal.db'}"
        server: LocalPostgres = request.getfixturevalue("postgres")
        return server.create_database(name)

    return make
