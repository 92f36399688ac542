"""Goal: a run of a published agent is driven by the definition that it pinned, fetched once, its nodes executed here.

Method: drives over the in-memory journal on simulated time; a definition is a list of nodes, one after the other, which
is all the interpreter that these tests need.
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest
from executor_fakes import (
    FakeJournal,
    JournalWorld,
    Outside,
    Row,
    SimulatedSources,
    kinds_of,
    programs_of,
    request,
    simulate,
)

import lantern
from lantern.registry import Tool
from lantern_executor.adapters import graphs
from lantern_executor.adapters.graphs import AllPrograms, GraphPrograms
from lantern_executor.adapters.nodes import Nodes
from lantern_executor.adapters.steps import LocalStepRunner
from lantern_executor.application.drive import Drive
from lantern_executor.application.executor import Executor
from lantern_executor.domain.run import HandBack, Run
from lantern_kernel import payloads, reasons
from lantern_kernel.commands import Command, Fail, RunStep, Succeed
from lantern_kernel.errors import LanternError
from lantern_kernel.graph.interpreter import STEP_TYPES, NodeWork
from lantern_kernel.outcomes import Happening, Outcome
from lantern_kernel.program import ReplayView

DIGEST = "1" * 64
RESERVE = {"id": "reserve", "type": "tool", "spec": {"tool": "do", "input": {"value": 1}}}
SHIP = {"id": "ship", "type": "tool", "spec": {"tool": "do", "input": {"value": 2}}}


class Chain:
    """One node after the other; the last one's output is the result."""

    has_compensation = False
    digest = DIGEST

    def __init__(self, nodes: list[dict[str, Any]]) -> None:
        self._nodes = {node["id"]: node for node in nodes}
        self._left = list(nodes)
        self._last: Outcome | None = None
        self._is_blocked = False

    def begin(self, view: ReplayView) -> None:
        del view

    def advance(self) -> Sequence[Command]:
        if self._is_blocked:
            return []
        self._is_blocked = True
        if self._last is not None and self._last.error is not None:
            return [Fail(error=self._last.error)]
        if not self._left:
            return [Succeed(result=(self._last.data if self._last else None) or b"null")]
        node = self._left.pop(0)
        name, spec = node["id"], json.dumps(node["spec"]).encode()
        return [RunStep(step_id=name, name=name, type=STEP_TYPES[node["type"]], input=spec, source=f"/nodes/{name}")]

    def resolve(self, outcome: Happening) -> None:
        assert isinstance(outcome, Outcome)
        self._last, self._is_blocked = outcome, False

    def marker_value(self, step_id: str) -> bytes:
        raise AssertionError(step_id)

    def answer_query(self, name: str, payload: bytes) -> bytes:
        raise AssertionError(name)

    def node_work(self, step_id: str) -> NodeWork:
        node = self._nodes[step_id]
        return NodeWork(node_type=node["type"], spec=json.dumps(node["spec"]).encode())


class Published:
    """Definitions by digest; counts how often one is fetched."""

    def __init__(self, *definitions: list[dict[str, Any]]) -> None:
        self.contents = {sha256(json.dumps(d).encode()).hexdigest(): json.dumps(d).encode() for d in definitions}
        self.fetched: list[tuple[str, str, str]] = []

    async def get_definition(self, tenant_id: str, name: str, digest: str) -> bytes:
        await asyncio.sleep(0)
        self.fetched.append((tenant_id, name, digest))
        if digest not in self.contents:
            raise LanternError(reasons.AGENT_NOT_FOUND, "unknown")
        return self.contents[digest]


def parse(content: bytes) -> graphs.Begin:
    nodes = json.loads(content)

    def begin(run: Run) -> Chain:
        del run
        return Chain(nodes)

    return begin


def graphs_of(published: Published, outside: Outside) -> GraphPrograms:
    def no_http() -> Any:
        raise AssertionError("unit tests make no requests")

    tools = {"do": Tool(name="do", function=outside.do_async)}
    return GraphPrograms(published, parse, Nodes(tools, LocalStepRunner(no_http), LocalStepRunner(no_http)), DIGEST)  # pyright: ignore[reportArgumentType] - no model is asked


def a_run(world: JournalWorld, digest: str, request_id: str = "r1", agent: str = "greet") -> Row:
    row = world.create(request(agent, request_id))
    row.run = replace(row.run, agent_digest=digest)
    return row


async def drive(world: JournalWorld, row: Row, programs: Any, journal: FakeJournal | None = None) -> FakeJournal:
    journal = journal or FakeJournal(world)
    epoch = world.grant(row.run.run_id, journal.worker_id)
    driving = Drive(journal=journal, programs=programs, sources=SimulatedSources(), run_id=row.run.run_id, epoch=epoch)
    await driving.run()
    return journal


def test_a_run_goes_through_the_definition_that_it_pinned() -> None:
    async def main() -> None:
        world, outside, published = JournalWorld(), Outside(), Published([RESERVE, SHIP], [SHIP])
        programs = graphs_of(published, outside)
        old, new = (a_run(world, digest, f"r{n}") for n, digest in enumerate(published.contents))
        for row in (old, new, old):
            if row.run.state != "SUCCEEDED":
                await drive(world, row, programs)
        assert [row.run.result for row in (old, new)] == [b"2", b"2"]
        assert [step for step, _ in outside.requests] == ["reserve", "ship", "ship"]
        started = next(event for event in old.events if event.kind == "step_started")
        facts = payloads.unpack(started.payload).facts
        assert (facts["type"], facts["code"], facts["source"]) == ("tool", DIGEST, "/nodes/reserve")
        await drive(world, a_run(world, next(iter(published.contents)), "r9"), programs)
        assert len(published.fetched) == 2, "each definition once"

    simulate(main())


def test_a_run_whose_driver_died_goes_on_elsewhere_with_the_same_key() -> None:
    async def main() -> None:
        world, outside, published = JournalWorld(), Outside(), Published([RESERVE, SHIP])
        row = a_run(world, next(iter(published.contents)))
        first = FakeJournal(world)

        async def die(append: Any) -> None:
            if any(event.kind == "step_completed" for event in append.events):
                raise asyncio.CancelledError  # the answer never comes, and nobody is there any more

        first.before = die
        dying = asyncio.create_task(drive(world, row, graphs_of(published, outside), first))
        await asyncio.wait([dying])
        await drive(world, row, graphs_of(published, outside), FakeJournal(world, "w2"))
        assert row.run.result == b"2"
        assert (outside.count("reserve"), outside.count("ship"), len(outside.effects)) == (2, 1, 2)

    simulate(main())


def test_a_definition_that_is_nowhere_hands_the_run_back() -> None:
    async def main() -> None:
        world, published = JournalWorld(), Published([SHIP])
        row = a_run(world, "f" * 64)
        journal = await drive(world, row, graphs_of(published, Outside()))
        assert [cause for _, _, cause in journal.released] == [HandBack.FAULT]
        assert kinds_of(row) == ["run_started", "lease_granted"]

    simulate(main())


def test_another_definition_than_the_pinned_one_is_not_run() -> None:
    async def main() -> None:
        published = Published([SHIP])
        published.contents["f" * 64] = json.dumps([RESERVE]).encode()
        row = a_run(JournalWorld(), "f" * 64)
        with pytest.raises(LanternError) as refused:
            await graphs_of(published, Outside()).prepare(row.run)
        assert refused.value.reason == reasons.AGENT_NOT_FOUND

    simulate(main())


def test_definitions_that_nobody_used_lately_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        monkeypatch.setattr(graphs, "KEPT_MAX", 2)
        published = Published([RESERVE], [SHIP], [RESERVE, SHIP])
        programs, world = graphs_of(published, Outside()), JournalWorld()
        one, two, three = (a_run(world, digest, digest).run for digest in published.contents)
        for run in (one, two, one, three, one):
            await programs.prepare(run)
            programs.start(run).close()
        assert len(published.fetched) == 3
        with pytest.raises(LanternError):
            programs.start(two)
        await programs.prepare(two)
        assert len(published.fetched) == 4

    simulate(main())


def test_code_goes_by_its_name_and_every_other_name_is_published() -> None:
    async def main() -> None:
        world, outside, published = JournalWorld(), Outside(), Published([SHIP])

        async def flow(ctx: lantern.Context) -> str:
            return await ctx.step("hello", outside.do_async, "code")

        programs = AllPrograms(programs_of(flow=flow), graphs_of(published, outside))
        assert [(o.name, o.program_kind) for o in programs.offers()] == [("flow", "code"), ("*", "graph")]
        code, graph = a_run(world, "d1", "r1", "flow"), a_run(world, next(iter(published.contents)), "r2")
        for row in (code, graph):
            await drive(world, row, programs)
        assert (code.run.result, graph.run.result) == (b'"code"', b"2")

    simulate(main())


def test_an_executor_takes_published_agents_that_it_does_not_know_by_name() -> None:
    async def main() -> None:
        world, outside, published = JournalWorld(), Outside(), Published([SHIP])
        journal = FakeJournal(world)
        row = a_run(world, next(iter(published.contents)))
        executor = Executor(
            journal=journal, programs=graphs_of(published, outside), sources=SimulatedSources(), capacity=3
        )
        epoch = world.grant(row.run.run_id, journal.worker_id)
        await executor.drive(run_id=row.run.run_id, epoch=epoch, worker_id=journal.worker_id, agent_name="greet")
        while executor.active_count:  # noqa: ASYNC110 - simulated time
            await asyncio.sleep(0.1)
        assert row.run.result == b"2"
        created = await executor.start_run(request("unknown", "r5"))
        assert created.epoch > 0, "whether it is published is for the journal to say"

    simulate(main())
