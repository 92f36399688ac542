"""Goal: everything works through PgBouncer in transaction mode, and nothing relies on a session of the database.

Method: the real program before a private PostgreSQL, two journal processes on it; start, drive, crash, recover, hand
over between the journals; and a look through the code for whatever would need a session.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from journal_process import Driven, JournalProcess, Watch, Worker, event, history, orphans, parked, succeeded
from pgbouncer import PgBouncer

from lantern.api.journal.v1 import journal_service_pb2 as jp
from lantern.cli.local_postgres import LocalPostgres
from lantern_journal.adapters import engines, migrate
from lantern_journal.adapters.postgres import PostgresStore
from lantern_journal.domain.leases import Limits

SERVICE = Path(engines.__file__).resolve().parents[1]

LIMITS = Limits(grant_us=10_000_000, lease_us=15_000_000, silence_us=9_000_000)


@pytest.fixture
def pooler(postgres_database: str) -> Iterator[PgBouncer]:
    with PgBouncer(postgres_database) as running:
        yield running


@pytest.fixture
async def journals(pooler: PgBouncer) -> AsyncIterator[list[JournalProcess]]:
    processes = [JournalProcess(pooler.url, LANTERN_SESSION_SILENCE="2s") for _ in range(2)]
    # At once: both would migrate.
    await asyncio.gather(*(process.start() for process in processes))
    yield processes
    for process in processes:
        await process.close()


async def taken(worker: Worker, run_id: str) -> Driven:
    async with asyncio.timeout(30):
        while (run := await worker.take(run_id)) is None:
            await worker.ping(1)
            await asyncio.sleep(0.05)
    return run


def test_a_pooler_is_noticed(pooler: PgBouncer, postgres_database: str) -> None:
    assert engines.is_pooled(pooler.url)
    assert not engines.is_pooled(postgres_database)


async def test_the_doctor_reads_through_it(pooler: PgBouncer) -> None:
    store = await PostgresStore.open(pooler.url)
    try:
        events, facts = await store.read_run("no-such-run", 0)
        assert (events, facts is not None and facts.row) == ([], None)
        assert (await store.read_database(LIMITS)).differences == ()
    finally:
        await store.close()


async def test_runs_are_started_driven_and_recovered(journals: list[JournalProcess], pooler: PgBouncer) -> None:
    first, second = journals
    workers = [await Worker(journal, f"w{number}").attach() for number, journal in enumerate(journals)]

    async def drive(worker: Worker, number: int) -> str:
        run = await worker.create(f"{worker.worker_id}-{number}")
        for _ in range(5):
            await worker.accepted(run.append(event(payload=b"x" * 300), event(payload=b"\x00" * 20_000)))
        await worker.accepted(run.append(succeeded()))
        return run.run_id

    ended = await asyncio.gather(*(drive(worker, number) for number in range(10) for worker in workers))
    for run_id in ended:
        for journal in journals:
            assert len(await history(journal, run_id)) == 13

    waiting = await workers[0].create("waits")
    await workers[0].accepted(waiting.append(parked("signal")))
    lost = await workers[0].create("lost")
    await workers[0].accepted(lost.append(event()))
    # The journal is killed, and with it the stream of the worker.
    await first.kill()
    watch = await Watch(second).begun()
    await second.runs().SendToRun(
        jp.SendToRunRequest(request_id="s", run_id=waiting.run_id, kind="signal", name="paid", payload=b"1")
    )
    await watch.hears("woken", 5)
    heir = await Worker(second, "heir").attach()
    for run_id in (waiting.run_id, lost.run_id):
        run = await taken(heir, run_id)
        await heir.accepted(run.append(succeeded(), consumed=1 if run_id == waiting.run_id else 0))
    assert await orphans(second) == []
    watch.stop()

    # It comes back, and finds all that was written meanwhile.
    await first.start()
    for run_id in (*ended, waiting.run_id, lost.run_id):
        assert (await history(first, run_id))[-1].kind == "run_succeeded"
    assert pooler.statistics()["xact_count"] > 100


async def test_what_another_journal_leaves_is_heard_of_by_time(journals: list[JournalProcess]) -> None:
    first, second = journals
    worker = await Worker(first, "w").attach()
    watch = await Watch(second).begun()
    run = await worker.create("r")
    await worker.accepted(run.append(parked("signal")))
    await first.runs().SendToRun(jp.SendToRunRequest(request_id="s", run_id=run.run_id, kind="signal", name="paid"))
    await watch.hears("queued", 10)
    assert await orphans(second) == [run.run_id]
    watch.stop()


async def test_a_server_that_was_restarted_behind_the_pooler(tmp_path: Path) -> None:
    with LocalPostgres() as server, PgBouncer(server.create_database("restarted")) as pooler:
        journal = await JournalProcess(pooler.url).start()
        worker = await Worker(journal, "w").attach()
        run = await worker.create("r")
        await worker.accepted(run.append(event()))
        await asyncio.to_thread(server.stop, "immediate")
        await asyncio.to_thread(server.start)
        async with asyncio.timeout(30):
            again = run.append(event(), succeeded())
            (result,) = await worker.send(again)
            while result.HasField("error"):
                await asyncio.sleep(0.2)
                (result,) = await worker.send(again)
        assert (await history(journal, run.run_id))[-1].kind == "run_succeeded"
        await journal.close()


async def test_migrating_by_command_through_it(pooler: PgBouncer) -> None:
    said = await asyncio.to_thread(migrate.run, pooler.url, migrate.POST)
    assert "pending" not in said


FORBIDDEN = {
    "a lock of the session": re.compile(r"pg_(?:try_)?advisory_(?:lock|unlock)"),
    "a setting of the session": re.compile(r"""["']SET (?!LOCAL )|set_config\([^()]*, false\)"""),
    "a temporary table": re.compile(r"CREATE\s+TEMP", re.IGNORECASE),
    "a cursor or statement of the session": re.compile(r"\bWITH HOLD\b|\bPREPARE \w+ AS\b|\bDEALLOCATE\b"),
}
HINTS = "adapters/postgres.py"
"""Here journals tell each other what they might look for; behind a pooler they do without."""


@pytest.mark.parametrize("path", sorted(SERVICE.rglob("*.py")), ids=lambda path: str(path.relative_to(SERVICE)))
def test_nothing_needs_a_session(path: Path) -> None:
    text = path.read_text()
    for what, pattern in FORBIDDEN.items():
        assert not pattern.search(text), what
    says = re.findall(r"""["'](?:LISTEN|NOTIFY) |pg_notify\(""", text)
    if str(path.relative_to(SERVICE)) == HINTS:
        # Each once; the notice is a statement, and so a transaction, of its own: never one that appends.
        assert sorted(says) == ['"LISTEN ', "pg_notify("]
        assert 'await connection.execute("SELECT pg_notify(%b, %b)", [CHANNEL, payload])' in text
    else:
        assert says == []
