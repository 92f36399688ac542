"""`lantern replay-check`: which runs would block if this code were deployed now."""

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from lantern import registry
from lantern.cli.console import make_console, print_line
from lantern.cli.differences import side_lines
from lantern.cli.exit_codes import OK, RUN_FAILED
from lantern.cli.run_export import fetch_history
from lantern.cli.run_json import dump
from lantern.cli.run_query import RunQuery, parse_query, runs_of
from lantern.cli.runs import with_client
from lantern.client.client import Client
from lantern.registry import Definition
from lantern.testing.checking import Checked, check
from lantern.testing.histories import read_histories
from lantern_kernel.errors import InvalidField

_WORDS = {"blocks": "would block", "unknown agent": "not of this code", "unreadable": "cannot be replayed"}


def load_definitions(modules: Sequence[str]) -> dict[str, Definition]:
    """The workflows of modules by their names; InvalidField where one cannot be loaded."""
    if not modules:
        raise InvalidField("--module", "name the module with the new code")
    try:
        return registry.load_modules(modules)
    except registry.LoadError as error:
        raise InvalidField("--module", str(error)) from None


def run_check(
    modules: Sequence[str], files: Sequence[Path], query: str, limit: int, folder: Path | None, *, as_json: bool
) -> int:
    """Checks histories of files, or of the runs that a query means; the exit code."""
    if files and query:
        raise InvalidField("--runs", "files or --runs, one of the two")
    definitions = load_definitions(modules)
    report = _Report(as_json)
    if files:
        for checked in _of_files(definitions, files):
            report.add(checked)
        return report.end()
    wanted = parse_query(query)

    async def use(client: Client) -> None:
        async for checked in _of_journal(client, definitions, wanted, limit):
            report.add(checked)

    with_client(folder, use)
    return report.end()


def _of_files(definitions: dict[str, Definition], files: Sequence[Path]) -> Iterator[Checked]:
    for file in files:
        for history in read_histories(file):
            yield check(definitions, history)


async def _of_journal(
    client: Client, definitions: dict[str, Definition], query: RunQuery, limit: int
) -> AsyncIterator[Checked]:
    async for run in runs_of(client, query, limit):
        if run.agent_name not in definitions and not query.agent:
            continue  # a module is asked about its own workflows
        yield check(definitions, await fetch_history(client, run.run_id))


class _Report:
    """Prints what was found as it is found."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._counts: Counter[str] = Counter()

    def add(self, checked: Checked) -> None:
        self._counts[checked.verdict] += 1
        if self._as_json:
            value: dict[str, Any] = {
                "runId": checked.run_id,
                "agentName": checked.agent_name,
                "workflowId": checked.workflow_id,
                "events": checked.event_count,
                "verdict": checked.verdict,
            }
            if checked.why:
                value["why"] = checked.why
            if checked.difference is not None:
                value["difference"] = dict(checked.difference)
            print_line(dump(value))
        elif checked.verdict != "replays":
            console = make_console()
            for line in lines_of(checked):
                console.print(line, soft_wrap=True)

    def end(self) -> int:
        """The exit code, after a last line for people."""
        total, fine = sum(self._counts.values()), self._counts["replays"]
        if not self._as_json:
            parts = [f"{count} {_WORDS[word]}" for word, count in self._counts.items() if word != "replays"]
            print_line(", ".join([f"{total} runs, {fine} replay", *parts]))
        return OK if fine == total else RUN_FAILED


def lines_of(checked: Checked) -> list[Text]:
    """A history that does not replay, for people: both sides of the difference, each with its line of code."""
    name = f"{checked.agent_name}  {checked.workflow_id}".rstrip()
    head = Text.assemble(f"{checked.run_id}  {name}  ", (_WORDS[checked.verdict], "bold red"))
    difference = checked.difference
    if difference is None:
        return [head, Text(f"  {checked.why}")]
    head.append(f" at event {difference['seq']} of {checked.event_count}")
    return [head, *side_lines(difference)]
