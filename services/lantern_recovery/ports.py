"""What the sweep needs from outside. Every method may raise LanternError; all are safe to repeat and to lose."""

from collections.abc import AsyncGenerator, Sequence
from collections.abc import Set as AbstractSet
from typing import Protocol

from lantern_recovery.domain.orphan import Orphan
from lantern_recovery.domain.worker import Worker


class Journal(Protocol):
    """The journal's part for the sweep."""

    async def find_orphans(self, limit: int) -> Sequence[Orphan]:
        """At most `limit` runs that need a driver, fair over tenants, oldest first."""
        ...

    async def find_workers(self) -> Sequence[Worker]:
        """The workers with a live session."""
        ...

    async def acquire_lease(self, orphan: Orphan, worker: Worker) -> int | None:
        """Grants the run's lease to the worker's session: its epoch, or None where somebody else was first."""
        ...

    async def release_refused(self, orphan: Orphan, worker: Worker, epoch: int) -> None:
        """Gives back a lease that its worker has said not to take. Never to be called while it may still take it."""
        ...

    async def defer_run(self, run_id: str, delay_s: float | None) -> None:
        """Sets a run aside for a while, or, where `delay_s` is None, until a live worker offers its agent."""
        ...

    def watch_orphans(self) -> AsyncGenerator[str, None]:
        """Causes for a pass, as the journal announces them, until the connection breaks (LanternError).

        The first are `connected`, when the journal has answered, and `confirmed`, when it surely would announce any.
        """
        ...


class Executors(Protocol):
    """The executors, by their address."""

    async def drive(self, orphan: Orphan, worker: Worker, epoch: int) -> None:
        """Asks the worker to take the run up; returns when it has agreed."""
        ...

    async def keep_only(self, addresses: AbstractSet[str]) -> None:
        """Lets go of the connections to all others."""
        ...


class Sources(Protocol):
    """Time and chance."""

    def monotonic_s(self) -> float:
        """Seconds of a clock that never goes back."""
        ...

    def random01(self) -> float:
        """At least 0, below 1."""
        ...


class Pause(Protocol):
    """How a loop waits."""

    async def wait(self, timeout_s: float) -> None:
        """Returns when rung, or after the time-out. Rings since the last `wait` returned count, as one."""
        ...

    def ring(self) -> None:
        """Ends the present wait, or the next one."""
        ...
