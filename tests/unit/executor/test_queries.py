"""Goal: a query is answered by the live program or by a replay of the journal, and changes nothing (SPEC 7.4).

Method: scripted programs over the in-memory journal are asked while they are driven, parked, paused, ended, reset, and
by code that does not replay them; after each question journal and outside are as before.
"""

import asyncio
import json

import pytest
from executor_fakes import FakeJournal, JournalWorld, SimulatedSources, programs_of, request, simulate
from scripted_programs import Flow, Script

import lantern
from lantern_executor.application import queries
from lantern_executor.application.executor import Executor
from lantern_executor.domain.run import StartRequest
from lantern_kernel import kinds, payloads, reasons
from lantern_kernel.bounds import PAYLOAD_INLINE_BYTES_MAX
from lantern_kernel.commands import RecordMarker, RunStep, StartTimer, Succeed
from lantern_kernel.errors import LanternError
from lantern_kernel.event import NewEvent


def step(step_id: str) -> RunStep:
    return RunStep(step_id=step_id, name=step_id, type="function", input=b"[]", source="f.py:1")


def script(*names: str, wait: bool = True, step_s: float = 1.0) -> Script:
    def flow() -> Flow:
        for name in names:
            yield [step(name)]
        if wait:
            yield [StartTimer(step_id="t", duration_us=3_600_000_000, source="f.py:2")]
        yield [RecordMarker(step_id="late", name="late", source="f.py:3"), step("later")]
        yield []
        yield [Succeed(result=b"1")]

    return Script(flow=flow, step_s=step_s)


class World:
    """An executor, and a second one that drives nothing."""

    def __init__(self, programs: Script) -> None:
        self.journal = JournalWorld()
        self.programs = programs
        self.executor = self.other(programs)

    def other(self, programs: Script) -> Executor:
        journal = FakeJournal(self.journal, f"w{id(programs)}")
        return Executor(journal=journal, programs=programs, sources=SimulatedSources(), capacity=4)

    async def start(self, start: StartRequest | None = None) -> str:
        return (await self.executor.start_run(start or request("script"))).run.run_id

    async def ask(self, run_id: str, executor: Executor | None = None) -> list[str]:
        row = self.journal.rows[run_id]
        before = (len(row.events), len(self.programs.steps), row.run)
        answer = json.loads(await (executor or self.executor).query(run_id, "told", b'{"x":1}'))
        assert answer[1] == {"x": 1}
        assert (len(row.events), len(self.programs.steps), row.run) == before, "nothing changes"
        return answer[0]


def test_a_driven_run_is_asked_where_it_is_driven_and_elsewhere() -> None:
    async def main() -> None:
        world = World(script("a", "b"))
        run_id = await world.start()
        await asyncio.sleep(1.5)  # b runs
        assert await world.ask(run_id) == ["a"]
        assert await world.ask(run_id, world.other(script("a", "b"))) == ["a"]
        await world.executor.drain(0)

    simulate(main())


def test_the_live_program_is_ahead_of_the_journal_where_commits_are_held() -> None:
    async def main() -> None:
        def flow() -> Flow:
            free = [RunStep(step_id=n, name=n, type="function", input=b"[]", source="", effects="none") for n in "ab"]
            yield [free[0]]
            yield [free[1]]
            yield [Succeed(result=b"1")]

        world = World(Script(flow=flow, step_s=1.0))
        row = world.journal.create(request("script"), "exit")
        epoch = world.journal.grant(row.run.run_id, f"w{id(world.programs)}")
        worker = f"w{id(world.programs)}"
        await world.executor.drive(run_id=row.run.run_id, epoch=epoch, worker_id=worker, agent_name="script")
        await asyncio.sleep(1.5)
        assert await world.ask(row.run.run_id) == ["a"]
        assert await world.ask(row.run.run_id, world.other(world.programs)) == []
        await world.executor.drain(5)

    simulate(main())


def test_runs_of_any_other_state_are_asked_by_replay() -> None:
    async def main() -> None:
        world = World(script("a", "b"))
        run_id = await world.start()
        await asyncio.sleep(5)
        assert world.journal.rows[run_id].run.waiting_on == "timer"
        assert await world.ask(run_id) == ["a", "b"]
        ended = World(script("a", wait=False))
        run_id = await ended.start()
        await asyncio.sleep(5)
        assert ended.journal.rows[run_id].run.state == "SUCCEEDED"
        assert await ended.ask(run_id) == ["a", "late", "later"]

    simulate(main())


def test_a_paused_run_is_asked_where_it_stands() -> None:
    async def main() -> None:
        world = World(script("a", "b"))
        run_id = await world.start()
        await asyncio.sleep(0.5)
        world.journal.send(run_id, "pause")
        world.executor._inbox_arrived([run_id])  # pyright: ignore[reportPrivateUsage] - as the session does
        await asyncio.sleep(3)
        assert world.journal.rows[run_id].run.waiting_on == "paused"
        assert await world.ask(run_id) == ["a"]

    simulate(main())


def test_a_reset_history_is_read_as_a_drive_reads_it() -> None:
    async def main() -> None:
        world = World(script("a", "b"))
        run_id = await world.start()
        await asyncio.sleep(5)
        row = world.journal.rows[run_id]
        to = next(event.seq for event in row.events if (event.kind, event.step_id) == (kinds.STEP_COMPLETED, "a"))
        payload = payloads.pack({"toSeq": to})
        world.journal.write(row, [NewEvent(kind=kinds.HISTORY_RESET, payload=payload, salt=bytes(16))], 0)
        assert await world.ask(run_id, world.other(script("a", "x"))) == ["a"]

    simulate(main())


def test_code_that_does_not_replay_the_run_answers_nothing() -> None:
    async def main() -> None:
        world = World(script("a", "b"))
        run_id = await world.start()
        await asyncio.sleep(5)
        with pytest.raises(LanternError) as caught:
            await world.ask(run_id, world.other(script("x")))
        assert caught.value.reason == reasons.NONDETERMINISM

    simulate(main())


def test_what_is_not_there_is_named() -> None:
    async def main() -> None:
        world = World(script("a"))
        run_id = await world.start()
        await asyncio.sleep(0.5)
        for asked, name, reason in [
            (run_id, "other", reasons.QUERY_NOT_FOUND),
            ("00000000-0000-7000-8000-ffffffffffff", "told", reasons.RUN_NOT_FOUND),
        ]:
            with pytest.raises(LanternError) as caught:
                await world.executor.query(asked, name, b"null")
            assert caught.value.reason == reason
        await world.executor.drain(0)

    simulate(main())


def test_an_agent_that_is_not_loaded_here_is_named() -> None:
    async def main() -> None:
        world = World(script("a"))
        run_id = await world.start()
        await asyncio.sleep(5)

        async def flow(ctx: lantern.Context) -> None:
            return None

        elsewhere = FakeJournal(world.journal, "w9")
        with pytest.raises(LanternError) as caught:
            await queries.Queries(elsewhere, programs_of(another=flow), SimulatedSources()).answer(
                run_id, "told", b"null"
            )
        assert caught.value.reason == reasons.AGENT_NOT_FOUND

    simulate(main())


def test_an_answer_that_is_too_large_and_a_program_that_answers_none() -> None:
    async def main() -> None:
        world = World(script("a"))
        run_id = await world.start()
        await asyncio.sleep(0.5)
        with pytest.raises(LanternError) as caught:
            await world.executor.query(run_id, "told", b'"' + b"x" * PAYLOAD_INLINE_BYTES_MAX + b'"')
        assert caught.value.reason == reasons.QUERY_FAILED

        class Mute:
            digest = "d1"

        with pytest.raises(LanternError) as caught:
            queries.ask(Mute(), "told", b"null")  # pyright: ignore[reportArgumentType] - it answers none
        assert caught.value.reason == reasons.QUERY_NOT_FOUND
        await world.executor.drain(0)

    simulate(main())
