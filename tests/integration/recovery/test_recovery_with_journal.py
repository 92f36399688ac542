"""Recovery and the real journal: runs reach a driver after every loss, and never two.

Method: both services as processes, the journal on SQLite; workers of the test hold real sessions and are lost by
closing their streams. The sweep's interval is ten minutes, so that only announcements and what recovery plans
itself count.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from journal_worker import journal_worker
from service_process import service_process

import lantern
from lantern_kernel import reasons
from lantern_kernel.errors import LanternError

WAIT_S = 15.0


async def until(condition: Any, what: str) -> None:
    try:
        async with asyncio.timeout(WAIT_S):
            while not condition():  # noqa: ASYNC110 - what changes is in another process
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(what) from None


@asynccontextmanager
async def journal_and_recoveries(folder: Path, recoveries: int = 1) -> AsyncGenerator[str]:
    """The journal's address."""
    async with AsyncExitStack() as stack:
        journal = await stack.enter_async_context(
            service_process("lantern_journal", folder, LANTERN_DATABASE=f"sqlite:{folder / 'journal.db'}")
        )
        settings = {"LANTERN_JOURNAL": journal.address, "LANTERN_RECOVERY_INTERVAL": "10m"}
        for _ in range(recoveries):
            await stack.enter_async_context(service_process("lantern_recovery", folder, **settings))
        yield journal.address


async def test_a_queued_run_is_driven_at_once(tmp_path: Path):
    async with (
        journal_and_recoveries(tmp_path) as journal,
        journal_worker(journal, "w1") as worker,
        lantern.Client(journal) as client,
    ):
        run = await client.start("order")
        await until(lambda: worker.driven == [(run.run_id, 1)], "the run is driven")
        assert (await client.get(run.run_id)).state == "RUNNING"


async def test_a_lost_worker_costs_its_runs_one_resume_each(tmp_path: Path):
    async with (
        journal_and_recoveries(tmp_path) as journal,
        lantern.Client(journal) as client,
        AsyncExitStack() as stack,
    ):
        async with journal_worker(journal, "w1") as first:
            runs = [(await client.start("order")).run_id for _ in range(30)]
            await until(lambda: len(first.driven) == 30, "all runs are driven")
            second = await stack.enter_async_context(journal_worker(journal, "w2"))
        await until(lambda: len(second.driven) == 30, "the other worker takes them all")
        assert sorted(second.driven) == sorted((run_id, 2) for run_id in runs)
        events = await client.events(runs[0])
        assert [event.kind for event in events] == ["run_started", "lease_granted", "lease_granted"]
        assert b'"reason":"crash"' in events[2].payload


async def test_a_run_that_nobody_can_drive_waits_for_capacity_and_is_woken(tmp_path: Path):
    async with journal_and_recoveries(tmp_path) as journal, lantern.Client(journal) as client:
        async with journal_worker(journal, "w1"):
            pass
        await asyncio.sleep(1.0)
        run_id = (await client.start("order")).run_id

        async def is_parked() -> bool:
            found = await client.get(run_id)
            return (found.state, found.waiting_on) == ("WAITING", "capacity")

        async with asyncio.timeout(WAIT_S):
            while not await is_parked():  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.02)
        error = (await client.get(run_id)).error
        assert error is not None
        assert error.code == reasons.NO_CAPACITY
        assert "order@1" in error.message
        async with journal_worker(journal, "w2") as worker:
            await until(lambda: [run for run, _ in worker.driven] == [run_id], "the new worker takes it")


async def test_an_executor_that_refuses_strands_nothing(tmp_path: Path):
    async with (
        journal_and_recoveries(tmp_path) as journal,
        journal_worker(journal, "w1") as refusing,
        lantern.Client(journal) as client,
    ):
        refusing.error = LanternError(reasons.EXECUTOR_BUSY, "full", retry_after_s=1.0)
        run = await client.start("order")
        await asyncio.sleep(0.5)
        async with journal_worker(journal, "w2") as willing:
            await until(lambda: [run_id for run_id, _ in willing.driven] == [run.run_id], "another one takes it")
        assert refusing.driven == []


async def test_a_drive_that_is_never_opened_is_granted_again(tmp_path: Path):
    async with (
        journal_and_recoveries(tmp_path) as journal,
        journal_worker(journal, "w1") as worker,
        lantern.Client(journal) as client,
    ):
        worker.opens = False
        run = await client.start("order")
        await until(lambda: len(worker.driven) == 2, "it is granted again after the grant has expired")
        assert worker.driven == [(run.run_id, 1), (run.run_id, 2)]


async def test_many_recoveries_never_make_two_drivers(tmp_path: Path):
    async with (
        journal_and_recoveries(tmp_path, recoveries=4) as journal,
        journal_worker(journal, "w1") as first,
        journal_worker(journal, "w2") as second,
        lantern.Client(journal) as client,
    ):
        runs = await asyncio.gather(*(client.start("order") for _ in range(100)))
        await until(lambda: len(first.driven) + len(second.driven) >= 100, "all runs are driven")
        await asyncio.sleep(1.0)
        drives = Counter(first.driven + second.driven)
        assert sorted(drives) == sorted((run.run_id, 1) for run in runs)
        assert set(drives.values()) == {1}
        assert first.driven
        assert second.driven
