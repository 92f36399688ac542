"""Starting runs in groups: one transaction at a time, of what has arrived; no refusal fails another start."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from lantern_journal.domain.leases import Limits
from lantern_journal.domain.records import NewRun, StartedRun
from lantern_journal.ports import Store
from lantern_kernel import reasons
from lantern_kernel.errors import LanternError

log = logging.getLogger(__name__)

GROUP_STARTS_MAX = 100
GROUP_BYTES_MAX = 4 * 1024 * 1024


class Starter:
    """Takes starts from all callers and makes their runs in groups."""

    def __init__(self, store: Store, limits: Limits, on_started: Callable[[StartedRun], None]) -> None:
        """`on_started` is told of every start as soon as it is committed, also where its caller has gone away."""
        self._store, self._limits, self._on_started = store, limits, on_started
        self._waiting: list[tuple[NewRun, asyncio.Future[StartedRun]]] = []
        self._task: asyncio.Task[None] | None = None

    def start(self, new: NewRun) -> "asyncio.Future[StartedRun]":
        """Starts a run, or finds the one that was started before; a refusal is the future's LanternError."""
        answer: asyncio.Future[StartedRun] = asyncio.get_running_loop().create_future()
        self._waiting.append((new, answer))
        if self._task is None:
            self._task = asyncio.create_task(self._drain())
        return answer

    async def finish(self) -> None:
        """Waits until all that was taken is answered."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def _drain(self) -> None:
        try:
            await asyncio.sleep(0)  # whatever this turn of the loop still brings goes along
            while self._waiting:
                group = self._cut()
                answers = [answer for _, answer in group]
                try:
                    await self._start([new for new, _ in group], answers)
                except Exception:
                    # Nothing may end this loop: every caller would hang.
                    log.exception("starts failed", extra={"action": "starts_failed", "starts": len(group)})
                    self._answer_rest(answers)
        finally:
            self._task = None
            if self._waiting:
                self._task = asyncio.create_task(self._drain())

    @staticmethod
    def _answer_rest(answers: "Sequence[asyncio.Future[StartedRun]]") -> None:
        error = LanternError(reasons.INTERNAL, "the run could not be started; the service's log says more")
        for answer in answers:
            if not answer.done():
                answer.set_exception(error)

    def _cut(self) -> list[tuple[NewRun, "asyncio.Future[StartedRun]"]]:
        """The next group; of two starts with one request or workflow id the second waits for the next."""
        group: list[tuple[NewRun, asyncio.Future[StartedRun]]] = []
        rest: list[tuple[NewRun, asyncio.Future[StartedRun]]] = []
        names: set[tuple[str, str, str]] = set()
        size = 0
        for new, answer in self._waiting:
            mine = {(new.tenant_id, "request", new.request_id)}
            if new.workflow_id:
                mine.add((new.tenant_id, "workflow", new.workflow_id))
            size += len(new.input) + (len(new.signal.payload) if new.signal is not None else 0)
            is_full = group and (len(group) >= GROUP_STARTS_MAX or size > GROUP_BYTES_MAX)
            if is_full or names & mine:
                rest.append((new, answer))
                continue
            names |= mine
            group.append((new, answer))
        self._waiting = rest
        return group

    async def _start(self, starts: Sequence[NewRun], answers: "Sequence[asyncio.Future[StartedRun]]") -> None:
        """Answers every start of a group."""
        try:
            outcomes = await self._store.start_runs(starts, self._limits)
        except LanternError as error:
            outcomes = [error] * len(starts)
        except Exception:
            if len(starts) > 1:
                # One that the database does not take: only it may suffer.
                for new, answer in zip(starts, answers, strict=True):
                    await self._start([new], [answer])
                return
            log.exception("start failed", extra={"action": "start_failed", "run_id": starts[0].run_id})
            outcomes = [LanternError(reasons.INTERNAL, "the run could not be started; the service's log says more")]
        for new, answer, outcome in zip(starts, answers, outcomes, strict=True):
            if not isinstance(outcome, LanternError):
                self._tell(new, outcome)
            if answer.done():
                continue  # the caller has gone away
            if isinstance(outcome, LanternError):
                answer.set_exception(outcome)
            else:
                answer.set_result(outcome)

    def _tell(self, new: NewRun, started: StartedRun) -> None:
        try:
            self._on_started(started)
        except Exception:
            log.exception("a start could not be told", extra={"action": "tell_failed", "run_id": new.run_id})
