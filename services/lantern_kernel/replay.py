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
from collections.abc import Iterable
from dataclasses import replace
from itertools import takewhile

from lantern_kernel import kinds, reasons
from lantern_kernel.commands import (
    AwaitSignal,
    Cancelled,
    Command,
    CompleteUpdate,
    ContinueAsNew,
    End,
    Fail,
    Lasting,
    Note,
    RecordMarker,
    RequestApproval,
    RunStep,
    StartChild,
    StartTimer,
    Succeed,
    Withdraw,
)
from lantern_kernel.errors import LanternError
from lantern_kernel.event import AppliedEvent
from lantern_kernel.keys import idempotency_key
from lantern_kernel.machines import MACHINES, Machine
from lantern_kernel.machines.step import StepMachine
from lantern_kernel.machines.timer import TimerMachine
from lantern_kernel.nondeterminism import NonDeterminism
from lantern_kernel.outcomes import COMPLETES, Happening, Notice, Outcome, outcome_of
from lantern_kernel.payloads import Unpacked, unpack
from lantern_kernel.recorded import Begun, Recorded, describe_command, describe_end
from lantern_kernel.refusal import refused, whole_number
from lantern_kernel.signals import Signal, Signals
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
    child_request_id,
)

_OF_A_COMMAND = frozenset(
    {
        *MACHINES,
        kinds.STEP_COMPLETED,
        kinds.STEP_FAILED,
        kinds.STEP_RETRYING,
        kinds.STEP_WAITING,
        kinds.TIMER_FIRED,
    }
)
"""Events by the driver about one command."""

_TOLD_OF_A_COMMAND = frozenset({kinds.APPROVAL_DECIDED, kinds.APPROVAL_DELEGATED, kinds.CHILD_COMPLETED})
"""Events about one command that others cause."""

PATCH_PREFIX = "patch:"
"""Of the names of the markers by which programs tell old runs from new ones."""


class Replay:
    """One run's history and the program that is driven along it."""

    def __init__(self, *, run_id: str, workflow_id: str, resets: Iterable[tuple[int, int]] = ()) -> None:
        """`resets`: (place, of history_reset) of each reset in the history, whose events in between are passed over."""
        self._run_id = run_id
        self._workflow_id = workflow_id
        self._resets = tuple(resets)
        self._last_seq = 0
        self._last_inbox_number = 0
        self._is_cancel_requested = False
        self._is_paused = False
        self._in_history = True
        self._steps_replayed = 0
        self._terminal: AppliedEvent | None = None
        self._end: End | None = None
        self._is_end_taken = False
        # Every command that has an event; all that ended alike share one machine, so that they cost little memory.
        self._machines: dict[str, Machine] = {}
        self._ended: dict[tuple[type[Machine], str], Machine] = {}
        # Commands of the history that the program has not issued yet, and the other way round; one is always empty.
        self._recorded: deque[Recorded] = deque()
        self._asked: deque[Begun] = deque()
        # Commands that are issued and begun: their completions can be told.
        self._matched: set[str] = set()
        # Commands that are issued and not completed, in order; withdrawn ones as long as something is left to do.
        self._open: dict[str, Lasting] = {}
        # Commands that the program does not wait for any more.
        self._withdrawn: set[str] = set()
        # Those of the open ones that `take_work` must return next.
        self._due: list[str] = []
        # What the program is still to be told, in journal order.
        self._queue: deque[Happening | Signal] = deque()
        self._signals = Signals()
        # Ends of children that were told before the child was begun: it was begun, and passed over by a reset.
        self._early: dict[str, Outcome] = {}
        self._patches: set[str] = set()

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
    def in_history(self) -> bool:
        """Whether the program has not come to the end of the history yet."""
        return self._in_history

    @property
    def recorded_left(self) -> int:
        """How many commands the history holds that the program has not issued yet."""
        return len(self._recorded)

    @property
    def completions_left(self) -> int:
        """How many completions, signals and notices the program is still to be told."""
        return len(self._queue) + self._signals.ready

    def has_marker(self, name: str) -> bool:
        """Whether the history holds a marker of that name, which begins with `PATCH_PREFIX`, wherever it stands."""
        return name in self._patches

    @property
    def untaken_signals(self) -> list[int]:
        """The places of the signals that the program has not taken."""
        coming = [each for each in self._queue if isinstance(each, Signal)]
        return sorted(signal.seq for signal in (*self._signals.untaken(), *coming))

    @property
    def open_commands(self) -> list[Lasting]:
        """What the program waits for."""
        return [command for step_id, command in self._open.items() if step_id not in self._withdrawn]

    def is_open(self, step_id: str) -> bool:
        """Whether that command has not ended, wanted or not."""
        return step_id in self._open

    def is_wanted(self, step_id: str) -> bool:
        """Whether the program still waits for that command."""
        return step_id in self._open and step_id not in self._withdrawn

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
        if self._resets and kind not in kinds.FROM_INBOX and any(to < event.seq <= at for to, at in self._resets):
            pass
        elif kind in _OF_A_COMMAND:
            self._apply_to_command(event)
        elif kind in kinds.FROM_INBOX:
            self._apply_from_inbox(event)
        elif kind in kinds.TERMINAL:
            self._terminal = event
        elif kind not in kinds.NOT_REPLAYED:
            raise refused(event, "this version does not know the kind")
        self._last_seq = event.seq

    def _apply_to_command(self, event: AppliedEvent) -> None:
        step_id, kind = event.step_id, event.kind
        content = unpack(event.payload)
        outcome = outcome_of(event, content) if kind in COMPLETES else None
        machine = self._machines.get(step_id)
        if machine is None:
            begin = MACHINES.get(kind)
            if begin is None:
                raise refused(event, "nothing of that id was begun before")
            machine = begin()
            recorded = Recorded.of(event, content.facts)
            self._check_against_asked(event, recorded)
            machine.apply(event, content.facts)
            self._machines[step_id] = machine
            if recorded.name.startswith(PATCH_PREFIX):
                self._patches.add(recorded.name)
            self._match(recorded)
            if kind == kinds.CHILD_STARTED and step_id in self._early:
                outcome = self._early.pop(step_id)
                machine.apply(replace(event, kind=kinds.CHILD_COMPLETED), content.facts)
        else:
            machine.apply(event, content.facts)
        if outcome is not None:
            self._queue.append(outcome)
        if machine.is_ended:
            self._end_command(step_id, machine)
        elif kind == kinds.STEP_RETRYING:
            self._due.append(step_id)

    def _apply_from_inbox(self, event: AppliedEvent) -> None:
        content, kind = unpack(event.payload), event.kind
        number = whole_number(event, content.facts, "number")
        if kind == kinds.SIGNAL_RECEIVED:
            name = str(content.facts.get("name", ""))
            self._queue.append(Signal(event.seq, name, content.data, content.blob))
        elif kind in _TOLD_OF_A_COMMAND:
            self._apply_told(event, content)
        elif kind == kinds.UPDATE_RECEIVED:
            name = str(content.facts.get("name", ""))
            notice = Notice(kind="update", step_id=event.step_id, name=name, data=content.data, blob=content.blob)
            self._queue.append(notice)
        elif kind == kinds.CANCEL_REQUESTED:
            if not self._is_cancel_requested:
                self._queue.append(Notice(kind="cancel"))
            self._is_cancel_requested = True
        else:
            self._is_paused = kind == kinds.PAUSE_REQUESTED
        self._last_inbox_number = number

    def _apply_told(self, event: AppliedEvent, content: Unpacked) -> None:
        """What others decided or did; of a command that this history does not know (a reset) it may come to nothing."""
        step_id = event.step_id
        outcome = outcome_of(event, content) if event.kind in COMPLETES else None
        machine = self._machines.get(step_id)
        if machine is None:
            if outcome is not None and event.kind == kinds.CHILD_COMPLETED:
                self._early[step_id] = outcome
            return
        if machine.is_ended:
            return
        machine.apply(event, content.facts)
        if outcome is not None:
            self._queue.append(outcome)
            self._end_command(step_id, machine)

    def _end_command(self, step_id: str, machine: Machine) -> None:
        self._open.pop(step_id, None)
        self._machines[step_id] = self._ended.setdefault((type(machine), machine.state), machine)

    def _check_against_asked(self, event: AppliedEvent, recorded: Recorded) -> None:
        if self._asked:
            if recorded.differs(self._asked[0]):
                if self._in_history:
                    raise recorded.against(self._asked[0])
                raise refused(event, f"comes before {describe_command(self._asked[0])}, which was asked for earlier")
        elif not self._in_history:
            raise refused(event, "nobody asked for it")

    def _match(self, recorded: Recorded) -> None:
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
        match command:
            case Withdraw(step_id=step_id):
                self._withdraw(step_id)
            case Succeed() | Fail() | Cancelled() | ContinueAsNew():
                self._check_end(command)
                self._end = command
            case AwaitSignal(step_id=step_id):
                self._check_unused(step_id)
                self._await_signal(command)
            case _:
                self._begin(command)

    def _begin(self, command: Begun) -> None:
        step_id = command.step_id
        if self._recorded:
            recorded = self._recorded[0]
            if recorded.differs(command):
                raise recorded.against(command)
            self._recorded.popleft()
            self._matched.add(step_id)
            if self._machines[step_id].is_ended:
                return
        else:
            self._check_unused(step_id)
            self._asked.append(command)
            if not self._in_history:
                self._due.append(step_id)
        self._open[step_id] = command

    def _check_unused(self, step_id: str) -> None:
        if step_id in self._machines or step_id in self._open:
            raise LanternError(reasons.INTERNAL, f"the program used the id {step_id} twice", step_id=step_id)

    def _await_signal(self, command: AwaitSignal) -> None:
        if not self._signals.ask(command.step_id, command.name):
            self._open[command.step_id] = command

    def _withdraw(self, step_id: str) -> None:
        self._withdrawn.add(step_id)  # an outcome that is on its way comes to nothing
        command = self._open.get(step_id)
        match command:
            case AwaitSignal():
                del self._open[step_id]
                self._signals.withdraw(step_id, command.name)
            case StartTimer() | RequestApproval() if step_id in self._machines:
                del self._open[step_id]
            case RunStep() | StartChild() if not self._in_history and step_id not in self._due:
                self._due.append(step_id)
            case None:
                self._open.pop(self._signals.give_back(step_id), None)
            case _:
                pass

    def _check_end(self, command: End) -> None:
        end = self._terminal
        if end is None or end.kind == kinds.RUN_CANCELLED or self._is_cancel_requested:
            return
        if (end.kind == kinds.RUN_SUCCEEDED) != isinstance(command, Succeed | ContinueAsNew):
            raise NonDeterminism(
                seq=end.seq,
                recorded="the end of the run with " + ("a result" if end.kind == kinds.RUN_SUCCEEDED else "an error"),
                asked=describe_end(command),
                recorded_source="",
                asked_source="",
            )

    def next_outcome(self) -> Happening | None:
        """What the program is told next, in strict journal order, each once; None where the program has to wait."""
        if self._end is not None:
            return None
        ready = self._signals.next_ready()
        if ready is not None:
            return ready
        while self._queue:
            head = self._queue[0]
            if isinstance(head, Outcome):
                step_id = head.step_id
                if step_id not in self._matched:
                    return None
                self._queue.popleft()
                self._matched.discard(step_id)
                if step_id in self._withdrawn:
                    continue
                if self._in_history and isinstance(self._machines[step_id], StepMachine):
                    self._steps_replayed += 1
                return head
            self._queue.popleft()
            if isinstance(head, Notice):
                return head
            taker = self._signals.reach(head)
            if taker:
                del self._open[taker]
                return head.outcome(taker)
        return None

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
                asked_source="" if self._end is not None else next((each.source for each in self._open.values()), ""),
            )
        self._in_history = False
        self._due = list(self._open)

    def _describe_standstill(self) -> str:
        if self._end is not None:
            return describe_end(self._end)
        return f"nothing more while it waits for {', '.join(list(self._open)[:3]) or 'something else'}"

    def take_work(self, now_us: int) -> list[Work]:
        """What must be done now, in the order of the commands, each once; nothing before `finish_history`.

        A step comes again after a step_retrying was applied, with the next attempt and `not_before_us`. A timer that
        is started live comes once only: whoever appends its timer_started also waits for it. Once the program has
        ended there is only FinishWork, behind the answers and observations that nothing else was asked for before; what
        was not begun by then is left undone.
        """
        if self._in_history or self._terminal is not None:
            return []
        if self._end is not None:
            is_first, self._is_end_taken = not self._is_end_taken, True
            return [*self._last_said(), FinishWork(command=self._end)] if is_first else []
        due, self._due = self._due, []
        return [work for step_id in due if (work := self._work(step_id, now_us)) is not None]

    def _last_said(self) -> list[Work]:
        said = list(takewhile(lambda command: isinstance(command, CompleteUpdate | Note), self._asked))
        return [work for command in said if (work := self._work(command.step_id, 0)) is not None]

    def _work(self, step_id: str, now_us: int) -> Work | None:
        command = self._open.get(step_id)
        machine, is_unwanted = self._machines.get(step_id), step_id in self._withdrawn
        match command:
            case RunStep():
                assert machine is None or isinstance(machine, StepMachine), "matched by kind"
                return self._step_work(command, machine or StepMachine(), is_unwanted=is_unwanted)
            case RecordMarker():
                return MarkerWork(command=command)
            case StartTimer():
                is_started = isinstance(machine, TimerMachine)
                due_us = machine.due_us if isinstance(machine, TimerMachine) else now_us + command.duration_us
                if is_unwanted:
                    del self._open[step_id]
                return TimerWork(command=command, due_us=due_us, is_started=is_started, is_unwanted=is_unwanted)
            case RequestApproval():
                return ApprovalWork(command=command) if machine is None else None
            case StartChild():
                return ChildWork(
                    command=command,
                    request_id=child_request_id(self._run_id, step_id),
                    is_started=machine is not None,
                    is_unwanted=is_unwanted,
                )
            case CompleteUpdate():
                return UpdateWork(command=command)
            case Note():
                return NoteWork(command=command)
            case AwaitSignal() | None:
                return None

    def _step_work(self, command: RunStep, machine: StepMachine, *, is_unwanted: bool) -> StepWork | StopWork:
        is_again = machine.state in {"running", "waiting"}
        scope_id = self._workflow_id if command.key_scope == "workflow" and self._workflow_id else self._run_id
        total_ms = command.total_timeout_ms
        # A step that backs off and is not wanted any more fails as the attempt that it was.
        is_next = not is_again and not (is_unwanted and machine.state == "backing_off")
        work = StepWork(
            command=command,
            attempt=machine.attempt + 1 if is_next else machine.attempt,
            key_attempt=machine.key_attempt,
            key_frozen=machine.is_frozen or is_again,
            key=idempotency_key(scope_id, command.step_id, machine.key_attempt),
            not_before_us=machine.not_before_us if machine.state == "backing_off" else None,
            deadline_us=None if total_ms is None or not machine.begun_us else machine.begun_us + total_ms * 1000,
        )
        return StopWork(step=work, is_started=machine.attempt > 0) if is_unwanted else work
