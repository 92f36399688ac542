"""A journal of the release before, unpacked from where it was kept, beside the one of this tree."""

import zipfile
from collections.abc import AsyncIterator, Callable
from itertools import count
from pathlib import Path

import pytest
from integration.journal.journal_process import JournalProcess

from lantern.cli.local_postgres import LocalPostgres

OLD = Path(__file__).with_name("journal_0001.zip")

SILENCE = "2s"
"""The workers of journals that were killed are given up after this."""

_numbers = count(1)


@pytest.fixture(scope="session")
def old_code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the old code's packages."""
    folder = tmp_path_factory.mktemp("old")
    with zipfile.ZipFile(OLD) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture
def postgres_database(postgres: LocalPostgres) -> str:
    """The URL of an empty database on PostgreSQL."""
    return postgres.create_database(f"migration{next(_numbers)}")


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:{tmp_path / 'journal.db'}"
    return request.getfixturevalue("postgres_database")


@pytest.fixture
async def journals(old_code: Path) -> AsyncIterator[Callable[..., JournalProcess]]:
    """Makes journal processes of either code; ended with the test."""
    made: list[JournalProcess] = []

    def make(database: str, *, old: bool = False, **settings: str) -> JournalProcess:
        path = {"PYTHONPATH": str(old_code)} if old else {}
        made.append(JournalProcess(database, LANTERN_SESSION_SILENCE=SILENCE, **path, **settings))
        return made[-1]

    yield make
    for journal in made:
        await journal.close()
