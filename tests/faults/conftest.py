"""Processes of the fault tests, which end with their test, and databases for them."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from rig import KillablePostgres, MakeDatabase, journal_process
from system import Process

from lantern.cli.local_postgres import LocalPostgres

_numbers = count(1)


@pytest.fixture
def own_postgres() -> Iterator[KillablePostgres]:
    """A PostgreSQL of this test's own, to be hurt."""
    with KillablePostgres() as server:
        yield server


@pytest.fixture
def make_database(request: pytest.FixtureRequest, tmp_path: Path) -> MakeDatabase:
    """Makes an empty database of a kind, sound: `make_database("postgres")` returns its LANTERN_DATABASE."""

    def make(kind: str) -> str:
        if kind == "sqlite":
            return f"sqlite:{tmp_path / 'journal.db'}"
        server: LocalPostgres = request.getfixturevalue("postgres")
        return server.create_database(f"faults{next(_numbers)}")

    return make


@pytest.fixture
def start_journal(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Starts journals: `start_journal(name, database, **as in journal_process)`; they end with the test."""
    with ExitStack() as started:

        def start(name: str, database: str, **more: Any) -> Process:
            process = journal_process(name, database, tmp_path, **more)
            started.callback(process.kill)
            return process.start()

        yield start
