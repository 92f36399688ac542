"""The host of one run of workflow code: it runs the code until it waits, and hands out what it asks for."""

import asyncio
import inspect
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lantern.program import conversion, endings
from lantern.program.asks import Answered, Issued, RunInfo, user_source
from lantern.program.calls import StepCall
from lantern.program.context import Context
from lantern.program.conversation import Conversation
from lantern.program.failures import NotReplayable, describe
from lantern.program.loop import OrderedFuture, WorkflowLoop
from lantern.program.saga import Saga
from lantern.program.standing import stands_protected
from lantern.program.surroundings import Machine, Surroundings
from lantern.registry import Definition
from lantern_kernel import json_bytes, reasons
from lantern_kernel.commands import (
    AwaitSignal,
    Cancelled,
    Command,
    CompleteUpdate,
    End,
    Fail,
    RecordMarker,
    RunStep,
    StartChild,
    StartTimer,
    Withdraw,
)
from lantern_kernel.errors import LanternError
from lantern_kernel.outcomes import Happening, Notice, Outcome
from lantern_kernel.payloads import RunErrorFacts
from lantern_kernel.program import ReplayView
from lantern_kernel.replay import PATCH_PREFIX
from lantern_kernel.texts import printable

__all__ = ["RunInfo", "WorkflowHost"]

_UPDATES = AwaitSignal(step_id="updates#", name="lantern:updates", source="")
"""What stands for the wait of a workflow that only an update can make go on. No such signal is ever taken for one."""


class _Answer(OrderedFuture[Outcome]):
    """How a command will have ended; to cancel it withdraws the command."""

    def __init__(self, host: "WorkflowHost", loop: WorkflowLoop, step_id: str) -> None:
        super().__init__(loop=loop)
        self._host = host
        self._step_id = step_id

    def cancel(self, msg: Any = None) -> bool:
        """As asyncio's."""
        cancelled = super().cancel(msg)
        if cancelled:
            self._host.withdraw(self._step_id)
        return cancelled


class WorkflowHost:
    """One run's workflow function on its own deterministic loop; used from the executor's thread only.

    Args:
        definition: The workflow.
        input_bytes: The run's input, JSON.
        info: The run.
        surroundings: Where time and chance come from; by default from this machine.

    Attributes:
        info: The run.
        surroundings: As given.
        conversation: The handlers of queries and updates.
    """

    def __init__(
        self, definition: Definition, input_bytes: bytes, info: RunInfo, surroundings: Surroundings | None = None
    ) -> None:
        self.info = info
        self.surroundings: Surroundings = surroundings or Machine()
        self.conversation = Conversation(self._answer_update)
        self._definition = definition
        self._input = input_bytes
        self._loop = WorkflowLoop(self, is_guarded=definition.is_guarded)
        self._view: ReplayView | None = None
        self._main: asyncio.Task[Any] | None = None
        self._is_ended = False
        self._is_closed = False
        self._is_cancelled = False
        self._awaits_updates = False
        self._names: Counter[str] = Counter()
        self._files: dict[str, str] = {}
        self._commands: list[Command] = []
        self._happenings: deque[Happening] = deque()
        # Commands that the code waits for: the futures of all but the loop's own timers.
        self._waiting: dict[str, asyncio.Future[Outcome] | None] = {}
        # When timers are due, by the loop's time.
        self._dues: dict[str, int] = {}
        self._children: set[str] = set()
        self._calls: dict[str, Callable[[], StepCall]] = {}
        self._markers: dict[str, Callable[[], Any]] = {}
        self._patches: dict[str, bool] = {}
        self._sagas: list[Saga] = []

    # What the executor uses.

    @property
    def is_ended(self) -> bool:
        """Whether the workflow function has returned or raised."""
        return self._is_ended

    @property
    def has_compensation(self) -> bool:
        """Whether the code has something to do when it is cancelled as it stands."""
        if self._is_ended or self._is_closed:
            return False
        return any(saga.holds_something for saga in self._sagas) or stands_protected(self._loop.tasks)

    def begin(self, view: ReplayView) -> None:
        """Shows it the replay core, once, before anything else."""
        self._view = view

    def advance(self) -> list[Command]:
        """Takes in what happened since, one after the other, and runs the code until it waits after each.

        Returns the new commands in the program's order; the last one is an End once the code has ended, and nothing
        ever after. Synchronous; to be called inside the executor's running loop or outside of any.
        """
        if self._is_closed:
            return []
        if self._main is None:
            self._main = self._begin()
            self._run(self._main)
        # One at a time, so that the order of what follows never depends on how many completions came together.
        while self._happenings and not self._is_ended:
            happening = self._happenings.popleft()
            if isinstance(happening, Notice):
                self._hear(happening, self._main)
            else:
                self._take_in(happening)
            self._run(self._main)
        commands, self._commands = self._commands, []
        return commands

    def resolve(self, outcome: Happening) -> None:
        """Hands over what happened next, in journal order; the code sees it in the next `advance`."""
        self._happenings.append(outcome)

    def answer_query(self, name: str, data: bytes | None) -> bytes:
        """The answer of the code as it stands, JSON; nothing is recorded.

        Raises:
            LanternError: QUERY_NOT_FOUND; QUERY_FAILED, the handler raised, or its answer is nothing that JSON can say.
        """
        return self.conversation.query(name, data)

    def marker_value(self, step_id: str) -> bytes:
        """Evaluates the function of a side effect that is not recorded yet.

        Raises:
            LanternError: The value is nothing that JSON can say (InvalidField), or the function raised
                (WORKFLOW_ERROR). The driver then ends the run with `Fail.of(error, step_id)`.
        """
        function = self._markers[step_id]
        try:
            value = function()
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            position = endings.position_of(error, self.source_of)
            raise LanternError(reasons.WORKFLOW_ERROR, printable(describe(error)), source=position) from None
        if inspect.iscoroutine(value):
            value.close()
            raise LanternError(reasons.WORKFLOW_ERROR, f"the side effect {step_id} is async: use ctx.step for it")
        return conversion.encode(value, "value")

    def step_call(self, step_id: str) -> StepCall:
        """What the live step consists of; as often as it is attempted."""
        return self._calls[step_id]()

    def close(self) -> None:
        """Ends the code wherever it stands: its `finally` blocks run, what they ask for is refused."""
        self._is_closed = True
        self._loop.close()
        for forgotten in (self._waiting, self._calls, self._markers, self._happenings):
            forgotten.clear()

    # What the context and the loop use (see asks.Asks, loop.Timers).

    @property
    def is_replaying(self) -> bool:
        """See asks.Asks."""
        view = self._view
        if view is None or not view.in_history:
            return False
        issued = sum(isinstance(command, Issued) and not isinstance(command, AwaitSignal) for command in self._commands)
        return view.recorded_left > issued or view.completions_left > 0

    def name_once(self, name: str) -> str:
        """See asks.Asks."""
        self._check_inside()
        used = self._names[name]
        self._names[name] += 1
        return f"{name}[{used}]" if used else name

    def source_of(self, filename: str, line: int) -> str:
        """See asks.Asks."""
        short = self._files.get(filename)
        if short is None:
            path, root = Path(filename), self._definition.root
            short = path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name
            self._files[filename] = short
        return f"{short}:{line}"

    def ask(self, command: Answered) -> "asyncio.Future[Outcome]":
        """See asks.Asks."""
        step_id = command.step_id
        future = _Answer(self, self._loop, step_id)
        self._waiting[step_id] = future
        if isinstance(command, StartTimer):
            self._dues[step_id] = self._loop.now_us + command.duration_us
        elif isinstance(command, StartChild):
            self._children.add(step_id)
        self._commands.append(command)
        return future

    def ask_step(self, command: RunStep, call: Callable[[], StepCall]) -> "asyncio.Future[Outcome]":
        """See asks.Asks."""
        self._calls[command.step_id] = call
        return self.ask(command)

    def ask_marker(self, command: RecordMarker, function: Callable[[], Any]) -> "asyncio.Future[Outcome]":
        """See asks.Asks."""
        self._markers[command.step_id] = function
        return self.ask(command)

    def start_timer(self, duration_us: int) -> str:
        """See loop.Timers."""
        step_id = self.name_once("timeout")
        source = user_source(self.source_of)
        self._waiting[step_id] = None
        self._commands.append(StartTimer(step_id=step_id, duration_us=duration_us, source=source))
        return step_id

    def withdraw(self, step_id: str) -> None:
        """Tells the replay core that the code does not wait for a command any more."""
        if self._is_closed or step_id not in self._waiting:
            return
        marker = self._markers.get(step_id)
        self._forget(step_id)
        if marker is not None:
            self._markers[step_id] = marker  # it is recorded all the same: the history holds what was asked for
        self._commands.append(Withdraw(step_id=step_id))

    def patched(self, name: str, source: str) -> bool:
        """See asks.Asks."""
        self._check_inside()
        known = self._patches.get(name)
        if known is not None:
            return known
        marker = PATCH_PREFIX + name
        is_new = not self.is_replaying or (self._view is not None and self._view.has_marker(marker))
        self._patches[name] = is_new
        if is_new:
            self._record_patch(marker, source)
        return is_new

    def deprecate_patch(self, name: str, source: str) -> None:
        """See asks.Asks."""
        self._check_inside()
        marker = PATCH_PREFIX + name
        if name not in self._patches and self._view is not None and self._view.has_marker(marker):
            self._record_patch(marker, source)
        self._patches.setdefault(name, True)

    def saga_opened(self, saga: Saga) -> None:
        """See asks.Asks."""
        self._sagas.append(saga)

    def saga_closed(self, saga: Saga) -> None:
        """See asks.Asks."""
        self._sagas.remove(saga)

    # How it works.

    def _record_patch(self, marker: str, source: str) -> None:
        """Nothing waits for it: what it says is known."""
        command = RecordMarker(step_id=self.name_once(marker), name=marker, source=source, value=b"true")
        self._commands.append(command)

    def _answer_update(self, command: CompleteUpdate) -> None:
        if not self._is_closed:
            self._commands.append(command)

    def _check_inside(self) -> None:
        if self._is_closed:
            raise NotReplayable("the run was taken from this process: nothing more can be asked for")
        if not self._loop.is_running():
            raise NotReplayable("ctx works only in the workflow function itself, not in steps, threads or side effects")

    def _begin(self) -> asyncio.Task[Any]:
        with self._loop.running():
            return self._loop.create_task(self._call(Context(self)))

    async def _call(self, context: Context) -> Any:
        function = self._definition.function
        if not self._definition.takes_input:
            return await function(context)
        value = json_bytes.decode(self._input, "input") if self._input else None
        return await function(context, conversion.signature_of(function).read_argument(1, value))

    def _hear(self, notice: Notice, main: asyncio.Task[Any]) -> None:
        with self._loop.running():
            if notice.kind == "cancel":
                self._is_cancelled = True
                main.cancel()
            else:
                self.conversation.update(notice)

    def _take_in(self, outcome: Outcome) -> None:
        step_id = outcome.step_id
        if step_id not in self._waiting:
            return  # nobody waits for a patch, and the code may have stopped waiting for anything else
        future = self._waiting[step_id]
        due_us, is_child = self._dues.get(step_id), step_id in self._children
        self._forget(step_id)
        if future is None:
            self._loop.fire(step_id)
            return
        if due_us is not None:
            self._loop.move_on(due_us)
        if outcome.error is not None:
            future.set_exception(endings.step_error(outcome, is_child=is_child))
        else:
            future.set_result(outcome)

    def _forget(self, step_id: str) -> None:
        del self._waiting[step_id]
        self._dues.pop(step_id, None)
        self._children.discard(step_id)
        self._calls.pop(step_id, None)
        self._markers.pop(step_id, None)

    def _run(self, main: asyncio.Task[Any]) -> None:
        try:
            self._loop.run_until_waiting(main)
            if not main.done() and not self._waiting:
                self._await_updates()
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            self._end(Fail(error=endings.error_facts(error, self.source_of)))
            return
        if main.done():
            self._end(self._end_of(main))

    def _await_updates(self) -> None:
        """Nothing that the code asked for is left: only an update can make it go on."""
        if not self.conversation.takes_updates:
            raise NotReplayable("the workflow waits for something that nothing can bring about (a deadlock)")
        if not self._awaits_updates:
            self._awaits_updates = True
            self._commands.append(_UPDATES)

    def _end(self, command: End) -> None:
        self._is_ended = True
        self._commands.append(command)

    def _end_of(self, main: asyncio.Task[Any]) -> End:
        if main.cancelled() and self._is_cancelled:
            return Cancelled(error=RunErrorFacts(code=reasons.CANCEL_REQUESTED, message="cancelled on request"))
        return endings.end_of(main, self.source_of)
