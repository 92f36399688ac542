"""The real clock and real randomness."""

import os
import random
from time import monotonic_ns


class SystemSources:
    """Sources of the process."""

    def monotonic_us(self) -> int:
        """Microseconds of the system's monotonic clock."""
        return monotonic_ns() // 1_000

    def random_bytes(self, count: int) -> bytes:
        """From the system's generator."""
        return os.urandom(count)

    def random01(self) -> float:
        """For spreading retries; nothing secret."""
        return random.random()  # noqa: S311 - jitter is no secret
