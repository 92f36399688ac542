"""Work that goes on while journals and schemas change, with a count of what was acknowledged."""

import asyncio
import os

import grpc
from integration.journal.journal_process import Driven, JournalProcess, Worker, event, history, succeeded

from lantern_kernel.errors import LanternError


class Load:
    """A worker that starts runs, appends to them and ends them, at one journal, until it is stopped or cut off."""

    def __init__(self, journal: JournalProcess, name: str) -> None:
        self._journal, self._name = journal, name
        # Of each run the last event that was acknowledged: seq and digest.
        self.acknowledged: dict[str, tuple[int, bytes]] = {}
        self.open: list[str] = []
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    async def begin(self) -> "Load":
        """Starts it; returns when the first run has ended."""
        worker = await Worker(self._journal, self._name).attach()
        self._task = asyncio.create_task(self._work(worker))
        await self.more(3)
        return self

    async def more(self, runs: int) -> None:
        """Waits until so many more runs were worked on."""
        wanted = len(self.acknowledged) + runs
        async with asyncio.timeout(60):
            while len(self.acknowledged) < wanted:
                assert self._task is not None
                assert not self._task.done(), self._task
                await asyncio.sleep(0.005)

    async def stop(self) -> None:
        """Ends it."""
        self._stopping = True
        assert self._task is not None
        await self._task

    async def _work(self, worker: Worker) -> None:
        number = 0
        while not self._stopping:
            number += 1
            try:
                await self._drive(worker, await worker.create(f"{self._name}-{number}"), ends=number % 3 != 0)
            except (grpc.aio.AioRpcError, LanternError, AssertionError, TimeoutError):
                if self._journal.is_alive:
                    raise
                return
        worker.drop()

    async def _drive(self, worker: Worker, run: Driven, *, ends: bool) -> None:
        for _ in range(3):
            await worker.accepted(run.append(event(payload=os.urandom(300))))
            self.acknowledged[run.run_id] = (run.seq, run.digest)
        if ends:
            await worker.accepted(run.append(succeeded()))
            self.acknowledged[run.run_id] = (run.seq, run.digest)
        else:
            self.open.append(run.run_id)


async def check(journal: JournalProcess, *loads: Load) -> int:
    """Finds every acknowledged event through a journal, and each run's chain whole; how many runs."""
    total = 0
    for load in loads:
        for run_id, (seq, digest) in list(load.acknowledged.items()):
            events = await history(journal, run_id)
            assert len(events) >= seq, run_id
            assert events[seq - 1].digest == digest, run_id
            total += 1
    return total


async def take_over(journal: JournalProcess, load: Load, name: str) -> None:
    """Drives to their ends the runs that a load left open, as another worker."""
    worker = await Worker(journal, name).attach()
    for run_id in load.open:
        run: Driven | None = None
        async with asyncio.timeout(30):
            while (run := await worker.take(run_id)) is None:
                await worker.ping(1)
                await asyncio.sleep(0.05)
        await worker.accepted(run.append(event(), succeeded()))
        load.acknowledged[run_id] = (run.seq, run.digest)
    worker.drop()
