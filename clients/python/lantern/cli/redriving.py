"""`lantern runs redrive`: a run that waits for somebody to mend something is driven again."""

from typing import Annotated

import typer

from lantern.cli.console import print_line
from lantern.cli.faults import reported
from lantern.cli.run_json import dump, run_value
from lantern.cli.run_lookup import find_run_id
from lantern.cli.runs import DirOption, JsonOption, RequestOption, RunArgument, with_client
from lantern.client.client import Client
from lantern_kernel.errors import InvalidField

STANDS_STILL = ("operator", "code_fix", "budget")


@reported
def redrive(
    run: RunArgument,
    from_event: Annotated[
        int,
        typer.Option(
            "--from-event",
            metavar="N",
            help="Replay events 1 to N only, and do anew what stands behind them, under the keys that it had. For runs"
            " that wait on code_fix.",
        ),
    ] = 0,
    request_id: RequestOption = "",
    folder: DirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Have a run that waits on operator, code_fix or budget driven again, from where it is or from an earlier event."""
    if from_event < 0:
        raise InvalidField("--from-event", f"{from_event} is no event; the first is 1")

    async def use(client: Client) -> None:
        run_id = await find_run_id(client, run)
        if from_event:
            reset = await client.reset(run_id, from_event, request_id=request_id or None)
        else:
            found = await client.get(run_id)
            if found.state != "WAITING" or found.waiting_on not in STANDS_STILL:
                waits = f"waits on {found.waiting_on}" if found.waiting_on else f"is {found.state}"
                raise InvalidField(
                    "RUN", f"{run_id} {waits}; to be driven again it has to wait on operator, code_fix or budget"
                )
            await client.resume(run_id, request_id=request_id or None)
            reset = await client.get(run_id)
        print_line(dump(run_value(reset)) if as_json else f"{run_id}  {reset.state}")

    with_client(folder, use)
