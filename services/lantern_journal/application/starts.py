"""Starting runs in groups: one transaction at a time, of what has arrived; no refusal fails another start."""

import asyncio
import logging
from collections.abc import Sequence

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

    def __init__(self, store: Store, limits: Limits) -> None:
        self._store, self._limits = store, limits
        self._waiting: list[tuple[NewRun, asyncio.Future[StartedRun]]] = []
        self._task: asyncio.Task[None] | None = None

    async def start(self, new: NewRun) -> StartedRun:
        """Starts a run, or finds the one that was started before."""
        answer: asyncio.Future[StartedRun] = asyncio.get_running_loop().create_future()
        self._waiting.append((new, answer))
        if self._task is None:
            self._task = asyncio.create_task(self._drain())
        return await answer

    async def _drain(self) -> None:
        await asyncio.sleep(0)  # whatever this turn of the loop still brings goes along
        while self._waiting:
            group = self._cut()
            await self._start([new for new, _ in group], [answer for _, answer in group])
        self._task = None

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
            size += len(new.input)
            is_full = group and (len(group) >= GROUP_STARTS_MAX or size > GROUP_BYTES_MAX)
            if is_full or names & mine:
                rest.append((new, answer))
                continue
            names |= mine
            group.append((new, answer))
        self._waiting = rest
        return group

    async def _start(self, starts: Sequence[NewRun], answers: "Sequence[asyncio.Future[StartedRun]]") -> None:
        """Answers every start of a group. Nothing may end the loop: every caller would hang."""
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
        for answer, outcome in zip(answers, outcomes, strict=True):
            if answer.done():
                continue
            if isinstance(outcome, LanternError):
                answer.set_exception(outcome)
            else:
                answer.set_result(outcome)
