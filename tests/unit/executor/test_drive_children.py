"""Goal: a drive creates each child once, after its child_started is committed, and cancels the unwanted (SPEC 7.4).

Method: scripted programs over the in-memory journal. Children are created, refused, withdrawn before and after they
exist, abandoned by a run that ends at once; the journal is away; workers die before and after the commit, and the next
one asks for the same child under the same request id.
"""

import asyncio
from typing import Any

import pytest
from executor_fakes import FakeJournal, JournalWorld, Row, SimulatedSources, kinds_of, request, simulate
from scripted_programs import Flow, Script

from lantern_executor.application.drive import Drive
from lantern_executor.domain.run import CreatedRun, StartRequest
from lantern_executor.domain.tail import Append
from lantern_kernel import kinds, payloads, reasons
from lantern_kernel.bounds import PAYLOAD_INLINE_BYTES_MAX
from lantern_kernel.commands import Fail, RecordMarker, RunStep, StartChild, StartTimer, Succeed, Withdraw
from lantern_kernel.errors import LanternError
from lantern_kernel.outcomes import Outcome


def child(step_id: str = "part", **fields: Any) -> StartChild:
    return StartChild(
        step_id=step_id, name=step_id, agent_name="worker", input=fields.pop("input", b"7"), source="f.py:1", **fields
    )


def step(step_id: str) -> RunStep:
    return RunStep(step_id=step_id, name=step_id, type="function", input=b"[]", source="f.py:2")


def waits_for_the_child() -> Flow:
    told = yield [child()]
    assert isinstance(told, Outcome)
    if told.error is not None:
        yield [Fail(error=told.error)]
    yield [Succeed(result=told.data or b"null")]


class World:
    """One run of a script, over any number of workers."""

    def __init__(self, script: Script) -> None:
        self.journal = JournalWorld()
        self.script = script
        self.row = self.journal.create(request("script"))
        self.workers = 0

    @property
    def made(self) -> list[Row]:
        return [self.journal.rows[run_id] for run_id in self.journal.children]

    def drive(self, journal: FakeJournal | None = None) -> "asyncio.Task[None]":
        self.workers += 1
        journal = journal or FakeJournal(self.journal, f"w{self.workers}")
        self.at = journal
        self.driving = Drive(
            journal=journal,
            programs=self.script,
            sources=SimulatedSources(),
            run_id=self.row.run.run_id,
            epoch=self.journal.grant(self.row.run.run_id, journal.worker_id),
        )
        return asyncio.create_task(self.driving.run())

    def tell(self, state: str, data: bytes | None = None) -> None:
        self.journal.end_child(self.made[0].run.run_id, state, data)
        self.driving.inbox_arrived()


@pytest.mark.parametrize("state", ["SUCCEEDED", "FAILED"])
def test_a_child_is_created_after_its_event_and_its_end_goes_on(state: str) -> None:
    async def main() -> None:
        world = World(Script(flow=waits_for_the_child))
        before: list[list[str]] = []
        create = world.journal.create

        def spied(request: StartRequest, durability: str = "") -> Row:
            before.append(kinds_of(world.row))
            return create(request, durability)

        world.journal.create = spied
        task = world.drive()
        await asyncio.sleep(0.1)
        (made,) = world.made
        assert kinds.CHILD_STARTED in before[0], "committed before"
        assert world.journal.children[made.run.run_id].step_id == "part"
        assert made.run.input == b"7"
        world.tell(state, b'{"done":1}' if state == "SUCCEEDED" else None)
        await task
        assert world.row.run.state == state
        if state == "SUCCEEDED":
            assert world.row.run.result == b'{"done":1}'
        else:
            assert world.row.run.error is not None
            assert world.row.run.error.step_id == "part"

    simulate(main())


def test_a_run_parks_on_a_child_that_takes_long() -> None:
    async def main() -> None:
        world = World(Script(flow=waits_for_the_child))
        await world.drive()
        assert world.row.run.waiting_on == "child"
        world.journal.end_child(world.made[0].run.run_id, "SUCCEEDED", b"1")
        await world.drive()
        assert world.row.run.result == b"1"
        assert len(world.made) == 1

    simulate(main())


@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("at", [1, 2])
def test_a_crash_makes_no_second_child(at: int, committed: bool) -> None:
    async def main() -> None:
        world, dead = World(Script(flow=waits_for_the_child)), asyncio.Event()
        journal = FakeJournal(world.journal, "dying")

        async def die(append: Append) -> None:
            if len(journal.appends) == at:
                dead.set()
                await asyncio.Event().wait()

        setattr(journal, "after" if committed else "before", die)
        task = world.drive(journal)
        await asyncio.wait([task, asyncio.create_task(dead.wait())], return_when=asyncio.FIRST_COMPLETED)
        task.cancel()
        await asyncio.wait([task])
        if world.row.run.state != "WAITING":
            await world.drive()
        assert len(world.made) == 1
        started = [event for event in world.row.events if event.kind == kinds.CHILD_STARTED]
        assert len(started) == 1
        named = payloads.unpack(started[0].payload).facts["requestId"]
        assert world.journal.requests[named] == world.made[0].run.run_id

    simulate(main())


def test_a_refused_child_fails_its_step() -> None:
    async def main() -> None:
        world = World(Script(flow=waits_for_the_child))
        journal = FakeJournal(world.journal, "w")

        async def refuse(request: StartRequest, *, with_lease: bool) -> CreatedRun:
            raise LanternError(reasons.AGENT_NOT_FOUND, "no worker")

        journal.create_run = refuse
        await world.drive(journal)
        assert world.row.run.state == "FAILED"
        assert world.row.run.error is not None
        assert (world.row.run.error.code, world.row.run.error.step_id) == (reasons.AGENT_NOT_FOUND, "part")

    simulate(main())


def test_a_journal_that_is_away_is_asked_again_and_the_run_goes_on_meanwhile() -> None:
    def both() -> Flow:
        yield [child(), step("aside")]
        told = yield []
        assert isinstance(told, Outcome)
        yield [Succeed(result=told.data or b"null")]

    async def main() -> None:
        world = World(Script(flow=both))
        journal = FakeJournal(world.journal, "w")
        create, tries = journal.create_run, list[float]()

        async def away(request: StartRequest, *, with_lease: bool) -> CreatedRun:
            tries.append(asyncio.get_running_loop().time())
            if len(tries) < 4:
                raise LanternError(reasons.UNAVAILABLE, "away")
            return await create(request, with_lease=with_lease)

        journal.create_run = away
        task = world.drive(journal)
        await asyncio.sleep(1.5)
        assert kinds.STEP_COMPLETED in kinds_of(world.row, of_step="aside")
        assert not world.made
        await asyncio.sleep(1.6)
        assert len(world.made) == 1, "not parked before it was there"
        world.tell("SUCCEEDED", b"2")
        await task
        assert world.row.run.result == b"2"

    simulate(main())


def test_a_lease_lost_over_a_child_ends_the_drive() -> None:
    async def main() -> None:
        world = World(Script(flow=waits_for_the_child))
        journal = FakeJournal(world.journal, "w1")

        async def taken(append: Append) -> None:
            world.journal.grant(world.row.run.run_id, "w2")

        journal.after = taken
        await world.drive(journal)
        assert world.made == []
        assert journal.released == []

    simulate(main())


@pytest.mark.parametrize("abandon", [False, True])
def test_an_unwanted_child_is_cancelled_unless_abandoned(abandon: bool) -> None:
    def gives_up() -> Flow:
        timer = StartTimer(step_id="t", duration_us=1_000_000, source="f.py:3")
        yield [child(abandon=abandon), timer]
        yield [Withdraw(step_id="part"), step("after")]
        yield [Succeed(result=b"1")]

    async def main() -> None:
        world = World(Script(flow=gives_up))
        await world.drive()
        assert world.row.run.state == "SUCCEEDED"
        (made,) = world.made
        assert [run_id for run_id, _ in world.journal.cancels] == ([] if abandon else [made.run.run_id])

    simulate(main())


def test_a_child_that_is_being_created_when_it_is_withdrawn_is_cancelled_all_the_same() -> None:
    def gives_up() -> Flow:
        yield [child(), step("short")]
        yield [Withdraw(step_id="part"), step("after")]
        yield [Succeed(result=b"1")]

    async def main() -> None:
        world = World(Script(flow=gives_up))
        journal = FakeJournal(world.journal, "w")
        create = journal.create_run

        async def slowly(request: StartRequest, *, with_lease: bool) -> CreatedRun:
            await asyncio.sleep(5)
            return await create(request, with_lease=with_lease)

        journal.create_run = slowly
        await world.drive(journal)
        assert [run_id for run_id, _ in world.journal.cancels] == [world.made[0].run.run_id]

    simulate(main())


def test_an_abandoned_child_of_a_run_that_ends_at_once_is_created() -> None:
    def fires_and_forgets() -> Flow:
        yield [child(abandon=True), RecordMarker(step_id="m", name="m", source="f.py:4", value=b"1")]
        yield [Succeed(result=b"1")]

    async def main() -> None:
        world = World(Script(flow=fires_and_forgets))
        await world.drive()
        assert world.row.run.state == "SUCCEEDED"
        assert len(world.made) == 1
        assert kinds_of(world.row)[-3:] == [kinds.CHILD_STARTED, kinds.MARKER_RECORDED, kinds.RUN_SUCCEEDED]

    simulate(main())


def test_a_large_input_goes_as_a_blob_and_many_children_at_once() -> None:
    def many() -> Flow:
        large = b'"' + b"x" * PAYLOAD_INLINE_BYTES_MAX + b'"'
        yield [child(f"part[{n}]", input=large) for n in range(40)]
        for _ in range(38):
            yield []
        yield [Succeed(result=b"1")]

    async def main() -> None:
        world = World(Script(flow=many))
        task = world.drive()
        await asyncio.sleep(0.1)
        assert len(world.made) == 40
        assert all(row.run.input == b"" and row.run.input_blob is not None for row in world.made)
        for row in world.made:
            world.journal.end_child(row.run.run_id, "SUCCEEDED", b"1")
        world.driving.inbox_arrived()
        await task
        assert world.row.run.state == "SUCCEEDED"

    simulate(main())


def test_an_unwanted_step_is_stopped_where_it_runs() -> None:
    def gives_up() -> Flow:
        yield [step("long"), StartTimer(step_id="t", duration_us=1_000_000, source="f.py:3")]
        yield [Withdraw(step_id="long"), StartTimer(step_id="u", duration_us=1_000_000, source="f.py:5")]
        yield [Succeed(result=b"1")]

    async def main() -> None:
        world = World(Script(flow=gives_up, step_s=3600.0))
        await world.drive()
        assert world.script.stopped == ["long"]
        failed = [event for event in world.row.events if event.kind == kinds.STEP_FAILED]
        assert [payloads.unpack(event.payload).facts["code"] for event in failed] == [reasons.STEP_CANCELLED]
        assert world.row.run.state == "SUCCEEDED"
        assert asyncio.get_running_loop().time() < 10

    simulate(main())
