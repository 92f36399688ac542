"""When an event loop stands still: code that computes or blocks between two awaits keeps everything else waiting.

Time is counted in looks, not read from a clock: a process that was stopped as a whole (SIGSTOP, a laptop's lid) does
not look either, and has not stalled.
"""

from dataclasses import dataclass, field


@dataclass(kw_only=True, slots=True)
class StallMeter:
    """Counts how long the loop has not moved on."""

    # Seconds between two looks.
    look_s: float
    # From this many seconds on, a stall is worth a warning.
    warn_s: float
    # From this many seconds on, the process is of no more use.
    limit_s: float
    _beats: int = -1
    _stalled_looks: int = field(default=0)
    _warned: bool = False

    @property
    def stalled_s(self) -> float:
        """How long it has stood still."""
        return self._stalled_looks * self.look_s

    def look(self, beats: int) -> str:
        """What the loop's count of beats says: `moves`, `stalls` (said once a stall), or `stuck`."""
        if beats != self._beats:
            self._beats, self._stalled_looks, self._warned = beats, 0, False
            return "moves"
        self._stalled_looks += 1
        if self.stalled_s >= self.limit_s:
            return "stuck"
        if self.stalled_s >= self.warn_s and not self._warned:
            self._warned = True
            return "stalls"
        return "moves"
