"""Goal: what was committed is announced, also when the caller went away meanwhile.

Method: a store whose answers come when the test lets them; the caller is cancelled before.
"""

import asyncio
from typing import Any, cast

import pytest

from lantern_journal.adapters.clock import CarriedClock
from lantern_journal.adapters.sources import SystemSources
from lantern_journal.application.announcements import Hub
from lantern_journal.application.committer import GroupCommitter
from lantern_journal.application.leases import Leases
from lantern_journal.domain.leases import Limits
from lantern_journal.domain.records import ReleaseCause, Settlement, SideEffect, SideEffectState
from lantern_kernel import reasons
from lantern_kernel.errors import LanternError

LIMITS = Limits(lease_us=600_000_000, grant_us=5_000_000, silence_us=10_000_000)
DELIVERED = SideEffect(key="k", state=SideEffectState.DELIVERED, result=b"1")


class SlowStore:
    """Answers once it may."""

    generation = 1

    def __init__(self, recover_after_us: int = 0) -> None:
        self.asked, self.may_answer = asyncio.Event(), asyncio.Event()
        self.recover_after_us = recover_after_us
        self.error: Exception | None = None

    async def _answered(self) -> None:
        self.asked.set()
        await self.may_answer.wait()
        if self.error is not None:
            raise self.error

    async def release_lease(self, *_: Any) -> int | None:
        await self._answered()
        return self.recover_after_us

    async def settle_side_effect(self, _: Settlement) -> tuple[SideEffect, bool]:
        await self._answered()
        return DELIVERED, True


def leases_of(store: SlowStore) -> tuple[Leases, Hub]:
    hub, clock = Hub(), CarriedClock()
    any_store = cast("Any", store)
    return Leases(any_store, clock, SystemSources(), hub, GroupCommitter(any_store, clock, hub), LIMITS), hub


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


SETTLEMENT = Settlement(key="k", state=SideEffectState.DELIVERED, result=b"1", run_id="r", worker_id="w")


@pytest.mark.parametrize(("use", "cause"), [("release", "queued"), ("settle", "woken")])
async def test_a_caller_that_goes_away_takes_no_announcement_with_it(use: str, cause: str) -> None:
    store = SlowStore()
    leases, hub = leases_of(store)
    work = leases.release("r", 1, "w", ReleaseCause.DRAIN) if use == "release" else leases.settle(SETTLEMENT)
    call = asyncio.create_task(cast("Any", work))
    await store.asked.wait()
    call.cancel()
    await turns()
    assert call.cancelled()
    assert not hub.sent
    store.may_answer.set()
    await turns()
    assert dict(hub.sent) == {cause: 1}


async def test_an_error_that_nobody_waits_for_any_more_is_quiet() -> None:
    store = SlowStore()
    store.error = LanternError(reasons.UNAVAILABLE, "the database does not answer")
    leases, hub = leases_of(store)
    call = asyncio.create_task(leases.settle(SETTLEMENT))
    await store.asked.wait()
    call.cancel()
    store.may_answer.set()
    await turns()
    assert not hub.sent


@pytest.mark.parametrize(("recover_after_us", "sent", "due"), [(0, {"queued": 1}, None), (7, {}, 7)])
async def test_a_run_that_rests_is_announced_when_it_is_due(
    recover_after_us: int, sent: dict[str, int], due: int | None
) -> None:
    store = SlowStore(recover_after_us)
    store.may_answer.set()
    leases, hub = leases_of(store)
    await leases.release("r", 1, "w", ReleaseCause.FAULT)
    assert dict(hub.sent) == sent
    assert hub.next_due_us == due
