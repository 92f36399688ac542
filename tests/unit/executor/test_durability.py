"""Goal: what each durability mode can lose or do twice is what docs/guides/durability.md says, and no more (SPEC J7).

Method: a workflow of steps without effects, a marker and two steps that touch the outside is driven over a journal
whose appends take a second. Of each mode: what is committed when a step is dispatched, how many appends there are, and
how long it takes. Then a worker dies at each append, before and after its commit, and what is done twice is counted.
Then random programs with random deaths: in every mode they end as undisturbed ones do.
"""

import asyncio
import json
from collections import Counter
from typing import Any

import pytest
from executor_fakes import FakeJournal, JournalWorld, SimulatedSources, kinds_of, programs_of, request, simulate
from hypothesis import given, settings
from hypothesis import strategies as st
from random_programs import Node, RandomProgram, grow
from random_programs import Outside as RandomOutside

import lantern
from lantern_executor.application.drive import Drive
from lantern_executor.domain.run import HandBack
from lantern_executor.domain.tail import APPEND_EVENTS_MAX, Append
from lantern_kernel import kinds, payloads, reasons
from lantern_kernel.errors import LanternError
from lantern_kernel.event import find_chain_fault

MODES = ["sync", "async", "exit"]
FREE = ("f1", "f2", "f3", "g1")
OUTSIDE = ("o1", "o2")
COMMIT_S = 1.0


class World:
    """One run of the workflow: three free steps and a marker, an effect, one more free step, an effect."""

    def __init__(self, durability: str) -> None:
        self.journal = JournalWorld()
        self.requests: Counter[str] = Counter()
        self.effects: dict[str, set[str]] = {}
        self.behind: list[str] = []  # steps of effect that were dispatched with something uncommitted before them
        self.begun_uncommitted: set[str] = set()
        self.marks = 0
        self.mark_seen: list[int] = []  # what the outside was told of the marker
        self.programs = programs_of(flow=self.workflow)
        self.row = self.journal.create(request("flow"), durability)
        self.drives = 0

    async def workflow(self, ctx: lantern.Context) -> Any:
        free = [await ctx.step(name, self.pure, effects="none") for name in FREE[:3]]
        mark = await ctx.side_effect("mark", self.mark)
        first = await ctx.step("o1", self.effect, mark)
        free.append(await ctx.step("g1", self.pure, effects="none"))
        return [free, first, await ctx.step("o2", self.effect, mark)]

    def mark(self) -> int:
        self.marks += 1
        return self.marks

    async def pure(self) -> str:
        step_id = lantern.step_info().step_id
        self.requests[step_id] += 1
        if kinds.STEP_STARTED not in kinds_of(self.row, of_step=step_id):
            self.begun_uncommitted.add(step_id)
        await asyncio.sleep(0.1)
        return step_id

    async def effect(self, mark: int) -> str:
        info = lantern.step_info()
        self.requests[info.step_id] += 1
        self.effects.setdefault(info.step_id, set()).add(info.key)
        self.mark_seen.append(mark)
        done = [event.step_id for event in self.row.events if event.kind == kinds.STEP_COMPLETED]
        before = [*FREE[:3]] if info.step_id == "o1" else [*FREE[:3], "o1", "g1"]
        if self.row.events[-1].step_id != info.step_id or sorted(done) != sorted(before):
            self.behind.append(info.step_id)
        await asyncio.sleep(0.1)
        return info.step_id

    async def drive(self, journal: FakeJournal | None = None) -> FakeJournal:
        self.drives += 1
        journal = journal or slow(FakeJournal(self.journal, f"w{self.drives}"))
        epoch = self.journal.grant(self.row.run.run_id, journal.worker_id)
        await self.of(journal, epoch).run()
        return journal

    def of(self, journal: FakeJournal, epoch: int) -> Drive:
        return Drive(
            journal=journal,
            programs=self.programs,
            sources=SimulatedSources(),
            run_id=self.row.run.run_id,
            epoch=epoch,
        )


def slow(journal: FakeJournal) -> FakeJournal:
    """A journal that takes its time for each append."""

    async def wait(append: Append) -> None:
        await asyncio.sleep(COMMIT_S)

    journal.before = wait
    return journal


async def _dies(world: World, at: int, *, committed: bool) -> bool:
    """A worker that dies at its append number `at`; False where the run ended before it came to that."""
    dead, journal = asyncio.Event(), slow(FakeJournal(world.journal, "dying"))

    async def die(append: Append) -> None:
        await asyncio.sleep(COMMIT_S / 2)
        if len(journal.appends) == at + 1:
            dead.set()
            await asyncio.Event().wait()

    if committed:
        journal.after = die
    else:
        journal.before = die
    driving, dying = asyncio.create_task(world.drive(journal)), asyncio.create_task(dead.wait())
    await asyncio.wait([driving, dying], return_when=asyncio.FIRST_COMPLETED)
    driving.cancel()
    dying.cancel()
    await asyncio.wait([driving, dying])
    return dead.is_set()


def _undisturbed(durability: str) -> tuple[World, float]:
    async def main() -> tuple[World, float]:
        world = World(durability)
        await world.drive()
        return world, asyncio.get_running_loop().time()

    return simulate(main())


@pytest.mark.parametrize("mode", MODES)
def test_whatever_touches_the_outside_finds_everything_before_it_committed(mode: str) -> None:
    world, _ = _undisturbed(mode)
    assert world.row.run.state == "SUCCEEDED"
    assert json.loads(world.row.run.result) == [[*FREE], "o1", "o2"]
    assert world.behind == []
    assert find_chain_fault(world.row.run.run_id, world.row.events) is None


def test_sync_commits_before_each_step_and_the_others_do_not_wait() -> None:
    sync, sync_s = _undisturbed("sync")
    background, background_s = _undisturbed("async")
    held, held_s = _undisturbed("exit")
    assert sync.begun_uncommitted == set()
    assert background.begun_uncommitted == held.begun_uncommitted == {*FREE}
    # f1 | f2 | f3 | mark, o1 | g1 | o2 | the end
    assert sync.journal.appends == 7
    # all that comes before o1 | before o2 | the end
    assert held.journal.appends == 3
    assert held.journal.appends < background.journal.appends <= sync.journal.appends
    steps_s = 0.1 * (len(FREE) + len(OUTSIDE))
    assert sync_s == pytest.approx(7 * COMMIT_S + steps_s, abs=0.01)
    assert held_s == pytest.approx(3 * COMMIT_S + steps_s, abs=0.01)
    assert held_s < background_s < sync_s
    assert kinds_of(sync.row) == kinds_of(background.row) == kinds_of(held.row), "the history does not tell them apart"


def test_an_unknown_mode_is_the_strictest() -> None:
    world, _ = _undisturbed("yolo")
    assert world.begun_uncommitted == set()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("at", range(7))
def test_a_crash_at_every_append(mode: str, at: int, committed: bool) -> None:
    async def main() -> None:
        world = World(mode)
        died = await _dies(world, at, committed=committed)
        on_record = Counter(event.step_id for event in world.row.events if event.kind == kinds.STEP_COMPLETED)
        before = Counter(world.requests)
        if not died:
            assert world.row.run.state == "SUCCEEDED"
            return
        if world.row.run.state != "SUCCEEDED":
            await world.drive()
        assert json.loads(world.row.run.result) == [[*FREE], "o1", "o2"]
        assert all(world.effects[step_id] and len(world.effects[step_id]) == 1 for step_id in OUTSIDE), "one key each"
        assert world.behind == []
        assert len(set(world.mark_seen)) == 1, "what the outside was told is never decided anew"
        again = {step_id for step_id, times in world.requests.items() if times > before[step_id] > 0}
        assert not again & on_record.keys(), "what is on record is never done again"
        assert len(again & {*OUTSIDE}) <= 1, "of effects: the one in flight, under its key"
        if mode == "sync":
            assert len(again) <= 1, "the step in flight"
        assert max(world.requests.values()) <= 2
        assert find_chain_fault(world.row.run.run_id, world.row.events) is None

    simulate(main())


def _lost(mode: str, at: int) -> set[str]:
    """The steps that a crash before the commit of that append makes to be done again."""

    async def main() -> set[str]:
        world = World(mode)
        assert await _dies(world, at, committed=False)
        before = Counter(world.requests)
        await world.drive()
        return {step_id for step_id, times in world.requests.items() if times > before[step_id] > 0}

    return simulate(main())


def test_what_the_documentation_says_is_lost_is_lost() -> None:
    """The other half of the table: these losses do happen, so the rows are not mere caution."""
    assert _lost("sync", 3) == {"f3"}, "the completion that was on its way"
    assert _lost("exit", 0) == {"f1", "f2", "f3"}, "all since the last commit"
    assert _lost("exit", 1) == {"o1", "g1"}, "an effect's completion as well: it is repeated under its key"
    lost = _lost("async", 1)
    assert lost, "what was done while the commit before was under way"
    assert lost <= {"f1", "f2", "f3"}


def test_a_refused_commit_in_the_background_ends_the_drive() -> None:
    async def main() -> None:
        world, journal = World("async"), FakeJournal(JournalWorld(), "w1")
        journal.world = world.journal

        async def refuse(append: Append) -> None:
            await asyncio.sleep(0.15)
            raise LanternError(reasons.LEASE_LOST, "another has it")

        journal.before = refuse
        await world.drive(journal)
        assert not world.effects, "nothing of effect is begun on top of it"
        assert len(journal.appends) == 1
        assert journal.released == [], "it is another's"

    simulate(main())


@pytest.mark.parametrize("mode", ["async", "exit"])
def test_a_drain_commits_what_is_held(mode: str) -> None:
    async def main() -> None:
        world, journal = World(mode), slow(FakeJournal(JournalWorld(), "w1"))
        journal.world = world.journal
        drive = world.of(journal, world.journal.grant(world.row.run.run_id, "w1"))
        driving = asyncio.create_task(drive.run())
        await asyncio.sleep(0.15)  # f2 runs
        drive.drain()
        await driving
        assert [cause for _, _, cause in journal.released] == [HandBack.DRAIN]
        assert world.requests == {"f1": 1, "f2": 1}
        completed = [event.step_id for event in world.row.events if event.kind == kinds.STEP_COMPLETED]
        assert completed == ["f1", "f2"], "nothing has to be done again"

    simulate(main())


def test_exit_commits_before_a_long_wait_and_when_an_append_is_full() -> None:
    async def main() -> None:
        async def nothing() -> None:
            return None

        async def flow(ctx: lantern.Context) -> None:
            await ctx.step("early", nothing, effects="none")
            await ctx.sleep(3600)

        async def long(ctx: lantern.Context) -> None:
            for _ in range(APPEND_EVENTS_MAX):
                await ctx.step("n", nothing, effects="none")

        world, journal = JournalWorld(), FakeJournal(JournalWorld(), "w1")
        journal.world, programs = world, programs_of(flow=flow, long=long)
        for name in ("flow", "long"):
            row = world.create(request(name, name), "exit")
            drive = Drive(
                journal=journal,
                programs=programs,
                sources=SimulatedSources(),
                run_id=row.run.run_id,
                epoch=world.grant(row.run.run_id, "w1"),
            )
            before = len(journal.appends)
            await drive.run()
            if name == "flow":
                assert row.run.waiting_on == "timer"
                assert len(journal.appends) == before + 1
                assert kinds_of(row)[-1] == kinds.RUN_PARKED
            else:
                assert row.run.state == "SUCCEEDED"
                assert 2 <= len(journal.appends) - before <= 4, "not at each step, and not all at the end"

    simulate(main())


class RandomWorld:
    """One run of a random program in a mode, over any number of workers."""

    def __init__(self, node: Node, seed: int, mode: str) -> None:
        self.journal, self.outside = JournalWorld(), RandomOutside(seed)
        self.programs = programs_of(random=RandomProgram(node, self.outside, free=True).workflow)
        self.row = self.journal.create(request("random", payload=b"7"), mode)

    async def run(self, deaths: list[float]) -> None:
        worker = 0
        while self.row.run.state not in {"SUCCEEDED", "FAILED", "CANCELLED"}:
            worker += 1
            assert worker < 60, "it does not come to an end"
            if self.row.run.due_us is not None:
                await asyncio.sleep(max(0.0, (self.row.run.due_us - self.journal.now_us()) / 1e6))
            journal = slow(FakeJournal(self.journal, f"w{worker}"))
            drive = Drive(
                journal=journal,
                programs=self.programs,
                sources=SimulatedSources(),
                run_id=self.row.run.run_id,
                epoch=self.journal.grant(self.row.run.run_id, journal.worker_id),
            )
            driving = asyncio.create_task(drive.run())
            await asyncio.wait([driving], timeout=deaths.pop(0) if deaths else None)
            driving.cancel()
            await asyncio.wait([driving])


def _values(result: bytes) -> Any:
    """The result without what markers brought: one that was lost is evaluated anew."""

    def strip(value: Any) -> Any:
        if isinstance(value, list):
            return [strip(each) for each in value]
        if isinstance(value, dict) and len(value) == 1:
            return sorted(value)
        return value

    return strip(json.loads(result))


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    chance=st.randoms(use_true_random=False),
    mode=st.sampled_from(["async", "exit"]),
    deaths=st.lists(st.floats(0.05, 8.0), max_size=4),
)
def test_random_programs_end_alike_in_every_mode(seed: int, chance: Any, mode: str, deaths: list[float]) -> None:
    node = grow(chance, 3)

    async def ended(mode: str, deaths: list[float]) -> RandomWorld:
        world = RandomWorld(node, seed, mode)
        await world.run(deaths)
        return world

    undisturbed, world = simulate(ended("sync", [])), simulate(ended(mode, list(deaths)))
    assert world.row.run.state == undisturbed.row.run.state == "SUCCEEDED", world.row.run.error
    assert _values(world.row.run.result) == _values(undisturbed.row.run.result)
    assert find_chain_fault(world.row.run.run_id, world.row.events) is None
    begun = Counter((event.step_id, event.attempt) for event in world.row.events if event.kind == kinds.STEP_STARTED)
    for (step_id, attempt), times in world.outside.requests.items():
        if not RandomProgram.is_free(world.outside, step_id):
            assert times <= begun[step_id, attempt], "nothing of effect is begun before that is on record"
            assert len(world.outside.effects.get(step_id, set())) <= 1
    ends = Counter(
        event.step_id for event in world.row.events if event.kind in {kinds.STEP_COMPLETED, kinds.STEP_FAILED}
    )
    assert set(ends.values()) <= {1}, "a step ends once"
    assert payloads.unpack(world.row.events[0].payload).facts["durability"] == mode
