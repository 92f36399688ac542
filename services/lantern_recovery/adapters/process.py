"""The process's own clock, chance and waiting."""

import asyncio
import random
import time


class ProcessSources:
    """ports.Sources from this process."""

    def monotonic_s(self) -> float:
        """See ports.Sources."""
        return time.monotonic()

    def random01(self) -> float:
        """See ports.Sources."""
        return random.random()  # noqa: S311 - jitter, nothing secret


class Bell:
    """ports.Pause on the running loop."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()

    async def wait(self, timeout_s: float) -> None:
        """See ports.Pause."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._rung.wait()
        except TimeoutError:
            return
        finally:
            self._rung.clear()

    def ring(self) -> None:
        """See ports.Pause."""
        self._rung.set()
