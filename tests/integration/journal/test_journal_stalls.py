"""Goal: a journal that stood still takes nobody's lease away for a silence that was its own.

Method: a real journal process is stopped (SIGSTOP) for longer than the silence while workers stay attached and talk.
"""

import asyncio
from itertools import count

from journal_process import JournalProcess, Worker, event, orphans

SILENCE_S = 1.6
PING_S = 1.0
"""Longer than the journal takes between two looks: what it last heard is then in the database when it is stopped."""


async def test_no_lease_is_lost_to_a_journal_that_stood_still(database: str) -> None:
    journal = await JournalProcess(database, LANTERN_SESSION_SILENCE=f"{SILENCE_S}s").start()
    try:
        workers = [await Worker(journal, f"w{number}").attach() for number in range(3)]

        async def talk(worker: Worker) -> None:
            for number in count(1):
                await worker.ping(number)
                await asyncio.sleep(PING_S)

        talking = [asyncio.create_task(talk(worker)) for worker in workers]
        runs = [await worker.create(worker.worker_id) for worker in workers]
        for worker, run in zip(workers, runs, strict=True):
            await worker.accepted(run.append(event()))
        for _ in range(2):
            await journal.freeze(1.3 * SILENCE_S)
            # Long enough for whatever the stall would have caused.
            await asyncio.sleep(SILENCE_S / 2)
            assert await orphans(journal) == []
            assert [worker.error for worker in workers] == [None] * 3
        for worker, run in zip(workers, runs, strict=True):
            await worker.accepted(run.append(event("step_completed")))
        for task in talking:
            task.cancel()
        # Silence that is theirs counts as before.
        for worker in workers:
            await worker.until(lambda worker=worker: worker.error, 5)
        assert sorted(await orphans(journal)) == sorted(run.run_id for run in runs)
    finally:
        await journal.close()
