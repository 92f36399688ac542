"""The drive of one run under one lease: from opening it to its end, parking, hand-back or the loss of its lease.

One task per run. It loads the history, lets the course of the run advance, appends what was decided as one append, and
dispatches steps only after the append that begins them is committed and while the session is trusted (SPEC L3). What
happens meanwhile (steps end, timers come due, the inbox fills) is taken in together at the next turn.
"""

import asyncio
import logging
from dataclasses import replace
from functools import partial

from lantern_executor.application.children import Children, Start
from lantern_executor.application.commits import Commits, durability_of
from lantern_executor.application.execution import StepExecution
from lantern_executor.domain.run import CreatedRun, HandBack, OpenedRun, Run, RunEnd, end_of
from lantern_executor.domain.step import StepContext
from lantern_executor.domain.tail import Tail
from lantern_executor.ports import JournalPort, Program, ProgramsPort, Sources
from lantern_kernel import reasons
from lantern_kernel.course.course import Course
from lantern_kernel.errors import LanternError
from lantern_kernel.event import Event
from lantern_kernel.step_ends import StepEnd
from lantern_kernel.work import StepWork

log = logging.getLogger(__name__)

RELEASE_RETRY_S = 1.0
"""Between tries to hand a run back: under a live session nobody else could take it, so it has to succeed."""

STOP_WAIT_S = 1.0
"""How long cancelled steps may take to notice; what user code still does after that is refused by the fence."""

GONE = frozenset({reasons.LEASE_LOST, reasons.RUN_CLOSED, reasons.RUN_NOT_FOUND})
"""Refusals after which the run is no longer ours, so there is nothing to hand back."""


class Drive:
    """One drive. `run` does it all and never raises but for cancellation."""

    def __init__(
        self,
        *,
        journal: JournalPort,
        programs: ProgramsPort,
        sources: Sources,
        run_id: str,
        epoch: int,
        created: CreatedRun | None = None,
        start: Start | None = None,
    ) -> None:
        """What drives a run.

        Args:
            journal: See JournalPort.
            programs: See ProgramsPort.
            sources: See Sources.
            run_id: The run.
            epoch: The lease.
            created: What the journal answered where the run was created with this lease: then it is open already.
            start: Creates children and drives them here where there is room; by default they are only queued.
        """
        self.run_id = run_id
        self.epoch = epoch
        self._journal = journal
        self._programs = programs
        self._sources = sources
        self._created = created
        self._execution = StepExecution(journal, sources, self._be_sure, self._now_us)
        self._running: dict[asyncio.Task[StepEnd], StepWork] = {}
        self._ended: list[asyncio.Task[StepEnd]] = []
        self.live_program: Program | None = None  # once it stands at the end of the history
        self.end: RunEnd | None = None  # once it is committed
        self._start: Start = start or partial(journal.create_run, with_lease=False)
        self._commits: Commits | None = None
        self._children: Children | None = None
        self._wake = asyncio.Event()
        self._inbox_news = False
        self._inbox_announced = False
        self._doubts = 0  # raised so far; in doubt while not all of them are answered
        self._doubts_answered = 0
        self._asking = asyncio.Lock()
        self._draining = False
        self._clock_offset_us = 0

    def inbox_arrived(self, *, announced: bool = True) -> None:
        """The run's inbox has new entries, as the journal announced or as may be."""
        self._inbox_news = True
        self._inbox_announced |= announced
        self._wake.set()

    def lease_in_doubt(self) -> None:
        """We were cut off for a while: the drive has to ask whether its lease is still its own."""
        self._doubts += 1
        self._wake.set()

    def drain(self) -> None:
        """Begins nothing new; hands the run back once the steps in flight have ended."""
        self._draining = True
        self._wake.set()

    async def run(self) -> None:
        """Drives the run for as long as it is ours."""
        cause: HandBack | None = None
        try:
            if await self._drive():
                cause = HandBack.DRAIN
        except Exception as error:
            if self.ended_by(error):
                cause = HandBack.FAULT
        finally:
            await self._stop_steps()
        if cause is not None:
            await self.hand_back(cause)

    def ended_by(self, error: Exception) -> bool:
        """Logs what ended the drive; True where the run may still be ours and has to be handed back."""
        if isinstance(error, LanternError) and error.reason in GONE:
            log.info("drive ended", extra=self._extra("drive_lost") | {"reason": error.reason})
            return False
        log.error("drive failed", extra=self._extra("drive_failed"), exc_info=error)
        return True

    async def hand_back(self, cause: HandBack) -> None:
        """Hands the run back, however long the journal takes to hear of it."""
        while True:
            try:
                await self._journal.release_lease(self.run_id, self.epoch, cause)
            except LanternError as error:
                if error.reason in GONE:
                    return
                log.warning("hand-back failed", extra=self._extra("release_failed") | {"reason": error.reason})
            except Exception:
                log.exception("hand-back failed", extra=self._extra("release_failed"))
            else:
                log.info("run handed back", extra=self._extra("released") | {"cause": cause.value})
                return
            await asyncio.sleep(RELEASE_RETRY_S)

    async def _drive(self) -> bool:
        """Returns whether the run is to be handed back."""
        opened = await self._open()
        self._clock_offset_us = opened.now_us - self._sources.monotonic_us()
        run = await self._with_input(opened.run)
        resets: tuple[tuple[int, int], ...] = ()
        while True:
            await self._programs.prepare(run)
            program = self._programs.start(run)
            try:
                found = await self._drive_along(program, opened, resets)
            finally:
                self.live_program = None
                await self._stop_all()  # before the program: their functions may still use what it holds
                program.close()
            if isinstance(found, bool):
                return found
            resets = (*resets, found)

    async def _drive_along(
        self, program: Program, opened: OpenedRun, resets: tuple[tuple[int, int], ...]
    ) -> bool | tuple[int, int]:
        """Whether the run is to be handed back; or a reset in its history, by which this is to be begun anew."""
        course = Course(
            run_id=opened.run.run_id,
            workflow_id=opened.run.workflow_id,
            epoch=self.epoch,
            program=program,
            sources=self._sources,
            now_us=self._now_us,
            resets=resets,
        )
        tail = await self._load(course, opened)
        if tail is None:
            assert course.reset_found is not None, "nothing else ends the loading"
            return course.reset_found
        course.take_inbox(opened.inbox)
        mode = durability_of(opened.events[0])
        self._commits = Commits(self._journal, course, tail, opened.run.tenant_id, mode, self._wake.set)
        self._children = Children(self._journal, self._start, opened.run, self.epoch, self._wake.set)
        return await self._live(course, self._commits, self._children, program, opened.run)

    async def _open(self) -> OpenedRun:
        if self._created is None:
            return await self._journal.open_run(self.run_id, self.epoch)
        events = self._created.events
        return OpenedRun(
            run=self._created.run, events=events, head_seq=events[-1].seq, inbox=(), now_us=events[-1].time_us
        )

    async def _load(self, course: Course, opened: OpenedRun) -> Tail | None:
        """Feeds the whole history, page by page, and returns where it ends; None where the course found a reset."""
        page: list[Event] = list(opened.events)
        last: Event | None = None
        while True:
            course.load(page)
            if course.reset_found is not None:
                return None
            last = page[-1] if page else last
            if last is None or last.seq >= opened.head_seq:
                break
            page = list(await self._journal.list_events(self.run_id, last.seq))
            if not page:
                break
        if last is None or last.seq != opened.head_seq:
            raise LanternError(reasons.HISTORY_UNREADABLE, "the journal did not return the whole history")
        return Tail(self.run_id, self.epoch, last)

    async def _with_input(self, run: Run) -> Run:
        """The run with its input at hand."""
        if run.input_blob is None:
            return run
        return replace(run, input=await self._journal.get_blob(run.tenant_id, run.input_blob))

    async def _live(self, course: Course, commits: Commits, children: Children, program: Program, run: Run) -> bool:
        while True:
            self._wake.clear()
            if self._is_in_doubt:
                await self._ask_for_lease()
            if self._inbox_news:
                await self._read_inbox(course)
            self._take_ended(course)
            for work, error in children.take_refused():
                course.child_refused(work, error)
            if not self._draining:
                course.pass_time()
            course.advance(beginning=not self._draining)
            if course.wanted is not None:
                course.provide(await self._journal.get_blob(run.tenant_id, course.wanted))
                continue
            self.live_program = program
            is_idle = not self._running and not course.child_stops and children.are_settled
            if is_idle and (course.is_paused or not self._draining):
                course.park_if_idle()
            await self._stop_unwanted(course)
            if course.ending:
                await self._stop_steps()  # what is left running when a run ends does not outlive it
                await self._leave_children(course, commits, children)
            if commits.may_wait and not self._draining:
                commits.begin()
            elif course.events or course.ending:
                if await commits.now():
                    self.end = end_of(course.ending[-1])
                    return False
                if course.events or course.ending:
                    continue  # refused for the inbox: decide anew
            self._begin_children(course, children)
            if course.starts and not self._draining:
                await self._be_sure()
                if self._draining:
                    continue  # meanwhile: what was not begun is begun elsewhere
                self._dispatch(course, program, run)
            if self._draining and not self._running and children.are_settled:
                return True
            # A drain fires no timers: what is due then is due for the next drive, and no reason to look again.
            await self._sleep(None if self._draining else course.next_due_us)

    def _begin_children(self, course: Course, children: Children) -> None:
        """Creates and cancels the children of which the events are committed."""
        if course.children:
            for work in course.take_children():
                children.create(work)
        if course.child_stops:
            stops, course.child_stops = course.child_stops, []
            for work in stops:
                children.cancel(work)

    async def _leave_children(self, course: Course, commits: Commits, children: Children) -> None:
        """Before a drive ends, what it has begun is created: an abandoned child outlives the run."""
        if course.children or course.child_stops:
            await commits.events()
            self._begin_children(course, children)
        await children.settled()

    @property
    def _is_in_doubt(self) -> bool:
        return self._doubts != self._doubts_answered

    async def _be_sure(self) -> None:
        """Returns when the lease is certain to be ours; nothing is awaited between the last look and the return.

        Raises:
            LanternError: LEASE_LOST, it has gone to another.
        """
        while not self._journal.trusted() or self._is_in_doubt:
            if not self._journal.trusted():
                await self._journal.wait_trusted()
                self._doubts += 1
            await self._ask_for_lease()

    async def _ask_for_lease(self) -> None:
        """Asks for the lease once more; raises LEASE_LOST where it has gone to another while we were cut off.

        A doubt that is raised while the answer is on its way is not answered by it.
        """
        async with self._asking:
            if not self._is_in_doubt:
                return  # answered to another who asked
            asked = self._doubts
            opened = await self._journal.open_run(self.run_id, self.epoch)
            self._doubts_answered = asked
        if opened.inbox:
            self.inbox_arrived(announced=False)  # its notice may have been lost with the stream

    async def _read_inbox(self, course: Course) -> None:
        announced, self._inbox_news, self._inbox_announced = self._inbox_announced, False, False
        entries = await self._journal.list_inbox(self.run_id, course.consumed_inbox_number)
        course.take_inbox(entries)
        if announced and not entries:
            # Told of nothing new: perhaps the run was ended over our heads.
            await self._journal.open_run(self.run_id, self.epoch)

    def _take_ended(self, course: Course) -> None:
        """Tells the course how steps ended, in the order in which they did."""
        ended, self._ended = self._ended, []
        for task in ended:
            work = self._running.pop(task, None)
            if work is None:
                continue  # stopped before it ended
            if task.cancelled():
                raise LanternError(reasons.INTERNAL, f"step {work.command.step_id} was cancelled by nobody")
            course.step_ended(work, task.result())

    def _dispatch(self, course: Course, program: Program, run: Run) -> None:
        """Begins the steps whose step_started is committed or need not be, the lease being certain to be ours.

        Each step makes sure again where it begins: its task runs a little later, and a claim may come before it.
        """
        for work in course.take_starts():
            context = StepContext(
                run_id=self.run_id,
                workflow_id=run.workflow_id,
                step_id=work.command.step_id,
                attempt=work.attempt,
                key_attempt=work.key_attempt,
                key=work.key,
                epoch=self.epoch,
                tenant_id=run.tenant_id,
            )
            call = program.step_call(work.command.step_id)
            task = asyncio.create_task(self._execution.execute(work, call, context))
            self._running[task] = work
            task.add_done_callback(self._on_ended)

    def _on_ended(self, task: "asyncio.Task[StepEnd]") -> None:
        self._ended.append(task)
        self._wake.set()

    async def _sleep(self, due_us: int | None) -> None:
        """Until something happens or the next delayed work is due."""
        if due_us is None:
            await self._wake.wait()
            return
        delay_s = max(0.0, (due_us - self._now_us()) / 1e6)
        timer = asyncio.get_running_loop().call_later(delay_s, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()

    async def _stop_unwanted(self, course: Course) -> None:
        """Cancels the attempts that the program has stopped waiting for; that they failed is decided already."""
        stops, course.stops = course.stops, set[str]()
        if stops:
            unwanted = [task for task, work in self._running.items() if work.command.step_id in stops]
            for task in unwanted:
                del self._running[task]
            await self._cancel(unwanted)

    async def _stop_all(self) -> None:
        """Gives up all that is under way."""
        await self._stop_steps()
        for under_way in (self._commits, self._children):
            if under_way is not None:
                await under_way.stop()

    async def _stop_steps(self) -> None:
        """Cancels what still runs. Its outcome is unknown, as after a crash."""
        running, self._running = list(self._running), {}
        await self._cancel(running)
        self._ended.clear()

    async def _cancel(self, running: "list[asyncio.Task[StepEnd]]") -> None:
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=STOP_WAIT_S)
        for task in running:
            if task.done() and not task.cancelled():
                task.exception()  # looked at, so that nobody complains of an error that was never retrieved

    def _now_us(self) -> int:
        """The journal's time, never ahead of it."""
        return self._clock_offset_us + self._sources.monotonic_us()

    def _extra(self, action: str) -> dict[str, object]:
        return {"action": action, "run_id": self.run_id, "epoch": self.epoch, "worker_id": self._journal.worker_id}
