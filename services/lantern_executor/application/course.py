"""The course of one run: its program and the replay core, turned into the events that are to be appended.

Synchronous and without I/O. The drive tells it what happened (a step ended, a time came, the inbox has entries), lets
it advance, and finds what to append and what to dispatch once that is committed. Whatever it decides it applies at once
to the replay core, so the events of one advance are one append, and live and replay take the same path.
"""

import heapq
import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

from lantern_executor.domain import failures
from lantern_executor.domain.run import InboxEntry
from lantern_executor.domain.step import Completed, StepEnd, Undecided
from lantern_executor.ports import Program, Sources
from lantern_kernel import kinds, payloads, reasons, retry
from lantern_kernel.blobs import BlobRef, Content
from lantern_kernel.bounds import EVENTS_PER_RUN_MAX, PAYLOAD_BYTES_MAX, PAYLOAD_INLINE_BYTES_MAX
from lantern_kernel.chain import SALT_BYTES
from lantern_kernel.commands import Fail, Succeed
from lantern_kernel.errors import LanternError
from lantern_kernel.event import AppliedEvent, Event, NewEvent
from lantern_kernel.payloads import DecisionFacts, ParkFacts, RunErrorFacts
from lantern_kernel.replay import (
    FinishWork,
    MarkerWork,
    NonDeterminism,
    Outcome,
    Replay,
    StepWork,
    TimerWork,
    Work,
)
from lantern_kernel.retry import CLASS_OF_STEP_TYPE, Failure, GiveUp
from lantern_kernel.texts import printable

STAY_US = 10_000_000
"""A wait up to this stays with the driver; a longer one parks the run (SPEC L8)."""

_TAKEN_IN_AS: Mapping[str, str] = {
    "signal": kinds.SIGNAL_RECEIVED,
    "cancel": kinds.CANCEL_REQUESTED,
    "pause": kinds.PAUSE_REQUESTED,
    "resume": kinds.RESUME_REQUESTED,
    "decision": kinds.APPROVAL_DECIDED,
    "delegation": kinds.APPROVAL_DELEGATED,
}
"""The event by which each kind of inbox entry is taken in."""

CANCELLED = RunErrorFacts(code=reasons.CANCEL_REQUESTED, message="cancelled on request")


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
        sources: Sources,
        now_us: Callable[[], int],
    ) -> None:
        self.events: list[NewEvent] = []  # decided, applied, not yet committed
        self.starts: list[StepWork] = []  # begun by `events`: to be dispatched once these are committed
        self.ending: tuple[NewEvent, ...] = ()  # ends the drive: goes behind `events`, not applied
        self.uploads: dict[BlobRef, bytes] = {}  # named by `events` and `ending`: to be kept before these are appended
        self.wanted: BlobRef | None = None  # what the program comes to next: nothing goes on before it is provided
        self._run_id = run_id
        self._epoch = epoch
        self._program = program
        self._sources = sources
        self._now_us = now_us
        self._replay = Replay(run_id=run_id, workflow_id=workflow_id)
        self._delayed: list[_Delayed] = []
        self._order = itertools.count()
        self._undecided: list[StepWork] = []
        self._contents: dict[BlobRef, bytes] = {}  # at hand, each until the program has it
        self._held: Outcome | None = None  # its content is `wanted`

    @property
    def consumed_inbox_number(self) -> int:
        """The last inbox entry that became an event."""
        return self._replay.last_inbox_number

    @property
    def is_paused(self) -> bool:
        """Whether an operator holds the run: nothing begins and no timer fires until it is resumed."""
        return self._replay.is_paused and not self._replay.is_cancel_requested

    @property
    def next_due_us(self) -> int | None:
        """When the next delayed work is due; None while the run is paused."""
        return self._delayed[0].due_us if self._delayed and not self.is_paused else None

    def load(self, history: Iterable[Event]) -> None:
        """Takes in the history, page by page, before anything else."""
        for event in history:
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
            kind = _TAKEN_IN_AS.get(entry.kind)
            if kind is None:
                message = f"inbox entry {entry.number} is a {entry.kind}, which this version does not know"
                raise LanternError(reasons.HISTORY_UNREADABLE, message)
            if kind == kinds.SIGNAL_RECEIVED:
                facts = {"number": entry.number, "name": entry.name}
                said = entry.payload_blob or entry.payload or b"null"
                self._add(kind, payloads.pack(facts, said))
            elif kind in (kinds.APPROVAL_DECIDED, kinds.APPROVAL_DELEGATED):
                unpacked = payloads.unpack(entry.payload)
                decision = DecisionFacts.from_facts(unpacked.facts)
                self._add(kind, decision.pack(unpacked.data, entry.number), step_id=decision.step_id)
            else:
                self._add(kind, payloads.pack({"number": entry.number}))

    def step_ended(self, work: StepWork, end: StepEnd) -> None:
        """Records how a dispatched attempt ended."""
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

    def pass_time(self) -> None:
        """Fires the timers and begins the attempts that are due."""
        if self.is_paused:
            return
        now_us = self._now_us()
        while self._delayed and self._delayed[0].due_us <= now_us:
            match heapq.heappop(self._delayed).work:
                case StepWork() as work:
                    self._begin(work)
                case TimerWork(command=command):
                    self._add(kinds.TIMER_FIRED, payloads.pack({}), step_id=command.step_id)

    def advance(self, *, beginning: bool = True) -> None:
        """Lets the program run on as far as it can; where not `beginning`, without starting anything new.

        Where it comes to content that is not at hand, that is `wanted`: to be provided before anything else.

        Raises:
            LanternError: HISTORY_UNREADABLE.
        """
        if self._replay.is_cancel_requested:
            self.ending = (self._new(kinds.RUN_CANCELLED, payloads.pack(CANCELLED.to_facts())),)
        if self.ending or self.is_paused:
            return
        try:
            while self._turn(beginning):
                pass
        except NonDeterminism as error:
            self._park_for_code_fix(error)
        self._bound_events()

    def park_if_idle(self) -> None:
        """Where nothing is in flight: parks the run if what it waits for is far away, or nobody knows when it comes.

        No program compensates anything yet: the journal may end a parked run by itself.
        """
        if self.ending or self.starts:
            return
        if self.is_paused:
            self._park(ParkFacts(waiting_on="paused", nothing_to_compensate=True))
            return
        due_us = self.next_due_us
        if due_us is not None and due_us - self._now_us() <= STAY_US:
            return
        if self._undecided:
            step_id = self._undecided[0].command.step_id
            command = f"lantern runs settle {self._run_id}"
            message = f"whether step {step_id} was delivered is not known: `{command}` with --delivered or --refused"
            error = RunErrorFacts(code=reasons.STEP_OUTCOME_UNKNOWN, message=message, step_id=step_id)
            self._park(ParkFacts(waiting_on="operator", due_us=due_us, error=error, nothing_to_compensate=True))
        elif due_us is not None:
            self._park(ParkFacts(waiting_on="timer", due_us=due_us, nothing_to_compensate=True))
        else:
            message = "the workflow waits for something that nothing can ever bring about"
            self._finish(Fail(error=RunErrorFacts(code=reasons.WORKFLOW_ERROR, message=message)))

    def committed(self, count: int) -> None:
        """The first `count` of `events` are in the journal."""
        del self.events[:count]

    def take_starts(self) -> list[StepWork]:
        """The attempts that may be dispatched now, all their events being committed; each once."""
        assert not self.events, "nothing is dispatched before its events are committed"
        starts, self.starts = self.starts, []
        return starts

    def reconsider(self) -> None:
        """After the inbox turned out to hold more: a run that was about to wait may have no reason to any more."""
        if self.ending and self.ending[0].kind == kinds.RUN_PARKED:
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
            elif beginning and not self.ending:
                unblocked |= self._do(work)
        return unblocked and not self.ending

    def provide(self, content: bytes) -> None:
        """Gives the content of the blob that is `wanted`."""
        assert self.wanted is not None, "asked for"
        self._contents[self.wanted], self.wanted = content, None

    def _resolve(self, outcome: Outcome) -> bool:
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
        match work:
            case MarkerWork():
                return self._record(work)
            case TimerWork(command=command):
                if not work.is_started:
                    facts = {"dueUs": work.due_us, "source": command.source}
                    self._add(kinds.TIMER_STARTED, payloads.pack(facts), step_id=command.step_id)
                self._delay(work.due_us, work)
            case StepWork(not_before_us=int() as not_before_us) if not_before_us > self._now_us():
                self._delay(not_before_us, work)
            case StepWork():
                self._begin(work)
            case FinishWork():
                self._finish(work.command)
        return False

    def _record(self, work: MarkerWork) -> bool:
        """Evaluates a marker; one that cannot be evaluated or recorded fails the run."""
        command = work.command
        try:
            value = self._program.marker_value(command.step_id)
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
        command = work.command
        facts = {
            "name": command.name,
            "type": command.type,
            "of": command.retry.max_attempts,
            "keyAttempt": work.key_attempt,
            "key": work.key,
            "inputHash": sha256(command.input).hexdigest(),
            "source": command.source,
            "code": self._program.digest,
        }
        self._add(kinds.STEP_STARTED, payloads.pack(facts), work)
        self.starts.append(work)

    def _failed(self, work: StepWork, failure: Failure) -> None:
        command = work.command
        decision = retry.decide(
            command.retry, work.attempt, work.key_attempt, work.key_frozen, failure, self._sources.random01()
        )
        if isinstance(decision, GiveUp):
            self._fail_step(work, failure.code, failure.message, failure.error_class, failure.details)
            return
        error = failures.printable_error(RunErrorFacts(code=failure.code, message=failure.message))
        facts: Mapping[str, Any] = {
            "of": command.retry.max_attempts,
            "error": {"code": error.code, "message": error.message},
            "delayMs": decision.delay_ms,
            "keyAttempt": decision.key_attempt,
            "outcome": failure.outcome,
        }
        self._add(kinds.STEP_RETRYING, payloads.pack(facts), work)

    def _fail_step(
        self, work: StepWork, code: str, message: str, error_class: str, details: Mapping[str, str] | None
    ) -> None:
        error = failures.printable_error(RunErrorFacts(code=code, message=message, details=details))
        facts = {**error.to_facts(), "class": error_class or CLASS_OF_STEP_TYPE[work.command.type], "final": True}
        self._add(kinds.STEP_FAILED, payloads.pack(facts), work)

    def _finish(self, command: Succeed | Fail) -> None:
        if isinstance(command, Succeed):
            if len(command.result) <= PAYLOAD_BYTES_MAX:
                self._end(self._new(kinds.RUN_SUCCEEDED, payloads.pack({}, self._content(command.result))))
                return
            command = Fail(error=failures.too_large("the result of the run", len(command.result)))
        facts = failures.printable_error(command.error).to_facts()
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
