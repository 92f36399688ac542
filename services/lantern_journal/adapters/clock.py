"""The journal's clock (SPEC J5, L1): a time read now and then, carried by the monotonic clock in between."""

import time


class CarriedClock:
    """Microseconds since the Unix epoch that never fall within a process.

    Begins at the machine's clock. `calibrate` sets it by the database's (PostgreSQL), `not_before` lifts it above what
    was stored (SQLite). A calibration that would set it back makes it stand still until it is reached.
    """

    def __init__(self) -> None:
        self._base_us = time.time_ns() // 1000
        self._anchor_ns = time.monotonic_ns()
        self._latest_us = 0

    def now_us(self) -> int:
        """The time."""
        now_us = self._base_us + (time.monotonic_ns() - self._anchor_ns) // 1000
        self._latest_us = max(self._latest_us, now_us)
        return self._latest_us

    def monotonic_s(self) -> float:
        """Seconds since an arbitrary moment."""
        return time.monotonic()

    def calibrate(self, database_us: int) -> None:
        """Takes over the time that the database has just told."""
        self._base_us, self._anchor_ns = database_us, time.monotonic_ns()

    def not_before(self, us: int) -> None:
        """Never tells a time below this."""
        self._latest_us = max(self._latest_us, us)
        if self._base_us < us:
            self._base_us, self._anchor_ns = us, time.monotonic_ns()
