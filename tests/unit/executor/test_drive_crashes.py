"""Goal: a worker that dies at any journal position, before or after the commit, costs one step and no effect.

Method: a workflow of five steps, a marker and a short timer is run once to learn its appends; then for each append and
each side of its commit a worker dies there (its tasks vanish, nothing is released), a second one gets the next lease,
and its run is compared with the undisturbed one: same result, one step_completed per step, one effect per key, nothing
dispatched after its completion was committed, the same program-made events.
"""

import asyncio
import json
from typing import Any

import pytest
from executor_fakes import (
    FakeJournal,
    JournalWorld,
    Outside,
    SimulatedSources,
    kinds_of,
    programs_of,
    request,
    simulate,
)

import lantern
from lantern_executor.application.drive import Drive
from lantern_executor.domain.run import CreatedRun
from lantern_executor.domain.tail import Append
from lantern_kernel import kinds, payloads
from lantern_kernel.event import find_chain_fault

STEPS = ("a", "b", "c", "d", "e")
APPENDS_MAX = 12


class World:
    """One run of the workflow, over any number of workers."""

    def __init__(self) -> None:
        self.journal = JournalWorld()
        self.outside = Outside()
        self.markers = 0
        self.completed_at_dispatch: list[str] = []
        self.programs = programs_of(five=self.workflow)
        self.row = self.journal.create(request("five", payload=b'{"n":1}'))

    async def workflow(self, ctx: lantern.Context, order: dict[str, int]) -> Any:
        async def step(value: Any) -> Any:
            step_id = lantern.step_info().step_id
            if kinds.STEP_COMPLETED in kinds_of(self.row, of_step=step_id):
                self.completed_at_dispatch.append(step_id)
            await asyncio.sleep(0.01)
            return self.outside.do(value)

        def chance() -> int:
            self.markers += 1
            return self.markers

        first = await ctx.step("a", step, order["n"])
        picked = await ctx.side_effect("picked", chance)
        both = await asyncio.gather(ctx.step("b", step, [first, picked]), ctx.step("c", step, "c"))
        await ctx.sleep(5)
        fourth = await ctx.step("d", step, both)
        return await ctx.step("e", step, {"d": fourth, "picked": picked})

    async def drive(self, worker_id: str, journal: FakeJournal | None = None) -> None:
        journal = journal or FakeJournal(self.journal, worker_id)
        epoch = self.journal.grant(self.row.run.run_id, worker_id)
        await Drive(
            journal=journal,
            programs=self.programs,
            sources=SimulatedSources(),
            run_id=self.row.run.run_id,
            epoch=epoch,
        ).run()


async def _dies(world: World, at: int, *, committed: bool) -> bool:
    """A worker that dies at its append number `at`; False where the run ended before it came to that."""
    dead = asyncio.Event()
    journal = FakeJournal(world.journal, "w1")

    async def die(append: Append) -> None:
        await asyncio.sleep(0.001)
        if len(journal.appends) == at + 1:
            dead.set()
            await asyncio.Event().wait()

    if committed:
        journal.after = die
    else:
        journal.before = die
    driving = asyncio.create_task(world.drive("w1", journal))
    dying = asyncio.create_task(dead.wait())
    await asyncio.wait([driving, dying], return_when=asyncio.FIRST_COMPLETED)
    driving.cancel()
    dying.cancel()
    await asyncio.wait([driving, dying])
    return dead.is_set()


def _program_made(world: World) -> list[tuple[str, str]]:
    """What of the history must not depend on crashes: first starts, completions, markers, timers, the end."""
    seen: set[tuple[str, str]] = set()
    made: list[tuple[str, str]] = []
    for event in world.row.events:
        if event.kind not in kinds.JOURNAL_OWN and (event.kind, event.step_id) not in seen:
            seen.add((event.kind, event.step_id))
            made.append((event.kind, event.step_id))
    return sorted(made)


async def _undisturbed() -> World:
    world = World()
    await world.drive("w1")
    return world


def test_undisturbed_run_is_one_append_per_turn() -> None:
    async def main() -> None:
        world = await _undisturbed()
        assert world.row.run.state == "SUCCEEDED"
        assert world.row.run.result == b'{"d":[[1,1],"c"],"picked":1}'
        # start a | a done, marker, start b and c | one of them done | the other done, timer | fired, start d | e | end
        assert 6 <= world.journal.appends <= 8
        kinds_made = kinds_of(world.row)
        at = kinds_made.index(kinds.STEP_COMPLETED)
        assert kinds_made[at : at + 4] == [
            kinds.STEP_COMPLETED,
            kinds.MARKER_RECORDED,
            kinds.STEP_STARTED,
            kinds.STEP_STARTED,
        ]

    simulate(main())


@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("at", range(APPENDS_MAX))
def test_crash_at_every_position(at: int, committed: bool) -> None:
    async def main() -> None:
        expected = await _undisturbed()
        world = World()
        died = await _dies(world, at, committed=committed)
        assert died == (at < expected.journal.appends)
        if world.row.run.state == "RUNNING":
            await world.drive("w2")
        assert world.row.run.state == "SUCCEEDED"
        recorded = next(event for event in world.row.events if event.kind == kinds.MARKER_RECORDED)
        picked = json.loads(payloads.unpack(recorded.payload).data or b"")
        assert json.loads(world.row.run.result) == {"d": [[1, picked], "c"], "picked": picked}
        assert _program_made(world) == _program_made(expected)
        for step_id in STEPS:
            assert kinds_of(world.row, of_step=step_id).count(kinds.STEP_COMPLETED) == 1
        assert sorted(world.outside.effects.values()) == list(STEPS)
        assert world.completed_at_dispatch == []
        assert len(world.outside.requests) <= len(STEPS) + 2  # only what was in flight ran again: b and c at most
        assert find_chain_fault(world.row.run.run_id, world.row.events) is None

    simulate(main())


def test_two_crashes_in_a_row() -> None:
    async def main() -> None:
        for first in range(6):
            world = World()
            await _dies(world, first, committed=True)
            if world.row.run.state == "RUNNING":
                await _dies(world, 1, committed=False)
            if world.row.run.state == "RUNNING":
                await world.drive("w3")
            assert world.row.run.state == "SUCCEEDED"
            assert sorted(world.outside.effects.values()) == list(STEPS)

    simulate(main())


def test_lost_answers_change_nothing() -> None:
    async def main() -> None:
        expected = await _undisturbed()
        world = World()
        journal = FakeJournal(world.journal, "w1")

        async def committed_unheard(append: Append) -> None:
            world.journal.append(append)  # its answer is lost; the adapter sends it again, which is what follows

        journal.before = committed_unheard
        await world.drive("w1", journal)
        assert kinds_of(world.row) == kinds_of(expected.row)
        assert len(world.outside.requests) == len(STEPS)

    simulate(main())


def test_created_with_lease_needs_no_opening() -> None:
    async def main() -> None:
        world = World()
        journal = FakeJournal(world.journal)
        epoch = world.journal.grant(world.row.run.run_id, "w1", "start")
        created = CreatedRun(run=world.row.run, created=True, epoch=epoch, events=tuple(world.row.events))
        drive = Drive(
            journal=journal,
            programs=world.programs,
            sources=SimulatedSources(),
            run_id=world.row.run.run_id,
            epoch=epoch,
            created=created,
        )
        await drive.run()
        assert world.row.run.state == "SUCCEEDED"
        assert journal.opens == 0

    simulate(main())
