"""Which executor takes which run (SPEC L4, L7).

A worker can take a run of its own tenant whose agent name it offers, or every agent of whose program kind, unless it
knows fewer kinds of event than the run may hold (its event level is below the run's), or its code is the one whose
replay of this very run has failed. The same code (digest) as the pinned one is preferred, since another one may meet a
non-determinism; among equals the worker with the smallest share of its capacity in use. What is planned counts as in
use, so that one pass spreads its runs.
"""

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum

from lantern_recovery.domain.orphan import Orphan
from lantern_recovery.domain.worker import Worker

RESUME_SHARE = 0.5
"""At most this share of a worker's capacity is resumed in one pass, but always one run: a worker that had room for all
the runs of a dead one would otherwise replay them all at once."""


class Untaken(Enum):
    """Why nobody takes a run."""

    # Live workers offer its agent, but none has room now: try again soon.
    NO_ROOM = "no_room"
    # Live workers offer its agent, but only the code that has failed this run: wait for other code.
    ONLY_FAILED = "only_failed"
    # No live worker of its event level offers its agent: only a worker that does can help.
    NOT_OFFERED = "not_offered"


@dataclass(frozen=True, kw_only=True, slots=True)
class Match:
    """A run and who shall take it."""

    # The run.
    orphan: Orphan
    # The worker, or why there is none.
    taker: Worker | Untaken


def match(orphans: Sequence[Orphan], workers: Iterable[Worker], avoided: AbstractSet[str] = frozenset()) -> list[Match]:
    """Plans one pass, in the order of the orphans (oldest first).

    Args:
        orphans: Runs that need a driver.
        workers: The workers with a live session.
        avoided: Ids of workers that have refused or not answered a moment ago. They count as having no room.
    """
    rooms = [_Room(worker, avoided=worker.worker_id in avoided) for worker in workers]
    return [Match(orphan=orphan, taker=_pick(orphan, rooms)) for orphan in orphans]


class _Room:
    """What is left of one worker while a pass is planned."""

    def __init__(self, worker: Worker, *, avoided: bool) -> None:
        self.worker = worker
        share = max(1, int(worker.capacity * RESUME_SHARE))
        self._left = 0 if avoided else max(0, min(worker.capacity - worker.lease_count, share))
        self._used = worker.lease_count

    @property
    def is_open(self) -> bool:
        return self._left > 0

    @property
    def load(self) -> float:
        return self._used / self.worker.capacity

    def take(self) -> None:
        self._left -= 1
        self._used += 1


def _pick(orphan: Orphan, rooms: list[_Room]) -> Worker | Untaken:
    offering = [
        room
        for room in rooms
        if room.worker.tenant_id == orphan.tenant_id
        and room.worker.event_level >= orphan.event_level
        and room.worker.digests(orphan.agent_name, orphan.program_kind)
    ]
    if not offering:
        return Untaken.NOT_OFFERED
    failed = {orphan.failed_digest} - {""}
    fit = [room for room in offering if room.worker.digests(orphan.agent_name, orphan.program_kind) - failed]
    if not fit:
        return Untaken.ONLY_FAILED
    with_room = [room for room in fit if room.is_open]
    if not with_room:
        return Untaken.NO_ROOM
    exact = (orphan.agent_name, orphan.agent_digest)
    best = min(with_room, key=lambda room: (exact not in room.worker.agents, room.load, room.worker.worker_id))
    best.take()
    return best.worker
