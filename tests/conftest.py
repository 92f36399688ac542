"""What all tiers share: one private PostgreSQL per test run, started by whoever needs it first."""

import os
from collections.abc import Iterator

# Before grpc is imported: its fork handlers can crash a child that is about to become initdb or pg_ctl.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

# Its plugin imports it at the end otherwise, where CPython 3.11 refuses to parse after many greenlets.
import hypothesis  # noqa: F401 # pyright: ignore[reportUnusedImport]
import pytest

from lantern.cli.local_postgres import LocalPostgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[LocalPostgres]:
    """A PostgreSQL of our own; where its programs are missing the tests fail with what to install."""
    with LocalPostgres() as server:
        yield server
