"""Goal: a database that restarts in the middle of a recovery strands no run (B34, L7).

Method: two hundred and fifty runs are in flight on one worker, which is killed. As soon as the first of them are
granted to another worker, PostgreSQL is stopped as by a crash and started again, twice. Every run must come to its end
on the other worker, once, and nobody may be left without a driver.
"""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ledger
import psycopg
import pytest
from rig import KillablePostgres, scaled
from worker_rig import WorkerRig

from lantern.api.journal.v1 import recovery_service_pb2 as recovery_pb
from lantern_kernel import kinds

ORPHANS = scaled(250)
RESTARTS = 2
AWAY_S = 0.3
WAIT_S = 90.0


@pytest.mark.timeout(240)
def test_a_restart_in_the_middle_of_a_recovery_strands_nobody(own_postgres: KillablePostgres, tmp_path: Path) -> None:
    database = own_postgres.create_database("orphans")
    with WorkerRig(tmp_path / "rig", database) as rig:
        doomed, other = rig.worker("orphan1"), rig.worker("orphan2")
        doomed.await_ready()
        with ThreadPoolExecutor(8) as starting:
            asked = [starting.submit(rig.start_at, doomed, s=600.0, how="wait") for _ in range(ORPHANS)]
            runs = {start.result() for start in asked}
        other.await_ready()
        rig.wait(lambda: rig.ledger.read_text().count('"step_id": "long"') == ORPHANS, "all runs to be in their step")
        doomed.kill()
        for restart in range(RESTARTS):
            await_count(lambda restart=restart: taken_up(database) >= (restart + 1) * ORPHANS // 8, "the next grants")
            own_postgres.stop("immediate")
            time.sleep(AWAY_S)
            own_postgres.start()
        assert taken_up(database) < ORPHANS, "the recovery was over before the database was hurt"
        await_count(lambda: ended(database) == ORPHANS, f"all runs to end\n{rig.tails()}")
        orphans = rig.client().recovery.FindOrphans(recovery_pb.FindOrphansRequest(page_size=1000))
        assert not orphans.orphans
    stored = ledger.read(database)
    assert set(stored.runs) == runs
    assert [fault for run_id in runs for fault in ledger.run_faults(run_id, stored, all_ended=True)] == []
    for run_id in runs:
        completed = [event.step_id for event in stored.events[run_id] if event.kind == kinds.STEP_COMPLETED]
        assert len(completed) == len(set(completed)) == 3, f"{run_id}: {completed}"


def taken_up(database: str) -> int:
    """How many runs were granted a second time."""
    return count(database, b"SELECT count(*) FROM runs WHERE epoch > 1")


def ended(database: str) -> int:
    """How many runs have succeeded."""
    return count(database, b"SELECT count(*) FROM runs WHERE state = 'SUCCEEDED'")


def count(database: str, query: bytes) -> int:
    with psycopg.connect(database, autocommit=True) as connection:
        row = connection.execute(query).fetchone()
        assert row is not None
        return int(row[0])


def await_count(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.02)
