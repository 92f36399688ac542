"""Goal: no step is begun while it is not certain that the lease is ours, whatever is awaited before it (SPEC L3).

Method: a journal whose answers come late, while trust ends, comes back, or the lease goes to another worker; what
reached the outside counts.
"""

import asyncio
from collections.abc import Awaitable, Callable
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
from lantern_executor.domain.run import OpenedRun
from lantern_executor.domain.step import SideEffect, StepContext
from lantern_executor.domain.tail import Append
from lantern_kernel import kinds

Meanwhile = Callable[[], Awaitable[None]]


async def _nothing() -> None:
    return


class SlowJournal(FakeJournal):
    """Something happens before the answers to the second opening, the ones after it, and claims are heard."""

    def __init__(self, world: JournalWorld) -> None:
        super().__init__(world)
        self.while_opening: list[Meanwhile] = []
        self.while_claiming: Meanwhile = _nothing

    async def open_run(self, run_id: str, epoch: int) -> OpenedRun:
        opened = await super().open_run(run_id, epoch)
        if self.opens > 1 and self.while_opening:
            await self.while_opening.pop(0)()
        return opened

    async def claim_side_effect(self, context: StepContext, sink: str, nonce: bytes) -> SideEffect:
        effect = await super().claim_side_effect(context, sink, nonce)
        await self.while_claiming()
        return effect


class World:
    """One run of one or more steps at once, under the first lease of w1."""

    def __init__(self, *, claim: Any = "", steps: int = 1) -> None:
        self.journal_world = JournalWorld()
        self.outside = Outside()
        self.row = self.journal_world.create(request("flow"))
        self.journal = SlowJournal(self.journal_world)
        self.trusted_at_dispatch: list[bool] = []
        self.epoch = self.journal_world.grant(self.row.run.run_id, "w1")

        async def step() -> Any:
            self.trusted_at_dispatch.append(self.journal.trusted() and self.row.holder == "w1")
            return self.outside.do(1)

        async def flow(ctx: lantern.Context) -> Any:
            return await asyncio.gather(*(ctx.step(f"s{n}", step, claim=claim) for n in range(steps)))

        self.drive = Drive(
            journal=self.journal,
            programs=programs_of(flow=flow),
            sources=SimulatedSources(),
            run_id=self.row.run.run_id,
            epoch=self.epoch,
        )

    def cut_off(self, seconds: float) -> None:
        """Trust ends now and comes back later."""
        self.journal.trust.clear()
        asyncio.get_running_loop().call_later(seconds, self.journal.trust.set)

    def give_away(self) -> None:
        self.journal_world.grant(self.row.run.run_id, "w2")

    def cut_off_at_first_append(self) -> None:
        async def after(append: Append) -> None:
            if append.events[-1].kind == kinds.STEP_STARTED:
                self.cut_off(1)

        self.journal.after = after


def test_lease_given_away_while_the_answer_to_our_question_was_late() -> None:
    async def main() -> None:
        world = World()

        async def meanwhile() -> None:
            await asyncio.sleep(15)
            world.cut_off(1)
            world.give_away()

        world.cut_off_at_first_append()
        world.journal.while_opening = [meanwhile]
        await world.drive.run()
        assert world.outside.requests == []
        assert (world.row.holder, world.row.epoch) == ("w2", 2)

    simulate(main())


def test_doubt_raised_while_we_ask_is_asked_about_again() -> None:
    async def main() -> None:
        world = World()

        async def meanwhile() -> None:
            await asyncio.sleep(1)
            world.give_away()
            world.drive.lease_in_doubt()  # the stream broke and stands again: trusted all the while that anybody looks

        world.cut_off_at_first_append()
        world.journal.while_opening = [meanwhile]
        await world.drive.run()
        assert world.outside.requests == []

    simulate(main())


def test_trust_that_ends_again_and_again_delays_the_step_only() -> None:
    async def main() -> None:
        world = World()

        async def meanwhile() -> None:
            world.cut_off(3)

        world.cut_off_at_first_append()
        world.journal.while_opening = [meanwhile, meanwhile, meanwhile]
        await world.drive.run()
        assert world.trusted_at_dispatch == [True]
        assert world.row.run.state == "SUCCEEDED"
        assert asyncio.get_running_loop().time() >= 10

    simulate(main())


@pytest.mark.parametrize("gone", [True, False])
def test_trust_that_ends_while_a_claim_is_made(gone: bool) -> None:
    async def main() -> None:
        world = World(claim="ask")

        async def meanwhile() -> None:
            world.cut_off(20)
            if gone:
                world.give_away()

        world.journal.while_claiming = meanwhile
        await world.drive.run()
        assert world.trusted_at_dispatch == ([] if gone else [True])
        assert world.row.run.state == ("RUNNING" if gone else "SUCCEEDED")

    simulate(main())


def test_steps_that_wait_for_trust_together_ask_together() -> None:
    async def main() -> None:
        world = World(claim="ask", steps=20)

        async def meanwhile() -> None:
            if world.journal.trusted():
                world.cut_off(5)

        world.journal.while_claiming = meanwhile
        await world.drive.run()
        assert world.trusted_at_dispatch == [True] * 20
        assert world.journal.opens <= 3

    simulate(main())


def test_drain_while_we_wait_for_trust_begins_nothing() -> None:
    async def main() -> None:
        world = World()
        world.cut_off_at_first_append()
        asyncio.get_running_loop().call_later(0.5, world.drive.drain)
        await world.drive.run()
        assert world.outside.requests == []
        assert (world.row.run.state, world.row.holder) == ("QUEUED", "")
        assert kinds_of(world.row)[-1] == kinds.STEP_STARTED

    simulate(main())


def test_inbox_notice_that_was_lost_with_the_stream_is_made_good() -> None:
    async def main() -> None:
        world = World()

        async def after(append: Append) -> None:
            world.journal_world.send(world.row.run.run_id, "cancel")
            world.cut_off(1)

        world.journal.after = after

        async def forever() -> None:
            await asyncio.sleep(1_000)

        async def flow(ctx: lantern.Context) -> None:
            await ctx.step("long", forever)

        drive = Drive(
            journal=world.journal,
            programs=programs_of(flow=flow),
            sources=SimulatedSources(),
            run_id=world.row.run.run_id,
            epoch=world.epoch,
        )
        await drive.run()
        assert world.row.run.state == "CANCELLED"
        assert asyncio.get_running_loop().time() < 5

    simulate(main())
