"""Programs as generators: each yields the commands that it asks for, and is sent what happened next."""

import json
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any

from lantern.program.calls import FunctionCall
from lantern.testing.programs import Agent
from lantern_kernel.commands import Command
from lantern_kernel.outcomes import Happening
from lantern_kernel.program import ReplayView

Script = Generator[Sequence[Command], Happening, None]


class Scripted:
    """A host of one run of a script."""

    def __init__(self, script: Script, *, compensates: bool) -> None:
        self._script = script
        self._compensates = compensates
        self._happened: deque[Happening] = deque()
        self._is_begun = False
        self.happened = 0

    @property
    def has_compensation(self) -> bool:
        return self._compensates

    def begin(self, view: ReplayView) -> None:
        del view

    def advance(self) -> Sequence[Command]:
        commands: list[Command] = []
        try:
            if not self._is_begun:
                self._is_begun = True
                commands.extend(next(self._script))
            while self._happened:
                commands.extend(self._script.send(self._happened.popleft()))
        except StopIteration:
            self._happened.clear()
        return commands

    def resolve(self, outcome: Happening) -> None:
        self._happened.append(outcome)
        self.happened += 1

    def marker_value(self, step_id: str) -> bytes:
        raise AssertionError(step_id)

    def step_call(self, step_id: str) -> FunctionCall:
        def unexpected(*_: Any) -> Any:
            raise AssertionError(f"nothing stands in for {step_id}")

        return FunctionCall(fn=unexpected, args=())

    def close(self) -> None:
        self._script.close()


class Answering(Scripted):
    """A script that is asked how much has happened to it."""

    def answer_query(self, name: str, data: bytes, /) -> bytes:
        return json.dumps({"query": name, "data": json.loads(data), "happened": self.happened}).encode()


def agent(name: str, script: Callable[[bytes], Script], *, compensates: bool = False, answers: bool = False) -> Agent:
    """An agent that plays a script, which is given the run's input."""
    kind = Answering if answers else Scripted

    def host(run_id: str, workflow_id: str, content: bytes) -> Scripted:
        del run_id, workflow_id
        return kind(script(content), compensates=compensates)

    return Agent(name=name, digest="e" * 64, host=host)
