"""Goal: a release goes in, and may be taken back, while runs are driven; nothing acknowledged is lost on the way.

Method: the journal as it was when revision 0001 was frozen, as a process of its own code (journal_0001.zip), beside the
journal of this tree on one database; loads at both; every acknowledged event is looked up afterwards. On SQLite, which
serves one process, they take turns.
"""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa
from integration.journal.journal_process import JournalProcess
from migration_load import Load, check, take_over

from lantern_journal.adapters import migrate
from lantern_journal.adapters.engines import postgres_sync_engine, sqlite_engine, sqlite_path
from lantern_journal.adapters.schema import REVISION

Journals = Callable[..., JournalProcess]

NEWEST = f"{REVISION:04}"
"""Of the pre revisions."""


def engine_of(database: str) -> sa.Engine:
    path = sqlite_path(database)
    return sqlite_engine(path, begin="BEGIN") if path else postgres_sync_engine(database)


def found(database: str) -> tuple[str, ...]:
    with engine_of(database).connect() as connection:
        return migrate.standing_of(connection).found


async def command(database: str, phase: str, old_code: Path | None = None) -> tuple[int, str]:
    """`lantern-journal migrate`; its exit code and what it says."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "lantern_journal", "migrate", "--phase", phase),
        env={"LANTERN_DATABASE": database, **({"PYTHONPATH": str(old_code)} if old_code else {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    said, _ = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode or 0, said.decode()


async def refusal(journal: JournalProcess) -> bool:
    """Whether a journal refuses to start."""
    try:
        await journal.start()
    except (AssertionError, ValueError):
        return True
    return False


async def test_a_release_goes_in_beside_the_one_before(
    postgres_database: str, journals: Journals, old_code: Path
) -> None:
    database = postgres_database
    old = await journals(database, old=True).start()
    at_old = await Load(old, "at-old").begin()
    assert found(database) == ("0001",)

    new = await journals(database).start()
    assert found(database) == (NEWEST,)
    at_new = await Load(new, "at-new").begin()
    await asyncio.gather(at_old.more(20), at_new.more(20))
    # Each finds what the other has written.
    assert await check(old, at_new) > 20
    assert await check(new, at_old) > 20
    code, said = await command(database, "post")
    assert code == 1
    assert "lantern-journal/1" in said

    await at_old.stop()
    # The old worker's stream has closed: its runs are driven on by one at the new journal.
    await take_over(new, at_old, "heir")
    assert await old.terminate() == 0
    code, said = await command(database, "post")
    assert (code, found(database)) == (0, ("0003", NEWEST)), said
    await at_new.more(10)
    await at_new.stop()
    assert await check(new, at_old, at_new) > 50
    assert await refusal(journals(database, old=True))
    with engine_of(database).connect() as connection:
        assert migrate.differences(connection) == []


async def test_a_release_is_taken_back_and_put_in_again(database: str, journals: Journals) -> None:
    old = await journals(database, old=True).start()
    first = await Load(old, "first").begin()
    await first.more(10)
    await old.kill()

    new = await journals(database).start()
    assert found(database) == (NEWEST,)
    assert await check(new, first) >= 10
    second = await Load(new, "second").begin()
    await second.more(10)
    await take_over(new, first, "heir")
    await new.kill()

    # Back: the old code on the schema that was added to.
    old = await journals(database, old=True).start()
    assert await check(old, first, second) >= 20
    third = await Load(old, "third").begin()
    await third.more(10)
    await take_over(old, second, "second-heir")
    await third.stop()
    await old.terminate()

    code, said = await command(database, "post")
    assert (code, found(database)) == (0, ("0003", NEWEST)), said
    assert await refusal(journals(database, old=True))
    new = await journals(database).start()
    assert await check(new, first, second, third) >= 30
    await take_over(new, third, "third-heir")


async def test_what_is_pending_is_named(database: str, journals: Journals) -> None:
    old = await journals(database, old=True).start()
    await old.terminate()
    assert await refusal(journals(database, LANTERN_MIGRATE="0"))
    code, said = await command(database, "pre")
    assert (code, said.strip()) == (0, f"the database is at revision {NEWEST}; post revisions are pending")
    assert not await refusal(journals(database, LANTERN_MIGRATE="0"))


async def test_a_populated_database_is_added_to_at_once(
    postgres_database: str, old_code: Path, journals: Journals
) -> None:
    database = postgres_database
    old = await journals(database, old=True).start()
    load = await Load(old, "load").begin()
    await load.more(3)
    await load.stop()
    engine = engine_of(database)
    columns = ", ".join(
        column["name"]
        for column in sa.inspect(engine).get_columns("runs")
        if column["name"] not in ("run_id", "request_id")
    )
    with engine.begin() as connection:
        connection.exec_driver_sql(
            f"INSERT INTO runs (run_id, request_id, {columns}) SELECT gen_random_uuid()::text, 'copy' || n, {columns}"
            " FROM runs, generate_series(1, 50000) n WHERE run_id = (SELECT min(run_id) FROM runs)"
        )
    again = await Load(old, "again").begin()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrate, "STATEMENT_TIMEOUT_MS", 20_000)
        await asyncio.to_thread(migrate.migrate, engine)
    await again.more(10)
    await again.stop()
    assert found(database) == (NEWEST,)
    assert await check(old, load, again) > 10
