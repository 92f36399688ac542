"""Goal: `lantern agents` says what was published, tells all faults, and its exit codes mean something.

Method: the real command line over agents held in memory.
"""

import json
from pathlib import Path
from typing import Any, Self

import pytest
from typer.testing import CliRunner, Result

from lantern.cli import agents
from lantern.cli.main import app
from lantern.client.agents import Agent, Fault, Published
from lantern_kernel import reasons
from lantern_kernel.errors import LanternError

GRAPH = b'{"nodes": [],\n "edges": []}'


class FakeAgents:
    """Holds versions, finds the faults that it is told."""

    def __init__(self) -> None:
        self.kept: list[tuple[Agent, bytes]] = []
        self.faults: tuple[Fault, ...] = ()
        self.requests: list[str | None] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def check(self, definition: bytes) -> tuple[Fault, ...]:
        del definition
        return self.faults

    async def publish(self, name: str, definition: bytes, *, request_id: str | None = None) -> Published:
        self.requests.append(request_id)
        version = len(self.kept) + 1
        agent = Agent(name=name, version=version, digest="d" * 64, program_kind="graph", current=True)
        self.kept.append((agent, definition))
        return Published(agent=agent, created=version == 1)

    async def definition(self, name: str, *, version: int = 0) -> tuple[Agent, bytes]:
        for agent, definition in reversed(self.kept):
            if agent.name == name and version in (0, agent.version):
                return agent, definition
        raise LanternError(reasons.AGENT_NOT_FOUND, f"there is no agent {name!r}", field="name")

    async def list(self) -> tuple[Agent, ...]:
        return tuple(agent for agent, _ in self.kept)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeAgents:
    made = FakeAgents()

    def make_agents(folder: Path | None) -> Any:
        del folder
        return made

    monkeypatch.setattr(agents, "make_agents", make_agents)
    return made


def lantern(*arguments: str | Path, given: bytes = b"") -> Result:
    env = {"NO_COLOR": "1", "TERM": "dumb"}
    return CliRunner().invoke(app, ["agents", *map(str, arguments)], env=env, input=given)


def test_a_graph_is_published_byte_for_byte(fake: FakeAgents, tmp_path: Path) -> None:
    file = tmp_path / "greet.json"
    file.write_bytes(GRAPH)
    result = lantern("publish", file, "--name", "greet", "--request-id", "p1")
    assert (result.exit_code, result.stdout) == (0, "greet  version 1  dddddddddddd\n")
    assert (fake.kept[0][1], fake.requests) == (GRAPH, ["p1"])
    again = lantern("publish", "-", "--name", "greet", given=GRAPH)
    assert again.stdout.endswith("(as published before)\n")
    shown = lantern("show", "greet@1")
    assert shown.stdout == GRAPH.decode() + "\n"


def test_all_faults_are_told_and_nothing_is_published(fake: FakeAgents, tmp_path: Path) -> None:
    fake.faults = (
        Fault(path="/nodes/3/data/url", code="no_url", message="is no URL"),
        Fault(path="", code="no_trigger", message="a graph has one trigger"),
    )
    file = tmp_path / "greet.json"
    file.write_bytes(GRAPH)
    for command in (["publish", file, "--name", "greet"], ["check", file]):
        result = lantern(*command)
        assert result.exit_code == 2
        assert f"{file}:/nodes/3/data/url: is no URL [no_url]\n{file}:/: a graph" in result.stderr
        assert result.stderr.endswith("2 faults; nothing was published\n")
        as_json = lantern(*command, "--json")
        assert (as_json.exit_code, len(json.loads(as_json.stdout)["faults"])) == (2, 2)
    assert fake.kept == []


def test_a_graph_without_faults_is_said_to_be_so(fake: FakeAgents) -> None:
    del fake
    result = lantern("check", "-", given=GRAPH)
    assert (result.exit_code, result.stdout) == (0, "-: can be published\n")


def test_agents_are_listed_and_shown(fake: FakeAgents) -> None:
    assert lantern("list").stdout == "no agents\n"
    code = Agent(name="order", version=7, digest="e" * 64, program_kind="code", current=True)
    old = Agent(name="order", version=6, digest="f" * 64, program_kind="code", current=False)
    fake.kept = [(old, b""), (code, b"")]
    assert [line.split() for line in lantern("list").stdout.splitlines()[1:]] == [["order", "7", "code", "e" * 12]]
    assert len(lantern("list", "--all").stdout.splitlines()) == 3
    assert json.loads(lantern("list", "--json").stdout)["agents"][0]["programKind"] == "code"
    assert lantern("show", "order").stdout == f"order  version 7  code  {'e' * 12}\n"
    assert "definition" not in json.loads(lantern("show", "order", "--json").stdout)


@pytest.mark.parametrize(
    ("arguments", "exit_code"),
    [(["show", "nobody"], 3), (["show", "order@0"], 2), (["publish", "no-such-file", "--name", "x"], 2)],
)
def test_what_is_not_there_has_its_exit_code(fake: FakeAgents, arguments: list[str], exit_code: int) -> None:
    del fake
    assert lantern(*arguments).exit_code == exit_code


def test_an_at_in_a_name_is_no_version(fake: FakeAgents) -> None:
    agent = Agent(name="a@b", version=1, digest="d" * 64, program_kind="graph", current=True)
    fake.kept = [(agent, GRAPH)]
    assert lantern("show", "a@b").exit_code == 0
    assert lantern("show", "a@b@1").exit_code == 0
