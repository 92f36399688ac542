"""Workflow code as programs that a test can watch."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from lantern.program.calls import StepCall
from lantern.program.host import RunInfo, WorkflowHost
from lantern.program.surroundings import Surroundings
from lantern.registry import Definition
from lantern_kernel import reasons
from lantern_kernel.commands import Command
from lantern_kernel.errors import LanternError
from lantern_kernel.outcomes import Happening
from lantern_kernel.program import ReplayView


class Markers:
    """What markers gave, so that a run which is disturbed on purpose differs from the undisturbed one by that alone.

    Args:
        known: What they gave before, by run and step.

    Attributes:
        given: What they gave, by run and step.
    """

    def __init__(self, known: "Markers | None" = None) -> None:
        self._known: Mapping[tuple[str, str], bytes] = known.given if known else {}
        self.given: dict[tuple[str, str], bytes] = {}

    def value(self, run_id: str, step_id: str, evaluate: Callable[[], bytes]) -> bytes:
        """What the marker gives: what it gave before, else what it evaluates to; a crash evaluates it anew."""
        place = (run_id, step_id)
        given = evaluate()
        self.given[place] = self._known.get(place, given)
        return self.given[place]


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


@runtime_checkable
class AnswersQueries(Protocol):
    """A host that can be asked about its run."""

    def answer_query(self, name: str, data: bytes, /) -> bytes:
        """JSON for JSON; changes nothing. A LanternError where it cannot be answered."""
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
    def of(cls, definition: Definition, surroundings: Surroundings | None = None) -> "Agent":
        """A workflow as an agent; what it records of time and chance comes from the surroundings, or this machine."""

        def host(run_id: str, workflow_id: str, content: bytes) -> Host:
            info = RunInfo(run_id=run_id, workflow_id=workflow_id, agent_name=definition.name)
            return WorkflowHost(definition, content, info, surroundings)

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

    def answer_query(self, name: str, data: bytes) -> bytes:
        """What the code answers as it stands; QUERY_NOT_FOUND where it answers none."""
        if not isinstance(self._host, AnswersQueries):
            raise LanternError(reasons.QUERY_NOT_FOUND, "programs of this kind answer no queries", query=name)
        return self._host.answer_query(name, data)

    def step_call(self, step_id: str) -> StepCall:
        """What a step consists of."""
        return self._host.step_call(step_id)

    def close(self) -> None:
        """Ends it, wherever it stands."""
        self._host.close()
