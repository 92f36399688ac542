"""`lantern runs query` and `lantern runs update`: what a run's workflow is asked."""

from typing import Annotated, Any

import typer

from lantern.cli.console import print_line
from lantern.cli.faults import reported
from lantern.cli.run_json import dump
from lantern.cli.run_lookup import find_run_id
from lantern.cli.runs import DirOption, RequestOption, RunArgument, read_json, with_client
from lantern.client.client import Client
from lantern.client.run import UpdateFailed
from lantern_kernel.errors import LanternError

PayloadOption = Annotated[str, typer.Option("--payload", help="JSON, @file, or - for standard input.")]


@reported
def query(
    run: RunArgument,
    name: Annotated[str, typer.Argument(help="The query's name.")],
    payload: PayloadOption = "null",
    folder: DirOption = None,
) -> None:
    """Ask a run's workflow something; nothing changes. The answer is JSON."""
    body = read_json("--payload", payload)

    async def use(client: Client) -> Any:
        return await client.query(await find_run_id(client, run), name, payload_json=body)

    print_line(dump(with_client(folder, use)))


@reported
def update(
    run: RunArgument,
    name: Annotated[str, typer.Argument(help="The update's name.")],
    payload: PayloadOption = "null",
    request_id: RequestOption = "",
    folder: DirOption = None,
) -> None:
    """Have a run's workflow change something, and wait for its answer. The answer is JSON."""
    body = read_json("--payload", payload)

    async def use(client: Client) -> Any:
        run_id = await find_run_id(client, run)
        try:
            return await client.update(run_id, name, payload_json=body, request_id=request_id or None)
        except UpdateFailed as failed:
            raise LanternError(failed.code, failed.message) from None

    print_line(dump(with_client(folder, use)))
