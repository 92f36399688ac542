"""Bringing a database to the schema of this release (alembic, configured here, no ini file)."""

from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from lantern_journal.adapters.schema import metadata
from lantern_journal.domain.partitions import is_partition
from lantern_kernel import reasons
from lantern_kernel.errors import LanternError

MIGRATION_LOCK = 7_000
"""pg_advisory_xact_lock of whoever migrates: several journals may start at once."""

LOCK_TIMEOUT_MS = 10_000
STATEMENT_TIMEOUT_MS = 300_000


def config_of(connection: sa.Connection | None = None) -> Config:
    """The alembic configuration, for that connection."""
    config = Config()
    folder = Path(__file__).parent.parent / "migrations"
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def migrate(engine: sa.Engine) -> None:
    """Brings the database to the newest revision, in one transaction; harmless where it is there already."""
    with engine.begin() as connection:
        if connection.dialect.name == "postgresql":
            # One that waits for a lock would make everybody else wait behind it.
            connection.execute(sa.text(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}"))
            connection.execute(sa.text(f"SET LOCAL statement_timeout = {STATEMENT_TIMEOUT_MS}"))
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(MIGRATION_LOCK)))
        command.upgrade(config_of(connection), "head")


def check(engine: sa.Engine) -> None:
    """Raises LanternError where the database is not at the newest revision."""
    newest = ScriptDirectory.from_config(config_of()).get_current_head()
    with engine.connect() as connection:
        found = MigrationContext.configure(connection).get_current_revision()
    if found != newest:
        raise LanternError(
            reasons.UNAVAILABLE,
            f"the database is at revision {found}, this release needs {newest}; start once with LANTERN_MIGRATE=1",
        )


def differences(connection: sa.Connection) -> list[object]:
    """What a database's tables differ in from those that the code uses; partitions are as their table is."""

    def include_name(name: str | None, kind: str, _parents: object) -> bool:
        return kind != "table" or name is None or not is_partition(name)

    options = {"compare_type": True, "compare_server_default": True, "include_name": include_name}
    return list(compare_metadata(MigrationContext.configure(connection, opts=options), metadata))
