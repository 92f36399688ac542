"""The replay core: it is fed a run's events and a program's commands, and answers from the history or says "do it".

Nothing here reads a clock or does any work (SPEC 5). A driver uses it so:

    for event in history: replay.apply(event)
    loop:
        for command in program.advance(): replay.issue(command)
        outcome = replay.next_outcome()
        if outcome is None: break
        program.resolve(outcome)
    replay.finish_history()
    for work in replay.take_work(now_us): ...

and goes on in the same way with each event that it decides to append: apply it, then let the program run on. Live and
replay take the same path, so they cannot differ.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from lantern_kernel import kinds, reasons
from lantern_kernel.blobs import BlobRef
from lantern_kernel.commands import Command, Fail, RecordMarker, RunStep, StartTimer, Succeed
from lantern_kernel.errors import LanternError
from lantern_kernel.event import AppliedEvent
from lantern_kernel.keys import idempotency_key
from lantern_kernel.machines.marker import MarkerMachine
from lantern_kernel.machines.step import StepMachine
from lantern_kernel.machines.timer import TimerMachine
from lantern_kernel.nondeterminism import NonDeterminism
from lantern_kernel.payloads import RunErrorFacts, Unpacked, unpack
from lantern_kernel.refusal import refused, whole_number

__all__ = [
    "AppliedEvent",
    "FinishWork",
    "MarkerWork",
    "NonDeterminism",
    "Outcome",
    "Replay",
    "StepWork",
    "TimerWork",
    "Work",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """How a command ended: exactly one of data, blob and error, but none for a timer."""

    # The step, marker or timer.
    step_id: str
    # The recorded bytes.
    data: bytes | None
    # Why the step failed for good.
    error: RunErrorFacts | None
    # The blob that holds the recorded bytes: whoever drives has them fetched before the program gets the outcome.
    blob: BlobRef | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class StepWork:
    """Append step_started with these numbers, and once it is committed dispatch the attempt."""

    # The command.
    command: RunStep
    # The number of the attempt to make.
    attempt: int
    # The key attempt to make it under.
    key_attempt: int
    # Whether the key can no longer change within this step; goes into `retry.decide`.
    key_frozen: bool
    # The idempotency key.
    key: str
    # Not before this time (what is left of a back-off); None for at once.
    not_before_us: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class MarkerWork:
    """Evaluate the marker and append marker_recorded."""

    # The command.
    command: RecordMarker


@dataclass(frozen=True, kw_only=True, slots=True)
class TimerWork:
    """Append timer_started where it is not started yet; append timer_fired when it is due."""

    # The command.
    command: StartTimer
    # When it is due; for one not started yet `now_us` + its duration, which timer_started then records.
    due_us: int
    # Whether timer_started is already recorded.
    is_started: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class FinishWork:
    """Append run_succeeded or run_failed."""

    # The command.
    command: Succeed | Fail


Work = StepWork | MarkerWork | TimerWork | FinishWork
"""Whatever can be left to do."""


_Machine = StepMachine | MarkerMachine | TimerMachine
_Lasting = RunStep | RecordMarker | StartTimer

_MACHINES: Mapping[str, Callable[[], _Machine]] = {
    kinds.STEP_STARTED: StepMachine,
    kinds.MARKER_RECORDED: MarkerMachine,
    kinds.TIMER_STARTED: TimerMachine,
}
"""Which events begin a command, and what each begins."""

_OF_A_STEP = frozenset(
    {
        kinds.STEP_STARTED,
        kinds.STEP_COMPLETED,
        kinds.STEP_FAILED,
        kinds.STEP_RETRYING,
        kinds.STEP_WAITING,
        kinds.MARKER_RECORDED,
        kinds.TIMER_STARTED,
        kinds.TIMER_FIRED,
    }
)
"""Events about one step, marker or timer."""

_COMPLETES = frozenset({kinds.STEP_COMPLETED, kinds.STEP_FAILED, kinds.MARKER_RECORDED, kinds.TIMER_FIRED})
"""Events that answer a command."""

_BEGUN_BY: Mapping[type[_Lasting], tuple[str, str]] = {
    RunStep: (kinds.STEP_STARTED, "step"),
    RecordMarker: (kinds.MARKER_RECORDED, "marker"),
    StartTimer: (kinds.TIMER_STARTED, "timer"),
}
_WORDS: Mapping[str, str] = dict(_BEGUN_BY.values())


class _Recorded(NamedTuple):
    """A command in the history, by the event that began it."""

    seq: int
    kind: str
    step_id: str
    name: str
    step_type: str
    source: str

    def describe(self) -> str:
        return _describe(_WORDS[self.kind], self.step_id, self.name, self.step_type)


def _describe(word: str, step_id: str, name: str, step_type: str) -> str:
    more = ", ".join(part for part in (step_type, f"named {name}" if name not in {"", step_id} else "") if part)
    return f"{word} {step_id}" + (f" ({more})" if more else "")


class Replay:
    """One run's history and the program that is driven along it."""

    def __init__(self, *, run_id: str, workflow_id: str) -> None:
        self._run_id = run_id
        self._workflow_id = workflow_id
        self._last_seq = 0
        self._last_inbox_number = 0
        self._is_cancel_requested = False
        self._is_paused = False
        self._in_history = True
        self._steps_replayed = 0
        self._terminal: AppliedEvent | None = None
        self._end: Succeed | Fail | None = None
        self._is_end_taken = False
        # Every step, marker and timer that has an event.
        self._machines: dict[str, _Machine] = {}
        # Commands of the history that the program has not issued yet, and the other way round; one is always empty.
        self._recorded: deque[_Recorded] = deque()
        self._asked: deque[_Lasting] = deque()
        # Commands that are issued and begun: their completions can be told.
        self._matched: set[str] = set()
        # Commands that are issued and not completed, in order.
        self._open: dict[str, _Lasting] = {}
        # Those of them that `take_work` must return next.
        self._due: list[str] = []
        self._completions: deque[Outcome] = deque()

    @property
    def steps_replayed(self) -> int:
        """How many steps were answered from the history instead of being done."""
        return self._steps_replayed

    @property
    def is_finished(self) -> bool:
        """Whether a terminal event has been applied: there is nothing to do, now or later."""
        return self._terminal is not None

    @property
    def is_cancel_requested(self) -> bool:
        """Whether a cancel_requested event has been applied."""
        return self._is_cancel_requested

    @property
    def is_paused(self) -> bool:
        """Whether a pause_requested has been applied, and no resume_requested since."""
        return self._is_paused

    @property
    def last_inbox_number(self) -> int:
        """The number of the last inbox entry that became an event; 0 where none did."""
        return self._last_inbox_number

    @property
    def last_seq(self) -> int:
        """The seq of the last event applied; 0 before the first."""
        return self._last_seq

    def apply(self, event: AppliedEvent) -> None:
        """Takes in the next event: the whole history first, later each event that the driver decides to append.

        The driver's own first events of new commands (first step_started, marker_recorded, timer_started) must come
        in the order in which `take_work` returned the commands.

        Raises:
            LanternError: HISTORY_UNREADABLE, the event's kind is unknown or it cannot follow what was applied before;
                nothing has changed.
            NonDeterminism: It is of the history, and its command was issued differently before.
        """
        if event.seq != self._last_seq + 1:
            raise refused(event, f"cannot follow on event {self._last_seq}")
        if self._terminal is not None:
            raise refused(event, f"cannot follow on the end of the run ({self._terminal.kind})")
        kind = event.kind
        if kind in _OF_A_STEP:
            self._apply_to_step(event)
        elif kind in kinds.FROM_INBOX:
            self._last_inbox_number = whole_number(event, unpack(event.payload).facts, "number")
            self._is_cancel_requested = self._is_cancel_requested or kind == kinds.CANCEL_REQUESTED
            if kind in (kinds.PAUSE_REQUESTED, kinds.RESUME_REQUESTED):
                self._is_paused = kind == kinds.PAUSE_REQUESTED
        elif kind in kinds.TERMINAL:
            self._terminal = event
        elif kind not in kinds.NOT_REPLAYED:
            raise refused(event, "this version does not know the kind")
        self._last_seq = event.seq

    def _apply_to_step(self, event: AppliedEvent) -> None:
        step_id, kind = event.step_id, event.kind
        content = unpack(event.payload)
        outcome = _outcome(event, content) if kind in _COMPLETES else None
        machine = self._machines.get(step_id)
        if machine is None:
            begin = _MACHINES.get(kind)
            if begin is None:
                raise refused(event, "nothing of that id was begun before")
            machine = begin()
            recorded = _recorded(event, content.facts)
            self._check_against_asked(event, recorded)
            machine.apply(event, content.facts)
            self._machines[step_id] = machine
            self._match(recorded)
        else:
            machine.apply(event, content.facts)
        if outcome is not None:
            self._completions.append(outcome)
            self._open.pop(step_id, None)
        elif kind == kinds.STEP_RETRYING:
            self._due.append(step_id)

    def _check_against_asked(self, event: AppliedEvent, recorded: _Recorded) -> None:
        if self._asked:
            if _differs(recorded, self._asked[0]):
                if self._in_history:
                    raise _nondeterminism(recorded, self._asked[0])
                raise refused(event, f"comes before {_describe_command(self._asked[0])}, which was asked for earlier")
        elif not self._in_history:
            raise refused(event, "nobody asked for it")

    def _match(self, recorded: _Recorded) -> None:
        if self._asked:
            self._asked.popleft()
            self._matched.add(recorded.step_id)
        else:
            self._recorded.append(recorded)

    def issue(self, command: Command) -> None:
        """Takes in the program's next command, in the program's own order.

        Raises:
            NonDeterminism: The history records another one in its place; nothing has changed.
        """
        assert self._end is None, "a program that has ended asks for nothing more"
        if isinstance(command, Succeed | Fail):
            self._check_end(command)
            self._end = command
            return
        step_id = command.step_id
        if self._recorded:
            recorded = self._recorded[0]
            if _differs(recorded, command):
                raise _nondeterminism(recorded, command)
            self._recorded.popleft()
            self._matched.add(step_id)
            if self._machines[step_id].is_ended:
                return
        else:
            if step_id in self._machines or step_id in self._open:
                raise LanternError(reasons.INTERNAL, f"the program used the id {step_id} twice", step_id=step_id)
            self._asked.append(command)
            if not self._in_history:
                self._due.append(step_id)
        self._open[step_id] = command

    def _check_end(self, command: Succeed | Fail) -> None:
        end = self._terminal
        if end is None or end.kind == kinds.RUN_CANCELLED:
            return
        if (end.kind == kinds.RUN_SUCCEEDED) != isinstance(command, Succeed):
            raise NonDeterminism(
                seq=end.seq,
                recorded="the end of the run with " + ("a result" if end.kind == kinds.RUN_SUCCEEDED else "an error"),
                asked=_describe_end(command),
                recorded_source="",
                asked_source="",
            )

    def next_outcome(self) -> Outcome | None:
        """The next completion in strict journal order, each once; None where the program has to wait."""
        if not self._completions or self._end is not None or self._completions[0].step_id not in self._matched:
            return None
        outcome = self._completions.popleft()
        if self._in_history and isinstance(self._machines[outcome.step_id], StepMachine):
            self._steps_replayed += 1
        return outcome

    def finish_history(self) -> None:
        """Ends the replay; to be called once the program waits or has ended and no outcome is left. Repeats do nothing.

        Raises:
            NonDeterminism: The history still holds a command that the program did not ask for.
        """
        if not self._in_history:
            return
        if self._recorded:
            recorded = self._recorded[0]
            raise NonDeterminism(
                seq=recorded.seq,
                recorded=recorded.describe(),
                asked=self._describe_standstill(),
                recorded_source=recorded.source,
                asked_source=self._source_of_standstill(),
            )
        self._in_history = False
        self._due = list(self._open)

    def _describe_standstill(self) -> str:
        if self._end is not None:
            return _describe_end(self._end)
        return f"nothing more while it waits for {', '.join(list(self._open)[:3]) or 'something else'}"

    def _source_of_standstill(self) -> str:
        return "" if self._end is not None else next((command.source for command in self._open.values()), "")

    def take_work(self, now_us: int) -> list[Work]:
        """What must be done now, in the order of the commands, each once; nothing before `finish_history`.

        A step comes again after a step_retrying was applied, with the next attempt and `not_before_us`. A timer that
        is started live comes once only: whoever appends its timer_started also waits for it. Once the program has
        ended there is only FinishWork; what was not begun by then is left undone.
        """
        if self._in_history or self._terminal is not None:
            return []
        if self._end is not None:
            is_first, self._is_end_taken = not self._is_end_taken, True
            return [FinishWork(command=self._end)] if is_first else []
        due, self._due = self._due, []
        return [self._work(self._open[step_id], now_us) for step_id in due if step_id in self._open]

    def _work(self, command: _Lasting, now_us: int) -> Work:
        machine = self._machines.get(command.step_id)
        match command:
            case RunStep():
                assert machine is None or isinstance(machine, StepMachine), "matched by kind"
                return self._step_work(command, machine or StepMachine())
            case RecordMarker():
                return MarkerWork(command=command)
            case StartTimer():
                if isinstance(machine, TimerMachine):
                    return TimerWork(command=command, due_us=machine.due_us, is_started=True)
                return TimerWork(command=command, due_us=now_us + command.duration_us, is_started=False)

    def _step_work(self, command: RunStep, machine: StepMachine) -> StepWork:
        is_again = machine.state in {"running", "waiting"}
        scope_id = self._workflow_id if command.key_scope == "workflow" and self._workflow_id else self._run_id
        return StepWork(
            command=command,
            attempt=machine.attempt if is_again else machine.attempt + 1,
            key_attempt=machine.key_attempt,
            key_frozen=machine.is_frozen or is_again,
            key=idempotency_key(scope_id, command.step_id, machine.key_attempt),
            not_before_us=machine.not_before_us if machine.state == "backing_off" else None,
        )


def _recorded(event: AppliedEvent, facts: Mapping[str, Any]) -> _Recorded:
    return _Recorded(
        seq=event.seq,
        kind=event.kind,
        step_id=event.step_id,
        name=str(facts.get("name", "")),
        step_type=str(facts.get("type", "")),
        source=str(facts.get("source", "")),
    )


def _outcome(event: AppliedEvent, content: Unpacked) -> Outcome:
    if event.kind == kinds.STEP_FAILED:
        facts = {**content.facts, "stepId": event.step_id}
        return Outcome(step_id=event.step_id, data=None, error=RunErrorFacts.from_facts(facts))
    if event.kind != kinds.TIMER_FIRED and content.content is None:
        raise refused(event, "holds no data")
    return Outcome(step_id=event.step_id, data=content.data, error=None, blob=content.blob)


def _differs(recorded: _Recorded, command: _Lasting) -> bool:
    """Whether the command is another one than the recorded; what an old event does not say is not compared."""
    if recorded.step_id != command.step_id or recorded.kind != _BEGUN_BY[type(command)][0]:
        return True
    if isinstance(command, StartTimer):
        return False
    if recorded.name not in {"", command.name}:
        return True
    return isinstance(command, RunStep) and recorded.step_type not in {"", command.type}


def _describe_command(command: _Lasting) -> str:
    name = "" if isinstance(command, StartTimer) else command.name
    step_type = command.type if isinstance(command, RunStep) else ""
    return _describe(_BEGUN_BY[type(command)][1], command.step_id, name, step_type)


def _describe_end(command: Succeed | Fail) -> str:
    return "the end of the run with " + ("a result" if isinstance(command, Succeed) else "an error")


def _nondeterminism(recorded: _Recorded, command: _Lasting) -> NonDeterminism:
    return NonDeterminism(
        seq=recorded.seq,
        recorded=recorded.describe(),
        asked=_describe_command(command),
        recorded_source=recorded.source,
        asked_source=command.source,
    )
