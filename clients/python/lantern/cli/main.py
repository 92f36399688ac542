"""The command `lantern`."""

import os
import sys
from importlib import metadata
from pathlib import Path
from typing import Annotated, Optional

import typer
from typer import rich_utils

from lantern.cli import agents, approvals, archives, asking, endpoints, redriving, run_export, run_query, runs
from lantern.cli.console import print_line
from lantern.cli.faults import report_os_error, reported

app = typer.Typer(
    name="lantern",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

runs.app.command("export")(run_export.export)
runs.app.command("query")(asking.query)
runs.app.command("redrive")(redriving.redrive)
runs.app.command("update")(asking.update)
app.add_typer(runs.app, name="runs")
app.add_typer(agents.app, name="agents")
app.add_typer(approvals.app, name="approvals")
app.add_typer(archives.app, name="archive")

ModuleOption = Annotated[
    Optional[list[str]],  # noqa: UP045 - typer reads it
    typer.Option(
        "--module", "-m", help="Module with workflows (agents): a dotted name or a path to a .py file; may be repeated."
    ),
]


def _show_version(asked: bool) -> None:
    if asked:
        print_line(f"lantern {metadata.version('lantern-durable')}")
        raise typer.Exit


@app.callback()
def lantern(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Durable execution: a crash costs one step, never the run."""


@app.command()
@reported
def up(
    database: Annotated[
        str,
        typer.Option(
            "--db",
            help=(
                "sqlite:PATH, postgresql://..., or `postgres` for a private one, whose data go when the command ends. "
                "Default: SQLite in --dir, which stays."
            ),
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
    """Run an executor with your own workflows (agents)."""
    from lantern.cli.worker import become_executor, worker_environment

    address = journal or endpoints.find(folder, os.environ).journal
    become_executor(
        worker_environment(os.environ, journal=address, modules=module or (), listen=listen, capacity=capacity)
    )


@app.command("replay-check")
@reported
def replay_check(
    files: Annotated[
        Optional[list[Path]],  # noqa: UP045 - typer reads it
        typer.Argument(metavar="[FILE]...", help="Files of `lantern runs export`, or archive files."),
    ] = None,
    module: ModuleOption = None,
    query: Annotated[
        str, typer.Option("--runs", metavar="QUERY", help=f"Instead of files, runs of the journal: {run_query.FORM}.")
    ] = "",
    limit: Annotated[int, typer.Option(min=1, max=runs.LIMIT_MAX, help="At most this many runs, newest first.")] = (
        10_000
    ),
    folder: runs.DirOption = None,
    as_json: runs.JsonOption = False,
) -> None:
    """Replay histories against a module's code, and list the runs that would block; exit code 1 where some do."""
    from lantern.cli.replay_check import run_check

    raise typer.Exit(run_check(module or (), files or (), query, limit, folder, as_json=as_json))


@app.command()
@reported
def doctor(
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="First rebuild from their events the rows of runs that are wrong.")
    ] = False,
    run_id: Annotated[str, typer.Option("--run", metavar="ID", help="Only this run, by its whole id.")] = "",
    folder: runs.DirOption = None,
    as_json: runs.JsonOption = False,
) -> None:
    """Check that what the journal holds is in order; exit code 0: it is, 1: something is wrong, 2: not checked."""
    from lantern.cli.doctor import examine

    raise typer.Exit(examine(folder, run_id, rebuild=rebuild, as_json=as_json))


def main() -> None:
    """Runs the command with the arguments of this process."""
    if sys.stdout is None or sys.stderr is None:  # pyright: ignore[reportUnnecessaryComparison] - closed by the caller
        nowhere = Path(os.devnull).open("w")  # noqa: SIM115 - for the life of the process
        sys.stdout, sys.stderr = sys.stdout or nowhere, sys.stderr or nowhere
    if os.environ.get("NO_COLOR"):
        # Of the help: NO_COLOR alone would leave bold and dim.
        rich_utils.COLOR_SYSTEM = None
    try:
        app()
    except OSError as error:
        # Printing the help, say: the commands report their own.
        sys.exit(report_os_error(error))


if __name__ == "__main__":
    main()
