"""`lantern archive`: check, list and show archive files. Nothing but the file is needed, no journal and no database."""

import gzip
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from lantern.cli import exit_codes
from lantern.cli.console import print_line
from lantern.cli.faults import reported
from lantern.cli.run_json import dump, event_value, time_text
from lantern_kernel import archive, reasons
from lantern_kernel.archive import CheckedRun
from lantern_kernel.errors import InvalidField, LanternError

app = typer.Typer(no_args_is_help=True, help="Check, list and show archive files of runs that ended long ago.")

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The archive file.")]
FilesArgument = Annotated[list[Path], typer.Argument(metavar="FILE...", help="Archive files, or folders of them.")]
RunOption = Annotated[
    Optional[str],  # noqa: UP045 - typer reads it
    typer.Option("--run", help="Only this run."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON for programs.")]


@app.command()
@reported
def verify(files: FilesArgument, run: RunOption = None, as_json: JsonOption = False) -> None:
    """Recompute the chain of each run, event by event; exit code 1 where one is not whole, naming its first fault."""
    count = faults = 0
    for file in _expanded(files):
        for checked in _checked(file, run):
            count += 1
            faults += checked.fault is not None
            _print_checked(file, checked, as_json)
    if not count:
        raise InvalidField("--run" if run else "FILE", f"no run {run} is there" if run else "no run is there")
    if not as_json:
        print_line(f"{count} runs, {faults} of them faulty" if faults else f"{count} runs, all whole")
    if faults:
        raise typer.Exit(exit_codes.RUN_FAILED)


@app.command("list")
@reported
def list_(files: FilesArgument, as_json: JsonOption = False) -> None:
    """List the runs of archive files, without checking them."""
    for file in _expanded(files):
        for line in _lines(file):
            # The first bytes tell: not every event of a large file is to be read as JSON.
            if not line.startswith(b'{"type":"run"'):
                continue
            head = archive.read_line(line)
            if as_json:
                print_line(dump({"file": str(file), **head}))
                continue
            facts = head.get("run") or {}
            ended = time_text(facts["endedUs"]) if facts.get("endedUs") else ""
            agent = f"{facts.get('agentName')}@{facts.get('agentVersion')}"
            words = (head.get("runId"), facts.get("state"), agent, facts.get("workflowId"), ended)
            print_line("  ".join(str(word) for word in words if word) + f"  {head.get('eventCount')} events")


@app.command()
@reported
def show(
    file: FileArgument,
    run: Annotated[str, typer.Option("--run", help="The run.")],
) -> None:
    """Print a run's record and events, one JSON object a line, whole or not."""
    is_wanted = False
    for line in _lines(file):
        value = archive.read_line(line)
        match value["type"]:
            case archive.RUN:
                if is_wanted:
                    return
                is_wanted = value.get("runId") == run
                if is_wanted:
                    print_line(dump({"run": value.get("run"), "headHash": value.get("headHash")}))
            case archive.EVENT if is_wanted:
                print_line(dump(event_value(archive.read_event(value))))
            case _:
                pass
    if not is_wanted:
        raise InvalidField("--run", f"no run {run} is in {file}")


def _expanded(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from sorted(path.glob("*.jsonl.gz"))
        else:
            yield path


def _lines(file: Path) -> Iterator[bytes]:
    """The lines of a file; ARCHIVE_FAULTY where it cannot be unpacked further."""
    try:
        with gzip.open(file, "rb") as unpacked:
            yield from unpacked
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise LanternError(reasons.ARCHIVE_FAULTY, f"{file} cannot be unpacked: {error}") from None


def _checked(file: Path, run: str | None) -> Iterator[CheckedRun]:
    return (checked for checked in archive.check_file(_lines(file)) if run is None or checked.run_id in ("", run))


def _print_checked(file: Path, checked: CheckedRun, as_json: bool) -> None:
    if as_json:
        value: dict[str, Any] = {
            "file": str(file),
            "runId": checked.run_id,
            "events": checked.event_count,
            "headHash": checked.head_hash.hex(),
            "fault": checked.fault,
        }
        print_line(dump(value))
        return
    what = checked.run_id or str(file)
    fine = f"{checked.event_count} events, whole, head {checked.head_hash.hex()[:16]}"
    print_line(f"{what}  {checked.fault or fine}")
