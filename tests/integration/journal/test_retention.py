"""Goal: a journal killed anywhere while it archives leaves every run whole, in the database or in a file.

Method: real journal processes on both databases, SIGKILLed at random moments of their first pass; then one that may
finish; all runs counted, all files checked, nothing left over.
"""

import asyncio
import gzip
import os
import random
from pathlib import Path

import sqlalchemy as sa
from journal_process import JournalProcess, Worker, event, history, refusal, succeeded

from lantern.api.journal.v1 import admin_service_pb2, admin_service_pb2_grpc, run_pb2
from lantern.api.journal.v1 import journal_service_pb2 as jp
from lantern_journal.adapters.engines import postgres_sync_engine, sqlite_engine, sqlite_path
from lantern_kernel import archive, reasons

RUNS = 40
KILLS = 5


def retaining(database: str, folder: Path, age: str = "1ms") -> JournalProcess:
    return JournalProcess(database, LANTERN_RETENTION=age, LANTERN_ARCHIVE_DIR=str(folder))


async def archive_now(journal: JournalProcess) -> admin_service_pb2.ArchiveRunsResponse:
    stub = admin_service_pb2_grpc.JournalAdminServiceStub(journal.channel())
    return await stub.ArchiveRuns(admin_service_pb2.ArchiveRunsRequest())


async def end_runs(journal: JournalProcess, count: int) -> dict[str, bytes]:
    """Runs that have ended, and the hash that each ends with."""
    worker = await Worker(journal, "w1").attach()
    heads: dict[str, bytes] = {}
    for number in range(count):
        run = await worker.create(f"r{number}")
        await worker.accepted(run.append(*(event(payload=os.urandom(2_000)) for _ in range(40)), succeeded()))
        heads[run.run_id] = (await history(journal, run.run_id))[-1].hash
    worker.drop()
    return heads


async def get(journal: JournalProcess, run_id: str) -> run_pb2.Run:
    return (await journal.runs().GetRun(jp.GetRunRequest(run_id=run_id))).run


def checked(folder: Path) -> list[archive.CheckedRun]:
    found: list[archive.CheckedRun] = []
    for path in folder.glob("*.jsonl.gz"):
        with gzip.open(path) as lines:
            found += archive.check_file(lines)
    return found


async def test_a_journal_killed_while_it_archives_loses_nothing(database: str, tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    first = JournalProcess(database)
    await first.start()
    heads = await end_runs(first, RUNS)
    await first.close()

    seed = random.randrange(1 << 32)
    moments = random.Random(seed)
    for _ in range(KILLS):
        journal = retaining(database, folder)
        await journal.start()
        await asyncio.sleep(moments.uniform(0, 0.15))
        await journal.kill()
        await journal.close()
        # Its turn is over after its term, which is not worth waiting for here.
        await end_turn(database)
    keeping = JournalProcess(database)
    await keeping.start()
    for run_id, head in heads.items():
        # Whole on one side.
        run = await get(keeping, run_id)
        if run.archived:
            assert run.archive.head_hash == head, f"seed {seed}"
        else:
            assert (await history(keeping, run_id))[-1].hash == head, f"seed {seed}"
    await keeping.close()

    last = retaining(database, folder)
    await last.start()
    # Its own first pass may be under way.
    while (await archive_now(last)).busy:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.05)
    runs = {run_id: await get(last, run_id) for run_id in heads}
    assert all(run.archived and run.archive.head_hash == heads[run_id] for run_id, run in runs.items()), f"seed {seed}"
    found = checked(folder)
    assert [run.fault for run in found] == [None] * RUNS, f"seed {seed}"
    assert {run.run_id: run.head_hash for run in found} == heads, f"seed {seed}"
    files = {path.name for path in folder.iterdir()}
    assert files == {run.archive.file for run in runs.values()}, f"seed {seed}"
    await last.close()


async def end_turn(database: str) -> None:
    path = sqlite_path(database)
    engine = sqlite_engine(path, begin="BEGIN IMMEDIATE") if path else postgres_sync_engine(database)

    def end() -> None:
        with engine.begin() as connection:
            connection.execute(sa.text("UPDATE archive_turns SET until_us = 0"))

    await asyncio.to_thread(end)


async def test_an_archived_run_is_answered_over_grpc(database: str, tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    journal = retaining(database, folder, age="1h")
    await journal.start()
    (run_id,) = await end_runs(journal, 1)
    assert (await archive_now(journal)).run_count == 0
    await journal.close()

    journal = retaining(database, folder, age="1ms")
    await journal.start()
    async with asyncio.timeout(10):
        while not (run := await get(journal, run_id)).archived:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.02)
    assert run.state == run_pb2.Run.STATE_SUCCEEDED
    assert (folder / run.archive.file).exists()
    error = await refusal(journal.runs().ListEvents(jp.ListEventsRequest(run_id=run_id)))
    assert (error.reason, error.details["file"]) == (reasons.RUN_ARCHIVED, run.archive.file)
    following = journal.runs().FollowEvents(jp.FollowEventsRequest(run_id=run_id))
    assert (await refusal(following.read())).reason == reasons.RUN_ARCHIVED
    await journal.close()


async def test_a_journal_that_keeps_runs_for_ever_says_so(journal: JournalProcess) -> None:
    assert (await refusal(archive_now(journal))).reason == reasons.ARCHIVE_OFF
