"""Workflow code as programs: the definitions that were loaded, each run of them in its host."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Protocol

from lantern.program.calls import StepCall as HostedCall
from lantern.program.host import RunInfo, WorkflowHost
from lantern.registry import Definition
from lantern_executor.domain.run import Offer, Run
from lantern_executor.domain.step import StepCall, StepContext
from lantern_kernel import reasons
from lantern_kernel.commands import Command
from lantern_kernel.errors import LanternError
from lantern_kernel.outcomes import Happening
from lantern_kernel.program import ReplayView
from lantern_kernel.retry import Failure
from lantern_kernel.step_ends import Completed


class StepRunner(Protocol):
    """Executes what a step consists of."""

    def room(self, call: HostedCall) -> AbstractAsyncContextManager[object]:
        """What is needed to execute it at once."""
        ...

    async def run(self, call: HostedCall, context: StepContext) -> Completed | Failure:
        """Executes one attempt; only cancellation is raised."""
        ...


class HostedProgram:
    """One run of workflow code."""

    def __init__(self, definition: Definition, run: Run, runner: StepRunner) -> None:
        self._host = WorkflowHost(
            definition, run.input, RunInfo(run_id=run.run_id, workflow_id=run.workflow_id, agent_name=run.agent_name)
        )
        self._runner = runner
        self.digest = definition.digest

    @property
    def has_compensation(self) -> bool:
        """See Program."""
        return self._host.has_compensation

    def advance(self) -> Sequence[Command]:
        """See Program."""
        return self._host.advance()

    def begin(self, view: ReplayView) -> None:
        """See Program."""
        self._host.begin(view)

    def resolve(self, outcome: Happening) -> None:
        """See Program."""
        self._host.resolve(outcome)

    def marker_value(self, step_id: str) -> bytes:
        """See Program."""
        return self._host.marker_value(step_id)

    def step_call(self, step_id: str) -> StepCall:
        """See Program."""
        call = self._host.step_call(step_id)
        return StepCall(run=partial(self._runner.run, call), room=partial(self._runner.room, call))

    def answer_query(self, name: str, payload: bytes) -> bytes:
        """See AnswersQueries."""
        return self._host.answer_query(name, payload)

    def close(self) -> None:
        """See Program."""
        self._host.close()


class WorkflowPrograms:
    """ProgramsPort over the workflows of the loaded modules."""

    def __init__(self, definitions: Mapping[str, Definition], runner: StepRunner) -> None:
        self._definitions = definitions
        self._runner = runner

    def offers(self) -> Sequence[Offer]:
        """See ProgramsPort."""
        return [
            Offer(name=name, digest=definition.digest, program_kind="code")
            for name, definition in self._definitions.items()
        ]

    async def prepare(self, run: Run) -> None:
        """See ProgramsPort; code is loaded when the process starts."""

    def start(self, run: Run) -> HostedProgram:
        """See ProgramsPort."""
        definition = self._definitions.get(run.agent_name)
        if definition is None:
            raise LanternError(reasons.AGENT_NOT_FOUND, f"agent {run.agent_name} is not loaded here")
        return HostedProgram(definition, run, self._runner)
