"""Sessions of which only the helper process of their worker is heard here (SPEC L2).

A worker's stream may end in another journal process, or hang in one that stands still: a ping to any process counts.
"""

from collections.abc import Iterable

from lantern_journal.ports import Clock, Store


class KeptSession:
    """An open session that was heard of here."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.heard_s = 0.0
        self.heard_since_flush = False


class KeptSessions:
    """Those of this process, by worker; what was heard goes to the database with the next tend."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._kept: dict[str, KeptSession] = {}

    async def hear(self, worker_id: str, number: int) -> bool:
        """A ping for a session; False, and nothing is heard, where it is not the worker's open one."""
        session = self._kept.get(worker_id)
        if session is None or session.number != number:
            if not await self._store.is_open_session(worker_id, number):
                return False
            session = self._kept.get(worker_id)  # another ping may have been faster
            if session is None or session.number < number:
                session = self._kept[worker_id] = KeptSession(number)
            if session.number != number:
                return False
        session.heard_s = self._clock.monotonic_s()
        session.heard_since_flush = True
        return True

    def forget(self, worker_id: str, number: int) -> None:
        """That session, or one before it, is the worker's open one no more, or its stream is here by now."""
        session = self._kept.get(worker_id)
        if session is not None and session.number <= number:
            del self._kept[worker_id]

    def take_heard(self, silence_s: float) -> dict[str, KeptSession]:
        """What was heard since the last time; those that were silent for too long are forgotten."""
        now_s = self._clock.monotonic_s()
        self._kept = {worker: kept for worker, kept in self._kept.items() if kept.heard_s > now_s - silence_s}
        heard = {worker: kept for worker, kept in self._kept.items() if kept.heard_since_flush}
        for session in heard.values():
            session.heard_since_flush = False
        return heard

    @staticmethod
    def give_back(heard: Iterable[KeptSession]) -> None:
        """They were not flushed."""
        for session in heard:
            session.heard_since_flush = True
