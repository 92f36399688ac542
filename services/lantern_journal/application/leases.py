"""Leases from outside: open, release, acquire, defer; claims on deliveries."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from lantern_journal.application import announcements
from lantern_journal.application.announcements import Hub
from lantern_journal.application.committer import GroupCommitter
from lantern_journal.domain.leases import Limits
from lantern_journal.domain.records import (
    Claim,
    Grant,
    LeaseTarget,
    OpenedRun,
    Orphan,
    ReleaseCause,
    Settlement,
    SideEffect,
    Worker,
)
from lantern_journal.ports import Clock, Sources, Store

T = TypeVar("T")


class Leases:
    """Use cases of the sweep and of drivers."""

    def __init__(
        self, store: Store, clock: Clock, sources: Sources, hub: Hub, committer: GroupCommitter, limits: Limits
    ) -> None:
        self._store, self._clock, self._sources, self._hub = store, clock, sources, hub
        self._committer, self._limits = committer, limits
        self._under_way: set[asyncio.Task[Any]] = set()

    async def _to_the_end(self, work: Coroutine[Any, Any, T]) -> T:
        """Goes on though the caller goes away: what was committed is announced."""
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.exception()  # its caller, if there still is one, has it

    async def acquire(self, run_id: str, target: LeaseTarget, reason: str) -> int:
        """Grants a run's lease to a worker's session; its epoch, or 0."""
        return await self._to_the_end(self._acquire(run_id, target, reason))

    async def _acquire(self, run_id: str, target: LeaseTarget, reason: str) -> int:
        grant = Grant(run_id=run_id, target=target, reason=reason, salt=self._sources.salt())
        epoch = await self._store.acquire_lease(grant, self._limits)
        if epoch:
            self._committer.forget(run_id)
            self._hub.moved(run_id)
            # A grant that nobody opens ends by itself.
            self._hub.due_at(self._clock.now_us() + self._limits.grant_us)
        return epoch

    async def open(self, run_id: str, epoch: int, target: LeaseTarget) -> OpenedRun:
        """Makes a grant a full lease; what the driver needs to begin."""
        return await self._store.open_run(run_id, epoch, target, self._limits)

    async def release(self, run_id: str, epoch: int, worker_id: str, cause: ReleaseCause) -> None:
        """Hands a run back."""
        await self._to_the_end(self._release(run_id, epoch, worker_id, cause))

    async def _release(self, run_id: str, epoch: int, worker_id: str, cause: ReleaseCause) -> None:
        recover_after_us = await self._store.release_lease(run_id, epoch, worker_id, cause)
        if recover_after_us:
            self._hub.due_at(recover_after_us)
        else:
            self._hub.announce(announcements.QUEUED)

    async def defer(self, run_id: str, delay_us: int | None) -> None:
        """Sets a run aside that found no taker."""
        await self._to_the_end(self._defer(run_id, delay_us))

    async def _defer(self, run_id: str, delay_us: int | None) -> None:
        await self._store.defer_run(run_id, delay_us, self._sources.salt(), self._limits)
        self._committer.forget(run_id)
        self._hub.moved(run_id)
        if delay_us is not None:
            self._hub.due_at(self._clock.now_us() + delay_us)

    async def orphans(self, limit: int) -> list[Orphan]:
        """Runs that need a driver."""
        return await self._store.find_orphans(limit, self._limits)

    async def workers(self) -> list[Worker]:
        """Workers that can be granted leases."""
        return [worker for worker in await self._store.find_workers(self._limits) if not worker.draining]

    async def claim(self, claim: Claim) -> tuple[bool, SideEffect]:
        """Claims a delivery before it is dispatched; whether this call did, now or when it was first sent."""
        return await self._store.claim_side_effect(claim)

    async def settle(self, settlement: Settlement) -> SideEffect:
        """Records how a delivery ended."""
        return await self._to_the_end(self._settle(settlement))

    async def _settle(self, settlement: Settlement) -> SideEffect:
        side_effect, woken = await self._store.settle_side_effect(settlement)
        if woken:
            self._hub.announce(announcements.WOKEN)
        return side_effect
