"""Goal: SQLite, PostgreSQL and the oracle give one answer to every call, and hold one content after it.

Method: a hypothesis state machine drives all three with the same operations, on a time that is set by hand; all answers
and all tables are compared after each. `LANTERN_TEST_SEED` chooses the operations, `LANTERN_TEST_OPERATIONS` how many;
`LANTERN_TEST_SHRINK=1` finds the shortest history of a disagreement.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test
from store_list import database_of_a_language
from store_machine import Machine
from store_trio import Trio

from lantern.cli.local_postgres import LocalPostgres
from lantern_journal.adapters.engines import postgres_sync_engine
from lantern_journal.adapters.migrate import migrate

SEED = int(os.environ.get("LANTERN_TEST_SEED") or "1")
OPERATIONS = int(os.environ.get("LANTERN_TEST_OPERATIONS") or "5000")

MUST_SUCCEED = (
    "acquire_lease",
    "claim_side_effect",
    "close_session",
    "find_orphans",
    "insert_group",
    "open_run",
    "publish_agent",
    "release_lease",
    "send",
    "settle_side_effect",
    "start_runs",
)


@pytest.fixture
def trio(postgres: LocalPostgres) -> Iterator[Trio]:
    """Three empty stores. PostgreSQL sorts by a language, as it does where nobody chose otherwise."""
    url = database_of_a_language(postgres, "machine")
    with postgres_sync_engine(postgres.url).execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        connection.exec_driver_sql("ALTER DATABASE machine SET synchronous_commit = off")
    migrate(postgres_sync_engine(url))
    # No power is cut here: a file in memory spares a wait for the disk at every commit.
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        opened = Trio(Path(folder), url)
        yield opened
        opened.close()


@pytest.mark.timeout(600)
def test_all_stores_agree(trio: Trio, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = settings(
        max_examples=10,
        stateful_step_count=60,
        deadline=None,
        database=None,
        suppress_health_check=[
            HealthCheck.too_slow,
            HealthCheck.data_too_large,
            HealthCheck.large_base_example,
            HealthCheck.filter_too_much,
        ],
        print_blob=False,
        # The shortest history of a disagreement takes minutes to find.
        phases=(Phase.generate, Phase.shrink) if os.environ.get("LANTERN_TEST_SHRINK") else (Phase.generate,),
    )
    machine = type("Machine", (Machine,), {"trio": trio})
    with capsys.disabled():
        print(f" LANTERN_TEST_SEED={SEED}", end=" ", flush=True)
    rounds = 0
    while trio.asked < OPERATIONS:
        run_state_machine_as_test(seed(SEED + 1_000_000 * rounds)(machine), settings=chosen)
        rounds += 1
    with capsys.disabled():
        print(f"{trio.asked} operations", end=" ")
    wanted = MUST_SUCCEED if OPERATIONS >= 5_000 else ()
    silent = [method for method in wanted if not trio.heard[f"{method} some"]]
    assert not silent, f"only refusals of {silent}: the machine shows nothing of them"
