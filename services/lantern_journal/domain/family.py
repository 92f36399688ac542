"""Runs that belong to others, as values."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Parent:
    """The run that starts another one as its child."""

    # The run.
    run_id: str
    # The step that it is in the parent, under which the parent is told how it ended.
    step_id: str
    # The lease under which the parent is driven.
    epoch: int
    # Whether the child outlives the parent.
    abandon: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Aftermath:
    """What a transaction did to runs besides those that it was about, to be told once it is committed."""

    # Runs that are queued by it.
    queued: tuple[str, ...] = ()
    # Runs to which the journal itself has appended.
    moved: tuple[str, ...] = ()
    # Entries that it put into the inboxes of driven runs: worker, run, number.
    entries: tuple[tuple[str, str, int], ...] = ()

    def __bool__(self) -> bool:
        """Whether there is anything to tell."""
        return bool(self.queued or self.moved or self.entries)

    def __add__(self, other: "Aftermath") -> "Aftermath":
        """Both."""
        return Aftermath(
            queued=self.queued + other.queued, moved=self.moved + other.moved, entries=self.entries + other.entries
        )


NOTHING = Aftermath()
