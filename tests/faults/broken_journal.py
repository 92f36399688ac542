"""A journal with one of its safeguards taken out, so that a test can show that it would notice.

`python broken_journal.py SAFEGUARD`: otherwise as `python -m lantern_journal`.
"""

import sys
from collections.abc import Callable
from typing import Any

from lantern_journal import __main__ as process
from lantern_journal.adapters import postgres
from lantern_journal.application import committer
from lantern_journal.application.committer import GroupCommitter
from lantern_journal.domain import appends
from lantern_journal.domain.appends import Append, Head, Verdict
from lantern_kernel import reasons
from lantern_kernel.errors import LanternError


def collisions_pass() -> None:
    """A place that is taken is no error."""
    postgres._INSERT += b" ON CONFLICT DO NOTHING"  # pyright: ignore[reportPrivateUsage]


def repeats_are_not_compared() -> None:
    """Whatever comes for a place that is taken is taken for a repeat."""
    appends.is_repeat = lambda append, stored: True


def a_collision_refuses_the_group() -> None:
    """Who shares a group with a stale writer is refused with it."""

    async def refuse(self: GroupCommitter, todo: list[Any]) -> None:
        for item in todo:
            item.answer(LanternError(reasons.APPEND_CONFLICT, "the group collided"))

    GroupCommitter._collided = refuse  # pyright: ignore[reportPrivateUsage]
    committer.GROUP_TRIES = 1


def _lenient(pardoned: Verdict) -> None:
    strict = appends.judge_place

    def judge_place(append: Append, head: Head) -> Verdict:
        verdict = strict(append, head)
        return Verdict.FITS if verdict is pardoned and append.first_seq == head.seq + 1 else verdict

    appends.judge_place = judge_place
    committer.judge_place = judge_place


def digests_are_not_compared() -> None:
    """An append goes on top of whatever stands before its place."""
    _lenient(Verdict.CONFLICT)


def epochs_to_come_are_taken() -> None:
    """An epoch that was never granted is as good as the present one."""
    _lenient(Verdict.NEVER_GRANTED)


SAFEGUARDS: dict[str, Callable[[], None]] = {
    break_it.__name__: break_it
    for break_it in (
        collisions_pass,
        repeats_are_not_compared,
        a_collision_refuses_the_group,
        digests_are_not_compared,
        epochs_to_come_are_taken,
    )
}

if __name__ == "__main__":
    SAFEGUARDS[sys.argv.pop()]()
    process.main()
