"""`lantern runs export`: histories as a file, for replay-check, for tests, for whoever looks into a run elsewhere."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Optional

import typer

from lantern.cli.console import print_line
from lantern.cli.faults import reported
from lantern.cli.run_json import dump
from lantern.cli.run_lookup import find_run_id
from lantern.cli.run_query import FORM, RunQuery, named, runs_of
from lantern.cli.runs import LIMIT_MAX, DirOption, JsonOption, with_client
from lantern.client.client import Client
from lantern.testing.histories import History, HistoryFile, history_of, named_blobs
from lantern_kernel.blobs import BlobRef


async def fetch_history(client: Client, run_id: str) -> History:
    """A run's events and all that they name."""
    events = await client.events(run_id)
    blobs: dict[BlobRef, bytes] = {}
    for blob in named_blobs(events):
        blobs[blob] = await client.blob(blob)
    return history_of(run_id, events, blobs)


async def run_ids_of(client: Client, ids: Sequence[str], query: RunQuery | None, limit: int) -> list[str]:
    """The runs that are meant by ids, or by a query."""
    if query is None:
        return [await find_run_id(client, each) for each in ids]
    return [run.run_id async for run in runs_of(client, query, limit)]


@reported
def export(
    ids: Annotated[
        Optional[list[str]],  # noqa: UP045 - typer reads it
        typer.Argument(metavar="[ID]...", help="Run ids, the beginnings of some, or workflow ids."),
    ] = None,
    query: Annotated[str, typer.Option("--runs", metavar="QUERY", help=f"Instead of ids: {FORM}.")] = "",
    out: Annotated[Path, typer.Option("--out", help="The file; compressed where its name ends in .gz.")] = Path(
        "runs.jsonl.gz"
    ),
    limit: Annotated[int, typer.Option(min=1, max=LIMIT_MAX, help="At most this many, newest first.")] = 1_000,
    folder: DirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the histories of runs to a file that `lantern replay-check` and `lantern archive` read."""
    wanted = named(ids or (), query)

    async def use(client: Client) -> int:
        events = 0
        for run_id in await run_ids_of(client, ids or (), wanted, limit):
            history = await fetch_history(client, run_id)
            file.add(history)
            events += len(history.events)
        return events

    with HistoryFile(out, int(time.time() * 1e6)) as file:
        events = with_client(folder, use)
    value = {"file": str(out), "runs": file.count, "events": events}
    print_line(dump(value) if as_json else f"{out}  {file.count} runs, {events} events")
