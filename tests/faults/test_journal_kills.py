"""Goal: a journal may be killed at any moment and started again on its address; what it has promised is there (J8).

Method: load on a journal over SQLite, and on two over PostgreSQL; one is killed with SIGKILL after a random while and
started again at once, twenty-five times on each database. Then every promise is held against the database.
"""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from rig import DATABASES, Load, MakeDatabase, scaled
from system import Process

KILLS = scaled(25)
SEED = 50
JOURNALS = {"sqlite": ("one",), "postgres": ("one", "two")}


@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", DATABASES)
def test_nothing_promised_is_lost_when_a_journal_is_killed(
    kind: str, make_database: MakeDatabase, start_journal: Callable[..., Process], tmp_path: Path
) -> None:
    chance = random.Random(SEED)
    database = make_database(kind)
    journals = [start_journal(name, database) for name in JOURNALS[kind]]
    with Load(journals, tmp_path) as load:
        for kill in range(KILLS):
            load.await_progress(least_bytes=chance.randint(500, 15_000))
            victim = journals[kill % len(journals)]
            victim.kill()
            victim.start()
        load.await_progress()
        told = load.check(database)
    assert told["counts"]["event"] > KILLS
