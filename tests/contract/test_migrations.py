"""Goal: the migrations lead to exactly the tables that the code uses, on both databases, and back.

Method: alembic's own comparison of a migrated database with the metadata.
"""

from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa
from alembic import command
from alembic.script import ScriptDirectory

from lantern.cli.local_postgres import LocalPostgres
from lantern_journal.adapters import migrate
from lantern_journal.adapters.engines import postgres_sync_engine, sqlite_engine
from lantern_journal.adapters.schema import REVISION
from lantern_kernel.errors import LanternError


@pytest.fixture(scope="module")
def own_url(postgres: LocalPostgres) -> str:
    """Of a database that no other test finds in the state in which these leave it."""
    return postgres.create_database("migrations")


@pytest.fixture(params=["sqlite", "postgres"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> sa.Engine:
    if request.param == "sqlite":
        return sqlite_engine(tmp_path / "journal.db", begin="BEGIN IMMEDIATE")
    return emptied(request.getfixturevalue("own_url"))


def emptied(url: str) -> sa.Engine:
    made = postgres_sync_engine(url)
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
        for phase in ("post", "pre"):
            command.downgrade(migrate.config_of(connection), f"{phase}@base")
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


def _write(engine: sa.Engine, statement: str) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql(statement)


def test_a_database_that_was_only_added_to_is_used_as_it_is(engine: sa.Engine) -> None:
    migrate.migrate(engine)
    _write(engine, "UPDATE alembic_version SET version_num = '9998' WHERE version_num <> '0003'")
    migrate.check(engine)
    migrate.migrate(engine)
    with engine.connect() as connection:
        standing = migrate.standing_of(connection)
    assert standing.is_newer
    assert standing.is_expanded
    with pytest.raises(LanternError, match="newer than this release"):
        migrate.contract(engine)


def test_a_database_that_was_contracted_for_newer_code_is_refused(engine: sa.Engine) -> None:
    migrate.migrate(engine)
    _write(engine, f"DELETE FROM journal_marks WHERE name = '{migrate.FLOOR_MARK}'")
    _write(engine, f"INSERT INTO journal_marks (name, value) VALUES ('{migrate.FLOOR_MARK}', {REVISION + 1})")
    for use in (migrate.check, migrate.migrate, migrate.contract):
        with pytest.raises(LanternError, match="no place any more for this release"):
            use(engine)


def test_the_code_knows_its_newest_revision_and_each_says_its_phase() -> None:
    scripts = ScriptDirectory.from_config(migrate.config_of())
    revisions = list(scripts.walk_revisions())
    assert max(int(script.revision) for script in revisions) == REVISION
    assert len({script.revision for script in revisions}) == len(revisions) == REVISION
    for script in revisions:
        assert Path(script.path).name.startswith(f"m{script.revision}_{next(iter(script.branch_labels))}_")


def test_contracting_waits_for_older_journals_to_end(own_url: str) -> None:
    engine = emptied(own_url)
    migrate.migrate(engine)
    older = psycopg.connect(own_url, application_name="lantern-journal/0", autocommit=True)
    with pytest.raises(LanternError, match="lantern-journal/0"):
        migrate.contract(engine)
    # The server forgets a connection a moment after it was closed; a name is forgotten at once.
    older.execute("SET application_name = 'psql'")
    migrate.contract(engine)
    older.close()


def test_a_lock_that_is_held_only_delays_a_migration(own_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrate, "LOCK_TIMEOUT_MS", 50)
    engine = emptied(own_url)
    with engine.begin() as holder:
        holder.exec_driver_sql(f"SELECT pg_advisory_xact_lock({migrate.MIGRATION_LOCK})")

        def let_go(_pause_s: float) -> None:
            holder.rollback()

        monkeypatch.setattr(migrate.time, "sleep", let_go)
        migrate.migrate(engine)
