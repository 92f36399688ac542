"""Goal: whatever a workflow is made of and wherever its workers die, it ends as if they had not (SPEC R1, R5, R8, E2).

Method: random programs (steps that fail and are tried again, side effects, sleeps short and long, gather, task groups)
are driven by the executor's own drive over the in-memory journal: once undisturbed, then by workers that die, one after
the other, at random appends, before or after the commit, or at a random time. The ends are compared; the journal is
read for doubled steps and keys, and replayed: what the code asks for along it must be what it records, in order.
"""

import asyncio
import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from executor_fakes import EPOCH_US, FakeJournal, JournalWorld, Row, SimulatedSources, programs_of, request, simulate
from hypothesis import given, settings
from hypothesis import strategies as st
from random_programs import Node, Outside, RandomProgram, grow

from lantern_executor.application.drive import Drive
from lantern_executor.domain.tail import Append
from lantern_kernel import kinds, payloads
from lantern_kernel.commands import AwaitSignal, Withdraw
from lantern_kernel.event import AppliedEvent, Event, find_chain_fault
from lantern_kernel.replay import Replay

BEGINS = {
    kinds.STEP_STARTED,
    kinds.MARKER_RECORDED,
    kinds.TIMER_STARTED,
    kinds.APPROVAL_REQUESTED,
    kinds.CHILD_STARTED,
}
DRIVES_MAX = 60

_leaves = st.one_of(
    st.tuples(st.just("step"), st.integers(1, 4)),
    st.just(("effect",)),
    st.tuples(st.just("sleep"), st.sampled_from([0, 0.5, 4, 25])),
)


def _branches(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    several = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(*(st.tuples(st.just(kind), several) for kind in ("seq", "gather", "group")))


programs = st.recursive(_leaves, _branches, max_leaves=8)

Death = tuple[str, float]
"""When a worker dies: before or after the commit of its nth append, or some seconds after it began."""

deaths = st.one_of(
    st.tuples(st.sampled_from(["before", "after"]), st.integers(1, 4).map(float)),
    st.tuples(st.just("time"), st.floats(0.0, 6.0, allow_nan=False)),
)


class World:
    """One run of a random program, over any number of workers."""

    def __init__(self, node: Node, seed: int) -> None:
        self.journal = JournalWorld()
        self.outside = Outside(seed)
        self.program = RandomProgram(node, self.outside)
        self.programs = programs_of(random=self.program.workflow)
        self.row: Row = self.journal.create(request("random", payload=b"7"))
        self.drives = 0
        self.live: Drive | None = None

    async def run(self, plan: Sequence[Death] = ()) -> None:
        """Drives to the end; one worker after the other dies by the plan, the last ones live."""
        left = list(plan)
        while self.row.run.state not in {"SUCCEEDED", "FAILED", "CANCELLED"}:
            self.drives += 1
            assert self.drives < DRIVES_MAX, "it does not come to an end"
            if self.row.run.state == "WAITING":
                await self.await_wake()
            await self._drive(left.pop(0) if left else None)

    async def await_wake(self) -> None:
        """Until a parked run is to be driven again."""
        assert self.row.run.waiting_on == "timer", self.row.run
        assert self.row.run.due_us is not None
        now_us = EPOCH_US + round(asyncio.get_running_loop().time() * 1e6)
        await asyncio.sleep(max(0.0, (self.row.run.due_us - now_us) / 1e6))

    async def _drive(self, death: Death | None) -> None:
        journal, dead = FakeJournal(self.journal, f"w{self.drives}"), asyncio.Event()
        if death is not None:
            _doom(journal, dead, death)
        epoch = self.journal.grant(self.row.run.run_id, journal.worker_id)
        drive = Drive(
            journal=journal,
            programs=self.programs,
            sources=SimulatedSources(),
            run_id=self.row.run.run_id,
            epoch=epoch,
        )
        self.live = drive
        driving, dying = asyncio.create_task(drive.run()), asyncio.create_task(dead.wait())
        await asyncio.wait([driving, dying], return_when=asyncio.FIRST_COMPLETED)
        self.live = None
        driving.cancel()
        dying.cancel()
        await asyncio.wait([driving, dying])


def _doom(journal: FakeJournal, dead: asyncio.Event, death: Death) -> None:
    how, when = death
    if how == "time":
        asyncio.get_running_loop().call_later(when, dead.set)
        return

    async def die(append: Append) -> None:
        await asyncio.sleep(0)
        if len(journal.appends) == when:
            dead.set()
            await asyncio.Event().wait()

    if how == "before":
        journal.before = die
    else:
        journal.after = die


def _drive(node: Node, seed: int, plan: Sequence[Death] = ()) -> World:
    async def main() -> World:
        world = World(node, seed)
        await world.run(plan)
        return world

    return simulate(main())


def check(world: World, undisturbed: World) -> None:
    run, expected, events = world.row.run, undisturbed.row.run, world.row.events
    assert run.state == expected.state == "SUCCEEDED", run.error
    check_markers(world)
    assert without_markers(json.loads(run.result)) == without_markers(json.loads(expected.result))
    assert find_chain_fault(run.run_id, events) is None
    assert not [event for event in events if event.kind == kinds.NONDETERMINISM_DETECTED]
    ends = Counter(event.step_id for event in events if event.kind in {kinds.STEP_COMPLETED, kinds.STEP_FAILED})
    assert set(ends.values()) <= {1}, "a step ends once"
    assert ends.keys() == {step_id for step_id, _ in world.outside.requests}
    for step_id, keys in world.outside.effects.items():
        assert len(keys) == 1, f"{step_id} took effect under {len(keys)} keys"
    begun = Counter((event.step_id, event.attempt) for event in events if event.kind == kinds.STEP_STARTED)
    assert all(times <= begun[place] for place, times in world.outside.requests.items()), "not before it is on record"
    assert Counter(undisturbed.outside.requests.keys()) <= Counter(world.outside.requests.keys())
    assert world.outside.requests.keys() == undisturbed.outside.requests.keys(), "a crash is no failure"
    assert asked_along(world) == [event.step_id for event in firsts(events)]


def check_markers(world: World) -> None:
    recorded = {
        event.step_id: json.loads(payloads.unpack(event.payload).data or b"")
        for event in world.row.events
        if event.kind == kinds.MARKER_RECORDED
    }
    told: dict[str, int] = {}
    _collect_markers(json.loads(world.row.run.result), told)
    assert told == recorded, "what is recorded comes back"


def _collect_markers(value: Any, told: dict[str, int]) -> None:
    if isinstance(value, list):
        for each in value:
            _collect_markers(each, told)
    elif isinstance(value, dict) and "step" not in value:
        told.update(value)


def without_markers(value: Any) -> Any:
    if isinstance(value, list):
        return [without_markers(each) for each in value]
    if isinstance(value, dict) and "step" not in value:
        return sorted(value)
    return value


def firsts(events: Sequence[Event]) -> list[Event]:
    """The event that begins each command, in the journal's order."""
    begun: dict[str, Event] = {}
    for event in events:
        if event.kind in BEGINS:
            begun.setdefault(event.step_id, event)
    return list(begun.values())


def asked_along(world: World) -> list[str]:
    """The commands that fresh code asks for along the finished journal, by step id, its end left out."""
    asked = asked_along_events(world, world.row.events)
    assert asked.pop() == "end"
    return asked


def asked_along_events(world: World, events: Sequence[Event]) -> list[str]:
    """The commands that fresh code asks for along some of the journal, by step id; "end" for its end."""
    replay = Replay(run_id=world.row.run.run_id, workflow_id="")
    program = world.programs.start(world.row.run)
    asked: list[str] = []
    for event in events:
        replay.apply(
            AppliedEvent(
                seq=event.seq,
                kind=event.kind,
                step_id=event.step_id,
                attempt=event.attempt,
                epoch=event.epoch,
                time_us=event.time_us,
                payload=event.payload,
            )
        )
    try:
        while True:
            for command in program.advance():
                if not isinstance(command, AwaitSignal | Withdraw):  # no event begins these
                    asked.append(getattr(command, "step_id", "end"))
                replay.issue(command)
            outcome = replay.next_outcome()
            if outcome is None:
                break
            program.resolve(outcome)
    finally:
        program.close()
    return asked


@settings(max_examples=80, deadline=None)
@given(programs, st.integers(0, 2**32), st.lists(deaths, max_size=5))
def test_a_run_ends_as_if_its_workers_had_not_died(node: Node, seed: int, plan: list[Death]) -> None:
    check(_drive(node, seed, plan), _drive(node, seed))


def _larger(seed: int) -> tuple[Node, list[Death]]:
    chance = random.Random(seed)
    plan: list[Death] = [
        (how, chance.uniform(0, 6) if how == "time" else float(chance.randint(1, 6)))
        for how in chance.choices(["before", "after", "time"], k=chance.randint(3, 12))
    ]
    return grow(chance, 5), plan


def test_larger_programs_end_as_if_their_workers_had_not_died() -> None:
    died = 0
    for seed in range(30):
        node, plan = _larger(seed)
        world = _drive(node, seed, plan)
        check(world, _drive(node, seed))
        died += sum(event.kind == kinds.LEASE_GRANTED for event in world.row.events) - 1
    assert died > 100, "few of the deaths came about"


def test_another_process_with_other_hashes_writes_the_same_journals() -> None:
    here = Path(__file__).parent
    check = (
        f"import sys; sys.path.insert(0, {str(here)!r})\n"
        "import test_drive_programs\n"
        "print(test_drive_programs.journals())\n"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", check], check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2")
    }
    assert printed == {f"{journals()}\n".encode()}


def journals() -> str:
    """A digest over what stands in the journals of some programs, salts apart."""
    total = sha256()
    for seed in range(8):
        node, plan = _larger(seed)
        for event in _drive(node, seed, plan).row.events:
            total.update(repr((event.kind, event.step_id, event.attempt, event.time_us, event.payload)).encode())
    return total.hexdigest()
