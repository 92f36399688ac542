"""Goal: a paused run begins nothing and fires nothing, parks once its steps have ended, and goes on as if nothing was.

Method: workflows over the in-memory journal on simulated time.
"""

import asyncio
from typing import Any

import pytest
from executor_fakes import (
    FakeJournal,
    JournalWorld,
    Outside,
    Row,
    SimulatedSources,
    kinds_of,
    programs_of,
    request,
    simulate,
)

import lantern
from lantern_executor.application.drive import Drive
from lantern_executor.domain.run import HandBack
from lantern_kernel import kinds
from lantern_kernel.payloads import ParkFacts


def _world() -> tuple[JournalWorld, Row, FakeJournal]:
    world = JournalWorld()
    return world, world.create(request("flow")), FakeJournal(world)


def _drive(world: JournalWorld, row: Row, journal: FakeJournal, workflow: Any) -> Drive:
    epoch = world.grant(row.run.run_id, journal.worker_id)
    return Drive(
        journal=journal,
        programs=programs_of(flow=workflow),
        sources=SimulatedSources(),
        run_id=row.run.run_id,
        epoch=epoch,
    )


def test_a_pause_lets_steps_in_flight_end_and_begins_no_other() -> None:
    async def main() -> None:
        world, row, journal = _world()
        outside = Outside()

        async def slow() -> int:
            await asyncio.sleep(5)
            return outside.do(1)

        async def next_one() -> int:
            return outside.do(2)

        async def flow(ctx: lantern.Context) -> int:
            return await ctx.step("slow", slow) + await ctx.step("next", next_one)

        drive = _drive(world, row, journal, flow)
        driving = asyncio.create_task(drive.run())
        await asyncio.sleep(1)
        world.send(row.run.run_id, "pause")
        drive.inbox_arrived()
        await driving
        assert asyncio.get_running_loop().time() == pytest.approx(5, abs=0.1)
        assert kinds_of(row)[-3:] == [kinds.PAUSE_REQUESTED, kinds.STEP_COMPLETED, kinds.RUN_PARKED]
        park = ParkFacts.unpack(row.events[-1].payload)
        assert (park.waiting_on, park.due_us, park.nothing_to_compensate) == ("paused", None, True)
        assert outside.count("next") == 0
        # A driver that finds it still paused leaves it so.
        await _drive(world, row, journal, flow).run()
        assert kinds_of(row)[-2:] == [kinds.LEASE_GRANTED, kinds.RUN_PARKED]
        world.send(row.run.run_id, "resume")
        await _drive(world, row, journal, flow).run()
        assert row.run.result == b"3"
        assert (outside.count("slow"), outside.count("next")) == (1, 1)

    simulate(main())


def test_a_timer_that_comes_due_while_paused_fires_after_the_resume() -> None:
    async def main() -> None:
        world, row, journal = _world()

        async def slow() -> None:
            await asyncio.sleep(20)

        async def flow(ctx: lantern.Context) -> str:
            await asyncio.gather(ctx.sleep(3), ctx.step("slow", slow))
            return "done"

        drive = _drive(world, row, journal, flow)
        driving = asyncio.create_task(drive.run())
        await asyncio.sleep(1)
        world.send(row.run.run_id, "pause")
        drive.inbox_arrived()
        await driving
        assert kinds.TIMER_FIRED not in kinds_of(row)
        world.send(row.run.run_id, "resume")
        await _drive(world, row, journal, flow).run()
        assert kinds_of(row)[-3:] == [kinds.RESUME_REQUESTED, kinds.TIMER_FIRED, kinds.RUN_SUCCEEDED]

    simulate(main())


def test_a_resume_before_the_park_undoes_the_pause() -> None:
    async def main() -> None:
        world, row, journal = _world()

        async def slow() -> int:
            await asyncio.sleep(5)
            return 1

        async def flow(ctx: lantern.Context) -> int:
            return await ctx.step("a", slow) + await ctx.step("b", slow)

        drive = _drive(world, row, journal, flow)
        driving = asyncio.create_task(drive.run())
        await asyncio.sleep(1)
        world.send(row.run.run_id, "pause")
        drive.inbox_arrived()
        await asyncio.sleep(1)
        world.send(row.run.run_id, "resume")
        drive.inbox_arrived()
        await driving
        assert row.run.result == b"2"
        assert kinds.RUN_PARKED not in kinds_of(row)

    simulate(main())


def test_a_cancel_works_on_a_paused_run() -> None:
    async def main() -> None:
        world, row, journal = _world()

        async def flow(ctx: lantern.Context) -> None:
            await ctx.sleep(3_600)

        world.send(row.run.run_id, "pause")
        await _drive(world, row, journal, flow).run()
        assert row.run.waiting_on == "paused"
        world.send(row.run.run_id, "cancel")
        await _drive(world, row, journal, flow).run()
        assert row.run.state == "CANCELLED"

    simulate(main())


def test_an_entry_of_a_kind_to_come_hands_the_run_back() -> None:
    async def main() -> None:
        world, row, journal = _world()

        async def flow(ctx: lantern.Context) -> None:
            await ctx.sleep(1)

        world.send(row.run.run_id, "teleport")
        await _drive(world, row, journal, flow).run()
        assert [cause for *_, cause in journal.released] == [HandBack.FAULT]
        assert kinds_of(row) == [kinds.RUN_STARTED, kinds.LEASE_GRANTED]

    simulate(main())


def test_a_drive_that_is_told_of_nothing_asks_for_its_lease() -> None:
    """As after a start that took its run over: the step in flight is stopped at once."""

    async def main() -> None:
        world, row, journal = _world()
        stopped: list[str] = []

        async def slow() -> None:
            try:
                await asyncio.sleep(1_000)
            finally:
                stopped.append("slow")

        async def flow(ctx: lantern.Context) -> None:
            await ctx.step("slow", slow)

        drive = _drive(world, row, journal, flow)
        driving = asyncio.create_task(drive.run())
        await asyncio.sleep(1)
        row.epoch, row.holder = row.epoch + 1, ""
        drive.inbox_arrived()
        await driving
        assert stopped == ["slow"]
        assert asyncio.get_running_loop().time() < 5
        assert journal.released == []

    simulate(main())
