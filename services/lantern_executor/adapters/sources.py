"""The real clock and real randomness."""

import os
import random
from time import monotonic_ns

POOL_BYTES = 4_096
"""Asked of the system at once: a call for the 16 bytes of a salt takes longer than all else that is done for it."""


class SystemSources:
    """Sources of the process. Random bytes are handed out once; a forked process must make its own."""

    def __init__(self) -> None:
        self._pool = b""
        self._next = 0

    def monotonic_us(self) -> int:
        """Microseconds of the system's monotonic clock."""
        return monotonic_ns() // 1_000

    def random_bytes(self, count: int) -> bytes:
        """From the system's generator."""
        if self._next + count > len(self._pool):
            self._pool, self._next = os.urandom(max(POOL_BYTES, count)), 0
        taken = self._pool[self._next : self._next + count]
        self._next += count
        return taken

    def random01(self) -> float:
        """For spreading retries; nothing secret."""
        return random.random()  # noqa: S311 - jitter is no secret
