"""Goal: however many processes ask for an expired lease at once, one gets it (L1, L7).

Method: a thousand runs are created with leases that nobody opens, and once these have expired twenty processes, each
with a session of its own, ask for every one of them at the same moment: on SQLite through its journal, on PostgreSQL
through two. Each must have exactly one winner, whose epoch is one higher, and exactly one event that grants it.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import ledger
import pytest
from load import Driver, Promises
from rig import DATABASES, HERE, MakeDatabase, scaled
from system import Process

from lantern_executor.domain.run import StartRequest
from lantern_kernel import kinds

RACES = scaled(1000)
RACERS = 20
AT_ONCE = 25
"""Runs that every process asks for in one go."""

GRANT_TTL_S = 5.0
JOURNALS = {"sqlite": ("one",), "postgres": ("one", "two")}


async def create_runs(address: str, folder: Path) -> list[str]:
    """Runs with leases that nobody opens."""
    driver = Driver(address, "idle", Promises(folder / "promises"))
    driver.session.start("127.0.0.1:1")
    await driver.session.wait_attached()

    async def create(number: int) -> str:
        request = StartRequest(
            request_id=f"race{number}",
            tenant_id="default",
            agent_name="load",
            input=b"1",
            workflow_id="",
            workflow_id_policy=0,
            traceparent="",
        )
        created = await driver.journal.create_run(request, with_lease=True)
        assert created.epoch == 1
        return created.run.run_id

    try:
        return list(await asyncio.gather(*map(create, range(RACES))))
    finally:
        await driver.close()


@contextmanager
def racers(journals: list[Process]) -> Generator[list["subprocess.Popen[str]"]]:
    """The processes, ready."""
    with ExitStack() as ended:
        started: list[subprocess.Popen[str]] = []
        for number in range(RACERS):
            address = journals[number % len(journals)].address
            process = subprocess.Popen(
                [sys.executable, str(HERE / "racer.py"), address, f"racer{number}"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=HERE,
            )
            started.append(process)
            ended.callback(process.wait)
            ended.callback(process.kill)
        for process in started:
            assert process.stdout is not None
            assert "ready" in json.loads(process.stdout.readline())
        yield started


@pytest.mark.timeout(180)
@pytest.mark.parametrize("kind", DATABASES)
def test_an_expired_lease_has_one_winner(
    kind: str, make_database: MakeDatabase, start_journal: Callable[..., Process], tmp_path: Path
) -> None:
    database = make_database(kind)
    settings = {"LANTERN_GRANT_TTL": f"{GRANT_TTL_S:.0f}s"}
    journals = [start_journal(name, database, settings=settings) for name in JOURNALS[kind]]
    runs = asyncio.run(create_runs(journals[0].address, tmp_path))
    created_s = time.monotonic()
    wins: Counter[str] = Counter()
    by_racer: list[int] = []
    with racers(journals) as processes:
        time.sleep(max(0.0, created_s + GRANT_TTL_S + 0.1 - time.monotonic()))
        began_s = time.monotonic()
        for start in range(0, len(runs), AT_ONCE):
            line = " ".join(runs[start : start + AT_ONCE]) + "\n"
            for process in processes:
                assert process.stdin is not None
                process.stdin.write(line)
                process.stdin.flush()
            for process in processes:
                assert process.stdout is not None
                granted: dict[str, int] = json.loads(process.stdout.readline())
                assert set(granted.values()) <= {2}, "the epoch is one higher"
                wins.update(granted.keys())
                by_racer.append(len(granted))
        took_s = time.monotonic() - began_s
    assert wins == Counter(runs), "exactly one winner each"
    stored = ledger.read(database)
    for run_id in runs:
        grants = [event.epoch for event in stored.events[run_id] if event.kind == kinds.LEASE_GRANTED]
        assert grants == [1, 2], "exactly one lease_granted for each grant"
        assert stored.runs[run_id].epoch == 2
    winners = sum(1 for racer in range(RACERS) if sum(by_racer[racer::RACERS]))
    assert winners > 1, "one process has won all: that was no race"
    print(f"{len(runs)} races of {RACERS} processes in {took_s:.1f} s, won by {winners} of them")
