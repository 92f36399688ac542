"""Goal: workflows that wait for others, give up waiting or undo what they did end as if their workers had not died.

Method: as test_drive_programs, with signals, approvals and children, which the outside answers by seed alone; with
time-outs, whose outcome may differ, so that only the story is checked; and with a cancel that falls into a saga.
"""

import asyncio
import random
from collections.abc import Sequence

from executor_fakes import EPOCH_US, simulate
from hypothesis import example, given, settings
from hypothesis import strategies as st
from random_programs import Node
from test_drive_programs import Death, World, asked_along, asked_along_events, check, deaths, firsts

from lantern_kernel import kinds, payloads
from lantern_kernel.event import Event, find_chain_fault
from lantern_kernel.inbox import InboxEntry
from lantern_kernel.payloads import DecisionFacts, ParkFacts
from storms.stormy_journal import wakes

_leaves = st.one_of(
    st.tuples(st.just("step"), st.integers(1, 4)),
    st.just(("effect",)),
    st.tuples(st.just("sleep"), st.sampled_from([0, 0.5, 4, 25])),
    st.just(("signal",)),
    st.just(("approval",)),
    st.just(("child",)),
)


def _branches(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    several = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(*(st.tuples(st.just(kind), several) for kind in ("seq", "gather", "group", "saga")))


def _hurried(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    return st.one_of(_branches(inner), st.tuples(st.just("timeout"), st.sampled_from([0.2, 2, 11]), inner))


programs = st.recursive(_leaves, _branches, max_leaves=8)
hurried_programs = st.recursive(_leaves, _hurried, max_leaves=8)


class OthersWorld(World):
    """A world with others in it: they send, decide and end, each at a time and in a way that the seed says."""

    def __init__(self, node: Node, seed: int) -> None:
        super().__init__(node, seed)
        self._answered: set[str] = set()
        self._signals = list(_signals_of(node, "n"))

    async def run_among_others(self, plan: Sequence[Death], cancel_after_s: float | None = None) -> None:
        """Drives to the end while others do their part."""
        others = [asyncio.create_task(self._answer())]
        others += [asyncio.create_task(self._signal(name)) for name in self._signals]
        if cancel_after_s is not None:
            others.append(asyncio.create_task(self._cancel(cancel_after_s)))
        try:
            await self.run(plan)
        finally:
            for task in others:
                task.cancel()
            await asyncio.wait(others)

    async def await_wake(self) -> None:
        """See World; or until an entry wakes it, by the journal's rule."""
        park = ParkFacts.unpack(self.row.events[-1].payload)
        while not any(wakes(entry, park) for entry in self.row.inbox[_taken_in(self.row.events) :]):
            now_us = EPOCH_US + round(asyncio.get_running_loop().time() * 1e6)
            if park.due_us is not None and park.due_us <= now_us:
                return
            assert asyncio.get_running_loop().time() < 10_000, f"nothing wakes it: {park}"
            await asyncio.sleep(0.5)

    async def _signal(self, name: str) -> None:
        await asyncio.sleep(self.outside.number("sent", name) % 12_000 / 1000)
        self._send("signal", name, b"%d" % self.outside.number("value", name))

    async def _cancel(self, after_s: float) -> None:
        await asyncio.sleep(after_s)
        self._send("cancel", "", b"")

    async def _answer(self) -> None:
        """Decides what is asked for, and ends children."""
        while True:
            await asyncio.sleep(0.7)
            for event in [each for each in self.row.events if each.kind == kinds.APPROVAL_REQUESTED]:
                if event.step_id not in self._answered:
                    self._answered.add(event.step_id)
                    decision = ["approved", "denied"][self.outside.number("decided", event.step_id) % 2]
                    step_id = event.step_id
                    facts = DecisionFacts(approval_id=step_id, step_id=step_id, decision=decision, by="ann")
                    self._send("decision", step_id, facts.pack(b"1"))
            for run_id, parent in list(self.journal.children.items()):
                if run_id not in self._answered:
                    self._answered.add(run_id)
                    is_unwanted = run_id in {cancelled for cancelled, _ in self.journal.cancels}
                    data = b"%d" % self.outside.number("child", parent.step_id)
                    self.journal.end_child(run_id, "CANCELLED" if is_unwanted else "SUCCEEDED", data)
                    self._tell()

    def _send(self, kind: str, name: str, payload: bytes) -> None:
        self.row.inbox.append(InboxEntry(number=len(self.row.inbox) + 1, kind=kind, name=name, payload=payload))
        self._tell()

    def _tell(self) -> None:
        if self.live is not None:
            self.live.inbox_arrived()


def _signals_of(node: Node, path: str) -> list[str]:
    """The names that a program waits for."""
    match node:
        case ("signal",):
            return [f"g{path}"]
        case ("timeout", _, inner):
            return _signals_of(inner, f"{path}.t")
        case ("step" | "effect" | "sleep" | "approval" | "child", *_):
            return []
        case _:
            return [name for at, each in enumerate(node[1]) for name in _signals_of(each, f"{path}.{at}")]


def _taken_in(events: Sequence[Event]) -> int:
    numbers = [payloads.unpack(event.payload).facts["number"] for event in events if event.kind in kinds.FROM_INBOX]
    return max(numbers, default=0)


def _drive(node: Node, seed: int, plan: Sequence[Death] = (), cancel_after_s: float | None = None) -> OthersWorld:
    async def main() -> OthersWorld:
        world = OthersWorld(node, seed)
        await world.run_among_others(plan, cancel_after_s)
        return world

    return simulate(main())


def _check_story(world: OthersWorld) -> None:
    """One story, whatever its end: a chain, no non-determinism, and code asks along it for what it records."""
    events = world.row.events
    assert find_chain_fault(world.row.run.run_id, events) is None
    assert not [event for event in events if event.kind == kinds.NONDETERMINISM_DETECTED]
    recorded = [event.step_id for event in firsts(events)]
    asked = [step_id for step_id in asked_along(world) if step_id in set(recorded)]
    assert list(dict.fromkeys(asked)) == recorded
    for step_id, keys in world.outside.effects.items():
        assert len(keys) == 1, f"{step_id} took effect under {len(keys)} keys"


@settings(max_examples=25, deadline=None)
@given(programs, st.integers(0, 2**32), st.lists(deaths, max_size=5))
def test_what_others_say_is_heard_as_if_no_worker_had_died(node: Node, seed: int, plan: list[Death]) -> None:
    check(_drive(node, seed, plan), _drive(node, seed))


@settings(max_examples=25, deadline=None)
@given(hurried_programs, st.integers(0, 2**32), st.lists(deaths, max_size=5))
def test_whoever_gives_up_waiting_tells_one_story(node: Node, seed: int, plan: list[Death]) -> None:
    world = _drive(node, seed, plan)
    assert world.row.run.state == "SUCCEEDED", world.row.run.error
    _check_story(world)


@settings(max_examples=25, deadline=None)
@example([("effect",)], 0, [], 0.0)  # a marker that nobody waits for any more when it is to be recorded
@example([("approval",)] * 3, 0, [], 2.25)  # a cancel that finds the block left, though not the run's end
@given(st.lists(_leaves, min_size=1, max_size=5), st.integers(0, 2**32), st.lists(deaths, max_size=5), st.floats(0, 20))
def test_a_cancel_undoes_what_was_begun_each_once_the_last_first(
    nodes: list[Node], seed: int, plan: list[Death], cancel_after_s: float
) -> None:
    world = _drive(("saga", nodes), seed, plan, cancel_after_s)
    events = world.row.events
    _check_story(world)
    undone = [event.step_id for event in events if event.kind == kinds.STEP_COMPLETED and event.step_id[0] == "u"]
    if world.row.run.state == "SUCCEEDED":
        assert undone == []
        return
    assert world.row.run.state == "CANCELLED", world.row.run
    numbers = [int(step_id.rpartition(".")[2]) for step_id in undone]
    assert numbers == list(range(len(numbers)))[::-1], f"the last first, each once: {numbers}"
    cancelled_at = next(at for at, event in enumerate(events) if event.kind == kinds.CANCEL_REQUESTED)
    if asked_along_events(world, events[:cancelled_at])[-1:] == ["end"]:
        assert undone == [], "what is in a block that was left stands"
        return
    begun = {int(event.step_id.rpartition(".")[2]) for event in firsts(events) if event.step_id[1:].startswith("n.")}
    assert begun <= set(numbers), f"{begun} were begun, {numbers} undone"


def test_cancels_do_fall_into_sagas() -> None:
    """What the test above must come past."""
    states = []
    for seed in range(20):
        chance = random.Random(seed)
        nodes: list[Node] = [("step", 3), ("signal",), ("child",), ("approval",)]
        states.append(_drive(("saga", nodes), seed, [("after", 2.0)], chance.uniform(0, 12)).row.run.state)
    assert {"SUCCEEDED", "CANCELLED"} == set(states)
