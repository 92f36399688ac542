"""Goal: the migrations lead to exactly the tables that the code uses, on both databases, and back.

Method: alembic's own comparison of a migrated database with the metadata.
"""

from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from lantern_journal.adapters import migrate
from lantern_journal.adapters.engines import postgres_sync_engine, sqlite_engine
from lantern_journal.adapters.schema import metadata
from lantern_kernel.errors import LanternError


@pytest.fixture(params=["sqlite", "postgres"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> sa.Engine:
    if request.param == "sqlite":
        return sqlite_engine(tmp_path / "journal.db", begin="BEGIN IMMEDIATE")
    made = postgres_sync_engine(request.getfixturevalue("postgres_url"))
    with made.begin() as connection:
        connection.execute(sa.text("DROP SCHEMA public CASCADE"))
        connection.execute(sa.text("CREATE SCHEMA public"))
    return made


def test_migrations_lead_to_the_metadata(engine: sa.Engine) -> None:
    with pytest.raises(LanternError, match="LANTERN_MIGRATE"):
        migrate.check(engine)
    migrate.migrate(engine)
    migrate.migrate(engine)
    migrate.check(engine)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, metadata) == []


def test_migrations_lead_back(engine: sa.Engine) -> None:
    migrate.migrate(engine)
    with engine.begin() as connection:
        command.downgrade(migrate.config_of(connection), "base")
    assert set(sa.inspect(engine).get_table_names()) <= {"alembic_version"}


def test_payloads_are_not_compressed(engine: sa.Engine) -> None:
    migrate.migrate(engine)
    if engine.dialect.name != "postgresql":
        return
    query = "SELECT attstorage FROM pg_attribute WHERE attrelid = 'journal_events'::regclass AND attname = 'payload'"
    with engine.connect() as connection:
        assert connection.execute(sa.text(query)).scalar() in ("e", b"e")
