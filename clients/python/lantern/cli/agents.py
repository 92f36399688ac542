"""`lantern agents`: check and publish graphs, list and show agents."""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.table import Table

from lantern.cli import endpoints, exit_codes
from lantern.cli.console import make_console, print_line
from lantern.cli.faults import reported
from lantern.cli.run_json import dump
from lantern.cli.runs import DirOption, JsonOption, RequestOption
from lantern.client.agents import Agent, Agents, Fault
from lantern_kernel.bounds import DEFINITION_BYTES_MAX
from lantern_kernel.errors import InvalidField

DIGEST_SHOWN = 12

app = typer.Typer(no_args_is_help=True, help="Check and publish graphs, list and show agents.")

FileArgument = Annotated[str, typer.Argument(metavar="FILE", help="The graph (JSON), or - for standard input.")]

T = TypeVar("T")


def make_agents(folder: Path | None) -> Agents:
    """The agents of the Lantern of that folder."""
    return Agents(endpoints.find(folder, os.environ).journal)


def _with_agents(folder: Path | None, use: Callable[[Agents], Awaitable[T]]) -> T:
    async def run() -> T:
        async with make_agents(folder) as agents:
            return await use(agents)

    return asyncio.run(run())


@app.command()
@reported
def check(file: FileArgument, folder: DirOption = None, as_json: JsonOption = False) -> None:
    """Say all that is wrong with a graph, without publishing it; the exit code is 2 where something is."""
    definition = _read(file)
    faults = _with_agents(folder, lambda agents: agents.check(definition))
    if as_json:
        print_line(dump({"faults": [asdict(fault) for fault in faults]}))
    elif not faults:
        print_line(f"{file}: can be published")
    else:
        _tell(file, faults)
    if faults:
        raise typer.Exit(exit_codes.REFUSED)


@app.command()
@reported
def publish(
    file: FileArgument,
    name: Annotated[str, typer.Option("--name", help="The agent's name.")],
    request_id: RequestOption = "",
    folder: DirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Publish a graph; new runs of that name pin it from now on. A graph with faults is not published."""
    definition = _read(file)

    async def use(agents: Agents) -> None:
        faults = await agents.check(definition)
        if faults:
            if as_json:
                print_line(dump({"faults": [asdict(fault) for fault in faults]}))
            else:
                _tell(file, faults)
            raise typer.Exit(exit_codes.REFUSED)
        published = await agents.publish(name, definition, request_id=request_id or None)
        agent = published.agent
        if as_json:
            print_line(dump(_value(agent) | {"created": published.created}))
        else:
            before = "" if published.created else "  (as published before)"
            print_line(f"{agent.name}  version {agent.version}  {agent.digest[:DIGEST_SHOWN]}{before}")

    _with_agents(folder, use)


@app.command("list")
@reported
def list_(
    every: Annotated[bool, typer.Option("--all", help="Every version, not only the current ones.")] = False,
    folder: DirOption = None,
    as_json: JsonOption = False,
) -> None:
    """List agents by name: graphs that were published, and code that executors have offered."""
    found = [agent for agent in _with_agents(folder, lambda agents: agents.list()) if every or agent.current]
    if as_json:
        print_line(dump({"agents": [_value(agent) for agent in found]}))
        return
    console = make_console()
    if not found:
        console.print("no agents")
        return
    table = Table("agent", "version", "kind", "digest", box=None, pad_edge=False)
    for agent in found:
        mark = " (current)" if every and agent.current else ""
        table.add_row(agent.name, f"{agent.version}{mark}", agent.program_kind, agent.digest[:DIGEST_SHOWN])
    console.print(table)


@app.command()
@reported
def show(
    agent: Annotated[str, typer.Argument(metavar="NAME[@VERSION]", help="The agent; by default its current version.")],
    folder: DirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the definition of a graph as it was published; with --json all that is known of the version."""
    name, version = _named(agent)
    found, definition = _with_agents(folder, lambda agents: agents.definition(name, version=version))
    if as_json:
        value = _value(found)
        print_line(dump(value | {"definition": json.loads(definition)} if definition else value))
    elif definition:
        print_line(definition.decode())
    else:
        print_line(f"{found.name}  version {found.version}  {found.program_kind}  {found.digest[:DIGEST_SHOWN]}")


def _named(text: str) -> tuple[str, int]:
    """Name and version; `@` may stand in a name, too, but not before digits at its end."""
    name, at, version = text.rpartition("@")
    if not at or not (version.isascii() and version.isdigit()):
        return text, 0
    if not name or not 1 <= int(version) < 2**31:
        raise InvalidField("NAME[@VERSION]", f"{text!r} names no version")
    return name, int(version)


def _read(file: str) -> bytes:
    """The bytes of a definition, as they are."""
    try:
        raw = sys.stdin.buffer.read(DEFINITION_BYTES_MAX + 1) if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise InvalidField("FILE", f"cannot read {file}: {error.strerror}") from None
    if len(raw) > DEFINITION_BYTES_MAX:
        raise InvalidField("FILE", f"{file} holds more than the {DEFINITION_BYTES_MAX} bytes allowed")
    return raw


def _tell(file: str, faults: tuple[Fault, ...]) -> None:
    """The faults, each in a line, as compilers say them."""
    for fault in faults:
        sys.stderr.write(f"{file}:{fault.path or '/'}: {fault.message} [{fault.code}]\n")
    sys.stderr.write(f"{len(faults)} {'fault' if len(faults) == 1 else 'faults'}; nothing was published\n")


def _value(agent: Agent) -> dict[str, Any]:
    return {
        "name": agent.name,
        "version": agent.version,
        "programKind": agent.program_kind,
        "digest": agent.digest,
        "current": agent.current,
    }
