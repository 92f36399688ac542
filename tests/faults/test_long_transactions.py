"""Goal: a transaction that stays open beside the journal costs no throughput to speak of (B38).

Method: load on PostgreSQL, while a transaction of somebody else keeps every dead row from being cleaned away, as a
backup or a forgotten console does. What is promised in a second must not fall off against the time before.
"""

import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from rig import Load, MakeDatabase, scaled
from system import Process

WINDOW_S = 3.0
HELD_WINDOWS = scaled(3, at_least=2)
SHARE_MIN = 0.4
"""Of the throughput before; the rest is what a busy machine may take away meanwhile."""


def promised_in_a_window(load: Load) -> int:
    before = load.promised()
    time.sleep(WINDOW_S)
    return load.promised() - before


@pytest.mark.timeout(120)
def test_an_open_transaction_does_not_slow_the_journal_down(
    make_database: MakeDatabase, start_journal: Callable[..., Process], tmp_path: Path
) -> None:
    database = make_database("postgres")
    journals = [start_journal(name, database) for name in ("one", "two")]
    with Load(journals, tmp_path) as load:
        load.await_progress()
        usual = promised_in_a_window(load)
        with psycopg.connect(database) as reader:
            reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            reader.execute(b"SELECT count(*) FROM runs")
            held = [promised_in_a_window(load) for _ in range(HELD_WINDOWS)]
            row = reader.execute(b"SELECT backend_xmin FROM pg_stat_activity WHERE pid = pg_backend_pid()").fetchone()
            assert row is not None
            assert row[0] is not None, "nothing was held back"
        load.check(database)
    assert held[-1] > SHARE_MIN * usual, f"{usual} bytes a window before, then {held}"
    print(f"{usual} bytes of promises a window before, {held} while the transaction was open")
