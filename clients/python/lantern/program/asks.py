"""What stands between `ctx` and the host behind it."""

import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from lantern.program.calls import StepCall
from lantern.program.conversation import Conversation
from lantern.program.failures import is_ours, part_of_stdlib
from lantern.program.saga import Saga
from lantern.program.surroundings import Surroundings
from lantern_kernel.commands import (
    AwaitSignal,
    CompleteUpdate,
    RecordMarker,
    RequestApproval,
    RunStep,
    StartChild,
    StartTimer,
)
from lantern_kernel.outcomes import Outcome

Answered = AwaitSignal | RecordMarker | RequestApproval | RunStep | StartChild | StartTimer
"""Commands that something comes back from."""

Issued = Answered | CompleteUpdate
"""Commands with an id."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunInfo:
    """What workflow code can know of its run; the same on every resume."""

    # The run.
    run_id: str
    # The user's own name for the work; may be empty.
    workflow_id: str
    # The agent that it executes; empty where nobody said.
    agent_name: str = ""


class Asks(Protocol):
    """What a context needs of the host behind it."""

    @property
    def info(self) -> RunInfo:
        """The run."""
        ...

    @property
    def surroundings(self) -> Surroundings:
        """Where time and chance come from."""
        ...

    @property
    def conversation(self) -> Conversation:
        """The handlers of queries and updates."""
        ...

    @property
    def is_replaying(self) -> bool:
        """Whether the code goes through what it has done before."""
        ...

    def name_once(self, name: str) -> str:
        """The step id for a name: the name itself, and `name[1]`, `name[2]` ... when it is used again."""
        ...

    def source_of(self, filename: str, line: int) -> str:
        """The position as "file:line", short."""
        ...

    def ask(self, command: Answered) -> "asyncio.Future[Outcome]":
        """Issues the command; the future brings how it ended, or a StepError. To cancel it withdraws the command."""
        ...

    def ask_step(self, command: RunStep, call: Callable[[], StepCall]) -> "asyncio.Future[Outcome]":
        """As `ask`; `call` says what the step consists of."""
        ...

    def ask_marker(self, command: RecordMarker, function: Callable[[], Any]) -> "asyncio.Future[Outcome]":
        """As `ask`; `function` gives the value where it is not recorded yet."""
        ...

    def patched(self, name: str, source: str) -> bool:
        """Whether the run goes the new way of a patch."""
        ...

    def deprecate_patch(self, name: str, source: str) -> None:
        """Asks for the patch's marker where the history has it."""
        ...

    def saga_opened(self, saga: Saga) -> None:
        """Notes that it may hold something to undo."""
        ...

    def saga_closed(self, saga: Saga) -> None:
        """Notes that it holds nothing any more."""
        ...


def caller_source(host: Asks, above: int) -> str:
    """The position of a caller: of the function so many calls above the one that asks."""
    caller = sys._getframe(above + 1)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - the user's line
    return host.source_of(caller.f_code.co_filename, caller.f_lineno)


def user_source(source_of: Callable[[str, int], str]) -> str:
    """The position of the user's code that led here, by way of Python's own and of ours; empty where there is none."""
    frame = sys._getframe(1)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - the user's line
    while frame is not None:
        filename = frame.f_code.co_filename
        if not is_ours(filename) and not part_of_stdlib(filename):
            return source_of(filename, frame.f_lineno)
        frame = frame.f_back
    return ""
