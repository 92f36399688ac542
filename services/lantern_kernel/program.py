"""What drives a run, as its driver sees it: a graph, workflow code or an llm loop."""

from collections.abc import Sequence
from typing import Protocol

from lantern_kernel.commands import Command
from lantern_kernel.outcomes import Happening


class ReplayView(Protocol):
    """What a program may ask of the replay core while it runs."""

    @property
    def in_history(self) -> bool:
        """Whether the program has not come to the end of the history yet."""
        ...

    @property
    def recorded_left(self) -> int:
        """How many commands the history holds that were not handed out and issued yet."""
        ...

    @property
    def completions_left(self) -> int:
        """How many completions, signals and notices the program is still to be told."""
        ...

    def has_marker(self, name: str) -> bool:
        """Whether the history holds a marker of that name, which begins with `replay.PATCH_PREFIX`, anywhere."""
        ...


class Program(Protocol):
    """One run's program: issues commands, takes outcomes."""

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of the definition that is loaded here; not always the one that the run pinned."""
        ...

    @property
    def has_compensation(self) -> bool:
        """Whether it has something to do when it is cancelled as it stands."""
        ...

    def begin(self, view: ReplayView) -> None:
        """Shows it the replay core; before anything else, once."""
        ...

    def advance(self) -> Sequence[Command]:
        """Runs until it is blocked or ended; returns the newly issued commands in order."""
        ...

    def resolve(self, outcome: Happening) -> None:
        """Tells it what happened next, in the journal's order."""
        ...

    def marker_value(self, step_id: str) -> bytes:
        """Evaluates a marker that is not recorded yet: JSON. A LanternError fails the run."""
        ...


class Chance(Protocol):
    """What cannot be foreseen."""

    def random_bytes(self, count: int) -> bytes:
        """Unpredictable bytes."""
        ...

    def random01(self) -> float:
        """From 0 up to, not including, 1."""
        ...
