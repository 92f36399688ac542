"""Goal: PostgreSQL may be killed at any moment; whatever the journal has promised is there afterwards (J8, L7).

Method: two journals under load on one PostgreSQL, which is killed twenty times (every other time by its own immediate
shutdown, else by SIGKILL to the postmaster and all backends) and started again. Then every promise is held against the
database.
"""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from rig import KillablePostgres, Load, scaled
from system import Process

KILLS = scaled(20)
SEED = 20


@pytest.mark.timeout(240)
def test_nothing_promised_is_lost_when_postgres_is_killed(
    own_postgres: KillablePostgres, start_journal: Callable[..., Process], tmp_path: Path
) -> None:
    chance = random.Random(SEED)
    database = own_postgres.create_database("kills")
    journals = [start_journal(name, database) for name in ("one", "two")]
    with Load(journals, tmp_path) as load:
        for kill in range(KILLS):
            load.await_progress(least_bytes=chance.randint(1_000, 30_000))
            if kill % 2:
                own_postgres.stop("immediate")
            else:
                own_postgres.kill()
            own_postgres.start()
        load.await_progress()
        told = load.check(database)
    assert told["counts"]["event"] > KILLS
    assert all(journal.is_alive() for journal in journals), "a lost database ends no journal"
