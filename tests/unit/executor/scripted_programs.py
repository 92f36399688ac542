"""Programs written out as generators of commands, for what workflow code is not needed for.

def flow():
told = yield [StartChild(...)]     # what it waits for: the next outcome or notice
told = yield [Withdraw(...)]
yield [Succeed(result=b"1")]
"""

import asyncio
import json
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field

from lantern_executor.domain.run import Offer, Run
from lantern_executor.domain.step import StepCall, StepContext
from lantern_kernel import reasons
from lantern_kernel.commands import Command
from lantern_kernel.errors import LanternError
from lantern_kernel.outcomes import Happening
from lantern_kernel.program import ReplayView
from lantern_kernel.step_ends import Completed

Flow = Generator[Sequence[Command], Happening, None]


@dataclass(eq=False, kw_only=True)
class Script:
    """ProgramsPort of one script; each of its steps takes `step_s` and is counted."""

    flow: Callable[[], Flow]
    step_s: float = 0.1
    has_compensation: bool = False
    steps: list[str] = field(default_factory=list[str])
    stopped: list[str] = field(default_factory=list[str])

    def offers(self) -> Sequence[Offer]:
        return [Offer(name="script", digest="d1", program_kind="code")]

    async def prepare(self, run: Run) -> None:
        pass

    def start(self, run: Run) -> "ScriptedProgram":
        return ScriptedProgram(self)


class ScriptedProgram:
    """Program over a script."""

    digest = "d1"

    def __init__(self, script: Script) -> None:
        self._script, self._flow = script, script.flow()
        self._told: deque[Happening] = deque()
        self._heard: list[str] = []
        self._is_begun = False

    @property
    def has_compensation(self) -> bool:
        return self._script.has_compensation

    def begin(self, view: ReplayView) -> None:
        self._view = view

    def advance(self) -> Sequence[Command]:
        commands: list[Command] = []
        if not self._is_begun:
            self._is_begun = True
            commands += next(self._flow)
        while self._told:
            try:
                commands += self._flow.send(self._told.popleft())
            except StopIteration:
                break
        return commands

    def resolve(self, outcome: Happening) -> None:
        self._heard.append(outcome.step_id)
        self._told.append(outcome)

    def marker_value(self, step_id: str) -> bytes:
        return b"null"

    def step_call(self, step_id: str) -> StepCall:
        async def run(context: StepContext) -> Completed:
            self._script.steps.append(step_id)
            try:
                await asyncio.sleep(self._script.step_s)
            except asyncio.CancelledError:
                self._script.stopped.append(step_id)
                raise
            return Completed(output=b'"' + step_id.encode() + b'"')

        return StepCall(run=run)

    def answer_query(self, name: str, payload: bytes) -> bytes:
        """What it was told so far, in order."""
        if name != "told":
            raise LanternError(reasons.QUERY_NOT_FOUND, "only `told`", query=name)
        return json.dumps([self._heard, json.loads(payload)]).encode()

    def close(self) -> None:
        self._flow.close()
