"""Walks: generators that say what they wait for and are told how it ended; several of them side by side.

A walk yields the ids of the commands that it waits for, and is sent the outcome of one of them. It runs nothing by
itself and knows no clock, so the order of things is that in which its driver tells of outcomes: the journal's.
"""

from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

from lantern_kernel.commands import Command, Lasting, Withdraw
from lantern_kernel.outcomes import Outcome
from lantern_kernel.payloads import RunErrorFacts

T = TypeVar("T")
Walk = Generator[tuple[str, ...], Outcome, T]


class NodeFailed(Exception):
    """A node failed for good, and nothing leads on from there."""

    def __init__(self, error: RunErrorFacts) -> None:
        super().__init__(f"{error.code}: {error.message}")
        self.error = error


class Asking:
    """What walks ask for, in order."""

    def __init__(self) -> None:
        self._commands: list[Command] = []

    def take(self) -> list[Command]:
        """What was asked for since the last time."""
        commands, self._commands = self._commands, []
        return commands

    def add(self, command: Command) -> None:
        """Asks for something that nobody waits for."""
        self._commands.append(command)

    def ask(self, command: Lasting) -> Walk[Outcome]:
        """Asks for something and waits for it; a walk that is ended meanwhile does not want it any more."""
        outcome = yield from self.race(command)
        return outcome

    def race(self, *commands: Lasting) -> Walk[Outcome]:
        """Asks for several things and waits for the first of them; the others are not wanted any more."""
        self._commands += commands
        waits = tuple(command.step_id for command in commands)
        won = ""
        try:
            outcome = yield waits
            won = outcome.step_id
        finally:
            self._commands += [Withdraw(step_id=step_id) for step_id in waits if step_id != won]
        return outcome


def gather(begin: Sequence[Callable[[], Walk[T]]], limit: int) -> Walk[list[T]]:
    """Walks side by side, at most `limit` at once, begun in order; what each came to.

    Raises:
        NodeFailed: One of them failed; the others are ended where they stand, in order.
    """
    results: list[Any] = [None] * len(begin)
    pending = deque(range(len(begin)))
    active: dict[int, tuple[Walk[T], tuple[str, ...]]] = {}

    def go_on(at: int, walk: Walk[T], outcome: Outcome | None) -> None:
        active.pop(at, None)
        try:
            # A generator is begun by sending it None.
            waits = next(walk) if outcome is None else walk.send(outcome)
        except StopIteration as stop:
            results[at] = stop.value
        else:
            active[at] = (walk, waits)

    try:
        while True:
            while pending and len(active) < limit:
                at = pending.popleft()
                go_on(at, begin[at](), None)
            if not active:
                return results
            outcome = yield tuple(step_id for at in sorted(active) for step_id in active[at][1])
            at = next(at for at, (_, waits) in active.items() if outcome.step_id in waits)
            go_on(at, active[at][0], outcome)
    finally:
        for at in sorted(active):
            active[at][0].close()
