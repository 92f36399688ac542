"""Goal: several journals share one PostgreSQL, one has an SQLite file to itself, and a database may restart under them.

Method: real processes; faults are injected for real (kill, restart of the database).
"""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from journal_process import Driven, JournalProcess, Watch, Worker, event, history, orphans, succeeded

from lantern.api.journal.v1 import journal_service_pb2 as jp
from lantern.cli.local_postgres import LocalPostgres
from lantern_kernel import reasons


async def test_two_journals_on_one_database(postgres_database: str) -> None:
    one, two = JournalProcess(postgres_database), JournalProcess(postgres_database)
    await asyncio.gather(one.start(), two.start())
    try:
        here, there = await Worker(one, "here").attach(), await Worker(two, "there").attach()
        run = await here.create("r1")
        await here.accepted(run.append(event()))
        seen: list[int] = []

        async def follow() -> None:
            async for message in two.runs().FollowEvents(jp.FollowEventsRequest(run_id=run.run_id)):
                seen.extend(e.seq for e in message.events)

        following = asyncio.create_task(follow())
        for _ in range(20):
            await here.accepted(run.append(event()))
        # The stream breaks at the one; the other grants the lease on.
        watches = [await Watch(journal).begun() for journal in (one, two)]
        here.drop()
        for watch in watches:
            await watch.hears("lease_expired", 3)
        assert await orphans(two) == [run.run_id]
        taken = await there.take(run.run_id)
        assert taken is not None
        # A stale writer is fenced at the journal that does not know of the grant.
        await here.attach()
        assert (await here.refused(run.append(event()))).reason == reasons.LEASE_LOST
        assert await there.accepted(taken.append(succeeded())) == 25
        await asyncio.wait_for(following, 5)
        assert seen == list(range(1, 26))
        await history(one, run.run_id)
        # A signal that comes in at the one reaches a driver that is attached to the other.
        driven = await there.create("r2")
        await there.accepted(driven.append(event()))
        request = jp.SendToRunRequest(request_id="s", run_id=driven.run_id, kind="signal", name="paid")
        await one.runs().SendToRun(request)
        await there.until(lambda: driven.run_id in there.inbox, 5)
    finally:
        await asyncio.gather(one.close(), two.close())


async def test_a_killed_journals_workers_go_on_at_the_other(postgres_database: str) -> None:
    one, two = JournalProcess(postgres_database), JournalProcess(postgres_database)
    await asyncio.gather(one.start(), two.start())
    try:
        worker = await Worker(one, "w1").attach()
        run = await worker.create("r1")
        await worker.accepted(run.append(event()))
        await one.kill()
        await worker.attach(two)
        assert await worker.accepted(run.append(succeeded())) == 4
        await history(two, run.run_id)
    finally:
        await asyncio.gather(one.close(), two.close())


async def test_an_sqlite_file_serves_one_process(tmp_path: Path) -> None:
    database = f"sqlite:{tmp_path / 'journal.db'}"
    journal = await JournalProcess(database).start()
    try:
        second = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "lantern_journal"],
            env={**os.environ, "LANTERN_DATABASE": database},
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        assert second.returncode == 1
        assert "another journal uses" in second.stderr
        assert "Traceback" not in second.stderr
    finally:
        await journal.close()


async def test_a_wrong_setting_is_a_clear_error(tmp_path: Path) -> None:
    no_database = tmp_path / "text.db"
    no_database.write_text("this is no database, only a text that is long enough to be taken for the head of one. " * 4)
    for setting, value, word in (
        ("LANTERN_DATABASE", f"sqlite:{no_database}", "not a database"),
        ("LANTERN_DATABASE", f"sqlite:{no_database}/below/a-file.db", "cannot be used"),
        ("LANTERN_DATABASE", f"sqlite:{tmp_path}", "cannot be used"),
        ("LANTERN_DATABASE", "mysql://x", "LANTERN_DATABASE"),
        ("LANTERN_DATABASE", "", "is not set"),
        ("LANTERN_DATABASE", "postgresql://nobody@127.0.0.1:1/x", "cannot be used"),
        ("LANTERN_LEASE_TTL", "ten", "LANTERN_LEASE_TTL"),
    ):
        environment = {**os.environ, "LANTERN_DATABASE": f"sqlite:{tmp_path / 'j.db'}", setting: value}
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "lantern_journal"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        assert done.returncode == 1
        assert word in done.stderr
        assert "Traceback" not in done.stderr


async def test_the_database_restarts_in_the_middle(tmp_path: Path) -> None:
    with LocalPostgres() as server:
        journal = await JournalProcess(server.url).start()
        try:
            worker = await Worker(journal, "w1").attach()
            runs = [await worker.create(f"r{i}") for i in range(3)]
            going = True
            acknowledged = {run.run_id: 2 for run in runs}

            async def drive(run: Driven) -> None:
                while going:
                    append = run.append(event())
                    while True:
                        (result,) = await worker.send(append)
                        if not result.HasField("error"):
                            break
                    assert result.last_seq == run.seq
                    acknowledged[run.run_id] = run.seq

            driving = [asyncio.create_task(drive(run)) for run in runs]
            await asyncio.sleep(0.3)
            await asyncio.to_thread(server.stop, "immediate")
            before = dict(acknowledged)
            await asyncio.sleep(0.3)
            await asyncio.to_thread(server.start)
            async with asyncio.timeout(15):
                while not all(acknowledged[run_id] > seq + 3 for run_id, seq in before.items()):  # noqa: ASYNC110 - counted elsewhere
                    await asyncio.sleep(0.02)
            going = False
            await asyncio.gather(*driving)
            for run in runs:
                assert len(await history(journal, run.run_id)) == run.seq
            assert await orphans(journal) == []
        finally:
            await journal.close()
