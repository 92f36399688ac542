"""Goal: whatever is above 256 KiB is kept as a blob before it is named, and read back when the program comes to it.

Method: drives over the in-memory journal, which takes no name of a blob that it does not keep, and counts downloads.
"""

import asyncio
import json
from typing import Any

from executor_fakes import (
    FakeJournal,
    JournalWorld,
    Outside,
    Row,
    SimulatedSources,
    programs_of,
    request,
    simulate,
)

import lantern
from lantern_executor.application.drive import Drive
from lantern_executor.domain.run import StartRequest
from lantern_kernel import kinds, payloads, reasons
from lantern_kernel.blobs import BlobRef

LARGE = 5 * 1024 * 1024


def drive(world: JournalWorld, row: Row, journal: FakeJournal, flow: Any) -> Drive:
    epoch = world.grant(row.run.run_id, journal.worker_id)
    programs = programs_of(flow=flow)
    return Drive(journal=journal, programs=programs, sources=SimulatedSources(), run_id=row.run.run_id, epoch=epoch)


def result_of(world: JournalWorld, row: Row) -> Any:
    blob = row.run.result_blob
    return json.loads(row.run.result if blob is None else world.blobs[blob])


def named(row: Row, kind: str) -> list[BlobRef | None]:
    return [payloads.named_blob(event.payload) for event in row.events if event.kind == kind]


def test_everything_large_goes_through_a_blob_and_comes_back() -> None:
    async def main() -> None:
        world, outside = JournalWorld(), Outside()
        raw = json.dumps("i" * LARGE).encode()
        blob = BlobRef.of(raw)
        world.blobs[blob] = raw
        asked = request("flow")
        row = world.create(
            StartRequest(
                request_id=asked.request_id,
                tenant_id="default",
                agent_name="flow",
                input=b"",
                workflow_id="",
                workflow_id_policy=0,
                traceparent="",
                input_blob=blob,
            )
        )
        journal = FakeJournal(world)

        async def flow(ctx: lantern.Context, given: str) -> Any:
            first = await ctx.step("first", outside.do_async, given[:10] + "s" * LARGE)
            marked = await ctx.side_effect("mark", lambda: "m" * LARGE)
            return [given, first, marked]

        await drive(world, row, journal, flow).run()
        assert result_of(world, row) == ["i" * LARGE, "i" * 10 + "s" * LARGE, "m" * LARGE]
        assert journal.downloads == [blob], "what was made here is at hand"
        for kind in (kinds.RUN_STARTED, kinds.STEP_COMPLETED, kinds.MARKER_RECORDED, kinds.RUN_SUCCEEDED):
            assert all(named(row, kind)), kind
        assert max(len(event.payload) for event in row.events) < 1_000

    simulate(main())


def test_a_replay_fetches_what_the_program_comes_to_and_repeats_nothing() -> None:
    async def main() -> None:
        world, outside = JournalWorld(), Outside()
        row = world.create(request("flow"))
        journal, later = FakeJournal(world, "w1"), FakeJournal(world, "w2")
        large = "s" * LARGE

        async def flow(ctx: lantern.Context) -> Any:
            sizes: list[int] = []
            for name in ("a", "b"):
                value = await ctx.step(name, outside.do_async, name + large)
                sizes.append(len(value))
                # One of the same content, again: it is named and fetched for each.
                sizes.append(len(await ctx.step(name + "-again", outside.do_async, name + large)))
                await ctx.sleep(3600)
            return sizes

        await drive(world, row, journal, flow).run()
        assert (row.run.state, row.run.waiting_on) == ("WAITING", "timer")
        await asyncio.sleep(3601)
        await drive(world, row, later, flow).run()
        assert later.downloads == named(row, kinds.STEP_COMPLETED)[:2], "what was made here is at hand"
        assert outside.count("a") == 1
        assert len(world.blobs) == 2, "once each"

    simulate(main())


def test_a_large_signal_is_named_as_it_came() -> None:
    async def main() -> None:
        world = JournalWorld()
        row = world.create(request("flow"))
        raw = json.dumps("p" * LARGE).encode()
        blob = BlobRef.of(raw)
        world.blobs[blob] = raw
        world.send(row.run.run_id, "signal", "paid", blob=blob)

        async def flow(ctx: lantern.Context) -> int:
            return 1

        journal = FakeJournal(world)
        await drive(world, row, journal, flow).run()
        assert named(row, kinds.SIGNAL_RECEIVED) == [blob]
        assert journal.downloads == [], "nobody asked for its content"

    simulate(main())


def test_a_claimed_delivery_with_a_large_result_is_not_made_again() -> None:
    async def main() -> None:
        world, outside = JournalWorld(), Outside()
        row = world.create(request("flow"))
        journal, later = FakeJournal(world, "w1"), FakeJournal(world, "w2")

        async def flow(ctx: lantern.Context) -> int:
            return len(await ctx.step("mail", outside.do_async, "d" * LARGE, claim="ask"))

        async def die(append: Any) -> None:
            if any(event.kind == kinds.STEP_COMPLETED for event in append.events):
                raise RuntimeError("the process ends")

        journal.before = die
        await drive(world, row, journal, flow).run()
        assert row.run.state == "QUEUED"
        await drive(world, row, later, flow).run()
        assert (result_of(world, row), outside.count("mail")) == (LARGE, 1)
        assert later.downloads == named(row, kinds.STEP_COMPLETED)

    simulate(main())


def test_64_mib_and_a_byte_is_too_large_and_says_so() -> None:
    async def main() -> None:
        world = JournalWorld()
        row = world.create(request("flow"))

        async def step(size: int) -> str:
            return "x" * size

        async def flow(ctx: lantern.Context) -> Any:
            just = await ctx.step("just", step, 64 * 1024 * 1024 - 2)
            try:
                await ctx.step("more", step, 64 * 1024 * 1024 - 1)
            except lantern.StepError as error:
                return [len(just), error.code, error.details["field"], error.details["size"], error.details["limit"]]

        await drive(world, row, FakeJournal(world), flow).run()
        assert result_of(world, row) == [
            67_108_862,
            reasons.PAYLOAD_TOO_LARGE,
            "result",
            "67108865",
            "67108864",
        ]

    simulate(main())
