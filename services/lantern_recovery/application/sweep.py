"""One pass of the sweep (SPEC L5): find runs that need a driver, win their leases for executors, have those drive.

The pass holds nothing. A grant that no executor takes up expires by itself, so a pass that dies at any line strands no
run; and since the journal decides who gets a lease, any number of replicas may run passes at the same time.
"""

import asyncio
import logging
from dataclasses import dataclass
from enum import Enum

from lantern_kernel import reasons
from lantern_kernel.errors import LanternError
from lantern_recovery.domain.matching import Match, Untaken, match
from lantern_recovery.domain.orphan import Orphan
from lantern_recovery.domain.worker import Worker
from lantern_recovery.ports import Executors, Journal, Sources

log = logging.getLogger(__name__)

PASS_RUNS_MAX = 20
"""Runs in one pass; also the bound on Drive calls at once, since passes never overlap."""

DEFER_S_MIN, DEFER_S_MAX = 0.5, 2.0
"""A run that found no taker is set aside for a time between these, so that replicas do not meet again."""

GRANT_S = 5.0
"""How long a grant lasts that no executor opens (LANTERN_GRANT_TTL): a worker that did not answer is left in peace for
that time, and after it the run is looked for again. One that says itself for how long it is busy is left in peace for
that and the longest deferral, so that the run that it refused meets the other workers first."""

REFUSALS = frozenset({reasons.EXECUTOR_BUSY, reasons.AGENT_NOT_FOUND, reasons.LEASE_LOST, reasons.INVALID_FIELD})
"""Answers of an executor after which it is certain that it has not taken the run and will not. Every other error, a
time-out above all, leaves open whether it has: then only the end of the grant may free the run."""

STOPPING = frozenset({reasons.RUN_NOT_FOUND, reasons.RUN_CLOSED})
"""Answers of the journal that mean: there is nothing left to do for this run."""


class _End(Enum):
    """What became of one run in a pass."""

    PLACED = "placed"
    LOST = "lost"
    DEFERRED = "deferred"


@dataclass(frozen=True, kw_only=True, slots=True)
class PassReport:
    """What a pass did."""

    # Runs found that need a driver.
    found: int
    # Runs whose executor took them.
    placed: int
    # Runs that somebody else acquired first.
    lost: int
    # Runs for which no executor was found, or which none took.
    deferred: int
    # Seconds after which another pass makes sense, although nothing is announced; None where none does.
    again_s: float | None

    @property
    def more_at_once(self) -> bool:
        """Whether another pass should follow now: there may be more, and this one got somewhere."""
        return self.found >= PASS_RUNS_MAX and self.placed > 0


class Sweep:
    """Makes passes, one at a time."""

    def __init__(self, journal: Journal, executors: Executors, sources: Sources) -> None:
        self._journal = journal
        self._executors = executors
        self._sources = sources
        self._one_pass = asyncio.Lock()
        # Worker id -> monotonic second from which it may be asked again.
        self._avoided: dict[str, float] = {}
        # Monotonic seconds at which there is something to find again, though nothing may be announced.
        self._look_again_at: set[float] = set()

    async def run_pass(self) -> PassReport:
        """Makes one pass; waits for one that is under way. Raises LanternError where the journal cannot be asked."""
        async with self._one_pass:
            orphans = await self._journal.find_orphans(PASS_RUNS_MAX)
            if not orphans:
                return self._report([])
            workers = await self._journal.find_workers()
            await self._executors.keep_only({worker.address for worker in workers})
            ends = await asyncio.gather(*(self._place(m) for m in match(orphans, workers, self._avoided_now())))
            report = self._report(ends)
        log.info(
            "pass",
            extra={
                "action": "pass",
                "found": report.found,
                "placed": report.placed,
                "lost": report.lost,
                "deferred": report.deferred,
            },
        )
        return report

    def _avoided_now(self) -> frozenset[str]:
        now_s = self._sources.monotonic_s()
        self._avoided = {worker_id: until for worker_id, until in self._avoided.items() if until > now_s}
        return frozenset(self._avoided)

    def _report(self, ends: list[_End]) -> PassReport:
        now_s = self._sources.monotonic_s()
        self._look_again_at = {at_s for at_s in self._look_again_at if at_s > now_s}
        placed, lost, deferred = (ends.count(end) for end in (_End.PLACED, _End.LOST, _End.DEFERRED))
        again_s = min(self._look_again_at) - now_s if self._look_again_at else None
        return PassReport(found=len(ends), placed=placed, lost=lost, deferred=deferred, again_s=again_s)

    def _look_again(self, after_s: float) -> None:
        self._look_again_at.add(self._sources.monotonic_s() + after_s)

    async def _place(self, planned: Match) -> _End:
        """Has one run taken up, or sets it aside. Raises nothing: no run may spoil the pass for the others."""
        orphan = planned.orphan
        try:
            match planned.taker:
                case Untaken.NOT_OFFERED | Untaken.ONLY_FAILED:
                    # The journal parks it: for capacity, or for code that has not failed it.
                    await self._journal.defer_run(orphan.run_id, None)
                    return _End.DEFERRED
                case Untaken.NO_ROOM:
                    await self._defer(orphan.run_id, self._jittered_s())
                    return _End.DEFERRED
                case Worker() as worker:
                    return await self._hand_over(orphan, worker)
        except LanternError as error:
            if error.reason in STOPPING:
                return _End.LOST
            log.warning(
                "journal refused",
                extra={"action": "journal_refused", "run_id": orphan.run_id, "reason": error.reason},
            )
            self._look_again(self._jittered_s())
            return _End.DEFERRED
        except Exception:
            log.exception("run not placed", extra={"action": "not_placed", "run_id": orphan.run_id})
            self._look_again(self._jittered_s())
            return _End.DEFERRED

    async def _hand_over(self, orphan: Orphan, worker: Worker) -> _End:
        epoch = await self._journal.acquire_lease(orphan, worker)
        if epoch is None:
            # Somebody else's run by now, or its session went away under the plan: look again.
            self._look_again(self._jittered_s())
            return _End.LOST
        ids = {"run_id": orphan.run_id, "worker_id": worker.worker_id, "epoch": epoch, "cause": orphan.reason}
        try:
            await self._executors.drive(orphan, worker, epoch)
        except LanternError as error:
            log.warning("executor did not take the run", extra={"action": "drive", "reason": error.reason, **ids})
            avoided_s = GRANT_S if error.retry_after_s is None else error.retry_after_s + DEFER_S_MAX
            self._avoided[worker.worker_id] = self._sources.monotonic_s() + avoided_s
            if error.reason not in REFUSALS or not await self._give_back(orphan, worker, epoch):
                # Whether a lost call arrived does not matter: either the run is opened, or the grant expires.
                self._look_again(GRANT_S + self._jittered_s())
            await self._defer(orphan.run_id, self._jittered_s())
            return _End.DEFERRED
        log.info("run handed over", extra={"action": "handed_over", **ids})
        return _End.PLACED

    async def _give_back(self, orphan: Orphan, worker: Worker, epoch: int) -> bool:
        """Frees a run at once whose worker refused it; False where that failed and the grant has to expire."""
        try:
            await self._journal.release_refused(orphan, worker, epoch)
        except LanternError as error:
            if error.reason in STOPPING:
                raise
            log.warning(
                "refused lease not given back",
                extra={"action": "give_back_failed", "run_id": orphan.run_id, "epoch": epoch, "reason": error.reason},
            )
            return error.reason == reasons.LEASE_LOST  # by a later lease: nothing is left to expire
        return True

    async def _defer(self, run_id: str, delay_s: float) -> None:
        self._look_again(delay_s)
        await self._journal.defer_run(run_id, delay_s)

    def _jittered_s(self) -> float:
        return DEFER_S_MIN + (DEFER_S_MAX - DEFER_S_MIN) * self._sources.random01()
