"""Workers' sessions: attach, the grace of a closed stream, the silence reaper, renewal (SPEC L2)."""

import asyncio
import logging
import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lantern_journal.application import announcements
from lantern_journal.application.announcements import Hub
from lantern_journal.application.keeping import KeptSessions
from lantern_journal.domain.leases import Limits
from lantern_journal.domain.records import Attach, Tended, Tending
from lantern_journal.ports import Clock, Store
from lantern_kernel.errors import LanternError

log = logging.getLogger(__name__)

TEND_INTERVAL_S = 1.0
TEND_INTERVAL_S_MIN = 0.02
AFTER_STALL_S = 1.0
"""For so long after a stall was noticed, streams that it broke are still found."""

INBOX_LOOK_WORKERS_MAX = 1_000
"""Workers whose drives are checked for missed inbox entries in one statement; where there are more they take turns."""

INBOX_TELL_AGAIN_S = 10.0
"""A worker that has not consumed an entry by then is told again: the first word may have got lost on its way."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Listener:
    """How a session's stream is told something."""

    # These runs have new inbox entries.
    inbox: Callable[[list[str]], None]
    # The session is no more: the stream ends, the worker attaches anew.
    end: Callable[[], None]
    # The journal process stops: the worker attaches elsewhere.
    move: Callable[[], None]


class LocalSession:
    """A session whose stream ends in this process."""

    def __init__(self, worker_id: str, number: int, listener: Listener, heard_s: float) -> None:
        self.worker_id, self.number, self.listener = worker_id, number, listener
        self.attached_s = self.heard_s = heard_s
        self.heard_since_flush = False
        # Of driven runs with entries not consumed: the last number that the worker was told of, and when.
        self.told: dict[str, tuple[int, float]] = {}

    def must_be_told(self, run_id: str, number: int, now_s: float) -> bool:
        """Whether the worker was not told of that entry, or so long ago that it may not have heard."""
        told, at_s = self.told.get(run_id, (0, 0.0))
        return told < number or at_s <= now_s - INBOX_TELL_AGAIN_S


class Sessions:
    """The sessions of this process's workers."""

    def __init__(self, store: Store, clock: Clock, hub: Hub, limits: Limits, *, grace_s: float) -> None:
        self._store, self._clock, self._hub, self.limits = store, clock, hub, limits
        hub.entry_listeners.append(self.push_inbox)
        self._grace_s = grace_s
        self._local: dict[str, LocalSession] = {}
        self._kept = KeptSessions(store, clock)
        self._closing: set[asyncio.Task[None]] = set()
        self._generation = store.generation
        self._renewed_s = clock.monotonic_s()
        self._stopping = False
        shortest_us = min(limits.grant_us, limits.silence_us, limits.lease_us)
        self._interval_s = min(TEND_INTERVAL_S, max(shortest_us / 4e6, TEND_INTERVAL_S_MIN))
        # When the last tend that succeeded began.
        self._tended_s = clock.monotonic_s()
        # The database's time of it, when its answer came, and how long it took.
        self._database_time: tuple[int, float, float] | None = None
        self._time_has_jumped = False
        self._has_failed = False
        # When a stall was last noticed.
        self._stalled_s = -math.inf
        # The worker whose inboxes were looked at last.
        self._looked_at = ""

    async def attach(self, request: Attach, listener: Listener) -> LocalSession:
        """Opens the worker's next session; leases of its earlier one stay."""
        attaching = self._hub.begin(self._attach(request, listener))
        try:
            return await asyncio.shield(attaching)
        except asyncio.CancelledError:
            attaching.add_done_callback(self._abandoned)
            raise

    async def _attach(self, request: Attach, listener: Listener) -> LocalSession:
        attached = await self._store.attach(request)
        session = LocalSession(request.worker_id, attached.number, listener, self._clock.monotonic_s())
        known = self._local.get(request.worker_id)
        if known is None or known.number < session.number:
            self._local[request.worker_id] = session
            self._kept.forget(session.worker_id, session.number)
        # Also where this try woke none: one before it may have, whose answer was lost.
        self._hub.announce(announcements.WOKEN)
        log.info(
            "worker attached",
            extra={"action": "attached", "worker_id": request.worker_id, "session_number": attached.number},
        )
        if self._stopping:
            listener.move()
        return session

    def _abandoned(self, attaching: asyncio.Task[LocalSession]) -> None:
        """The stream broke while its session was opened: the session stands all the same, and closes as any other."""
        if not attaching.cancelled() and attaching.exception() is None:
            self.stream_closed(attaching.result())

    def heard(self, session: LocalSession) -> None:
        """Something came from the worker."""
        session.heard_s = self._clock.monotonic_s()
        session.heard_since_flush = True

    async def keep(self, worker_id: str, number: int) -> bool:
        """The helper process of a worker speaks for its session; False where that is not its open one."""
        session = self._local.get(worker_id)
        if session is None or session.number < number:
            return await self._kept.hear(worker_id, number)
        if session.number > number:
            return False
        self.heard(session)
        return True

    def stream_closed(self, session: LocalSession) -> None:
        """The stream broke: after the grace the session closes, unless the worker is back."""
        if self._local.get(session.worker_id) is session:
            del self._local[session.worker_id]
        if self._stopping:
            return
        now_s = self._clock.monotonic_s()
        is_after_stall = now_s - self._stalled_s < AFTER_STALL_S and session.attached_s <= self._stalled_s
        if self._has_stalled(now_s) or is_after_stall:
            # It may have broken because nobody answered: as after a start, the worker has the silence to come back.
            return
        task = asyncio.create_task(self._close_after_grace(session))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _close_after_grace(self, session: LocalSession) -> None:
        await asyncio.sleep(self._grace_s)
        if session.worker_id in self._local:
            return
        try:
            expired = await self._store.close_session(session.worker_id, session.number)
        except Exception:
            # Its silence will close it.
            log.exception("session not closed", extra={"action": "close_failed", "worker_id": session.worker_id})
            return
        self._kept.forget(session.worker_id, session.number)
        if expired is not None:
            log.info(
                "session closed",
                extra={"action": "session_closed", "worker_id": session.worker_id, "leases": expired},
            )
        # Also where it was closed before: that may have been a try of this very call, whose answer was lost.
        self._hub.announce(announcements.LEASE_EXPIRED)

    def push_inbox(self, worker_id: str, run_id: str, number: int) -> None:
        """Tells the driver of a run, where its session is here, that there is a new entry."""
        session = self._local.get(worker_id)
        if session is not None:
            told, _ = session.told.get(run_id, (0, 0.0))
            session.told[run_id] = (max(told, number), self._clock.monotonic_s())
            session.listener.inbox([run_id])

    async def adopt(self) -> None:
        """At start, after a lost database or a stall: every open session gets a fresh moment to come back."""
        await self._store.adopt_sessions()
        now_s = self._clock.monotonic_s()
        for session in self._local.values():
            session.heard_s = now_s

    async def run(self) -> None:
        """Tends the sessions for the life of the process."""
        while True:
            await asyncio.sleep(self._interval_s)
            try:
                await self.tend()
            except LanternError as error:
                log.warning("sessions not tended", extra={"action": "tend_failed", "reason": error.reason})
            except Exception:
                log.exception("sessions not tended", extra={"action": "tend_failed"})

    async def tend(self) -> None:
        """Flushes what was heard, renews leases, closes silent sessions; once each interval."""
        began_s = self._clock.monotonic_s()
        has_stalled = self._has_stalled(began_s)
        if has_stalled:
            self._stalled_s = began_s
        if has_stalled or self._time_has_jumped or self._generation != self._store.generation:
            # Nobody could be heard meanwhile: silence says nothing.
            generation = self._store.generation
            await self.adopt()
            self._generation, self._time_has_jumped = generation, False
        local = dict(self._local)
        seen = [session for session in local.values() if session.heard_since_flush]
        for session in seen:
            session.heard_since_flush = False
        kept = self._kept.take_heard(self.limits.silence_us / 1e6)
        now_s = self._clock.monotonic_s()
        is_renewal = now_s - self._renewed_s >= self.limits.lease_us / 3e6
        tending = Tending(
            seen=(
                *((session.worker_id, session.number) for session in seen),
                *((worker_id, session.number) for worker_id, session in kept.items()),
            ),
            renew=tuple(session.worker_id for session in self._fresh(now_s)) if is_renewal else (),
            inbox_of=self._next_to_look_at(),
            as_of_us=self._carried_us(began_s),
        )
        try:
            tended = await self._store.tend_sessions(tending, self.limits)
        except BaseException:
            for session in seen:
                session.heard_since_flush = True
            self._kept.give_back(kept.values())
            self._has_failed = True
            raise
        self._tended_s = began_s
        self._note_time(tended.now_us, began_s)
        if is_renewal:
            self._renewed_s = now_s
        self._tell(tending, tended, local)

    def _has_stalled(self, now_s: float) -> bool:
        """Whether this process or its database stood still: the last tend is further back than it should be.

        What the workers sent meanwhile may lie unread, here or at another journal process.
        """
        return now_s - self._tended_s > self._interval_s + self.limits.silence_us / 3e6

    def _carried_us(self, at_s: float) -> int | None:
        """What the database's clock said then, at least, carried from the last tend; None before the first.

        Silence is judged by it: a process that stands still between the look at its clock and the transaction must not
        count that time, and a database whose clock was set forward must not end every session.
        """
        if self._database_time is None:
            return None
        us, answered_s, _ = self._database_time
        return us + int((at_s - answered_s) * 1e6)

    def _note_time(self, database_us: int, began_s: float) -> None:
        """Compares the database's clock with ours: where it was set, `seen_us` says nothing until all are adopted."""
        carried_us, answered_s = self._carried_us(began_s), self._clock.monotonic_s()
        took_s = answered_s - began_s
        if self._database_time is not None and carried_us is not None:
            tolerance_us = self.limits.silence_us / 3
            ahead_us = database_us - carried_us  # as long as the last tend and this one took, or less
            self._time_has_jumped = not (
                -tolerance_us < ahead_us < (self._database_time[2] + took_s) * 1e6 + tolerance_us
            )
        if self._time_has_jumped:
            log.warning("the database's clock was set", extra={"action": "database_clock_set"})
        self._database_time = (database_us, answered_s, took_s)

    def _next_to_look_at(self) -> tuple[str, ...]:
        """The next workers whose inboxes are looked at: all, or by turns where there are too many."""
        workers = sorted(self._local)
        if len(workers) <= INBOX_LOOK_WORKERS_MAX:
            return tuple(workers)
        first = bisect_right(workers, self._looked_at)
        chosen = (workers[first:] + workers[:first])[:INBOX_LOOK_WORKERS_MAX]
        self._looked_at = chosen[-1]
        return tuple(chosen)

    def _fresh(self, now_s: float) -> list[LocalSession]:
        silence_s = self.limits.silence_us / 1e6
        return [session for session in self._local.values() if session.heard_s > now_s - silence_s]

    def _tell(self, tending: Tending, tended: Tended, local: dict[str, LocalSession]) -> None:
        """Passes on what came of a tend; `local` are the sessions that stood here when it began."""
        for worker_id in tended.closed:
            log.info("silent session closed", extra={"action": "session_silent", "worker_id": worker_id})
            session = self._local.get(worker_id)
            # Not one that was attached meanwhile: it is the next.
            if session is not None and session is local.get(worker_id):
                del self._local[worker_id]
                session.listener.end()
        for worker_id, number in tended.gone:
            self._kept.forget(worker_id, number)
            session = self._local.get(worker_id)
            if session is not None and session.number == number:
                log.info(
                    "session was followed or closed elsewhere", extra={"action": "session_gone", "worker_id": worker_id}
                )
                del self._local[worker_id]
                session.listener.end()
        if tended.closed or self._has_failed:
            # A tend whose answer was lost may have closed some, too.
            self._has_failed = False
            self._hub.announce(announcements.LEASE_EXPIRED)
        self._tell_of_inboxes(tending.inbox_of, tended.inbox)

    def _tell_of_inboxes(self, looked_at: Sequence[str], inbox: Sequence[tuple[str, str, int]]) -> None:
        now_s = self._clock.monotonic_s()
        waiting: dict[str, dict[str, int]] = {worker_id: {} for worker_id in looked_at}
        for worker_id, run_id, number in inbox:
            waiting.setdefault(worker_id, {})[run_id] = number
        for worker_id, numbers in waiting.items():
            session = self._local.get(worker_id)
            if session is None:
                continue
            # What is consumed, or driven elsewhere by now, need not be remembered.
            session.told = {run_id: told for run_id, told in session.told.items() if run_id in numbers}
            for run_id, number in numbers.items():
                if session.must_be_told(run_id, number, now_s):
                    self.push_inbox(worker_id, run_id, number)

    def stop(self) -> None:
        """Tells every worker to attach elsewhere; their sessions stay open for that."""
        self._stopping = True
        for session in list(self._local.values()):
            session.listener.move()

    async def close(self) -> None:
        """Ends what waits for a grace to pass."""
        for task in self._closing:
            task.cancel()
        await asyncio.gather(*self._closing, return_exceptions=True)
