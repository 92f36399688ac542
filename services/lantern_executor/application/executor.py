"""The runs of this process: taken in, driven one task each, let go."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from lantern_executor.application import queries
from lantern_executor.application.drive import Drive
from lantern_executor.domain.notices import EarlyNotices
from lantern_executor.domain.run import CreatedRun, HandBack, RunEnd, StartRequest
from lantern_executor.ports import JournalPort, ProgramsPort, Sources
from lantern_kernel import reasons
from lantern_kernel.errors import LanternError
from lantern_kernel.names import ANY_AGENT

log = logging.getLogger(__name__)

BUSY_RETRY_S = 1.0
"""When to ask an executor again that is full."""

DRAIN_ATTACH_S = 2.0
"""How long the journal may take to learn that we drain; it need not, but then it may still send us runs."""

HAND_BACK_S = 3.0
"""How long handing back what is left may take at the end of a drain; after that the session's end does it."""


@dataclass(eq=False, kw_only=True, slots=True)
class _Active:
    """A run that is driven here."""

    drive: Drive
    task: "asyncio.Task[None]"


class Executor:
    """Starts runs and drives them, as many at once as its capacity says."""

    def __init__(self, *, journal: JournalPort, programs: ProgramsPort, sources: Sources, capacity: int) -> None:
        self._journal = journal
        self._programs = programs
        self._sources = sources
        self._queries = queries.Queries(journal, programs, sources)
        self._capacity = capacity
        self._offered = frozenset(offer.name for offer in programs.offers())
        self._active: dict[str, _Active] = {}
        self._stopping: set[asyncio.Task[None]] = set()
        self._starting: set[asyncio.Task[CreatedRun]] = set()
        self._early = EarlyNotices()
        self._returns = 0  # how often the session came back
        self._draining = False
        journal.on_inbox(self._inbox_arrived)
        journal.on_return(self._returned)

    @property
    def active_count(self) -> int:
        """How many runs are driven here now."""
        return len(self._active)

    async def start_run(self, request: StartRequest) -> CreatedRun:
        """Creates a run and drives it here, or only queues it where this executor cannot take it.

        Goes on when the caller goes away: a run that was created with a lease needs its driver.
        """
        task = asyncio.create_task(self._start_run(request))
        self._starting.add(task)
        self._early.begin(task)
        task.add_done_callback(self._started)
        return await asyncio.shield(task)

    async def wait_for_end(self, run_id: str, timeout_s: float) -> RunEnd | None:
        """How a run ends that is driven here; None where it leaves this executor otherwise, or goes on for longer."""
        active = self._active.get(run_id)
        if active is None:
            return None
        await asyncio.wait([active.task], timeout=timeout_s)
        return active.drive.end

    async def drive(self, *, run_id: str, epoch: int, worker_id: str, agent_name: str) -> None:
        """Takes up a run whose lease was granted to this worker; opens it after this has returned.

        Raises:
            LanternError: LEASE_LOST, the lease is another process's or an older one; AGENT_NOT_FOUND; EXECUTOR_BUSY.
        """
        if worker_id != self._journal.worker_id:
            raise LanternError(reasons.LEASE_LOST, f"the lease was granted to {worker_id}, which is not this process")
        if not self._may_drive(agent_name):
            raise LanternError(
                reasons.AGENT_NOT_FOUND, f"agent {agent_name} is not loaded here", field="agent_name", agent=agent_name
            )
        known = self._active.get(run_id)
        if known is not None and known.drive.epoch == epoch:
            return
        if known is not None and known.drive.epoch > epoch:
            raise LanternError(reasons.LEASE_LOST, f"the run is driven here under the later epoch {known.drive.epoch}")
        if known is None and not self._has_room(for_one_more=1):
            raise LanternError(
                reasons.EXECUTOR_BUSY, "full or draining: no further run is taken", retry_after_s=BUSY_RETRY_S
            )
        self._launch(run_id, epoch, None)

    async def query(self, run_id: str, name: str, payload: bytes) -> bytes:
        """What a run's program answers: the live one where it is driven here, else one that replays the journal.

        Raises:
            LanternError: See Queries.answer.
        """
        active = self._active.get(run_id)
        if active is not None and active.drive.live_program is not None:
            return queries.ask(active.drive.live_program, name, payload)
        return await self._queries.answer(run_id, name, payload)

    async def drain(self, grace_s: float) -> None:
        """Takes no work, lets steps in flight end within `grace_s`, and hands back what is left."""
        self._draining = True
        try:
            async with asyncio.timeout(DRAIN_ATTACH_S):
                await self._journal.set_draining()
        except TimeoutError:
            log.warning("draining unannounced", extra={"action": "drain_unannounced"})
        until_s = asyncio.get_running_loop().time() + grace_s
        for active in self._active.values():
            active.drive.drain()
        await _settled(self._starting, grace_s)
        await _settled([active.task for active in self._active.values()], until_s - asyncio.get_running_loop().time())
        left = list(self._active.values())
        for active in left:
            active.task.cancel()
        await _settled([active.task for active in left] + list(self._stopping), HAND_BACK_S)
        releases = [asyncio.create_task(self._release(active.drive)) for active in left]
        await _settled(releases, HAND_BACK_S)

    async def _release(self, drive: Drive) -> None:
        extra = {"action": "released", "run_id": drive.run_id, "epoch": drive.epoch}
        try:
            await self._journal.release_lease(drive.run_id, drive.epoch, HandBack.DRAIN)
        except LanternError as error:
            log.warning("hand-back failed", extra=extra | {"reason": error.reason})
        else:
            log.info("run handed back", extra=extra)

    async def _start_run(self, request: StartRequest) -> CreatedRun:
        with_lease = self._may_drive(request.agent_name) and self._has_room()
        returns = self._returns
        created = await self._journal.create_run(request, with_lease=with_lease)
        run = created.run
        if created.epoch:
            self._launch(run.run_id, created.epoch, created)
        elif with_lease and not created.created and run.state == "RUNNING" and run.run_id not in self._active:
            # Perhaps created by us with a lease, and the answer was lost: opening it tells.
            self._launch(run.run_id, run.epoch, None)
        active = self._active.get(run.run_id)
        if active is not None and run.last_inbox_number:
            active.drive.inbox_arrived(announced=False)  # the signal that went with the start
        if active is not None and returns != self._returns:
            active.drive.lease_in_doubt()  # the session was away between the grant and its answer
        return created

    def _started(self, task: "asyncio.Task[CreatedRun]") -> None:
        self._starting.discard(task)
        self._early.end(task)
        if not task.cancelled():
            task.exception()  # looked at here, too: its caller may be gone

    def _may_drive(self, agent_name: str) -> bool:
        """Whether an agent is offered here, or may be one of those that are published; the journal knows which are."""
        return agent_name in self._offered or ANY_AGENT in self._offered

    def _has_room(self, *, for_one_more: int = 0) -> bool:
        """Whether all that is driven and being started (and one more) is within the capacity."""
        taken = len(self._active) + len(self._starting) + for_one_more
        return not self._draining and taken <= self._capacity

    def _launch(self, run_id: str, epoch: int, created: CreatedRun | None) -> None:
        """Begins a drive; one under an older epoch gives way once the later one has proved to be granted."""
        previous = self._active.get(run_id)
        if previous is not None and previous.drive.epoch >= epoch:
            return
        drive = Drive(
            journal=self._journal,
            programs=self._programs,
            sources=self._sources,
            run_id=run_id,
            epoch=epoch,
            created=created,
            start=self.start_run,
        )
        task = asyncio.create_task(self._run(drive, previous), name=f"drive {run_id}")
        self._active[run_id] = _Active(drive=drive, task=task)
        if self._early.take(run_id):
            drive.inbox_arrived()
        if self._draining:
            drive.drain()

    async def _run(self, drive: Drive, previous: _Active | None) -> None:
        try:
            if previous is None or await self._supersede(drive, previous):
                await drive.run()
        finally:
            current = self._active.get(drive.run_id)
            if current is not None and current.drive is drive:
                del self._active[drive.run_id]

    async def _supersede(self, drive: Drive, previous: _Active) -> bool:
        """Stops the drive under the older epoch; False, and nothing is stopped, where the later lease is not ours."""
        try:
            await self._journal.open_run(drive.run_id, drive.epoch)
        except asyncio.CancelledError:
            await self._stop(previous)  # whoever ends us ends what we were to replace
            raise
        except Exception as error:
            may_be_ours = drive.ended_by(error)
            if not previous.task.done():
                self._active[drive.run_id] = previous
                previous.drive.inbox_arrived(announced=False)  # what was announced meanwhile went to the wrong one
            if may_be_ours:
                previous.drive.lease_in_doubt()
                await self._hand_back(drive)
            return False
        await self._stop(previous)
        return True

    async def _stop(self, active: _Active) -> None:
        self._stopping.add(active.task)
        active.task.add_done_callback(self._stopping.discard)
        active.task.cancel()
        await asyncio.wait([active.task])

    async def _hand_back(self, drive: Drive) -> None:
        """What a drive that never began was granted: under a live session nobody else could take it."""
        task = asyncio.current_task()
        assert task is not None, "in the task of the drive"
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)
        await drive.hand_back(HandBack.FAULT)

    def _returned(self) -> None:
        self._returns += 1
        for active in self._active.values():
            active.drive.lease_in_doubt()

    def _inbox_arrived(self, run_ids: Sequence[str]) -> None:
        for run_id in run_ids:
            active = self._active.get(run_id)
            if active is None:
                self._early.add(run_id)
            else:
                active.drive.inbox_arrived()


async def _settled(tasks: Sequence["asyncio.Task[None]"] | set["asyncio.Task[CreatedRun]"], timeout_s: float) -> None:
    """Waits for tasks, at most so long."""
    if tasks:
        await asyncio.wait(list(tasks), timeout=max(0.0, timeout_s))
