"""Fakes of recovery's ports: a journal, executors, clock and pauses that record what they are asked."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from lantern_kernel import reasons
from lantern_kernel.errors import LanternError
from lantern_recovery.domain.orphan import Orphan
from lantern_recovery.domain.worker import Worker

AWAY = LanternError(reasons.UNAVAILABLE, "away")


def orphan(
    number: int = 1,
    *,
    agent: str = "order",
    digest: str = "d1",
    tenant: str = "default",
    failed: str = "",
    level: int = 1,
) -> Orphan:
    return Orphan(
        run_id=f"run-{number}",
        tenant_id=tenant,
        agent_name=agent,
        agent_digest=digest,
        reason="crash",
        failed_digest=failed,
        event_level=level,
    )


def worker(
    name: str = "w1",
    *,
    agents: Sequence[tuple[str, str]] = (("order", "d1"),),
    capacity: int = 100,
    leases: int = 0,
    tenant: str = "default",
    level: int = 1,
) -> Worker:
    return Worker(
        worker_id=name,
        session_number=1,
        address=f"127.0.0.1:{1000 + sum(name.encode())}",
        capacity=capacity,
        lease_count=leases,
        tenant_id=tenant,
        agents=frozenset(agents),
        event_level=level,
    )


@dataclass
class FakeJournal:
    """Holds orphans; a run that is acquired or deferred leaves the list."""

    orphans: list[Orphan] = field(default_factory=list[Orphan])
    workers: list[Worker] = field(default_factory=list[Worker])
    taken: set[str] = field(default_factory=set[str])
    acquired: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    deferred: list[tuple[str, float | None]] = field(default_factory=list[tuple[str, float | None]])
    given_back: list[tuple[str, str, int]] = field(default_factory=list[tuple[str, str, int]])
    give_back_error: LanternError | None = None
    calls: list[str] = field(default_factory=list[str])
    list_errors: list[Exception] = field(default_factory=list[Exception])
    acquire_errors: dict[str, Exception] = field(default_factory=dict[str, Exception])
    defer_error: LanternError | None = None
    watches: list[list[str]] = field(default_factory=list[list[str]])
    passes_inside: int = 0
    passes_inside_max: int = 0
    listed: int = 0

    async def find_orphans(self, limit: int) -> Sequence[Orphan]:
        self.listed += 1
        if self.list_errors:
            raise self.list_errors.pop(0)
        return self.orphans[:limit]

    async def find_workers(self) -> Sequence[Worker]:
        self.passes_inside += 1
        self.passes_inside_max = max(self.passes_inside_max, self.passes_inside)
        await asyncio.sleep(0)
        self.passes_inside -= 1
        return self.workers

    async def acquire_lease(self, orphan: Orphan, worker: Worker) -> int | None:
        if orphan.run_id in self.acquire_errors:
            raise self.acquire_errors[orphan.run_id]
        self._drop(orphan.run_id)
        if orphan.run_id in self.taken:
            return None
        self.acquired.append((orphan.run_id, worker.worker_id))
        return 7

    async def release_refused(self, orphan: Orphan, worker: Worker, epoch: int) -> None:
        self.calls.append("give back")
        self.given_back.append((orphan.run_id, worker.worker_id, epoch))
        if self.give_back_error:
            raise self.give_back_error

    async def defer_run(self, run_id: str, delay_s: float | None) -> None:
        self.calls.append("defer")
        if self.defer_error:
            raise self.defer_error
        self._drop(run_id)
        self.deferred.append((run_id, delay_s))

    async def watch_orphans(self) -> AsyncGenerator[str, None]:
        if not self.watches:
            await asyncio.Event().wait()
        for cause in self.watches.pop(0):
            yield cause
        raise AWAY

    def _drop(self, run_id: str) -> None:
        self.orphans = [o for o in self.orphans if o.run_id != run_id]


@dataclass
class FakeExecutors:
    """Takes every run, but from workers in `refusing`."""

    refusing: dict[str, LanternError] = field(default_factory=dict[str, LanternError])
    driven: list[tuple[str, str, int]] = field(default_factory=list[tuple[str, str, int]])
    kept: list[AbstractSet[str]] = field(default_factory=list[AbstractSet[str]])
    at_once: int = 0
    at_once_max: int = 0

    async def drive(self, orphan: Orphan, worker: Worker, epoch: int) -> None:
        self.at_once += 1
        self.at_once_max = max(self.at_once_max, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        if worker.worker_id in self.refusing:
            raise self.refusing[worker.worker_id]
        self.driven.append((orphan.run_id, worker.worker_id, epoch))

    async def keep_only(self, addresses: AbstractSet[str]) -> None:
        self.kept.append(addresses)


@dataclass
class FakeSources:
    """A clock that is set by hand and a chance that is always the same."""

    now_s: float = 100.0
    chance: float = 0.5

    def monotonic_s(self) -> float:
        return self.now_s

    def random01(self) -> float:
        return self.chance


class Enough(Exception):
    """A test has seen enough of a loop."""


@dataclass
class FakePause:
    """Never waits: records the time-outs, and ends the loop after `limit` of them."""

    limit: int = 1
    timeouts: list[float] = field(default_factory=list[float])
    rings: int = 0
    on_wait: Callable[[], None] | None = None

    async def wait(self, timeout_s: float) -> None:
        self.timeouts.append(timeout_s)
        if self.on_wait:
            self.on_wait()
        if len(self.timeouts) >= self.limit:
            raise Enough

    def ring(self) -> None:
        self.rings += 1
