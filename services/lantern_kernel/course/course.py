"""The course of one run: its program and the replay core, turned into the events that are to be appended.

Synchronous and without I/O. The drive tells it what happened (a step ended, a time came, the inbox has entries), lets
it advance, and finds what to append and what to dispatch once that is committed. Whatever it decides it applies at once
to the replay core, so the events of one advance are one append, and live and replay take the same path.
"""

import heapq
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lantern_kernel import failures, kinds, payloads, reasons, retry
from lantern_kernel.blobs import BlobRef, Content
from lantern_kernel.bounds import EVENTS_PER_RUN_MAX, PAYLOAD_BYTES_MAX, PAYLOAD_INLINE_BYTES_MAX
from lantern_kernel.chain import SALT_BYTES
from lantern_kernel.commands import Cancelled, ContinueAsNew, End, Fail, RecordMarker, Succeed
from lantern_kernel.course import parking, records
from lantern_kernel.course.taking_in import taken_in
from lantern_kernel.errors import LanternError
from lantern_kernel.event import AppliedEvent, Event, NewEvent
from lantern_kernel.inbox import InboxEntry
from lantern_kernel.nondeterminism import NonDeterminism
from lantern_kernel.outcomes import Happening
from lantern_kernel.payloads import ParkFacts, RunErrorFacts
from lantern_kernel.program import Chance, Program
from lantern_kernel.replay import Replay
from lantern_kernel.retry import CLASS_OF_STEP_TYPE, Failure, GiveUp
from lantern_kernel.step_ends import Completed, StepEnd, Undecided
from lantern_kernel.texts import printable
from lantern_kernel.work import (
    ApprovalWork,
    ChildWork,
    FinishWork,
    MarkerWork,
    NoteWork,
    StepWork,
    StopWork,
    TimerWork,
    UpdateWork,
    Work,
)

CANCELLED = RunErrorFacts(code=reasons.CANCEL_REQUESTED, message="cancelled on request")

_AWAITED_OUTSIDE = frozenset({kinds.APPROVAL_REQUESTED, kinds.CHILD_STARTED, kinds.UPDATE_COMPLETED})
"""Events that others wait to see, so that they are committed at once in every mode of durability (SPEC J7)."""


@dataclass(order=True, slots=True)
class _Delayed:
    """Work whose time has not come."""

    # Journal time in microseconds.
    due_us: int
    # Keeps the order of equal times.
    order: int
    work: StepWork | TimerWork = field(compare=False)


class Course:
    """One run under one lease. See the module."""

    def __init__(
        self,
        *,
        run_id: str,
        workflow_id: str,
        epoch: int,
        program: Program,
        sources: Chance,
        now_us: Callable[[], int],
        resets: Sequence[tuple[int, int]] = (),
        is_looking_only: bool = False,
    ) -> None:
        """One run under one lease.

        Args:
            run_id: The run.
            workflow_id: Its workflow id.
            epoch: The lease.
            program: What drives it.
            sources: Chance.
            now_us: The journal's time.
            resets: Those that `reset_found` told of while the history was loaded into a course before this one.
            is_looking_only: The program is only to be brought to where the history ends, paused or not.
        """
        self.events: list[NewEvent] = []  # decided, applied, not yet committed
        self.is_awaited_outside = False  # among `events` is one that others wait to see
        self.starts: list[StepWork] = []  # begun by `events`: to be dispatched once these are committed
        self.children: list[ChildWork] = []  # begun by `events`: to be created once these are committed
        self.stops: set[str] = set()  # steps whose attempts are to be stopped where they run: they have ended
        self.child_stops: list[ChildWork] = []  # children to be cancelled where they are
        self.reset_found: tuple[int, int] | None = None  # the history is to be loaded again, with this reset as well
        self.ending: tuple[NewEvent, ...] = ()  # ends the drive: goes behind `events`, not applied
        self.uploads: dict[BlobRef, bytes] = {}  # named by `events` and `ending`: to be kept before these are appended
        self.wanted: BlobRef | None = None  # what the program comes to next: nothing goes on before it is provided
        self._run_id = run_id
        self._epoch = epoch
        self._program = program
        self._sources = sources
        self._now_us = now_us
        self._resets = tuple(resets)
        self._is_looking_only = is_looking_only
        self._replay = Replay(run_id=run_id, workflow_id=workflow_id, resets=self._resets)
        self._delayed: list[_Delayed] = []
        self._order = itertools.count()
        self._undecided: list[StepWork] = []
        self._idle_until_us: int | None = None
        self._finished: End | None = None  # what the run ends with, if nothing comes between
        self._contents: dict[BlobRef, bytes] = {}  # at hand, each until the program has it
        self._held: Happening | None = None  # its content is `wanted`
        program.begin(self._replay)

    @property
    def consumed_inbox_number(self) -> int:
        """The last inbox entry that became an event."""
        return self._replay.last_inbox_number

    @property
    def is_paused(self) -> bool:
        """Whether an operator holds the run: nothing begins and no timer fires until it is resumed."""
        is_held = self._replay.is_paused and not self._replay.is_cancel_requested
        return is_held and not self._is_looking_only

    @property
    def next_due_us(self) -> int | None:
        """When delayed work is due or a wait for others has been held long enough; None while the run is paused."""
        if self.is_paused:
            return None
        dues = (self._delayed[0].due_us if self._delayed else None, self._idle_until_us)
        return min((due_us for due_us in dues if due_us is not None), default=None)

    def load(self, history: Iterable[Event]) -> None:
        """Takes in the history, page by page, before anything else."""
        for event in history:
            if event.kind == kinds.HISTORY_RESET:
                reset = (int(payloads.unpack(event.payload).facts["toSeq"]), event.seq)
                if reset not in self._resets:
                    self.reset_found = reset
                    return  # what follows is read without what lies between
            self._replay.apply(
                AppliedEvent(
                    seq=event.seq,
                    kind=event.kind,
                    step_id=event.step_id,
                    attempt=event.attempt,
                    epoch=event.epoch,
                    time_us=event.time_us,
                    payload=event.payload,
                )
            )

    def take_inbox(self, entries: Iterable[InboxEntry]) -> None:
        """Turns what others say into events, each entry once."""
        for entry in entries:
            if entry.number <= self._replay.last_inbox_number:
                continue
            taken = taken_in(entry)
            self._add(taken.kind, taken.payload, step_id=taken.step_id)

    def step_ended(self, work: StepWork, end: StepEnd) -> None:
        """Records how a dispatched attempt ended; nothing where the program has stopped waiting for it."""
        if not self._replay.is_open(work.command.step_id):
            return
        match end:
            case Completed(output=output, blob=blob):
                if len(output) > PAYLOAD_BYTES_MAX:
                    error = failures.too_large("the result of the step", len(output))
                    self._fail_step(work, error.code, error.message, "", error.details)
                else:
                    if blob is not None and output:
                        self._contents[blob] = output
                    self._add(kinds.STEP_COMPLETED, payloads.pack({}, blob or output), work)
            case Undecided(key=key):
                self._add(kinds.STEP_WAITING, payloads.pack({"on": "operator", "key": key}), work)
                self._undecided.append(work)
            case _:
                self._failed(work, end)

    def child_refused(self, work: ChildWork, error: LanternError) -> None:
        """Records that a child cannot be created."""
        if self._replay.is_open(work.command.step_id):
            facts = {"code": error.reason, "message": printable(error.message), "class": "", "final": True}
            self._add(kinds.STEP_FAILED, payloads.pack(facts), step_id=work.command.step_id)

    def pass_time(self) -> None:
        """Fires the timers and begins the attempts that are due."""
        if self.is_paused:
            return
        now_us = self._now_us()
        while self._delayed and self._delayed[0].due_us <= now_us:
            work = heapq.heappop(self._delayed).work
            if not self._replay.is_wanted(work.command.step_id):
                continue
            if isinstance(work, StepWork):
                self._begin(work)
            else:
                self._add(kinds.TIMER_FIRED, payloads.pack({}), step_id=work.command.step_id)

    def advance(self, *, beginning: bool = True) -> None:
        """Lets the program run on as far as it can; where not `beginning`, without starting anything new.

        Where it comes to content that is not at hand, that is `wanted`: to be provided before anything else.

        Raises:
            LanternError: HISTORY_UNREADABLE.
        """
        if self._finished is not None and not self.ending:
            self._finish(self._finished)
        if self.ending or self.is_paused:
            return
        try:
            while self._turn(beginning):
                pass
        except NonDeterminism as error:
            self._park_for_code_fix(error)
        self._bound_events()

    def park_if_idle(self) -> None:
        """Where nothing is in flight: parks the run if what it waits for is far away, or nobody knows when it comes."""
        if self.ending or self.starts or self.children or self.child_stops:
            return
        nothing = not self._program.has_compensation
        if self.is_paused:
            self._park(ParkFacts(waiting_on="paused", nothing_to_compensate=nothing))
            return
        due_us = self._delayed[0].due_us if self._delayed else None
        now_us = self._now_us()
        if due_us is not None and due_us - now_us <= parking.STAY_US:
            self._idle_until_us = None  # it stays for what is due soon, and has nothing to look for before
            return
        open_commands = self._replay.open_commands
        if parking.awaited_from_others(open_commands):
            self._idle_until_us = self._idle_until_us or now_us + parking.LINGER_US
            if now_us < self._idle_until_us:
                return
        undecided = [each.command.step_id for each in self._undecided if self._replay.is_wanted(each.command.step_id)]
        facts = parking.park_facts(self._run_id, open_commands, undecided, due_us, nothing_to_compensate=nothing)
        if facts is not None:
            self._park(facts)
        else:
            message = "the workflow waits for something that nothing can ever bring about"
            self._finish(Fail(error=RunErrorFacts(code=reasons.WORKFLOW_ERROR, message=message)))

    def committed(self, count: int) -> None:
        """The first `count` of `events` are in the journal."""
        del self.events[:count]
        self.is_awaited_outside &= bool(self.events)

    def take_starts(self) -> list[StepWork]:
        """The attempts that may be dispatched now, their events being committed or they themselves free; each once."""
        starts, self.starts = self.starts, []
        free = not self.events or all(work.is_free for work in starts)
        assert free, "nothing of effect is dispatched before its events are committed"
        return starts

    def take_children(self) -> list[ChildWork]:
        """The children that may be created now, all events being committed; each once."""
        assert not self.events, "nothing is created before its events are committed"
        children, self.children = self.children, []
        return children

    def reconsider(self) -> None:
        """After the inbox turned out to hold more: what was decided to end the drive is decided anew on top of it."""
        if self._finished is not None or (self.ending and self.ending[0].kind == kinds.RUN_PARKED):
            self.ending = ()

    def _turn(self, beginning: bool) -> bool:
        """Program and replay core until the program is blocked, then what there is to do; True if that unblocked it."""
        for command in self._program.advance():
            self._replay.issue(command)
        while (outcome := self._held or self._replay.next_outcome()) is not None:
            if not self._resolve(outcome):
                return False
            for command in self._program.advance():
                self._replay.issue(command)
        self._replay.finish_history()
        unblocked = False
        for work in self._replay.take_work(self._now_us()):
            if isinstance(work, FinishWork):
                self._finish(work.command)
            elif (beginning or isinstance(work, UpdateWork | NoteWork)) and not self.ending:
                unblocked |= self._do(work)
        return unblocked and not self.ending

    def provide(self, content: bytes) -> None:
        """Gives the content of the blob that is `wanted`."""
        assert self.wanted is not None, "asked for"
        self._contents[self.wanted], self.wanted = content, None

    def _resolve(self, outcome: Happening) -> bool:
        """Hands an outcome to the program, or asks for its content where that is a blob that is not at hand."""
        self._held = None
        if outcome.blob is not None:
            content = self._contents.pop(outcome.blob, None)
            if content is None:
                self._held, self.wanted = outcome, outcome.blob
                return False
            outcome = replace(outcome, data=content, blob=None)
        self._program.resolve(outcome)
        return True

    def _content(self, data: bytes) -> Content:
        """User data as an event holds them: as they are, or by the name of the blob that they are to be kept as."""
        if len(data) <= PAYLOAD_INLINE_BYTES_MAX:
            return data
        blob = BlobRef.of(data)
        self.uploads[blob] = data
        return blob

    def _do(self, work: Work) -> bool:
        """Does what can be done at once; True where that may have unblocked the program."""
        match work:
            case MarkerWork():
                return self._record(work.command)
            case TimerWork():
                self._start_timer(work)
            case StepWork(not_before_us=int() as not_before_us) if not_before_us > self._now_us():
                self._delay(not_before_us, work)
            case StepWork():
                self._begin(work)
            case StopWork():
                self._stop(work)
                return True
            case ApprovalWork():
                self._request(work)
            case ChildWork():
                self._start_child(work)
                # Told of its end at once where that was known already: it was begun before a reset.
                return work.is_unwanted or not self._replay.is_open(work.command.step_id)
            case UpdateWork(command=command):
                data = None if command.result is None else self._content(command.result)
                self._add(kinds.UPDATE_COMPLETED, records.update_completed(command, data), step_id=command.step_id)
            case NoteWork(command=command):
                payload = payloads.pack({**command.facts, "source": command.source})
                self._add(command.kind, payload, step_id=command.step_id)
            case FinishWork():
                self._finish(work.command)
        return False

    def _start_timer(self, work: TimerWork) -> None:
        if not work.is_started:
            facts = {"dueUs": work.due_us, "source": work.command.source}
            self._add(kinds.TIMER_STARTED, payloads.pack(facts), step_id=work.command.step_id)
        if not work.is_unwanted:
            self._delay(work.due_us, work)

    def _stop(self, work: StopWork) -> None:
        step = work.step
        if not work.is_started:
            self._add(kinds.STEP_STARTED, records.step_started(step, self._program.digest), step)
        self.stops.add(step.command.step_id)
        self.starts = [each for each in self.starts if each.command.step_id != step.command.step_id]
        message = "the program stopped waiting for it"
        self._fail_step(step, reasons.STEP_CANCELLED, message, "", None)

    def _request(self, work: ApprovalWork) -> None:
        command = work.command
        data = None if command.data is None else self._content(command.data)
        requested = records.approval_requested(command, self._now_us(), data)
        self._add(kinds.APPROVAL_REQUESTED, requested, step_id=command.step_id)
        self._add(kinds.STEP_WAITING, payloads.pack({"on": "approval"}), step_id=command.step_id)

    def _start_child(self, work: ChildWork) -> None:
        command = work.command
        if not work.is_started:
            self._add(kinds.CHILD_STARTED, records.child_started(work), step_id=command.step_id)
        if not work.is_unwanted:
            if self._replay.is_open(command.step_id):  # its end may have been told before a reset
                self.children.append(work)
        elif not work.is_started:
            self.child_refused(work, LanternError(reasons.STEP_CANCELLED, "the program stopped waiting for it"))
        elif not command.abandon:
            self.children = [each for each in self.children if each.command.step_id != command.step_id]
            self.child_stops.append(work)

    def _record(self, command: RecordMarker) -> bool:
        """Evaluates a marker; one that cannot be evaluated or recorded fails the run."""
        try:
            value = command.value if command.value is not None else self._program.marker_value(command.step_id)
        except LanternError as error:
            self._finish(Fail.of(error, command.step_id))
            return False
        content = self._content(value)
        if isinstance(content, BlobRef):
            self._contents[content] = value
        payload = payloads.pack({"name": command.name, "source": command.source}, content)
        self._add(kinds.MARKER_RECORDED, payload, step_id=command.step_id)
        return True

    def _begin(self, work: StepWork) -> None:
        total_ms = work.command.total_timeout_ms
        if total_ms is not None and work.deadline_us is None:
            work = replace(work, deadline_us=self._now_us() + total_ms * 1000)
        self._add(kinds.STEP_STARTED, records.step_started(work, self._program.digest), work)
        self.starts.append(work)

    def _failed(self, work: StepWork, failure: Failure) -> None:
        command = work.command
        decision = retry.decide(
            command.retry, work.attempt, work.key_attempt, work.key_frozen, failure, self._sources.random01()
        )
        if isinstance(decision, GiveUp) or self._is_past(work.deadline_us, decision.delay_ms):
            self._fail_step(work, failure.code, failure.message, failure.error_class, failure.details)
            return
        self._add(kinds.STEP_RETRYING, records.step_retrying(work, failure, decision), work)

    def _is_past(self, deadline_us: int | None, delay_ms: int) -> bool:
        return deadline_us is not None and self._now_us() + delay_ms * 1000 >= deadline_us

    def _fail_step(
        self, work: StepWork, code: str, message: str, error_class: str, details: Mapping[str, str] | None
    ) -> None:
        error = failures.printable_error(RunErrorFacts(code=code, message=message, details=details))
        facts = {
            **error.to_facts(),
            "class": error_class or CLASS_OF_STEP_TYPE.get(work.command.type, "tool"),
            "final": True,
        }
        self._add(kinds.STEP_FAILED, payloads.pack(facts), work)

    def _finish(self, command: End) -> None:
        self._finished = command
        is_cancelled = self._replay.is_cancel_requested
        match command:
            case Fail(error=error):
                pass
            case Cancelled(error=error) if not is_cancelled:
                pass
            case _ if is_cancelled:
                facts = command.error.to_facts() if isinstance(command, Cancelled) else CANCELLED.to_facts()
                self._end(self._new(kinds.RUN_CANCELLED, payloads.pack(facts)))
                return
            case Succeed(result=data) | ContinueAsNew(input=data) if len(data) <= PAYLOAD_BYTES_MAX:
                facts = {}
                if isinstance(command, ContinueAsNew):
                    facts = {"continueAsNew": True, "carry": self._replay.untaken_signals}
                self._end(self._new(kinds.RUN_SUCCEEDED, payloads.pack(facts, self._content(data))))
                return
            case Succeed(result=data):
                error = failures.too_large("the result of the run", len(data))
            case ContinueAsNew(input=data):
                error = failures.too_large("the input of the run that goes on", len(data))
            case Cancelled(error=error):
                raise AssertionError("answered above")
        facts = failures.printable_error(error).to_facts()
        self._end(self._new(kinds.RUN_FAILED, payloads.pack(facts)))

    def _park_for_code_fix(self, error: NonDeterminism) -> None:
        details = {"digest": self._program.digest, **{key: str(value) for key, value in error.facts().items()}}
        facts = RunErrorFacts(code=error.reason, message=printable(error.message), details=details)
        self._end(
            self._new(kinds.NONDETERMINISM_DETECTED, payloads.pack(error.facts())),
            self._new(kinds.RUN_PARKED, ParkFacts(waiting_on="code_fix", error=facts).pack()),
        )

    def _park(self, facts: ParkFacts) -> None:
        self._end(self._new(kinds.RUN_PARKED, facts.pack()))

    def _end(self, *events: NewEvent) -> None:
        self.ending = events

    def _bound_events(self) -> None:
        """Fails the run that grows beyond what a journal may hold, while there is still room to say so."""
        excess = self._replay.last_seq + max(len(self.ending), 1) - EVENTS_PER_RUN_MAX
        if excess <= 0:
            return
        del self.events[max(0, len(self.events) - excess) :]
        message = f"the run has more than {EVENTS_PER_RUN_MAX} events; split it into several runs"
        self._finish(Fail(error=RunErrorFacts(code=reasons.EVENTS_FULL, message=message)))

    def _delay(self, due_us: int, work: StepWork | TimerWork) -> None:
        heapq.heappush(self._delayed, _Delayed(due_us, next(self._order), work))

    def _new(self, kind: str, payload: bytes, step_id: str = "", attempt: int = 0) -> NewEvent:
        salt = self._sources.random_bytes(SALT_BYTES)
        return NewEvent(kind=kind, step_id=step_id, attempt=attempt, payload=payload, salt=salt)

    def _add(self, kind: str, payload: bytes, work: StepWork | None = None, *, step_id: str = "") -> None:
        """Decides on an event: it is applied at once and goes out with the next append."""
        attempt = 0
        self._idle_until_us = None
        if work is not None:
            step_id, attempt = work.command.step_id, work.attempt
        self._replay.apply(
            AppliedEvent(
                seq=self._replay.last_seq + 1,
                kind=kind,
                step_id=step_id,
                attempt=attempt,
                epoch=self._epoch,
                time_us=self._now_us(),
                payload=payload,
            )
        )
        self.events.append(self._new(kind, payload, step_id, attempt))
        self.is_awaited_outside |= kind in _AWAITED_OUTSIDE
