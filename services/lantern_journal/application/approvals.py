"""Approvals: taking decisions, and the one that time takes."""

import asyncio
import logging

from lantern_journal.application import announcements
from lantern_journal.application.announcements import Hub
from lantern_journal.application.sessions import Sessions
from lantern_journal.domain.approvals import Decided, Decision, Delegation, Expired, decided_error
from lantern_journal.ports import Clock, Store

log = logging.getLogger(__name__)

EXPIRED_MAX = 100
"""Approvals that expire in one transaction."""

LOOK_S_MAX = 10.0
"""The expiries are looked for again after this long: another journal process may have taken one in."""

LOOK_S_MIN = 0.01


class Approvals:
    """Use cases of JournalApprovalService, and the expiry."""

    def __init__(self, store: Store, clock: Clock, hub: Hub, sessions: Sessions) -> None:
        self._store, self._clock, self._hub, self._sessions = store, clock, hub, sessions

    async def decide(self, decision: Decision) -> Decided:
        """Takes a decision; raises APPROVAL_DECIDED where another one is recorded."""
        return await self._hub.see_through(self._decide(decision))

    async def _decide(self, decision: Decision) -> Decided:
        decided = await self._store.decide_approval(decision)
        self._tell(decision.run_id, decided)
        if decided.expired:
            raise decided_error(decided.approval)
        return decided

    async def delegate(self, delegation: Delegation) -> Decided:
        """Gives an approval to somebody else."""
        return await self._hub.see_through(self._delegate(delegation))

    async def _delegate(self, delegation: Delegation) -> Decided:
        decided = await self._store.delegate_approval(delegation)
        self._tell(delegation.run_id, decided)
        return decided

    async def expire(self) -> int:
        """Decides what nobody has decided in time; how many."""
        expired = await self._hub.see_through(self._store.expire_approvals(EXPIRED_MAX))
        for one in expired:
            self._tell(one.run_id, one)
        return len(expired)

    async def run(self) -> None:
        """Expires approvals when their time comes, for the life of the process."""
        while True:
            wait_s = LOOK_S_MAX
            # Cleared before the look: what is asked for while the database answers wakes us at once.
            self._hub.expiry_changed.clear()
            try:
                while await self.expire() == EXPIRED_MAX:
                    pass
                next_us = await self._store.next_expiry_us()
                if next_us is not None:
                    wait_s = min(max((next_us - self._clock.now_us()) / 1e6, LOOK_S_MIN), LOOK_S_MAX)
            except Exception as error:
                # Nothing may end this loop: approvals would never expire.
                log.warning("approvals not expired", extra={"action": "expiry_failed", "cause": type(error).__name__})
                wait_s = announcements.DUE_RETRY_S
            try:
                async with asyncio.timeout(wait_s):
                    await self._hub.expiry_changed.wait()
            except TimeoutError:
                continue

    def _tell(self, run_id: str, done: Decided | Expired) -> None:
        # Also for a repeat: the process that took the decision may have ended before it could tell.
        if done.woken or not done.number:
            self._hub.announce(announcements.WOKEN)
        if done.driver:
            self._sessions.push_inbox(done.driver, run_id, done.number)
