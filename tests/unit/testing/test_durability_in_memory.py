"""Durability in memory: what is committed when, what a crash loses, and what it may not lose in any mode.

Method: a workflow of free steps between two that touch the outside, in each mode, alone and under every fault.
"""

from collections.abc import Sequence
from typing import Any

import pytest

import lantern
from lantern.testing import Environment, Fault, FaultKind, Injector, check_every_fault
from lantern_kernel import kinds
from lantern_kernel.errors import InvalidField
from lantern_kernel.event import NewEvent


def work(*_: Any) -> str:
    return "worked"


@lantern.workflow
async def counts(ctx: lantern.Context) -> list[str]:
    """Three steps of no effect, one of effect, two of none."""
    done = [await ctx.step("free", work, n, effects="none") for n in range(3)]
    done.append(await ctx.step("charge", work))
    done += [await ctx.step("free", work, n, effects="none") for n in range(2)]
    return done


def appends(durability: str) -> list[list[str]]:
    """The events of each append, by kind and step."""
    made: list[list[str]] = []
    with Environment() as env:
        append = env.journal.append

        def count(
            run_id: str,
            epoch: int,
            first_seq: int,
            previous_digest: bytes,
            events: Sequence[NewEvent],
            consumed_inbox_number: int,
        ) -> None:
            made.append([f"{event.kind} {event.step_id}".strip() for event in events])
            append(run_id, epoch, first_seq, previous_digest, events, consumed_inbox_number)

        env.journal.append = count
        assert env.start(counts, durability=durability).result() == ["worked"] * 6
    return made


def test_sync_commits_each_event_before_the_next_step():
    made = appends("sync")
    assert len(made) == 7
    assert made[1] == ["step_completed free", "step_started free[1]"]


def test_exit_holds_until_something_of_effect_or_the_end():
    first, second = appends("exit")
    assert first[-1] == "step_started charge"
    assert (len(first), second[-1]) == (7, kinds.RUN_SUCCEEDED)


def test_async_commits_beside_what_runs():
    assert [event for made in appends("async") for event in made] == [
        event for made in appends("sync") for event in made
    ]


@pytest.mark.parametrize(("durability", "free_again"), [("sync", 0), ("exit", 3)])
def test_a_crash_loses_what_was_held(durability: str, free_again: int):
    # In `exit` the seventh event is in the append of the first.
    fault = Fault(kind=FaultKind.CRASH_BEFORE_COMMIT, position=7 if durability == "sync" else 1)
    with Environment(faults=Injector(fault)) as env:
        assert env.start(counts, durability=durability).result() == ["worked"] * 6
        names = [attempt.name for attempt in env.attempts]
    assert names.count("free") == 5 + free_again
    assert names.count("charge") == 1, "nothing of effect is dispatched before all before it is committed"


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_no_mode_notices_a_fault(durability: str):
    def scenario(env: Environment) -> None:
        assert env.start(counts, durability=durability).result() == ["worked"] * 6

    assert len(check_every_fault(scenario)) > 40


def test_a_mode_that_is_not_known_is_refused():
    with Environment() as env, pytest.raises(InvalidField, match="sync, async, exit"):
        env.start(counts, durability="never")


def test_held_events_do_not_go_round(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("lantern.testing.environment.TURNS_MAX", 50)
    with Environment() as env:
        assert env.start(counts, durability="exit").result() == ["worked"] * 6
