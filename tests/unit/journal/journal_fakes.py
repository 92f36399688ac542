"""A clock that is set by hand, and a store of nothing: each test gives it the answers that it needs."""

import asyncio
from typing import Any

from lantern_journal.application.announcements import Hub
from lantern_journal.domain.leases import Limits

LIMITS = Limits(lease_us=600_000_000, grant_us=5_000_000, silence_us=10_000_000)


class FakeClock:
    """Both times are one number of seconds."""

    def __init__(self) -> None:
        self.s = 1_000.0

    def now_us(self) -> int:
        return int(self.s * 1e6)

    def monotonic_s(self) -> float:
        return self.s


class FakeStore:
    """What every fake of a store has; the methods that a test needs are its own."""

    generation = 1
    is_shared = False

    def __init__(self, clock: FakeClock | None = None) -> None:
        self.clock = clock or FakeClock()


class Gate:
    """Holds calls until they may go on; tells when one has come."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self._open = asyncio.Event()

    async def pass_through(self) -> None:
        self.reached.set()
        await self._open.wait()

    def open(self) -> None:
        self._open.set()


async def settle() -> None:
    """Lets everything run that can."""
    for _ in range(20):
        await asyncio.sleep(0)


def causes(hub: Hub) -> set[str]:
    """What was announced so far."""
    return {cause for cause, times in hub.sent.items() if times}


def as_any(fake: object) -> Any:
    """A fake where the port's whole width is asked for."""
    return fake
