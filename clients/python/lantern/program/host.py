"""The host of one run of workflow code: it runs the code until it waits, and hands out what it asks for."""

import asyncio
import inspect
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lantern.program.calls import StepCall
from lantern.program.context import Context
from lantern.program.failures import NotReplayable, StepError, describe, is_ours, part_of_stdlib
from lantern.program.loop import WorkflowLoop
from lantern.program.surroundings import Machine, Surroundings
from lantern.registry import Definition
from lantern_kernel import json_bytes, reasons
from lantern_kernel.commands import Cancelled, Command, End, Fail, RecordMarker, RunStep, StartTimer, Succeed
from lantern_kernel.errors import InvalidField, LanternError
from lantern_kernel.outcomes import Happening, Outcome
from lantern_kernel.payloads import RunErrorFacts
from lantern_kernel.program import ReplayView
from lantern_kernel.texts import printable


@dataclass(frozen=True, kw_only=True, slots=True)
class RunInfo:
    """What workflow code can know of its run; the same on every resume."""

    # The run.
    run_id: str
    # The user's own name for the work; may be empty.
    workflow_id: str


class WorkflowHost:
    """One run's workflow function on its own deterministic loop; used from the executor's thread only.

    Args:
        definition: The workflow.
        input_bytes: The run's input, JSON.
        info: The run.
        surroundings: Where time and chance come from; by default from this machine.
    """

    def __init__(
        self, definition: Definition, input_bytes: bytes, info: RunInfo, surroundings: Surroundings | None = None
    ) -> None:
        self.surroundings = surroundings or Machine()
        self._definition = definition
        self._input = input_bytes
        self._info = info
        self._loop = WorkflowLoop(is_guarded=definition.is_guarded)
        self._main: asyncio.Future[Any] | None = None
        self._is_ended = False
        self._is_closed = False
        self._names: Counter[str] = Counter()
        self._files: dict[str, str] = {}
        self._commands: list[Command] = []
        self._outcomes: deque[Happening] = deque()
        self._is_cancelled = False
        self._waiting: dict[str, asyncio.Future[Any]] = {}
        self._calls: dict[str, Callable[[], StepCall]] = {}
        self._markers: dict[str, Callable[[], Any]] = {}

    # What the executor uses.

    @property
    def is_ended(self) -> bool:
        """Whether the workflow function has returned or raised."""
        return self._is_ended

    @property
    def has_compensation(self) -> bool:
        """Whether the code has something to do when it is cancelled as it stands."""
        return False

    def begin(self, view: ReplayView) -> None:
        """Shows it the replay core, once, before anything else."""
        self._view = view

    def advance(self) -> list[Command]:
        """Takes in the outcomes given since, one after the other, and runs the code until it waits after each.

        Returns the new commands in the program's order; the last one is Succeed or Fail once the code has ended, and
        nothing ever after. Synchronous; to be called inside the executor's running loop or outside of any.
        """
        if self._is_closed:
            return []
        if self._main is None:
            self._main = self._begin()
            self._run(self._main)
        # One at a time, so that the order of what follows never depends on how many completions came together.
        while self._outcomes and not self._is_ended:
            happening = self._outcomes.popleft()
            if isinstance(happening, Outcome):
                self._take_in(happening)
            elif happening.kind == "cancel":
                self._is_cancelled = True
                with self._loop.running():
                    self._main.cancel()
            self._run(self._main)
        commands, self._commands = self._commands, []
        return commands

    def resolve(self, outcome: Happening) -> None:
        """Hands over what happened next, in journal order; the code sees it in the next `advance`."""
        self._outcomes.append(outcome)

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
            position = self._position_of(error)
            raise LanternError(reasons.WORKFLOW_ERROR, printable(describe(error)), source=position) from None
        if inspect.iscoroutine(value):
            value.close()
            raise LanternError(reasons.WORKFLOW_ERROR, f"the side effect {step_id} is async: use ctx.step for it")
        return json_bytes.encode(value, "value")

    def step_call(self, step_id: str) -> StepCall:
        """What the live step consists of; as often as it is attempted."""
        return self._calls[step_id]()

    def close(self) -> None:
        """Ends the code wherever it stands: its `finally` blocks run, what they ask for is refused."""
        self._is_closed = True
        self._loop.close()
        for forgotten in (self._waiting, self._calls, self._markers, self._outcomes):
            forgotten.clear()

    # What the context uses (see context.Asks).

    def name_once(self, name: str) -> str:
        """See context.Asks."""
        self._check_inside()
        used = self._names[name]
        self._names[name] += 1
        return f"{name}[{used}]" if used else name

    def source_of(self, filename: str, line: int) -> str:
        """See context.Asks."""
        short = self._files.get(filename)
        if short is None:
            path, root = Path(filename), self._definition.root
            short = path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name
            self._files[filename] = short
        return f"{short}:{line}"

    def ask_step(self, command: RunStep, call: Callable[[], StepCall]) -> "asyncio.Future[bytes]":
        """See context.Asks."""
        self._calls[command.step_id] = call
        return self._ask(command)

    def ask_marker(self, command: RecordMarker, function: Callable[[], Any]) -> "asyncio.Future[bytes]":
        """See context.Asks."""
        self._markers[command.step_id] = function
        return self._ask(command)

    def ask_timer(self, command: StartTimer) -> "asyncio.Future[bytes]":
        """See context.Asks."""
        return self._ask(command)

    # How it works.

    def _check_inside(self) -> None:
        if self._is_closed:
            raise NotReplayable("the run was taken from this process: nothing more can be asked for")
        if not self._loop.is_running():
            raise NotReplayable("ctx works only in the workflow function itself, not in steps, threads or side effects")

    def _ask(self, command: RunStep | RecordMarker | StartTimer) -> "asyncio.Future[bytes]":
        future = self._loop.create_future()
        self._waiting[command.step_id] = future
        self._commands.append(command)
        return future

    def _begin(self) -> asyncio.Future[Any]:
        context = Context(self._info.run_id, self._info.workflow_id, self)
        with self._loop.running():
            return self._loop.create_task(self._call(context))

    async def _call(self, context: Context) -> Any:
        function = self._definition.function
        if not self._definition.takes_input:
            return await function(context)
        return await function(context, json_bytes.decode(self._input, "input") if self._input else None)

    def _take_in(self, outcome: Outcome) -> None:
        future = self._waiting.pop(outcome.step_id)
        self._calls.pop(outcome.step_id, None)
        self._markers.pop(outcome.step_id, None)
        if future.done():
            return  # the code has stopped waiting for it (a task was cancelled)
        if outcome.error is not None:
            error = outcome.error
            future.set_exception(StepError(error.code, error.message, outcome.step_id, error.details))
        else:
            future.set_result(outcome.data)

    def _run(self, main: asyncio.Future[Any]) -> None:
        try:
            self._loop.run_until_waiting(main)
            if not main.done() and not self._waiting:
                raise NotReplayable("the workflow waits for something that nothing can bring about (a deadlock)")
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            self._end(Fail(error=self._error_facts(error)))
            return
        if main.done():
            self._end(self._end_of(main))

    def _end(self, command: End) -> None:
        self._is_ended = True
        self._commands.append(command)

    def _end_of(self, main: asyncio.Future[Any]) -> End:
        if main.cancelled() and self._is_cancelled:
            return Cancelled(error=RunErrorFacts(code=reasons.CANCEL_REQUESTED, message="cancelled on request"))
        if main.cancelled():
            return Fail(error=RunErrorFacts(code=reasons.WORKFLOW_ERROR, message="the workflow cancelled itself"))
        error = main.exception()
        if error is not None:
            return Fail(error=self._error_facts(error))
        try:
            return Succeed(result=json_bytes.encode(main.result(), "result"))
        except InvalidField as refusal:
            return Fail.of(refusal)

    def _error_facts(self, error: BaseException) -> RunErrorFacts:
        step_error = _first_step_error(error)
        if step_error is not None:
            return RunErrorFacts(
                code=step_error.code,
                message=step_error.message,
                step_id=step_error.step_id,
                details=dict(step_error.details) or None,
            )
        details = {"source": self._position_of(error)}
        if isinstance(error, LanternError):
            details = {"reason": error.reason, **error.details, **details}
        return RunErrorFacts(code=reasons.WORKFLOW_ERROR, message=printable(describe(error)), details=details)

    def _position_of(self, error: BaseException) -> str:
        """Where in the user's code an exception came from: the innermost frame that is neither ours nor Python's."""
        position, trace = "", error.__traceback__
        while trace is not None:
            filename = trace.tb_frame.f_code.co_filename
            if not is_ours(filename) and not part_of_stdlib(filename):
                position = self.source_of(filename, trace.tb_lineno)
            trace = trace.tb_next
        return position


def _first_step_error(error: BaseException) -> StepError | None:
    """The StepError that an exception is, or, in a group (asyncio.TaskGroup), its first one."""
    if isinstance(error, StepError):
        return error
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(_first_step_error, error.exceptions)), None)
    return None
