"""The command `lantern`."""

import os
import sys
from pathlib import Path
from typing import Annotated, Optional

import typer

from lantern.cli import endpoints, runs
from lantern.cli.faults import report_os_error, reported

app = typer.Typer(
    name="lantern",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Durable execution: a crash costs one step, never the run.",
)

app.add_typer(runs.app, name="runs")

ModuleOption = Annotated[
    Optional[list[str]],  # noqa: UP045 - typer reads it
    typer.Option("--module", "-m", help="Module with agents: a dotted name or a path to a .py file; may be repeated."),
]


@app.command()
@reported
def up(
    database: Annotated[
        str,
        typer.Option(
            "--db", help="sqlite:PATH, postgresql://..., or `postgres` for a private one. Default: SQLite in --dir."
        ),
    ] = "",
    folder: Annotated[Path, typer.Option("--dir", help="For the state file, logs and the default database.")] = (
        endpoints.DEFAULT_DIR
    ),
    executors: Annotated[int, typer.Option(help="How many executors.")] = 1,
    recoveries: Annotated[int, typer.Option(help="How many recovery services.")] = 1,
    module: ModuleOption = None,
) -> None:
    """Run journal, recovery and executors on this machine until Ctrl-C."""
    from lantern.cli.console import make_console
    from lantern.cli.up import UpOptions, run

    options = UpOptions(
        database=database, folder=folder, executors=executors, recoveries=recoveries, modules=tuple(module or ())
    )
    raise typer.Exit(run(options, make_console()))


@app.command()
@reported
def worker(
    module: ModuleOption = None,
    journal: Annotated[str, typer.Option(help="host:port of the journal; else --dir or LANTERN_JOURNAL.")] = "",
    folder: Annotated[
        Optional[Path],  # noqa: UP045 - typer reads it
        typer.Option("--dir", help="Folder of the `lantern up` to join."),
    ] = None,
    listen: Annotated[str, typer.Option(help="host:port to listen on; a free port of this machine by default.")] = "",
    capacity: Annotated[
        Optional[int],  # noqa: UP045 - typer reads it
        typer.Option(help="How many runs to drive at once."),
    ] = None,
) -> None:
    """Run an executor with your own agents."""
    from lantern.cli.worker import become_executor, worker_environment

    address = journal or endpoints.find(folder, os.environ).journal
    become_executor(
        worker_environment(os.environ, journal=address, modules=module or (), listen=listen, capacity=capacity)
    )


def main() -> None:
    """Runs the command with the arguments of this process."""
    if sys.stdout is None or sys.stderr is None:  # pyright: ignore[reportUnnecessaryComparison] - closed by the caller
        nowhere = Path(os.devnull).open("w")  # noqa: SIM115 - for the life of the process
        sys.stdout, sys.stderr = sys.stdout or nowhere, sys.stderr or nowhere
    try:
        app()
    except OSError as error:
        # Printing the help, say: the commands report their own.
        sys.exit(report_os_error(error))


if __name__ == "__main__":
    main()
