"""Workflow code as programs that a test can watch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from lantern.program.calls import StepCall
from lantern.program.host import RunInfo, WorkflowHost
from lantern.registry import Definition
from lantern_kernel.commands import Command
from lantern_kernel.outcomes import Happening
from lantern_kernel.program import ReplayView


class Markers:
    """What markers gave, so that a run which is disturbed on purpose differs from the undisturbed one by that alone.

    Args:
        known: What they gave before, by run and step.
    """

    def __init__(self, known: "Markers | None" = None) -> None:
        self._values: dict[tuple[str, str], bytes] = dict(known._values) if known else {}  # noqa: SLF001 - its own

    def value(self, run_id: str, step_id: str, evaluate: Callable[[], bytes]) -> bytes:
        """What the marker gives: what it gave before, else what it evaluates to, which a crash evaluates anew."""
        value = evaluate()
        return self._values.setdefault((run_id, step_id), value)


class Host(Protocol):
    """What runs the code of one run: the Program of the kernel, and the code of its steps."""

    @property
    def has_compensation(self) -> bool:
        """See Program."""
        ...

    def begin(self, view: ReplayView) -> None:
        """See Program."""
        ...

    def advance(self) -> Sequence[Command]:
        """See Program."""
        ...

    def resolve(self, outcome: Happening) -> None:
        """See Program."""
        ...

    def marker_value(self, step_id: str) -> bytes:
        """See Program."""
        ...

    def step_call(self, step_id: str) -> StepCall:
        """What a step consists of."""
        ...

    def close(self) -> None:
        """Ends it, wherever it stands."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Agent:
    """Something that can be started by its name."""

    # The name.
    name: str
    # SHA-256 (hex) of its definition.
    digest: str
    # A fresh host for a run: its id, its workflow id and its input.
    host: Callable[[str, str, bytes], Host]

    @classmethod
    def of(cls, definition: Definition) -> "Agent":
        """A workflow as an agent."""

        def host(run_id: str, workflow_id: str, content: bytes) -> Host:
            return WorkflowHost(definition, content, RunInfo(run_id=run_id, workflow_id=workflow_id))

        return cls(name=definition.name, digest=definition.digest, host=host)


class WatchedProgram:
    """The program of one run, and all that it asked for.

    Attributes:
        commands: In order.
    """

    def __init__(self, agent: Agent, run_id: str, workflow_id: str, content: bytes, markers: Markers) -> None:
        self.digest = agent.digest
        self.commands: list[Command] = []
        self._run_id = run_id
        self._markers = markers
        self._host = agent.host(run_id, workflow_id, content)

    @property
    def has_compensation(self) -> bool:
        """See Program."""
        return self._host.has_compensation

    def begin(self, view: ReplayView) -> None:
        """See Program."""
        self._host.begin(view)

    def advance(self) -> Sequence[Command]:
        """See Program."""
        commands = self._host.advance()
        self.commands.extend(commands)
        return commands

    def resolve(self, outcome: Happening) -> None:
        """See Program."""
        self._host.resolve(outcome)

    def marker_value(self, step_id: str) -> bytes:
        """See Program."""
        return self._markers.value(self._run_id, step_id, lambda: self._host.marker_value(step_id))

    def step_call(self, step_id: str) -> StepCall:
        """What a step consists of."""
        return self._host.step_call(step_id)

    def close(self) -> None:
        """Ends it, wherever it stands."""
        self._host.close()
