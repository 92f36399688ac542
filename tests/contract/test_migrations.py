"""Goal: the migrations lead to exactly the tables that the code uses, on both databases, and back.

Method: alembic's own comparison of a migrated database with the metadata.
"""

from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command

from lantern_journal.adapters import migrate
from lantern_journal.adapters.engines import postgres_sync_engine, sqlite_engine
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
        assert migrate.differences(connection) == []


def test_migrations_lead_back(engine: sa.Engine) -> None:
    migrate.migrate(engine)
    with engine.begin() as connection:
        command.downgrade(migrate.config_of(connection), "base")
    assert set(sa.inspect(engine).get_table_names()) <= {"alembic_version"}


def test_run_ids_are_ordered_by_bytes_and_payloads_kept_fast(engine: sa.Engine) -> None:
    migrate.migrate(engine)
    if engine.dialect.name != "postgresql":
        return
    with engine.connect() as connection:
        collations = connection.exec_driver_sql(
            "SELECT DISTINCT collation_name FROM information_schema.columns"
            " WHERE column_name = 'run_id' AND table_schema = 'public'"
        ).scalars()
        assert list(collations) == ["C"]
        has_lz4 = connection.exec_driver_sql(
            "SELECT 'lz4' = ANY (enumvals) FROM pg_settings WHERE name = 'default_toast_compression'"
        ).scalar()
        stored = connection.exec_driver_sql(
            "SELECT DISTINCT attstorage::text, attcompression::text FROM pg_attribute"
            " WHERE attrelid IN ('journal_events'::regclass, 'journal_events_default'::regclass)"
            " AND attname = 'payload'"
        ).all()
        assert [tuple(row) for row in stored] == [("x", "l") if has_lz4 else ("e", "")]
