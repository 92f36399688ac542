"""The journal's clock (SPEC J5, L1): a time read now and then, carried by the monotonic clock in between."""

import time
from collections.abc import Callable


class CarriedClock:
    """Microseconds since the Unix epoch that never fall within a process.

    Begins at the machine's clock. `calibrate` sets it by the database's (PostgreSQL), `not_before` lifts it above what
    was stored (SQLite). A calibration that would set it back makes it stand still until it is reached.

    Args:
        wall_ns: The machine's clock, nanoseconds since the Unix epoch.
        monotonic_ns: Its clock that never falls.
    """

    def __init__(
        self, wall_ns: Callable[[], int] = time.time_ns, monotonic_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._monotonic_ns = monotonic_ns
        self._base_us = wall_ns() // 1000
        self._anchor_ns = monotonic_ns()
        self._latest_us = 0

    def now_us(self) -> int:
        """The time."""
        now_us = self._base_us + (self._monotonic_ns() - self._anchor_ns) // 1000
        self._latest_us = max(self._latest_us, now_us)
        return self._latest_us

    def monotonic_s(self) -> float:
        """Seconds since an arbitrary moment."""
        return self._monotonic_ns() / 1e9

    def calibrate(self, database_us: int) -> None:
        """Takes over the time that the database has just told."""
        self._base_us, self._anchor_ns = database_us, self._monotonic_ns()

    def not_before(self, us: int) -> None:
        """Never tells a time below this."""
        self._latest_us = max(self._latest_us, us)
        if self._base_us < us:
            self._base_us, self._anchor_ns = us, self._monotonic_ns()
