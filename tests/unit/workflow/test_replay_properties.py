"""Goal: a run that crashes anywhere and is driven again ends as it would have, with the same journal.

Method: hypothesis makes small programs (steps, side effects, sleeps, gathers, tasks, queues, failing steps with
retries); each is driven in a simulated world without a crash, then with a crash after every single event, then with
several; what stands in the journals is compared (cmd_i(code, H<i) = e_i).
"""

import asyncio
import os
import random
import subprocess
import sys
from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_drive import Crash, Drive, World, essence

import lantern
from lantern.registry import Definition, define
from lantern_kernel import kinds
from lantern_kernel.commands import Fail, Succeed
from lantern_kernel.event import AppliedEvent
from lantern_kernel.payloads import unpack
from lantern_kernel.retry import RetryPolicy

Node = tuple[Any, ...]

_leaves = st.one_of(
    st.tuples(st.just("step"), st.sampled_from("abc"), st.integers(1, 3)),
    st.tuples(st.just("effect"), st.sampled_from("xy")),
    st.just(("sleep",)),
    st.just(("hop",)),
)


def _branches(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    several = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(*(st.tuples(st.just(kind), several) for kind in ("seq", "gather", "group", "queue")))


programs = st.recursive(_leaves, _branches, max_leaves=8)


class Program:
    """A workflow made of nodes; counts how often its side effects are evaluated."""

    def __init__(self, node: Node, is_strict: bool) -> None:
        self.node, self.is_strict = node, is_strict
        self.evaluated = 0

    def definition(self) -> Definition:
        async def program(ctx: lantern.Context, value: int) -> Any:
            assert value == 7
            return await self.run(ctx, self.node)

        return define(program)

    async def run(self, ctx: lantern.Context, node: Node) -> Any:
        match node:
            case ("step", name, attempts):
                try:
                    return await ctx.step(name, print, 1, retry=RetryPolicy(max_attempts=attempts, backoff_ms=10))
                except lantern.StepError as error:
                    if self.is_strict:
                        raise
                    return [error.step_id, error.code]
            case ("effect", name):
                return await ctx.side_effect(name, self.evaluate)
            case ("sleep",):
                return await ctx.sleep(1.5)
            case ("hop",):
                return await asyncio.sleep(0)
            case ("seq", nodes):
                return [await self.run(ctx, each) for each in nodes]
            case ("gather", nodes):
                return await asyncio.gather(*(self.run(ctx, each) for each in nodes))
            case ("group", nodes):
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(self.run(ctx, each)) for each in nodes]
                return [task.result() for task in tasks]
            case _:
                return await self.run_by_queue(ctx, node[1])

    async def run_by_queue(self, ctx: lantern.Context, nodes: list[Node]) -> list[Any]:
        """The results in the order of their coming: what depends on the order of completions."""
        queue: asyncio.Queue[Any] = asyncio.Queue()

        async def put(each: Node) -> None:
            try:
                await queue.put(await self.run(ctx, each))
            except (lantern.StepError, ExceptionGroup) as error:
                await queue.put(str(error))

        tasks = [asyncio.create_task(put(each)) for each in nodes]
        results = [await queue.get() for _ in nodes]
        await asyncio.gather(*tasks)
        return results

    def evaluate(self) -> int:
        self.evaluated += 1
        return 2**70 + self.evaluated


def _drive_to_end(
    program: Program, journal: list[AppliedEvent], world: World, *, batch: bool = False
) -> tuple[Succeed | Fail, list[AppliedEvent]]:
    return Drive(program.definition(), journal, world, batch=batch).run(), journal


def _crash_at(program: Program, journal: list[AppliedEvent], world: World, at: int) -> bool:
    """Drives until the journal has `at` events; False where the run ended before."""
    try:
        Drive(program.definition(), journal, world, crash_at=at).run()
    except Crash:
        return True
    return False


@settings(max_examples=60, deadline=None)
@given(programs, st.integers(0, 2**32), st.booleans())
def test_a_crash_after_any_event_changes_nothing(node: Node, seed: int, is_strict: bool) -> None:
    program = Program(node, is_strict)
    end, journal = _drive_to_end(program, [], World(seed))
    evaluated_once = program.evaluated
    for at in range(1, len(journal)):
        program.evaluated, world, begun = 0, World(seed), []
        assert _crash_at(program, begun, world, at)
        in_flight = _in_flight(begun)
        resumed_end, resumed = _drive_to_end(program, begun, world)
        assert resumed_end == end
        assert essence(resumed) == essence(journal)
        assert program.evaluated == evaluated_once, "a recorded side effect is never evaluated again"
        assert {place for place, times in world.made.items() if times > 1} <= in_flight
        _assert_keys_follow_the_rule(resumed)


@settings(max_examples=60, deadline=None)
@given(programs, st.integers(0, 2**32), st.lists(st.integers(1, 6), max_size=5))
def test_several_crashes_change_nothing(node: Node, seed: int, gaps: list[int]) -> None:
    program = Program(node, is_strict=False)
    end, journal = _drive_to_end(program, [], World(seed))
    resumed: list[AppliedEvent] = []
    world = World(seed)
    program.evaluated = 0
    for gap in gaps:
        if not _crash_at(program, resumed, world, len(resumed) + gap) or resumed[-1].kind in kinds.TERMINAL:
            break
    if not resumed or resumed[-1].kind not in kinds.TERMINAL:
        resumed_end, _ = _drive_to_end(program, resumed, world)
        assert resumed_end == end
    assert essence(resumed) == essence(journal)
    _assert_keys_follow_the_rule(resumed)


@settings(max_examples=60, deadline=None)
@given(programs, st.integers(0, 2**32))
def test_completions_in_batches_replay_at_every_prefix(node: Node, seed: int) -> None:
    program = Program(node, is_strict=False)
    end, journal = _drive_to_end(program, [], World(seed), batch=True)
    finished = Drive(program.definition(), list(journal[:-1]), World(seed))
    assert finished.run() == end
    assert finished.world.made == Counter(), "everything was recorded"
    for at in range(1, len(journal)):
        resumed_end, resumed = _drive_to_end(program, list(journal[:at]), World(seed), batch=True)
        assert isinstance(resumed_end, Succeed)
        assert resumed[:at] == journal[:at]


def grow(chance: random.Random, depth: int) -> Node:
    """A program of some size, the same for the same chance."""
    if depth == 0 or chance.random() < 0.15:
        kind = chance.choice(["step", "step", "step", "effect", "sleep", "hop"])
        return {"step": ("step", chance.choice("abc"), chance.randint(1, 4)), "effect": ("effect", "x")}.get(
            kind, (kind,)
        )
    return (
        chance.choice(["seq", "gather", "group", "queue"]),
        [grow(chance, depth - 1) for _ in range(chance.randint(2, 3))],
    )


@pytest.mark.parametrize("seed", range(12))
def test_a_crash_after_any_event_of_a_larger_program_changes_nothing(seed: int) -> None:
    program = Program(grow(random.Random(seed), 4), is_strict=seed % 3 == 2)
    end, journal = _drive_to_end(program, [], World(seed))
    for at in range(1, len(journal)):
        program.evaluated = sum(event.kind == kinds.MARKER_RECORDED for event in journal[:at])
        resumed_end, resumed = _drive_to_end(program, list(journal[:at]), World(seed))
        assert resumed_end == end
        assert essence(resumed) == essence(journal)
        _assert_keys_follow_the_rule(resumed)


def test_another_process_with_other_hashes_writes_the_same_journals() -> None:
    here = Path(__file__).parent
    check = (
        f"import sys; sys.path.insert(0, {str(here)!r})\n"
        "import test_replay_properties\n"
        "print(test_replay_properties.journals_of_larger_programs())\n"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", check], check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2")
    }
    assert printed == {f"{journals_of_larger_programs()}\n".encode()}


def journals_of_larger_programs() -> str:
    """A digest over what stands in the journals of a few programs."""
    total = sha256()
    for seed in range(12):
        program = Program(grow(random.Random(seed), 4), is_strict=seed % 3 == 2)
        _, journal = _drive_to_end(program, [], World(seed), batch=seed % 2 == 0)
        total.update(repr(journal).encode())
    return total.hexdigest()


def _in_flight(journal: list[AppliedEvent]) -> set[tuple[str, int]]:
    begun: set[tuple[str, int]] = set()
    for event in journal:
        if event.kind == kinds.STEP_STARTED:
            begun.add((event.step_id, event.attempt))
        elif event.kind in {kinds.STEP_COMPLETED, kinds.STEP_FAILED, kinds.STEP_RETRYING}:
            begun.discard((event.step_id, event.attempt))
    return begun


def _assert_keys_follow_the_rule(journal: list[AppliedEvent]) -> None:
    """E2 read off the journal: a key that was once followed by anything but "not executed" stays to the end."""
    key_attempt: dict[str, int] = {}
    frozen: set[str] = set()
    begun: set[tuple[str, int]] = set()
    for event in journal:
        facts = unpack(event.payload).facts
        if event.kind == kinds.STEP_STARTED:
            expected = key_attempt.setdefault(event.step_id, 1)
            assert facts["keyAttempt"] == expected
            if (event.step_id, event.attempt) in begun:
                frozen.add(event.step_id)
            begun.add((event.step_id, event.attempt))
        elif event.kind == kinds.STEP_RETRYING:
            if facts["outcome"] != "not_executed":
                frozen.add(event.step_id)
            if event.step_id not in frozen:
                key_attempt[event.step_id] += 1
            assert facts["keyAttempt"] == key_attempt[event.step_id]
