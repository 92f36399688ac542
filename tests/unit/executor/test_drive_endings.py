"""Goal: a drive ends as it should: lost lease, inbox, cancel, parking, code that changed, faults of its own.

Method: workflows over the in-memory journal on simulated time; what the journal holds and what ran is then looked at.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from executor_fakes import FakeJournal, JournalWorld, Outside, Row, SimulatedSources, programs_of, request, simulate
from executor_fakes import kinds_of as kinds_in

import lantern
from lantern_executor.application.drive import Drive
from lantern_executor.domain.run import HandBack
from lantern_executor.domain.tail import Append
from lantern_kernel import kinds, payloads, reasons
from lantern_kernel.course import course
from lantern_kernel.errors import LanternError
from lantern_kernel.payloads import ParkFacts


def _drive(world: JournalWorld, row: Row, journal: FakeJournal, workflow: Any) -> Drive:
    epoch = world.grant(row.run.run_id, journal.worker_id)
    return Drive(
        journal=journal,
        programs=programs_of(flow=workflow),
        sources=SimulatedSources(),
        run_id=row.run.run_id,
        epoch=epoch,
    )


def _world() -> tuple[JournalWorld, Row, FakeJournal]:
    world = JournalWorld()
    return world, world.create(request("flow")), FakeJournal(world)


def test_lost_lease_stops_the_drive_and_its_steps() -> None:
    async def main() -> None:
        world, row, journal = _world()
        stopped: list[str] = []

        async def slow() -> None:
            try:
                await asyncio.sleep(1_000)
            finally:
                stopped.append("slow")

        async def quick() -> None:
            await asyncio.sleep(1)
            world.grant(row.run.run_id, "w2")  # recovery thinks that we are gone

        async def flow(ctx: lantern.Context) -> None:
            await asyncio.gather(ctx.step("slow", slow), ctx.step("quick", quick))

        drive = _drive(world, row, journal, flow)
        await drive.run()
        assert stopped == ["slow"]
        assert kinds.STEP_COMPLETED not in kinds_in(row)
        assert journal.released == []
        assert asyncio.get_running_loop().time() < 10

    simulate(main())


def test_no_step_is_dispatched_without_trust_and_then_only_after_asking_for_the_lease() -> None:
    async def main() -> None:
        world, row, journal = _world()
        outside = Outside()

        async def step() -> None:
            outside.do(None)

        async def flow(ctx: lantern.Context) -> None:
            await ctx.step("a", step)

        journal.trust.clear()
        driving = asyncio.create_task(_drive(world, row, journal, flow).run())
        await asyncio.sleep(60)
        assert kinds_in(row)[-1] == kinds.STEP_STARTED
        assert outside.requests == []
        world.grant(row.run.run_id, "w2")
        journal.trust.set()
        await driving
        assert outside.requests == []

    simulate(main())


def test_signal_is_taken_in_before_the_end() -> None:
    async def main() -> None:
        world, row, journal = _world()

        async def step() -> str:
            await asyncio.sleep(1)
            world.send(row.run.run_id, "signal", "hello")  # nobody tells the driver: the final append is refused
            return "done"

        async def flow(ctx: lantern.Context) -> str:
            return await ctx.step("a", step)

        await _drive(world, row, journal, flow).run()
        assert kinds_in(row)[-3:] == [kinds.STEP_COMPLETED, kinds.SIGNAL_RECEIVED, kinds.RUN_SUCCEEDED]
        received = payloads.unpack(row.events[-2].payload)
        assert (received.facts, received.data) == ({"number": 1, "name": "hello"}, b'{"from":"outside"}')
        assert row.run.result == b'"done"'

    simulate(main())


def test_signal_is_taken_in_once_over_all_drives() -> None:
    async def main() -> None:
        world, row, journal = _world()

        async def flow(ctx: lantern.Context) -> None:
            await ctx.sleep(60)

        world.send(row.run.run_id, "signal", "first")
        await _drive(world, row, journal, flow).run()
        world.send(row.run.run_id, "signal", "second")
        await asyncio.sleep(60)
        await _drive(world, row, journal, flow).run()
        received = [payloads.unpack(event.payload).facts for event in row.events if event.kind == kinds.SIGNAL_RECEIVED]
        assert [(facts["number"], facts["name"]) for facts in received] == [(1, "first"), (2, "second")]
        assert row.run.state == "SUCCEEDED"

    simulate(main())


@pytest.mark.parametrize("announced", [True, False])
def test_cancel(announced: bool) -> None:
    async def main() -> None:
        world, row, journal = _world()
        stopped: list[str] = []

        async def step() -> None:
            world.send(row.run.run_id, "cancel")
            if not announced:
                return
            asyncio.get_running_loop().call_later(1, drive.inbox_arrived)
            try:
                await asyncio.sleep(1_000)
            finally:
                stopped.append("step")

        async def flow(ctx: lantern.Context) -> None:
            await ctx.step("a", step)

        drive = _drive(world, row, journal, flow)
        await drive.run()
        assert kinds_in(row)[-2:] == [kinds.CANCEL_REQUESTED, kinds.RUN_CANCELLED]
        assert row.run.state == "CANCELLED"
        assert stopped == (["step"] if announced else [])
        assert kinds.RUN_SUCCEEDED not in kinds_in(row)

    simulate(main())


def test_step_that_ignores_its_cancellation_holds_nobody_up() -> None:
    async def main() -> None:
        world, row, journal = _world()

        async def stubborn() -> None:
            for _ in range(100):
                try:
                    await asyncio.sleep(1)
                except asyncio.CancelledError:
                    world.send(row.run.run_id, "signal", "late")

        async def flow(ctx: lantern.Context) -> None:
            await ctx.step("a", stubborn)

        drive = _drive(world, row, journal, flow)
        driving = asyncio.create_task(drive.run())
        await asyncio.sleep(0.5)
        world.send(row.run.run_id, "cancel")
        drive.inbox_arrived()
        await driving
        assert asyncio.get_running_loop().time() < 5
        assert kinds_in(row)[-3:] == [kinds.CANCEL_REQUESTED, kinds.SIGNAL_RECEIVED, kinds.RUN_CANCELLED]

    simulate(main())


def test_long_timer_parks_and_short_one_stays() -> None:
    async def main() -> None:
        world, row, journal = _world()

        async def flow(ctx: lantern.Context) -> str:
            await ctx.sleep(10)
            await ctx.sleep(3_600)
            return "woken"

        await _drive(world, row, journal, flow).run()
        assert 10 <= asyncio.get_running_loop().time() < 11
        assert row.run.state == "WAITING"
        park = ParkFacts.unpack(row.events[-1].payload)
        assert park.waiting_on == "timer"
        assert park.due_us == world.now_us() + 3_600_000_000
        await asyncio.sleep(3_600)
        await _drive(world, row, journal, flow).run()
        assert row.run.result == b'"woken"'
        assert kinds_in(row)[-2:] == [kinds.TIMER_FIRED, kinds.RUN_SUCCEEDED]

    simulate(main())


def test_nothing_parks_while_a_step_runs() -> None:
    async def main() -> None:
        world, row, journal = _world()

        async def slow() -> None:
            await asyncio.sleep(100)

        async def flow(ctx: lantern.Context) -> None:
            await asyncio.gather(ctx.sleep(3_600), ctx.step("slow", slow))

        await _drive(world, row, journal, flow).run()
        assert asyncio.get_running_loop().time() >= 100
        assert kinds_in(row)[-2:] == [kinds.STEP_COMPLETED, kinds.RUN_PARKED]

    simulate(main())


def test_changed_code_parks_with_one_event() -> None:
    async def main() -> None:
        world, row, journal = _world()

        async def before(ctx: lantern.Context) -> None:
            await ctx.step("charge", _one)
            await ctx.sleep(3_600)

        async def after(ctx: lantern.Context) -> None:
            await ctx.step("refund", _one)

        await _drive(world, row, journal, before).run()
        committed = len(row.events)
        await _drive(world, row, journal, after).run()
        made = [event.kind for event in row.events[committed + 1 :]]
        assert made == [kinds.NONDETERMINISM_DETECTED, kinds.RUN_PARKED]
        assert (row.run.waiting_on, row.run.error and row.run.error.code) == ("code_fix", reasons.NONDETERMINISM)
        facts = payloads.unpack(row.events[-2].payload).facts
        assert facts["seq"] == 3
        assert "charge" in facts["recorded"]
        assert "refund" in facts["asked"]
        await _drive(world, row, journal, before).run()
        assert row.run.waiting_on == "timer"  # the code that fits goes on as if nothing had been

    simulate(main())


def test_failure_of_the_drive_hands_the_run_back_as_a_fault() -> None:
    async def main() -> None:
        world, row, journal = _world()

        async def broken(append: Append) -> None:
            raise LanternError(reasons.INTERNAL, "the journal has a fault")

        async def flow(ctx: lantern.Context) -> None:
            await ctx.step("a", _one)

        journal.before = broken
        drive = _drive(world, row, journal, flow)
        await drive.run()
        assert journal.released == [(row.run.run_id, drive.epoch, HandBack.FAULT)]

    simulate(main())


@pytest.mark.parametrize(
    "faults",
    [
        [LanternError(reasons.UNAVAILABLE, "away")] * 5,
        [ValueError("not foreseen"), LanternError(reasons.INTERNAL, "odd"), OSError("neither")],
    ],
)
def test_handing_back_is_tried_until_it_succeeds(faults: list[Exception]) -> None:
    async def main() -> None:
        world, row, journal = _world()
        left = list(faults)
        release = journal.release_lease

        async def release_at_last(run_id: str, epoch: int, cause: HandBack) -> None:
            if left:
                raise left.pop(0)
            await release(run_id, epoch, cause)

        async def flow(ctx: lantern.Context) -> None:
            await ctx.step("a", _one)

        journal.release_lease = release_at_last
        drive = _drive(world, row, journal, flow)
        drive.drain()
        await drive.run()
        assert journal.released == [(row.run.run_id, drive.epoch, HandBack.DRAIN)]
        assert asyncio.get_running_loop().time() == pytest.approx(len(faults), abs=0.1)

    simulate(main())


def test_a_drain_does_not_go_round_while_a_timer_is_due_and_a_step_runs() -> None:
    async def main() -> None:
        world, row, journal = _world()

        async def long() -> str:
            await asyncio.sleep(5)
            return "done"

        async def flow(ctx: lantern.Context) -> None:
            await asyncio.gather(ctx.step("long", long), ctx.sleep(2))

        drive = _drive(world, row, journal, flow)
        asyncio.get_running_loop().call_later(1, drive.drain)
        await drive.run()
        assert [cause for *_, cause in journal.released] == [HandBack.DRAIN]
        assert kinds_in(row)[-1] == kinds.STEP_COMPLETED, "the timer is left to the next drive"
        assert asyncio.get_running_loop().time() == pytest.approx(5, abs=0.1)

    simulate(main())


def test_unreadable_history_hands_the_run_back() -> None:
    async def main() -> None:
        world, row, journal = _world()
        row.events[0] = replace(row.events[0], kind="from_the_future")

        async def flow(ctx: lantern.Context) -> None:
            await ctx.step("a", _one)

        await _drive(world, row, journal, flow).run()
        assert [cause for *_, cause in journal.released] == [HandBack.FAULT]
        assert len(row.events) == 2

    simulate(main())


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (lambda: {1, 2}, reasons.INVALID_JSON),
        (lambda: float("nan"), reasons.INVALID_JSON),
        (lambda: "x" * (64 * 1024 * 1024 - 1), reasons.PAYLOAD_TOO_LARGE),
        (lambda: 10**5_000, reasons.INVALID_JSON),
    ],
)
def test_result_that_cannot_be_recorded_fails_the_step(value: Callable[[], Any], code: str) -> None:
    async def main() -> None:
        world, row, journal = _world()

        async def step() -> Any:
            return value()

        async def flow(ctx: lantern.Context) -> str:
            try:
                await ctx.step("a", step, retry=lantern.RetryPolicy(max_attempts=5))
            except lantern.StepError as error:
                return error.code
            return "no error"

        await _drive(world, row, journal, flow).run()
        assert json.loads(row.run.result) == code
        assert kinds.STEP_RETRYING not in kinds_in(row)

    simulate(main())


async def _one() -> int:
    return 1


class _Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this works")


@pytest.mark.parametrize(
    "error",
    [ValueError("\ud800 \x00 x" * 10_000), _Unspeakable(), SystemExit(3), asyncio.CancelledError(), TimeoutError()],
)
def test_whatever_a_step_raises_is_a_failure(error: BaseException) -> None:
    async def main() -> None:
        world, row, journal = _world()

        async def step() -> None:
            raise error

        async def flow(ctx: lantern.Context) -> None:
            await ctx.step("a", step)

        await _drive(world, row, journal, flow).run()
        assert row.run.state == "FAILED"
        assert row.run.error is not None
        assert row.run.error.step_id == "a"

    simulate(main())


@pytest.mark.parametrize("size", [1, 64 * 1024 * 1024])
def test_marker_that_cannot_be_recorded_fails_the_run(size: int) -> None:
    async def main() -> None:
        world, row, journal = _world()

        def value() -> Any:
            return {1, 2} if size == 1 else "x" * size

        async def flow(ctx: lantern.Context) -> None:
            await ctx.side_effect("m", value)

        await _drive(world, row, journal, flow).run()
        assert row.run.state == "FAILED"
        assert kinds.MARKER_RECORDED not in kinds_in(row)

    simulate(main())


def test_values_of_the_largest_size_are_recorded_with_the_facts_beside_them() -> None:
    async def main() -> None:
        world, row, journal = _world()
        largest = "x" * (256 * 1024 - 2)

        async def step() -> str:
            return largest

        async def flow(ctx: lantern.Context) -> str:
            assert await ctx.side_effect("m", lambda: largest) == largest
            return await ctx.step("a", step)

        await _drive(world, row, journal, flow).run()
        assert json.loads(row.run.result) == largest

    simulate(main())


def test_result_too_large_fails_the_run() -> None:
    async def main() -> None:
        world, row, journal = _world()

        async def flow(ctx: lantern.Context) -> str:
            return "x" * (64 * 1024 * 1024 - 1)

        await _drive(world, row, journal, flow).run()
        assert row.run.error is not None
        assert row.run.error.code == reasons.PAYLOAD_TOO_LARGE

    simulate(main())


@pytest.mark.parametrize("at_once", [1, 7, 50])
def test_run_that_never_ends_fails_while_there_is_room_to_say_so(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(course, "EVENTS_PER_RUN_MAX", 40)

    async def main() -> None:
        world, row, journal = _world()

        async def flow(ctx: lantern.Context) -> None:
            while True:
                await asyncio.gather(*(ctx.step("again", _one) for _ in range(at_once)))

        await _drive(world, row, journal, flow).run()
        assert row.run.error is not None
        assert row.run.error.code == reasons.EVENTS_FULL
        assert len(row.events) <= 40

    simulate(main())


def test_large_outputs_are_cut_into_appends_of_bounded_size() -> None:
    async def main() -> None:
        world, row, journal = _world()

        async def step() -> str:
            return "x" * 200_000

        async def flow(ctx: lantern.Context) -> int:
            outputs: list[str] = await asyncio.gather(*(ctx.step(f"s{n}", step) for n in range(1_200)))
            return len(outputs)

        await _drive(world, row, journal, flow).run()
        assert row.run.result == b"1200"
        assert max(append.size_bytes for append in journal.appends) < 1024 * 1024
        assert max(len(append.events) for append in journal.appends) <= 1_000

    simulate(main())
