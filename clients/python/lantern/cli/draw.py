"""Draws runs for people: the waterfall, tables, durations. Readable in 60 columns and without colour."""

import json
import textwrap
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from lantern.cli.differences import code_fix_lines
from lantern.cli.waterfall import Bar, Outcome, Point, Resume, Row, Waterfall
from lantern.client.run import Run
from lantern_kernel.blobs import BlobRef

WIDTH_MIN = 60

STATE_STYLES = {
    "QUEUED": "cyan",
    "RUNNING": "blue",
    "WAITING": "yellow",
    "SUCCEEDED": "green",
    "FAILED": "red",
    "CANCELLED": "magenta",
}

_FILL = {
    Outcome.COMPLETED: ("█", "green"),
    Outcome.FAILED: ("▓", "red"),
    Outcome.RETRIED: ("▒", "yellow"),
    Outcome.CRASHED: ("░", "red"),
    Outcome.INTERRUPTED: ("░", "magenta"),
    Outcome.UNKNOWN: ("▒", "yellow"),
    Outcome.RUNNING: ("▒", "blue"),
    Outcome.WAITING: ("·", "yellow"),
}
_SHOWN_WAIT = ("·", "yellow")
_LAST = {Outcome.CRASHED: "✗", Outcome.FAILED: "✗"}
_POINT_STYLES = {"marker": "cyan", "signal": "cyan", "cancel": "magenta", "nondeterminism": "red"}

_ATTEMPT_CELLS = 5
_DURATION_CELLS = 9
_OUTCOME_CELLS = 7
_WORKER_CELLS_MIN = 15


@dataclass(frozen=True, kw_only=True, slots=True)
class _Scale:
    """Columns of a waterfall of a given width."""

    # Of the labels.
    label_cells: int
    # Of the bars.
    bar_cells: int
    # The left end of the bars.
    begin_us: int
    # How long the bars are; above zero.
    span_us: int

    def column(self, at_us: int) -> int:
        """The bar column of a time."""
        share = (at_us - self.begin_us) / self.span_us
        return min(self.bar_cells - 1, max(0, int(share * self.bar_cells)))


def duration(us: int) -> str:
    """A duration in at most nine characters: `0.4 ms`, `250 ms`, `2.00 s`, `3 m 05 s`, `2 h 10 m`, `3 d 4 h`."""
    if us < 10_000:
        return f"{us / 1000:.1f} ms"
    if us < 999_500:
        return f"{us / 1000:.0f} ms"
    seconds = us / 1_000_000
    if seconds < 59.995:
        return f"{seconds:.2f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} m {whole % 60:02d} s"
    if whole < 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} m"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"


def waterfall(picture: Waterfall, width: int) -> list[Text]:
    """The lines of a run's picture, none wider than `width` (at least 60)."""
    width = max(WIDTH_MIN, width)
    if not picture.rows:
        return [Text("no events yet", style="dim")]
    scale = _scale(picture, width)
    lines = [_axis(picture, scale)]
    for row in picture.rows:
        lines.extend(_row(row, scale, picture.end_us, width))
    return lines


def _scale(picture: Waterfall, width: int) -> _Scale:
    longest = max((cell_len(row.label) for row in picture.rows if not isinstance(row, Resume)), default=0)
    label_cells = max(8, min(longest, width // 4))
    bar_cells = width - label_cells - _ATTEMPT_CELLS - _DURATION_CELLS - _OUTCOME_CELLS - 4
    span_us = max(1, picture.end_us - picture.begin_us)
    return _Scale(label_cells=label_cells, bar_cells=bar_cells, begin_us=picture.begin_us, span_us=span_us)


def _axis(picture: Waterfall, scale: _Scale) -> Text:
    right = duration(picture.end_us - picture.begin_us)
    line = " " * (scale.label_cells + _ATTEMPT_CELLS + 2)
    line += "0" + right.rjust(scale.bar_cells - 1)
    return Text(line, style="dim")


def _row(row: Row, scale: _Scale, end_us: int, width: int) -> list[Text]:
    match row:
        case Resume():
            return [_resume(row, width)]
        case Bar():
            lines = [_bar(row, scale, end_us)]
        case Point():
            lines = [_point(row, scale)]
    if row.note:
        lines.extend(_note(row.note, width))
    return lines


def _bar(bar: Bar, scale: _Scale, now_us: int) -> Text:
    end_us = now_us if bar.end_us is None else bar.end_us
    first = scale.column(bar.begin_us)
    last = max(first, scale.column(end_us))
    glyph, style = _SHOWN_WAIT if bar.what == "wait" else _FILL[bar.outcome]
    fill = glyph * (last - first) + _LAST.get(bar.outcome, glyph)
    track = Text(" " * first)
    track.append(fill, style=style)
    track.append(" " * (scale.bar_cells - last - 1))
    word = "waited" if bar.what == "wait" and bar.end_us is not None else bar.outcome.value
    tries = f"{bar.attempt}/{bar.attempts_max}" if bar.attempts_max > 1 else str(bar.attempt) if bar.attempt > 1 else ""
    attempt = {"timer": "timer", "wait": "wait", "approval": "asked", "child": "child"}.get(bar.what, tries)
    return _line(bar.label, attempt, track, duration(max(0, end_us - bar.begin_us)), word, style, scale)


def _point(point: Point, scale: _Scale) -> Text:
    style = _POINT_STYLES.get(point.what, "dim")
    column = scale.column(point.at_us)
    track = Text(" " * column)
    track.append("◆", style=style)
    track.append(" " * (scale.bar_cells - column - 1))
    return _line(point.label, "", track, "", point.what, style, scale)


def _line(label: str, attempt: str, track: Text, took: str, word: str, style: str, scale: _Scale) -> Text:
    line = Text(_fit(label, scale.label_cells) + " ")
    line.append(attempt.rjust(_ATTEMPT_CELLS) + " ", style="dim")
    line.append_text(track)
    if not took and cell_len(word) > _OUTCOME_CELLS:
        # What took no time leaves room for a long word.
        cells = _DURATION_CELLS + 1 + _OUTCOME_CELLS
        fitted = _fit(word, min(cells, cell_len(word)))
        line.append(" " * (1 + cells - cell_len(fitted)) + fitted, style=style)
        return line
    line.append(took.rjust(_DURATION_CELLS) + "  ")
    line.append(_fit(word, _OUTCOME_CELLS).rstrip(), style=style)
    return line


def _resume(resume: Resume, width: int) -> Text:
    said = _fit(_resume_words(resume, width - 6), width - 6).rstrip()
    style = "bold red" if resume.reason == "crash" else "bold cyan" if resume.number > 1 else "dim"
    line = f"── {said} "
    return Text(line + "─" * max(0, width - cell_len(line)), style=style)


def _resume_words(resume: Resume, cells: int) -> str:
    """What is said of a resume; the worker's long name is shortened, then left out, where there is no room for it."""
    worker = f"worker {resume.worker}"
    before = [f"resume {resume.number}"] if resume.number > 1 else []
    before.append(resume.reason or "start")
    after = [f"epoch {resume.epoch}"]
    if resume.number > 1:
        after.append(f"replayed {resume.replayed_steps} step{'' if resume.replayed_steps == 1 else 's'}")
    left = cells - cell_len(" · ".join([*before, "", *after]))
    if left < _WORKER_CELLS_MIN:
        return " · ".join([*before, *after])
    return " · ".join([*before, _fit(worker, min(left, cell_len(worker))), *after])


def _note(note: str, width: int) -> list[Text]:
    """What went wrong, in at most two lines below its bar."""
    lines = textwrap.wrap(" ".join(note.split()), width - 4, max_lines=2, placeholder=" …")
    return [
        Text(_fit(("  ↳ " if i == 0 else "    ") + line, width).rstrip(), style="dim") for i, line in enumerate(lines)
    ]


def _fit(text: str, cells: int) -> str:
    """The text in exactly that many cells; `…` stands for what is cut off."""
    if cell_len(text) <= cells:
        return set_cell_size(text, cells)
    return set_cell_size(text, cells - 1) + "…"


def run_head(run: Run, picture: Waterfall, width: int) -> list[Text]:
    """Who the run is and where it stands."""
    head = Text()
    head.append(run.workflow_id or run.run_id, style="bold")
    head.append(f"  {run.agent_name}@{run.agent_version}  ")
    head.append(state_text(run))
    numbers = [duration(picture.end_us - picture.begin_us)]
    if picture.resumes:
        numbers.append(f"{picture.resumes} resume{'s' if picture.resumes > 1 else ''}")
    if picture.crashes:
        numbers.append(f"{picture.crashes} crash{'es' if picture.crashes > 1 else ''}")
    if run.workflow_id:
        numbers.insert(0, f"run {run.run_id}")
    lines = [head, Text(" · ".join(numbers), style="dim")]
    for line in lines:
        line.truncate(max(width, WIDTH_MIN), overflow="ellipsis")
    return lines


def run_end(run: Run) -> list[Text]:
    """What came of it: the result, the error, or what it waits for."""
    lines: list[Text] = []
    if run.state == "SUCCEEDED":
        shown = _pretty(run.result) if run.result_blob is None else _blob(run.result_blob)
        lines.append(Text.assemble(("result  ", "bold green"), shown))
    difference = code_fix_lines(run)
    lines.extend(difference)
    if run.error is not None and not difference:
        where = f" (step {run.error.step_id})" if run.error.step_id else ""
        lines.append(Text.assemble(("error   ", "bold red"), f"{run.error.code}: {run.error.message}{where}"))
        lines.extend(Text(f"        {key}: {value}", style="dim") for key, value in (run.error.details or {}).items())
    return lines


def settle_hint(step_id: str, key: str, command: str) -> Text:
    """Which delivery a run asks about, and what to type to answer."""
    return Text.assemble(
        ("asks    ", "bold yellow"),
        f"was step {step_id} delivered? key {key}; find out, then:\n",
        f"        {command} --delivered\n",
        f"        {command} --refused",
    )


def state_text(run: Run) -> Text:
    """The state, with what a waiting run waits on."""
    on = f"({run.waiting_on})" if run.waiting_on else ""
    return Text(run.state + on, style=STATE_STYLES.get(run.state, ""))


def _blob(blob: BlobRef) -> str:
    return f"{blob.size / 2**20:.1f} MiB, SHA-256 {blob.sha256[:12]}..."


def _pretty(raw: bytes) -> str:
    """JSON for people: on one line, its own characters."""
    try:
        return json.dumps(json.loads(raw), ensure_ascii=False) if raw else "null"
    except ValueError:
        return raw.decode(errors="replace")
