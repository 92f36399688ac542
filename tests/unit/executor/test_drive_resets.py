"""Goal: a drive passes over what a reset of its history passes over; a step's total time-out bounds its attempts.

Method: scripted programs over the in-memory journal: a run that is reset once and once more is driven by code that asks
for something else from there on; steps of which each attempt hangs or fails are given a total time, also over a crash.
"""

import asyncio

import pytest
from executor_fakes import FakeJournal, JournalWorld, SimulatedSources, kinds_of, request, simulate
from scripted_programs import Flow, Script

from lantern_executor.application.drive import Drive
from lantern_kernel import kinds, payloads, reasons
from lantern_kernel.commands import Fail, RunStep, StartTimer, Succeed
from lantern_kernel.event import NewEvent
from lantern_kernel.outcomes import Outcome
from lantern_kernel.retry import RetryPolicy


class World:
    """One run, driven along one script after the other."""

    def __init__(self) -> None:
        self.journal = JournalWorld()
        self.row = self.journal.create(request("script"))

    def drive(self, script: Script) -> "asyncio.Task[None]":
        epoch = self.journal.grant(self.row.run.run_id, "w")
        journal = FakeJournal(self.journal, "w")
        drive = Drive(
            journal=journal, programs=script, sources=SimulatedSources(), run_id=self.row.run.run_id, epoch=epoch
        )
        return asyncio.create_task(drive.run())

    def reset(self, to_seq: int) -> None:
        payload = payloads.pack({"toSeq": to_seq})
        self.journal.write(self.row, [NewEvent(kind=kinds.HISTORY_RESET, payload=payload, salt=bytes(16))], 0)

    def seq_of(self, kind: str, step_id: str) -> int:
        return next(event.seq for event in self.row.events if (event.kind, event.step_id) == (kind, step_id))


def steps(*names: str) -> Script:
    """A script of steps, one after the other, and then a long wait for those whose last one is `wait`."""

    def flow() -> Flow:
        for name in names:
            if name == "wait":
                yield [StartTimer(step_id="wait", duration_us=3_600_000_000, source="f.py:1")]
            else:
                yield [RunStep(step_id=name, name=name, type="function", input=b"[]", source="f.py:2")]
        yield [Succeed(result=b"1")]

    return Script(flow=flow)


def test_what_a_reset_passes_over_is_not_replayed() -> None:
    async def main() -> None:
        world, first = World(), steps("a", "b", "c", "wait")
        await world.drive(first)
        assert first.steps == ["a", "b", "c"]
        world.reset(world.seq_of(kinds.STEP_COMPLETED, "a"))
        second = steps("a", "x", "wait")
        await world.drive(second)
        assert second.steps == ["x"], "a is on record still"
        world.reset(world.seq_of(kinds.STEP_COMPLETED, "x"))
        third = steps("a", "x", "b")
        await world.drive(third)
        assert third.steps == ["b"], "under its name, though the history had another b"
        assert world.row.run.state == "SUCCEEDED"
        assert kinds.NONDETERMINISM_DETECTED not in kinds_of(world.row)

    simulate(main())


def test_without_the_reset_the_same_code_is_held() -> None:
    async def main() -> None:
        world = World()
        await world.drive(steps("a", "b", "c", "wait"))
        await world.drive(steps("a", "x", "wait"))
        assert world.row.run.waiting_on == "code_fix"

    simulate(main())


def _bounded(step_s: float, *, timeout_ms: int | None, attempts: int, backoff_ms: int = 100) -> Script:
    def flow() -> Flow:
        told = yield [
            RunStep(
                step_id="s",
                name="s",
                type="function",
                input=b"[]",
                source="f.py:3",
                timeout_ms=timeout_ms,
                total_timeout_ms=10_000,
                retry=RetryPolicy(max_attempts=attempts, backoff_ms=backoff_ms, multiplier=1.0),
            )
        ]
        assert isinstance(told, Outcome)
        if told.error is not None:
            yield [Fail(error=told.error)]
        yield [Succeed(result=b"1")]

    return Script(flow=flow, step_s=step_s)


@pytest.mark.parametrize(
    ("script", "requests", "within_s"),
    [
        (_bounded(3600, timeout_ms=None, attempts=1), 1, (10, 10.1)),
        (_bounded(3600, timeout_ms=None, attempts=9), 1, (10, 10.1)),
        (_bounded(3600, timeout_ms=4_000, attempts=9), 3, (10, 10.1)),  # 4 s, 4 s, and what is left
        (_bounded(3600, timeout_ms=4_000, attempts=2), 2, (8, 8.2)),
        (_bounded(3600, timeout_ms=1_000, attempts=9, backoff_ms=12_000), 1, (1, 1.1)),  # the wait alone would be over
    ],
)
def test_a_total_time_out_bounds_all_attempts(script: Script, requests: int, within_s: tuple[float, float]) -> None:
    async def main() -> None:
        world = World()
        script.steps.clear()
        await world.drive(script)
        assert world.row.run.state == "FAILED"
        assert world.row.run.error is not None
        assert world.row.run.error.code == reasons.STEP_TIMEOUT
        assert len(script.steps) == requests
        assert within_s[0] <= asyncio.get_running_loop().time() <= within_s[1]

    simulate(main())


def test_a_total_time_out_counts_from_the_first_attempt_over_a_crash() -> None:
    async def main() -> None:
        world, script = World(), _bounded(3600, timeout_ms=None, attempts=1)
        dying = world.drive(script)
        await asyncio.sleep(7)
        dying.cancel()
        await asyncio.wait([dying])
        assert script.steps == ["s"]
        before_s = asyncio.get_running_loop().time()
        await world.drive(script)
        assert world.row.run.state == "FAILED"
        assert asyncio.get_running_loop().time() - before_s == pytest.approx(3, abs=0.1)

    simulate(main())


def test_where_nothing_is_left_no_attempt_is_made() -> None:
    async def main() -> None:
        world, script = World(), _bounded(3600, timeout_ms=None, attempts=3)
        dying = world.drive(script)
        await asyncio.sleep(1)
        dying.cancel()
        await asyncio.wait([dying])
        await asyncio.sleep(20)
        await world.drive(script)
        assert script.steps == ["s"]
        assert world.row.run.error is not None
        assert world.row.run.error.code == reasons.STEP_TIMEOUT

    simulate(main())
