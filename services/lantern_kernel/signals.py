"""Which wait takes which signal: the first wait for a name the first signal of it, in the order of the journal."""

from collections import deque
from typing import NamedTuple

from lantern_kernel.blobs import BlobRef
from lantern_kernel.outcomes import Outcome


class Signal(NamedTuple):
    """One signal at its place in the journal."""

    seq: int
    name: str
    data: bytes | None
    blob: BlobRef | None

    def outcome(self, step_id: str) -> Outcome:
        """What its taker is told."""
        return Outcome(step_id=step_id, data=self.data, error=None, blob=self.blob, facts={"name": self.name})


class Signals:
    """The signals that a program has come past, and its waits for others."""

    def __init__(self) -> None:
        self._untaken: dict[str, deque[Signal]] = {}
        self._waiting: dict[str, deque[str]] = {}
        # Signals that were there when their takers asked, in the order of asking.
        self._ready: deque[tuple[str, Signal]] = deque()

    @property
    def ready(self) -> int:
        """How many takers are still to be told."""
        return len(self._ready)

    def untaken(self) -> list[Signal]:
        """What nobody has taken, or whose taker was not told yet."""
        on_their_way = [signal for _, signal in self._ready]
        return [*on_their_way, *(signal for signals in self._untaken.values() for signal in signals)]

    def ask(self, step_id: str, name: str) -> bool:
        """Begins a wait; True where a signal is there already."""
        untaken = self._untaken.get(name)
        if untaken:
            self._ready.append((step_id, untaken.popleft()))
            return True
        self._waiting.setdefault(name, deque()).append(step_id)
        return False

    def next_ready(self) -> Outcome | None:
        """What the next taker is told whose signal was there when he asked."""
        if not self._ready:
            return None
        step_id, signal = self._ready.popleft()
        return signal.outcome(step_id)

    def reach(self, signal: Signal) -> str:
        """The program comes to a signal: who takes it; empty where nobody waits."""
        waiting = self._waiting.get(signal.name)
        if waiting:
            return waiting.popleft()
        self._untaken.setdefault(signal.name, deque()).append(signal)
        return ""

    def withdraw(self, step_id: str, name: str) -> None:
        """Ends a wait for a name."""
        self._waiting[name].remove(step_id)

    def give_back(self, step_id: str) -> str:
        """Ends the wait of a taker that was not told yet, if it is one: who has its signal now; empty for nobody."""
        for at, (taker, signal) in enumerate(self._ready):
            if taker != step_id:
                continue
            del self._ready[at]
            waiting = self._waiting.get(signal.name)
            if waiting:
                self._ready.append((waiting[0], signal))
                return waiting.popleft()
            self._untaken.setdefault(signal.name, deque()).appendleft(signal)
            break
        return ""
