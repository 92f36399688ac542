"""`lantern doctor`: is what the journal holds in order, and setting right what is not."""

import asyncio
import os
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from lantern.cli import endpoints
from lantern.cli.console import make_console, print_line
from lantern.cli.faults import error_json, error_line
from lantern.cli.run_json import dump
from lantern.client.doctor import Change, Doctor, Finding, Report
from lantern_kernel import reasons
from lantern_kernel.errors import LanternError

CLEAN, FOUND, NOT_CHECKED = 0, 1, 2
"""Exit codes: nothing is wrong, something is, it could not be found out."""


def examine(folder: Path | None, run_id: str, *, rebuild: bool, as_json: bool) -> int:
    """Rebuilds where asked, checks, prints; the exit code."""
    try:
        changes, report = asyncio.run(_ask(folder, run_id, rebuild=rebuild))
    except LanternError as error:
        sys.stderr.write((error_json(error) if as_json else error_line(error)) + "\n")
        return NOT_CHECKED
    if as_json:
        print_line(dump(to_json(changes, report)))
    else:
        show(make_console(), changes, report)
    return FOUND if any(finding.is_fault for finding in report.findings) else CLEAN


async def _ask(folder: Path | None, run_id: str, *, rebuild: bool) -> tuple[list[Change], Report]:
    changes: list[Change] = []
    findings: list[Finding] = []
    async with Doctor(endpoints.find(folder, os.environ).journal) as doctor:
        if rebuild:
            async for page in doctor.rebuild(run_id):
                changes += page
        async for report in doctor.check(run_id):
            findings += report.findings
            if report.complete:
                return changes, Report(
                    findings=tuple(findings),
                    run_count=report.run_count,
                    event_count=report.event_count,
                    complete=True,
                )
    raise LanternError(reasons.UNAVAILABLE, "the check ended before it was complete; ask again")


def to_json(changes: list[Change], report: Report) -> dict[str, object]:
    """For programs."""
    return {
        "runCount": report.run_count,
        "eventCount": report.event_count,
        "findings": [
            {
                "severity": _severity(finding),
                "check": finding.check,
                "subject": finding.subject,
                "message": finding.message,
                "runId": finding.run_id,
                "mendable": finding.mendable,
            }
            for finding in report.findings
        ],
        "changes": [
            {"runId": change.run_id, "column": change.column, "before": change.before, "after": change.after}
            for change in changes
        ],
    }


def _severity(finding: Finding) -> str:
    return "fault" if finding.is_fault else "note"


def show(console: Console, changes: list[Change], report: Report) -> None:
    """For people."""
    if changes:
        table = _table("run", "set right", "was", "is")
        for change in changes:
            table.add_row(change.run_id, change.column, change.before, change.after)
        console.print(table)
        console.print()
    if report.findings:
        table = _table("", "what", "run", "finding")
        for finding in report.findings:
            where = f"{finding.check}.{finding.subject}"
            table.add_row(_severity(finding), where, finding.run_id or "-", finding.message)
        console.print(table)
        console.print()
    faults = sum(finding.is_fault for finding in report.findings)
    notes = len(report.findings) - faults
    counted = f"{_count(report.run_count, 'run')}, {_count(report.event_count, 'event')}"
    console.print(f"checked {counted}: {_count(faults, 'fault')}, {_count(notes, 'note')}", highlight=False)
    mendable = sum(finding.mendable for finding in report.findings)
    if mendable:
        console.print(f"lantern doctor --rebuild sets {mendable} of them right", highlight=False)


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in headings:
        # Ids stay whole, so that they can be copied; the last column takes the lines that it needs.
        table.add_column(heading, overflow="fold", no_wrap=heading in ("run", "what"))
    return table


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}" + ("" if number == 1 else "s")
