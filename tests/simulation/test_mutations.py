"""Goal: the simulation can fail: what it is there to notice, it notices.

Method: one broken part at a time, put in by the test; some of the first seeds must complain, for the right reason.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from lantern_executor.adapters import steps
from lantern_journal.application.committer import GroupCommitter
from lantern_journal.application.sessions import LocalSession, Sessions
from lantern_journal.domain import appends
from lantern_journal.domain.appends import Append, Head, Verdict
from lantern_journal.ports import Disconnected
from lantern_kernel import kinds, reasons
from lantern_kernel.course.course import Course
from lantern_kernel.errors import LanternError
from lantern_kernel.event import Event
from lantern_kernel.retry import Failure
from lantern_recovery.application.sweep import PassReport, Sweep
from oracle import runs
from simulation import cluster
from simulation.simulate import simulate

SEEDS = range(1, 61)

Patch = pytest.MonkeyPatch


def no_fence(patch: Patch) -> None:
    """Appends go on top of whatever is there, under whatever epoch."""

    def judge(append: Append, head: Head) -> Verdict:
        return Verdict.CLOSED if head.kind in kinds.TERMINAL else Verdict.FITS

    patch.setattr(appends, "judge", judge)


def no_grace(patch: Patch) -> None:
    """A session is closed as soon as its stream breaks."""

    async def close(self: Any, session: LocalSession) -> None:
        await self._store.close_session(session.worker_id, session.number)

    patch.setattr(Sessions, "_close_after_grace", close)


def repeats_unknown(patch: Patch) -> None:
    """An append whose answer was lost is not recognised."""
    patch.setattr(appends, "is_repeat", lambda append, stored: False)  # pyright: ignore[reportUnknownLambdaType]


def done_again(patch: Patch) -> None:
    """A resume does not see what is completed."""
    load = Course.load

    def forgetful(self: Course, history: Iterable[Event]) -> None:
        lost = (kinds.STEP_COMPLETED, kinds.STEP_FAILED)
        load(self, [replace(e, kind=kinds.STEP_WAITING) if e.kind in lost else e for e in history])

    patch.setattr(Course, "load", forgetful)


def park_ignores_inbox(patch: Patch) -> None:
    """A run parks or ends though there is more in its inbox."""
    refusal = runs._refusal  # pyright: ignore[reportPrivateUsage]

    def lenient(*args: Any) -> LanternError | None:
        error = refusal(*args)
        return None if error is not None and error.reason == reasons.INBOX_AHEAD else error

    patch.setattr(runs, "_refusal", lenient)


def dispatch_first(patch: Patch) -> None:
    """Steps begin before their step_started is committed."""
    append = cluster.Watched.append

    async def hasty(self: Any, request: Any) -> None:
        if request.events[-1].kind in kinds.ENDS_DRIVE:
            await append(self, request)
        else:
            self.sending = [*getattr(self, "sending", ()), asyncio.create_task(append(self, request))]

    patch.setattr(cluster.Watched, "append", hasty)


def keys_grow(patch: Patch) -> None:
    """A lost answer is taken for a refusal, so that the next attempt has a key of its own."""
    failure_of = steps.failure_of

    def careless(error: BaseException, step_type: str = "function") -> Failure:
        return replace(failure_of(error, step_type), outcome="not_executed")

    patch.setattr(steps, "failure_of", careless)


def answers_before_commit(patch: Patch) -> None:
    """A lost connection is taken for a commit."""
    write = GroupCommitter._write  # pyright: ignore[reportPrivateUsage]

    async def hopeful(self: Any, todo: Any, plan: Any) -> None:
        try:
            await write(self, todo, plan)
        except Disconnected:
            return

    patch.setattr(GroupCommitter, "_write", hopeful)


def no_sweep(patch: Patch) -> None:
    """Nobody looks for runs without a driver."""

    async def nothing(self: Sweep) -> PassReport:
        return PassReport(found=0, placed=0, lost=0, deferred=0, again_s=None)

    patch.setattr(Sweep, "run_pass", nothing)


CASES: list[tuple[Callable[[Patch], None], tuple[str, ...]]] = [
    (no_fence, ("acknowledged", "epochs fall", "done again", "ended twice", "terminal events")),
    (no_grace, ("within its grace",)),
    (repeats_unknown, ("APPEND_CONFLICT",)),
    (done_again, ("done again",)),
    (park_ignores_inbox, ("inbox",)),
    (dispatch_first, ("before its step_started",)),
    (keys_grow, ("took effect under",)),
    (answers_before_commit, ("acknowledged and lost", "before its step_started")),
    (no_sweep, ("is still",)),
]


@pytest.mark.parametrize(("mutate", "noticed"), CASES, ids=[case[0].__name__ for case in CASES])
def test_a_broken_part_is_noticed(
    mutate: Callable[[Patch], None], noticed: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch)
    heard: list[str] = []
    for seed in SEEDS:
        heard += simulate(seed).faults
        if any(word in fault for fault in heard for word in noticed):
            return
    pytest.fail(f"{len(SEEDS)} seeds say only {heard[:3]}")
