"""Engines for the two databases, from the setting's URL."""

import fcntl
import os
from pathlib import Path
from typing import Any

import psycopg
import sqlalchemy as sa
from sqlalchemy import event, exc, pool
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from lantern_journal.adapters.schema import REVISION
from lantern_kernel import reasons
from lantern_kernel.errors import InvalidField, LanternError

POOL_CONNECTIONS = 8
CONNECT_TIMEOUT_S = 5
_POSTGRES_OPTIONS = "-c lock_timeout=5s -c statement_timeout=30s -c idle_in_transaction_session_timeout="
IDLE_IN_TRANSACTION_S = 4
"""A journal process that stands still within a transaction keeps its locks for no longer: shorter than lock_timeout, so
that the others wait for it and need not try again."""

MIGRATION_IDLE_S = 30
POSTGRES_CONNECT: dict[str, Any] = {
    "connect_timeout": CONNECT_TIMEOUT_S,
    "application_name": f"lantern-journal/{REVISION}",
    "options": f"{_POSTGRES_OPTIONS}{MIGRATION_IDLE_S}s",
    # A server that vanished without a word is noticed.
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}

GROUP_CONNECT: dict[str, Any] = {
    **POSTGRES_CONNECT,
    "options": f"{POSTGRES_CONNECT['options']} -c jit=off -c enable_seqscan=off -c enable_hashjoin=off"
    " -c enable_mergejoin=off",
    "prepare_threshold": 0,
}
"""For statements that touch rows by their keys, planned once: also when the tables were still empty, it is the indexes
that they are to go by."""

POOLED_CONNECT: dict[str, Any] = {
    **{name: value for name, value in POSTGRES_CONNECT.items() if name != "options"},
    # The server process that prepared a statement may not be the one that is to execute it.
    "prepare_threshold": None,
}
"""Through a pooler: what belongs to a session is not the journal's to set."""

POOLED_BEGIN = (
    "SELECT set_config('lock_timeout', '5s', true), set_config('statement_timeout', '30s', true),"
    f" set_config('idle_in_transaction_session_timeout', '{IDLE_IN_TRANSACTION_S}s', true)"
)
"""The bounds of a transaction, said within it."""


def is_pooled(url: str) -> bool:
    """Whether a pooler stands before PostgreSQL, such as PgBouncer.

    It hands out process ids of its own, for it is the pooler that is asked to cancel a statement.
    """
    conninfo = postgres_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(conninfo, autocommit=True, **POOLED_CONNECT) as connection:
        found = connection.execute("SELECT pg_backend_pid()").fetchone()
        return found is not None and found[0] != connection.info.backend_pid


def sqlite_path(url: str) -> Path | None:
    """The file of `sqlite:PATH` (also `sqlite:///PATH`); None where the URL is not SQLite's."""
    if not url.startswith("sqlite:"):
        return None
    path = url.removeprefix("sqlite:")
    path = path.removeprefix("//").removeprefix("/") if path.startswith("///") else path
    if not path:
        raise InvalidField("LANTERN_DATABASE", f"{url!r} names no file")
    return Path(path)


def postgres_url(url: str) -> sa.URL:
    """The URL for the psycopg driver; raises InvalidField where it is none of PostgreSQL's."""
    try:
        parsed = make_url(url)
    except exc.ArgumentError:
        raise InvalidField("LANTERN_DATABASE", "neither sqlite:PATH nor postgresql://...") from None
    if parsed.get_backend_name() not in ("postgresql", "postgres"):
        raise InvalidField("LANTERN_DATABASE", "neither sqlite:PATH nor postgresql://...")
    return parsed.set(drivername="postgresql+psycopg")


def postgres_engine(url: str, *, pooled: bool = False) -> AsyncEngine:
    """The pool for transactions; READ COMMITTED with row locks."""
    direct = {**POSTGRES_CONNECT, "options": f"{_POSTGRES_OPTIONS}{IDLE_IN_TRANSACTION_S}s", "prepare_threshold": 1}
    engine = create_async_engine(
        postgres_url(url),
        pool_size=POOL_CONNECTIONS,
        max_overflow=0,
        pool_timeout=CONNECT_TIMEOUT_S,
        # Not used, and asked for at every connect.
        use_native_hstore=False,
        connect_args=POOLED_CONNECT if pooled else direct,
    )
    if pooled:

        def on_begin(connection: sa.Connection) -> None:
            connection.exec_driver_sql(POOLED_BEGIN)

        event.listen(engine.sync_engine, "begin", on_begin)
    return engine


def postgres_sync_engine(url: str, *, pooled: bool = False) -> sa.Engine:
    """For migrations, which set their bounds within their transactions."""
    arguments = POOLED_CONNECT if pooled else POSTGRES_CONNECT
    return sa.create_engine(postgres_url(url), poolclass=pool.NullPool, connect_args=arguments)


def sqlite_engine(path: Path, *, begin: str) -> sa.Engine:
    """An engine without a pool; `begin` is the statement that opens its transactions."""
    engine = sa.create_engine(f"sqlite:///{path}", poolclass=pool.NullPool, connect_args={"timeout": 10})

    def on_connect(connection: Any, _record: Any) -> None:
        # The driver must not open transactions by itself.
        connection.isolation_level = None
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "cache_size=-65536"):
            connection.execute(f"PRAGMA {pragma}")

    def on_begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql(begin)

    event.listen(engine, "connect", on_connect)
    event.listen(engine, "begin", on_begin)
    return engine


class FileLock:
    """One process per SQLite file: a lock file beside it, held until the process ends, however it ends."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(path.name + ".lock")
        try:
            # Only the last folder: a mistyped path is an error, not a new tree.
            self._path.parent.mkdir(exist_ok=True)
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise InvalidField("LANTERN_DATABASE", f"{path} cannot be used: {error.strerror}") from None
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._descriptor)
            raise LanternError(
                reasons.UNAVAILABLE,
                f"another journal uses {path}: an SQLite file serves one journal process ({self._path} is locked)",
            ) from None

    def release(self) -> None:
        """Lets another process in."""
        os.close(self._descriptor)
