"""One drive of a run in a test: the kernel's course over the journal in memory, a turn at a time."""

import heapq
import itertools
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from lantern.program.calls import StepInfo
from lantern.testing.faults import FaultKind, Injector
from lantern.testing.journal import MemoryJournal
from lantern.testing.outside import Outside, lost_reply
from lantern.testing.programs import WatchedProgram
from lantern.testing.stored import Entry, StoredRun
from lantern_kernel import kinds
from lantern_kernel.bounds import PAYLOAD_BYTES_MAX, PAYLOAD_INLINE_BYTES_MAX
from lantern_kernel.course.course import Course
from lantern_kernel.errors import LanternError
from lantern_kernel.event import Event, NewEvent
from lantern_kernel.failures import refused, timed_out
from lantern_kernel.inbox import InboxEntry
from lantern_kernel.program import Chance
from lantern_kernel.retry import Failure, RetryLater, decide
from lantern_kernel.step_ends import Completed, StepEnd, Undecided
from lantern_kernel.work import StepWork

JUMP_US = 3_600_000_000
"""By how much a clock jumps."""


class Crash(Exception):
    """The worker is gone."""


@dataclass(kw_only=True)
class Surroundings:
    """What all drives of an environment share."""

    # The journal.
    journal: MemoryJournal
    # What steps reach.
    outside: Outside
    # What goes wrong.
    faults: Injector
    # The time.
    now_us: Callable[[], int]
    # Lets the clock jump by so many microseconds.
    jump: Callable[[int], None]
    # Salts, nonces and jitter.
    chance: Chance
    # Runs a coroutine of a step to its end.
    wait: Callable[[Coroutine[Any, Any, Any]], Any]
    # A fresh program for a run.
    program_of: Callable[[StoredRun], WatchedProgram]
    # The run of a child that is to be started: creates it, or finds it.
    begin_child: Callable[[StoredRun, Any], None]
    # Asks that child to end.
    stop_child: Callable[[StoredRun, Any], None]
    # Lets another worker drive a run as well.
    take_over: Callable[[StoredRun], None]
    # Told of each commit that leaves the drive going on, or ends it.
    committed: Callable[[StoredRun, WatchedProgram], None]


@dataclass(order=True, slots=True)
class _Flight:
    """An attempt whose reply is on its way."""

    # When it arrives.
    due_us: int
    # Keeps the order of equal times.
    order: int
    # The attempt.
    work: StepWork = field(compare=False)
    # How it ended.
    end: StepEnd = field(compare=False)


def load(
    run_id: str,
    workflow_id: str,
    events: Sequence[Event],
    program_of: Callable[[], WatchedProgram],
    *,
    epoch: int,
    chance: Chance,
    now_us: Callable[[], int],
    is_looking_only: bool = False,
) -> tuple[Course, WatchedProgram]:
    """A program and its course with a whole history loaded, as often as resets in it make that necessary."""
    resets: list[tuple[int, int]] = []
    while True:
        program = program_of()
        course = Course(
            run_id=run_id,
            workflow_id=workflow_id,
            epoch=epoch,
            program=program,
            sources=chance,
            now_us=now_us,
            resets=tuple(resets),
            is_looking_only=is_looking_only,
        )
        course.load(events)
        if course.reset_found is None:
            return course, program
        resets.append(course.reset_found)
        program.close()


class Drive:
    """One drive, from a grant to the end, a park, a crash or the loss of the lease.

    Attributes:
        is_over: Nothing comes of it any more.
    """

    def __init__(self, around: Surroundings, run: StoredRun, epoch: int) -> None:
        self.run = run
        self.is_over = False
        self._around = around
        self._epoch = epoch
        self._flights: list[_Flight] = []
        self._order = itertools.count()
        self._lost: set[tuple[str, int]] = set()
        self._twice: set[tuple[str, int]] = set()
        self._seq, self._digest = run.events[-1].seq, run.events[-1].digest
        self._mode = run.durability
        self._held = 0  # events that are decided and not committed
        self._course, self._program = load(
            run.run_id,
            run.workflow_id,
            tuple(run.events),
            lambda: around.program_of(run),
            epoch=epoch,
            chance=around.chance,
            now_us=around.now_us,
        )

    @property
    def next_due_us(self) -> int | None:
        """When it has something to do by itself."""
        flight_us = self._flights[0].due_us if self._flights else None
        dues = [due_us for due_us in (flight_us, self._course.next_due_us) if due_us is not None]
        return min(dues, default=None)

    def close(self) -> None:
        """Ends it where it stands."""
        self.is_over = True
        self._program.close()

    def turn(self) -> bool:
        """Does what can be done now; whether that was anything.

        Raises:
            Crash: Its worker was made to die.
            LanternError: The journal refused it, as LEASE_LOST for one that was taken over.
        """
        course = self._course
        course.take_inbox(map(_entry, self.run.inbox[course.consumed_inbox_number :]))
        has_ended = self._take_ended()
        course.pass_time()
        course.advance()
        while course.wanted is not None:
            course.provide(self._around.journal.content(course.wanted))
            course.advance()
        stops, course.stops = course.stops, set[str]()
        if stops:
            self._flights = [each for each in self._flights if each.work.command.step_id not in stops]
            heapq.heapify(self._flights)
        if not self._flights:
            course.park_if_idle()
        has_news = len(course.events) != self._held or bool(course.ending)
        may_wait = self._may_wait()
        if has_news and not may_wait:
            self._commit()
        is_begun = not self.is_over and self._dispatch()
        if may_wait and course.events and self._mode == "async":
            self._commit()  # beside what runs: it was begun before
        self._held = len(course.events)
        return has_ended or has_news or is_begun

    def _may_wait(self) -> bool:
        """Whether nothing that begins now, or ends, needs what is decided committed first (SPEC J7)."""
        course = self._course
        return self._mode != "sync" and not (
            course.ending
            or course.is_awaited_outside
            or course.children
            or course.child_stops
            or not all(work.is_free for work in course.starts)
        )

    def _take_ended(self) -> bool:
        has_any = False
        while self._flights and self._flights[0].due_us <= self._around.now_us():
            flight = heapq.heappop(self._flights)
            self._course.step_ended(flight.work, flight.end)
            has_any = True
        return has_any

    # Committing.

    def _commit(self) -> None:
        course, journal = self._course, self._around.journal
        for content in course.uploads.values():
            journal.put_blob(content)
        course.uploads.clear()
        decided = len(course.events)
        events = (*course.events, *course.ending)
        consumed = course.consumed_inbox_number
        reached = self._around.faults.reach(events, [self._is_retried(event) for event in events])
        if reached is None:
            self._append(events, consumed)
        else:
            self._append_with_fault(events, consumed, reached)
        course.committed(decided)
        self.is_over = bool(course.ending)
        if not self.is_over or self.run.events[-1].kind in kinds.TERMINAL:
            self._around.committed(self.run, self._program)

    def _append(self, events: Sequence[NewEvent], consumed: int) -> None:
        if not events:
            return
        self._around.journal.append(self.run.run_id, self._epoch, self._seq + 1, self._digest, events, consumed)
        self._seq += len(events)
        self._digest = events[-1].digest(run_id=self.run.run_id, seq=self._seq, epoch=self._epoch)

    def _append_with_fault(self, events: Sequence[NewEvent], consumed: int, reached: int) -> None:
        around, fault = self._around, self._around.faults.fault
        assert fault is not None, "only a fault is reached"
        top = (self._seq + 1, self._digest)
        event, head, rest = events[reached - 1], events[:reached], events[reached:]
        if fault.kind is FaultKind.CRASH_BEFORE_COMMIT:
            self._append(events[: reached - 1], consumed)
            raise Crash
        self._append(head, consumed)
        match fault.kind:
            case FaultKind.CRASH_AFTER_COMMIT:
                raise Crash
            case FaultKind.LOST_REPLY:
                self._lost.add((event.step_id, event.attempt))
            case FaultKind.SECOND_DRIVER:
                around.take_over(self.run)
            case FaultKind.CLOCK_JUMP:
                around.jump(JUMP_US)
            case FaultKind.DUPLICATE_DELIVERY:
                self._twice.add((event.step_id, event.attempt))
                if event.kind in kinds.FROM_INBOX:
                    around.journal.repeat(self.run.run_id, event)
            case _:
                around.journal.append(self.run.run_id, self._epoch, *top, head, consumed)
        self._append(rest, consumed)
        if fault.kind is FaultKind.DUPLICATE_DELIVERY:
            # Late: other appends have gone in since.
            around.journal.append(self.run.run_id, self._epoch, *top, head, consumed)

    def _is_retried(self, event: NewEvent) -> bool:
        """Whether the attempt that an event begins is followed by another if its reply is lost."""
        if event.kind != kinds.STEP_STARTED:
            return False
        work = next((each for each in self._course.starts if each.command.step_id == event.step_id), None)
        if work is None:
            return False
        policy, lost = work.command.retry, lost_reply(work.command)
        return isinstance(decide(policy, work.attempt, work.key_attempt, work.key_frozen, lost, 0.0), RetryLater)

    # Attempts.

    def _dispatch(self) -> bool:
        course, around = self._course, self._around
        starts, children = course.take_starts(), course.take_children() if course.children else []
        stops, course.child_stops = course.child_stops, []
        for work in starts:
            self._begin(work)
        for child in children:
            try:
                around.begin_child(self.run, child)
            except LanternError as error:
                course.child_refused(child, error)
        for child in stops:
            around.stop_child(self.run, child)
        return bool(starts or children or stops)

    def _begin(self, work: StepWork) -> None:
        command, around = work.command, self._around
        assert command.step_id not in self.run.ended_steps, f"step {command.step_id} is recorded, and executed again"
        info = StepInfo(
            run_id=self.run.run_id,
            workflow_id=self.run.workflow_id,
            step_id=command.step_id,
            attempt=work.attempt,
            key_attempt=work.key_attempt,
            key=work.key,
            epoch=self._epoch,
        )
        takes_us = around.outside.takes_us(command)
        end = self._claimed(work, info)
        limit_us = self._limit_us(work)
        if limit_us is not None and takes_us > limit_us:
            takes_us = limit_us
            end = timed_out(command.type, command.step_id, limit_us // 1000)
        if isinstance(end, Completed) and PAYLOAD_INLINE_BYTES_MAX < len(end.output) <= PAYLOAD_BYTES_MAX:
            end = Completed(output=end.output, blob=around.journal.put_blob(end.output))
        heapq.heappush(self._flights, _Flight(around.now_us() + takes_us, next(self._order), work, end))

    def _limit_us(self, work: StepWork) -> int | None:
        """How long the attempt may take: its own time-out, and what is left for all of them."""
        limits: list[int] = []
        if work.command.timeout_ms is not None:
            limits.append(work.command.timeout_ms * 1000)
        if work.deadline_us is not None:
            limits.append(max(0, work.deadline_us - self._around.now_us()))
        return min(limits, default=None)

    def _claimed(self, work: StepWork, info: StepInfo) -> StepEnd:
        """The attempt's end, after a claim where its author asks for one (SPEC E4)."""
        command, journal = work.command, self._around.journal
        if not command.claim:
            return self._made(work, info)
        nonce = self._around.chance.random_bytes(16)
        is_ours, claim = journal.claim(self.run.run_id, self._epoch, work.key, nonce)
        if claim.state == "delivered":
            return Completed(output=journal.content(claim.result) or b"null")
        if claim.state == "refused":
            return refused(command.type, "STEP_FAILED", "the delivery was refused")
        if not is_ours and command.claim != "retry":
            return Undecided(key=work.key) if command.claim == "ask" else Completed(output=b"null")
        end = self._made(work, info)
        if isinstance(end, Completed):
            journal.settle(work.key, delivered=True, result=end.output)
        elif end.outcome == "not_executed" and not work.key_frozen:
            journal.settle(work.key, delivered=False, result=b"null")
        return end

    def _made(self, work: StepWork, info: StepInfo) -> Completed | Failure:
        """The attempt, made once, or twice where its request is delivered twice; its reply may be lost."""
        command, around = work.command, self._around
        end = around.wait(around.outside.execute(command, self._program.step_call(command.step_id), info))
        at = (command.step_id, work.attempt)
        if at in self._twice:
            self._twice.discard(at)
            around.wait(around.outside.execute(command, self._program.step_call(command.step_id), info))
        if at in self._lost:
            self._lost.discard(at)
            return lost_reply(command)
        return end


def _entry(entry: Entry) -> InboxEntry:
    return InboxEntry(
        number=entry.number,
        kind=entry.kind,
        name=entry.name,
        payload=entry.payload,
        payload_blob=entry.payload_blob,
    )
