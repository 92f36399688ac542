"""Bringing a database to the schema of this release (alembic, configured here, no ini file), in two phases.

`pre` revisions only add: code that does not know them goes on working. They are applied at start. `post` revisions take
away what only older code needed: they are applied by command, once no such code is left, and leave a mark that keeps it
out. New code works while its post revisions are pending; it must, for they always come later.
"""

import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psycopg
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import exc

from lantern_journal.adapters.engines import FileLock, is_pooled, postgres_sync_engine, sqlite_engine, sqlite_path
from lantern_journal.adapters.schema import REVISION, metadata
from lantern_journal.domain.partitions import is_partition
from lantern_kernel import reasons
from lantern_kernel.errors import LanternError

log = logging.getLogger(__name__)

PRE, POST = "pre", "post"

MIGRATION_LOCK = 7_000
"""pg_advisory_xact_lock of whoever migrates: several journals may start at once."""

LOCK_TIMEOUT_MS = 1_000
"""Whoever waits for a table's lock makes all appends behind it wait: give up, and try again."""

STATEMENT_TIMEOUT_MS = 300_000
TRIES = 60
PAUSE_S = 1.0
_LOCK_NOT_AVAILABLE = frozenset({"55P03", "40P01"})

FLOOR_MARK = "schema_floor"
"""In journal_marks: code that does not know this revision must not use the database."""

APPLICATION = re.compile(r"lantern-journal(?:/(\d+))?")
"""How journals call themselves to PostgreSQL: with the newest revision that they know."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """Where a database stands, as far as this code can tell."""

    # Its revisions: of each line the last; none in an empty database.
    found: tuple[str, ...]
    # Whether this code's pre revisions are all there.
    is_expanded: bool
    # Whether this code's post revisions are all there.
    is_contracted: bool
    # Whether it has revisions that this code does not know; they only add.
    is_newer: bool


def config_of(connection: sa.Connection | None = None) -> Config:
    """The alembic configuration, for that connection."""
    config = Config()
    folder = Path(__file__).parent.parent / "migrations"
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def migrate(engine: sa.Engine) -> None:
    """Brings the database to the newest pre revision, and an empty one to the newest of all; harmless where it is."""
    _insist(engine, _expand)


def contract(engine: sa.Engine) -> None:
    """Applies what is pending of both phases; LanternError where journals of an older release are connected."""
    _insist(engine, _contract)


def run(url: str, phase: str) -> str:
    """Migrates the database of that URL by command; where it stands then, in words."""
    path = sqlite_path(url)
    lock = FileLock(path) if path is not None else None
    try:
        engine = (
            sqlite_engine(path, begin="BEGIN IMMEDIATE")
            if path is not None
            else postgres_sync_engine(url, pooled=is_pooled(url))
        )
        (migrate if phase == PRE else contract)(engine)
        with engine.connect() as connection:
            standing = standing_of(connection)
    except (exc.DatabaseError, psycopg.Error) as error:
        cause = error.orig if isinstance(error, exc.DatabaseError) else error
        raise LanternError(reasons.UNAVAILABLE, f"the database cannot be migrated: {cause}") from None
    finally:
        if lock is not None:
            lock.release()
    pending = "" if standing.is_contracted else "; post revisions are pending"
    return f"the database is at revision {_names(standing.found)}{pending}"


def check(engine: sa.Engine) -> None:
    """Raises LanternError where this code cannot use the database."""
    with engine.connect() as connection:
        standing = standing_of(connection)
    if not standing.is_expanded:
        raise LanternError(
            reasons.UNAVAILABLE,
            f"the database is at revision {_names(standing.found)}, this release needs {REVISION:04d}; start once with"
            " LANTERN_MIGRATE=1",
        )


def standing_of(connection: sa.Connection) -> Standing:
    """Where the database stands; LanternError where it was contracted for newer code than this."""
    scripts = ScriptDirectory.from_config(config_of())
    known = {script.revision: script for script in scripts.walk_revisions()}
    heads = {phase: _head(scripts, phase) for phase in (PRE, POST)}
    found = tuple(sorted(MigrationContext.configure(connection).get_current_heads()))
    floor = _floor(connection) if found else 0
    if floor > REVISION:
        raise LanternError(
            reasons.UNAVAILABLE,
            f"the database has no place any more for this release: it knows revision {REVISION:04d}, {floor:04d} is"
            " needed; use the newer release",
        )
    # Unknown and above the floor: a pre revision, which takes nothing away.
    is_newer = any(revision not in known for revision in found)
    return Standing(
        found=found,
        is_expanded=is_newer or heads[PRE] in found,
        is_contracted=heads[POST] is None or heads[POST] in found,
        is_newer=is_newer,
    )


def differences(connection: sa.Connection) -> list[object]:
    """What a database's tables differ in from those that the code uses; partitions are as their table is."""

    def include_name(name: str | None, kind: str, _parents: object) -> bool:
        return kind != "table" or name is None or not is_partition(name)

    options = {"compare_type": True, "compare_server_default": True, "include_name": include_name}
    return list(compare_metadata(MigrationContext.configure(connection, opts=options), metadata))


def _head(scripts: ScriptDirectory, phase: str) -> str | None:
    heads = (scripts.get_revision(head) for head in scripts.get_heads())
    return next((head.revision for head in heads if phase in head.branch_labels), None)


def _floor(connection: sa.Connection) -> int:
    query = sa.text("SELECT value FROM journal_marks WHERE name = :name")
    return connection.execute(query, {"name": FLOOR_MARK}).scalar() or 0


def _names(revisions: tuple[str, ...]) -> str:
    return " and ".join(revisions) or "none"


def _expand(connection: sa.Connection) -> None:
    standing = standing_of(connection)
    if standing.is_newer:
        log.info("the database is newer than this release", extra={"action": "schema_newer", "found": standing.found})
    elif not standing.found:
        _upgrade(connection, PRE, POST)
    elif not standing.is_expanded:
        _upgrade(connection, PRE)


def _contract(connection: sa.Connection) -> None:
    standing = standing_of(connection)
    if standing.is_newer:
        raise LanternError(reasons.UNAVAILABLE, "the database is newer than this release; use the newer one")
    older = _older_journals(connection)
    if older:
        raise LanternError(
            reasons.UNAVAILABLE,
            f"journals of an older release are connected ({', '.join(older)}); stop them first: they could not go on",
        )
    _upgrade(connection, PRE, POST)


def _older_journals(connection: sa.Connection) -> list[str]:
    if connection.dialect.name != "postgresql":
        # The lock on the file has kept everybody out.
        return []
    query = sa.text("SELECT DISTINCT application_name FROM pg_stat_activity WHERE datname = current_database()")
    matches = ((name, APPLICATION.fullmatch(name or "")) for name in connection.execute(query).scalars())
    return sorted(name for name, match in matches if match and int(match[1] or 0) < REVISION)


def _upgrade(connection: sa.Connection, *phases: str) -> None:
    scripts = ScriptDirectory.from_config(config_of())
    for phase in phases:
        if _head(scripts, phase) is not None:
            command.upgrade(config_of(connection), f"{phase}@head")
    post = _head(scripts, POST)
    if POST in phases and post is not None:
        values = {"name": FLOOR_MARK, "value": int(post)}
        connection.execute(sa.text("DELETE FROM journal_marks WHERE name = :name"), values)
        connection.execute(sa.text("INSERT INTO journal_marks (name, value) VALUES (:name, :value)"), values)


def _insist(engine: sa.Engine, change: Callable[[sa.Connection], None]) -> None:
    """One transaction, tried again where it did not get a lock soon enough."""
    for tries in range(1, TRIES + 1):
        try:
            with engine.begin() as connection:
                if connection.dialect.name == "postgresql":
                    connection.execute(sa.text(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}"))
                    connection.execute(sa.text(f"SET LOCAL statement_timeout = {STATEMENT_TIMEOUT_MS}"))
                    connection.execute(sa.select(sa.func.pg_advisory_xact_lock(MIGRATION_LOCK)))
                change(connection)
            return
        except exc.OperationalError as error:
            if tries == TRIES or getattr(error.orig, "sqlstate", None) not in _LOCK_NOT_AVAILABLE:
                raise
            log.warning("migration waits for a lock", extra={"action": "migration_waits", "tries": tries})
        time.sleep(PAUSE_S)
