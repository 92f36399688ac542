"""`lantern runs`: start, list, show, watch, cancel, signal, pause, resume and settle runs."""

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Optional, TypeVar

import typer
from rich.text import Text

from lantern.cli import draw, endpoints, exit_codes
from lantern.cli.claims import chosen_key, open_claims, settle_command
from lantern.cli.console import make_console, print_line
from lantern.cli.event_line import event_line
from lantern.cli.faults import reported
from lantern.cli.run_json import dump, event_value, run_value, taken_value
from lantern.cli.run_lookup import find_run_id
from lantern.cli.run_table import run_table
from lantern.cli.waterfall import build
from lantern.client.client import WORKFLOW_ID_POLICIES, Client
from lantern.client.connection import PATIENCE_S
from lantern.client.run import STATES, Run, Taken
from lantern_kernel import json_bytes
from lantern_kernel.bounds import PAGE_ROWS_MAX
from lantern_kernel.errors import InvalidField, LanternError
from lantern_kernel.payloads import DURABILITIES

LIMIT_MAX = 100_000

app = typer.Typer(no_args_is_help=True, help="Start, list, show, watch, cancel, signal, pause, resume and settle runs.")

T = TypeVar("T")

DirOption = Annotated[
    Optional[Path],  # noqa: UP045 - typer reads it
    typer.Option("--dir", help="Folder of the `lantern up` to speak to; else LANTERN_JOURNAL, else .lantern."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON for programs.")]
RunArgument = Annotated[str, typer.Argument(metavar="ID", help="Run id, the beginning of one, or a workflow id.")]
RequestOption = Annotated[
    str, typer.Option("--request-id", help="Names this request: repeating it with the same id does it once.")
]


def connect(folder: Path | None) -> Client:
    """A client of the services that the command speaks to."""
    found = endpoints.find(folder, os.environ)
    return Client(found.journal, found.executors)


def with_client(folder: Path | None, use: Callable[[Client], Awaitable[T]]) -> T:
    """What a use of a client comes to."""

    async def run() -> T:
        async with connect(folder) as client:
            return await use(client)

    return asyncio.run(run())


def read_json(option: str, text: str) -> bytes:
    """The JSON bytes of an option: given as they are, `@file`, or `-` for standard input."""
    try:
        if text == "-":
            if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison] - closed by the caller
                raise InvalidField(option, "there is no standard input")
            raw = sys.stdin.buffer.read()
        elif text.startswith("@"):
            raw = Path(text[1:]).read_bytes()
        else:
            raw = text.encode(errors="surrogateescape")
    except OSError as error:
        what = "standard input" if text == "-" else text[1:]
        raise InvalidField(option, f"cannot read {what}: {error.strerror}") from None
    return json_bytes.check(raw.strip(), option)


def _exit_code_of(run: Run) -> int:
    return exit_codes.RUN_FAILED if run.state in {"FAILED", "CANCELLED"} else exit_codes.OK


@app.command()
@reported
def start(
    agent: Annotated[str, typer.Argument(help="The workflow (agent) to run, by its name.")],
    input_text: Annotated[str, typer.Option("--input", help="JSON, @file, or - for standard input.")] = "null",
    workflow_id: Annotated[str, typer.Option(help="Your own name for this work.")] = "",
    policy: Annotated[
        str, typer.Option("--policy", help=f"Where that name is taken: {', '.join(WORKFLOW_ID_POLICIES)}.")
    ] = "allow-after-close",
    durability: Annotated[str, typer.Option(help=f"When what it does is committed: {', '.join(DURABILITIES)}.")] = "",
    with_signal: Annotated[
        str,
        typer.Option(
            "--signal",
            metavar="NAME[=JSON]",
            help="A signal that goes with the start, to the run that is made or, with use-existing, found.",
        ),
    ] = "",
    request_id: RequestOption = "",
    wait: Annotated[
        bool, typer.Option("--wait", help="Follow the run to its end; the exit code says how it ended.")
    ] = False,
    folder: DirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Start a run."""
    body = read_json("--input", input_text)
    name, _, said = with_signal.partition("=")
    if with_signal and not name:
        raise InvalidField("--signal", "has no name: NAME or NAME=JSON")
    payload = read_json("--signal", said or "null")

    async def use(client: Client) -> int:
        run = await client.start(
            agent,
            input_json=body,
            workflow_id=workflow_id,
            policy=policy,
            durability=durability,
            signal=name,
            signal_payload_json=payload,
            request_id=request_id or None,
        )
        if not wait:
            _print_started(run, as_json)
            return exit_codes.OK
        if as_json:
            ended = await client.wait(run.run_id, on_away=_say_away)
            print_line(dump(run_value(ended)))
            return _exit_code_of(ended)
        _print_started(run, as_json)
        return await _watch(client, run.run_id, as_json)

    raise typer.Exit(with_client(folder, use))


def _print_started(run: Run, as_json: bool) -> None:
    if as_json:
        print_line(dump(run_value(run)))
        return
    line = Text.assemble(f"{run.run_id}  {run.agent_name}@{run.agent_version}  ", draw.state_text(run))
    if run.workflow_id:
        line.append(f"  {run.workflow_id}")
    make_console().print(line, soft_wrap=True)


@app.command("list")
@reported
def list_(
    state: Annotated[
        Optional[list[str]],  # noqa: UP045 - typer reads it
        typer.Option("--state", help=f"Only runs in this state; may be repeated: {', '.join(STATES)}."),
    ] = None,
    agent: Annotated[str, typer.Option(help="Only runs of this agent.")] = "",
    workflow_id: Annotated[str, typer.Option(help="Only runs with this workflow id.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=LIMIT_MAX, help="At most this many, newest first.")] = 50,
    folder: DirOption = None,
    as_json: JsonOption = False,
) -> None:
    """List runs, newest first."""
    states = [name.strip().upper() for name in state or ()]
    for name in states:
        if name not in STATES:
            raise InvalidField("--state", f"{name!r} must be one of {', '.join(STATES)}")

    async def use(client: Client) -> list[Run]:
        runs: list[Run] = []
        token = ""
        while True:
            page = await client.list(
                states=states,
                agent=agent,
                workflow_id=workflow_id,
                page_size=min(limit - len(runs), PAGE_ROWS_MAX),
                page_token=token,
            )
            runs.extend(page.runs)
            token = page.next_page_token
            if not token or len(runs) >= limit:
                return runs[:limit]

    runs = with_client(folder, use)
    if as_json:
        print_line(dump({"runs": [run_value(run) for run in runs]}))
    elif not runs:
        make_console().print("no runs")
    else:
        console = make_console(width_min=1)
        for line in run_table(runs, int(time.time() * 1e6), console.width):
            console.print(line, no_wrap=True, crop=False)


@app.command()
@reported
def show(run: RunArgument, folder: DirOption = None, as_json: JsonOption = False) -> None:
    """Show a run: its steps on a time scale, retries, crashes, resumes, and what came of it."""

    async def use(client: Client) -> int:
        run_id = await find_run_id(client, run)
        found = await client.get(run_id, contents=False)
        events = await client.events(run_id)
        if as_json:
            print_line(dump({"run": run_value(found), "events": [event_value(event) for event in events]}))
            return _exit_code_of(found)
        console = make_console()
        picture = build(events, now_us=None if found.is_terminal else int(time.time() * 1e6))
        for line in (*draw.run_head(found, picture, console.width), *draw.waterfall(picture, console.width)):
            console.print(line, no_wrap=True, crop=False)
        for line in draw.run_end(found):
            console.print(line)
        if found.waiting_on == "operator":
            for key, step_id in open_claims(events).items():
                # Not wrapped: it is to be copied.
                console.print(draw.settle_hint(step_id, key, settle_command(run_id, key, folder)), soft_wrap=True)
        return _exit_code_of(found)

    raise typer.Exit(with_client(folder, use))


@app.command()
@reported
def watch(run: RunArgument, folder: DirOption = None, as_json: JsonOption = False) -> None:
    """Print a run's events as they happen, until it ends."""

    async def use(client: Client) -> int:
        return await _watch(client, await find_run_id(client, run), as_json)

    raise typer.Exit(with_client(folder, use))


def _say_away(error: LanternError) -> None:
    sys.stderr.write(f"the journal does not answer ({error.message}); trying again for {PATIENCE_S:.0f} s\n")
    sys.stderr.flush()


async def _watch(client: Client, run_id: str, as_json: bool) -> int:
    console = make_console()
    begin_us = None
    async for event in client.watch(run_id, on_away=_say_away):
        begin_us = event.time_us if begin_us is None else begin_us
        if as_json:
            print_line(dump(event_value(event)))
        else:
            console.print(event_line(event, begin_us, console.width), crop=False)
    ended = await client.get(run_id, contents=False)
    if not as_json:
        for line in draw.run_end(ended):
            console.print(line)
    return _exit_code_of(ended)


@app.command()
@reported
def cancel(
    run: RunArgument, request_id: RequestOption = "", folder: DirOption = None, as_json: JsonOption = False
) -> None:
    """Ask a run to end; the exit code is 2 where it had ended otherwise before."""

    async def use(client: Client) -> int:
        run_id = await find_run_id(client, run)
        taken = await client.cancel(run_id, request_id=request_id or None)
        if as_json:
            print_line(dump(taken_value(run_id, taken)))
        elif taken.already_ended:
            print_line(f"{run_id}  already {taken.state}")
        elif taken.state == "CANCELLED":
            print_line(f"{run_id}  cancelled")
        else:
            print_line(f"{run_id}  cancel taken in as entry {taken.number}: it can no longer succeed")
        lost = taken.already_ended and taken.state != "CANCELLED"
        return exit_codes.REFUSED if lost else exit_codes.OK

    raise typer.Exit(with_client(folder, use))


@app.command()
@reported
def pause(
    run: RunArgument, request_id: RequestOption = "", folder: DirOption = None, as_json: JsonOption = False
) -> None:
    """Hold a run: steps in flight end, no further one begins, timers wait until it is resumed."""

    async def use(client: Client) -> None:
        run_id = await find_run_id(client, run)
        taken = await client.pause(run_id, request_id=request_id or None)
        _print_held(
            run_id, taken, "paused" if taken.state == "WAITING" else "pauses once its steps have ended", as_json
        )

    with_client(folder, use)


@app.command()
@reported
def resume(
    run: RunArgument, request_id: RequestOption = "", folder: DirOption = None, as_json: JsonOption = False
) -> None:
    """Let a paused run go on, or one that waits on operator, code_fix or budget try again."""

    async def use(client: Client) -> None:
        run_id = await find_run_id(client, run)
        taken = await client.resume(run_id, request_id=request_id or None)
        _print_held(run_id, taken, f"resumed: {taken.state}", as_json)

    with_client(folder, use)


@app.command()
@reported
def signal(
    run: RunArgument,
    name: Annotated[str, typer.Argument(help="The signal's name.")],
    payload: Annotated[str, typer.Option("--payload", help="JSON, @file, or - for standard input.")] = "null",
    request_id: RequestOption = "",
    folder: DirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send a signal to a run."""
    body = read_json("--payload", payload)

    async def use(client: Client) -> None:
        run_id = await find_run_id(client, run)
        number = await client.signal(run_id, name, payload_json=body, request_id=request_id or None)
        _print_sent(run_id, f"signal {name}", number, as_json)

    with_client(folder, use)


@app.command()
@reported
def settle(
    run: RunArgument,
    key: Annotated[
        str, typer.Argument(metavar="[KEY]", help="The delivery's key; may be left out where only one is open.")
    ] = "",
    delivered: Annotated[bool, typer.Option("--delivered", help="It was delivered: the step gets --result.")] = False,
    refused: Annotated[bool, typer.Option("--refused", help="It was not, and is not to be: the step fails.")] = False,
    result: Annotated[str, typer.Option("--result", help="What came back: JSON, @file, or - for standard input.")] = (
        "null"
    ),
    folder: DirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say whether a delivery was made, to a run that waits on its operator for that."""
    if delivered == refused:
        raise InvalidField("--delivered", "say one of --delivered and --refused")
    body = read_json("--result", result)

    async def use(client: Client) -> None:
        run_id = await find_run_id(client, run)
        settled = key or chosen_key(open_claims(await client.events(run_id)))
        await client.settle(run_id, settled, delivered=delivered, result_json=body)
        word = "delivered" if delivered else "refused"
        value = {"runId": run_id, "key": settled, "state": word.upper()}
        print_line(dump(value) if as_json else f"{run_id}  {settled} settled as {word}")

    with_client(folder, use)


def _print_held(run_id: str, taken: Taken, what: str, as_json: bool) -> None:
    print_line(dump(taken_value(run_id, taken)) if as_json else f"{run_id}  {what}")


def _print_sent(run_id: str, what: str, number: int, as_json: bool) -> None:
    print_line(dump({"runId": run_id, "number": number}) if as_json else f"{run_id}  {what} taken in as entry {number}")
