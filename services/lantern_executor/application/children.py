"""The children of one drive: created once their child_started is committed, cancelled where nobody wants them.

Both are idempotent: after a crash the next drive says the same again. Each runs beside the drive, so a slow journal
holds up nothing else; the run is neither parked nor handed back before it is done.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from lantern_executor.domain.run import CreatedRun, Parent, Run, StartRequest
from lantern_executor.ports import JournalPort
from lantern_kernel import reasons
from lantern_kernel.bounds import PAYLOAD_INLINE_BYTES_MAX
from lantern_kernel.errors import LanternError
from lantern_kernel.work import ChildWork

log = logging.getLogger(__name__)

T = TypeVar("T")

AT_ONCE_MAX = 16

RETRY_S = 1.0
"""Between tries of what the journal could not answer; until it can, nothing of the run can be appended either."""

PASSING = frozenset(
    {
        reasons.UNAVAILABLE,
        reasons.UNKNOWN_OUTCOME,
        reasons.DEADLINE_EXCEEDED,
        reasons.SESSION_NOT_ATTACHED,
        reasons.INTERNAL,
        reasons.INBOX_FULL,
    }
)
"""Refusals that say nothing of the child: it is tried again."""

OF_THE_PARENT = frozenset({reasons.LEASE_LOST, reasons.RUN_CLOSED, reasons.RUN_NOT_FOUND})
"""Refusals that say that the run is not ours any more."""

Start = Callable[[StartRequest], Awaitable[CreatedRun]]


class Children:
    """The children of the run that is driven.

    Args:
        journal: Where they are cancelled.
        start: Creates a run, and drives it here where there is room.
        run: Their parent.
        epoch: The lease under which it is driven.
        wake: Called when something is done.
    """

    def __init__(self, journal: JournalPort, start: Start, run: Run, epoch: int, wake: Callable[[], None]) -> None:
        self._journal = journal
        self._start = start
        self._run = run
        self._epoch = epoch
        self._wake = wake
        self._creating: dict[str, asyncio.Task[str]] = {}  # by step: the run id, empty where it is not known
        self._busy: set[asyncio.Task[str] | asyncio.Task[None]] = set()
        self._ended: list[asyncio.Task[str] | asyncio.Task[None]] = []
        self._refused: list[tuple[ChildWork, LanternError]] = []
        self._slots = asyncio.Semaphore(AT_ONCE_MAX)

    @property
    def are_settled(self) -> bool:
        """Whether nothing is under way."""
        return not self._busy

    def create(self, work: ChildWork) -> None:
        """Creates a child, or finds it made before."""
        task = asyncio.create_task(self._create(work))
        self._creating[work.command.step_id] = task
        self._keep(task)

    def cancel(self, work: ChildWork) -> None:
        """Has a child cancelled."""
        self._keep(asyncio.create_task(self._cancel(work)))

    def take_refused(self) -> list[tuple[ChildWork, LanternError]]:
        """The children that cannot be created, each once.

        Raises:
            LanternError: The run is not ours any more.
        """
        ended, self._ended = self._ended, []
        for task in ended:
            task.result()
        refused, self._refused = self._refused, []
        return refused

    async def settled(self) -> None:
        """Returns when nothing is under way."""
        if self._busy:
            await asyncio.wait(list(self._busy))

    async def stop(self) -> None:
        """Gives up what is under way; the next drive does it."""
        busy = list(self._busy)
        for task in busy:
            task.cancel()
        if busy:
            await asyncio.wait(busy)
        for task in (*busy, *self._ended):
            if not task.cancelled():
                task.exception()  # looked at, so that nobody complains of an error that was never retrieved
        self._ended.clear()

    def _keep(self, task: "asyncio.Task[str] | asyncio.Task[None]") -> None:
        self._busy.add(task)

        def done(_: object) -> None:
            self._busy.discard(task)
            self._ended.append(task)
            self._wake()

        task.add_done_callback(done)

    async def _create(self, work: ChildWork) -> str:
        try:
            return await self._created(work)
        except LanternError as error:
            if error.reason in OF_THE_PARENT:
                raise
            if error.reason != reasons.REQUEST_ID_REUSED:  # else it was made before, and its end will come
                self._refused.append((work, error))
            return ""

    async def _created(self, work: ChildWork) -> str:
        command = work.command
        async with self._slots:
            blob = None
            if len(command.input) > PAYLOAD_INLINE_BYTES_MAX:
                blob = await self._journal.put_blob(self._run.tenant_id, command.input)
            request = StartRequest(
                request_id=work.request_id,
                tenant_id=self._run.tenant_id,
                agent_name=command.agent_name,
                input=b"" if blob is not None else command.input,
                input_blob=blob,
                workflow_id=command.workflow_id,
                workflow_id_policy=0,
                traceparent=self._run.traceparent,
                parent=Parent(
                    run_id=self._run.run_id, step_id=command.step_id, epoch=self._epoch, abandon=command.abandon
                ),
            )
            return (await self._insisted(lambda: self._start(request))).run.run_id

    async def _cancel(self, work: ChildWork) -> None:
        """Also of one that was never created: to know its id it is created first, and so cannot come later."""
        known = self._creating.get(work.command.step_id)
        if known is not None:
            await asyncio.wait([known])
            if known.cancelled() or known.exception() is not None:
                return  # the drive ends
        run_id = known.result() if known is not None else ""
        if not run_id:
            if known is not None:
                return  # refused: there is none
            try:
                run_id = await self._created(work)
            except LanternError as error:
                if error.reason in OF_THE_PARENT:
                    raise
                log.warning("child not cancelled", extra=self._extra(work, error))
                return
        try:
            await self._insisted(lambda: self._journal.cancel_run(run_id, work.request_id))
        except LanternError as error:
            if error.reason not in OF_THE_PARENT:  # here they say that the child is over
                log.warning("child not cancelled", extra=self._extra(work, error))

    async def _insisted(self, call: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await call()
            except LanternError as error:
                if error.reason not in PASSING:
                    raise
                log.info("child: trying again", extra={"action": "child_retried", "reason": error.reason})
            await asyncio.sleep(RETRY_S)

    def _extra(self, work: ChildWork, error: LanternError) -> dict[str, object]:
        return {
            "action": "child_not_cancelled",
            "run_id": self._run.run_id,
            "step_id": work.command.step_id,
            "reason": error.reason,
        }
