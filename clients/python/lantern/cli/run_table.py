"""`runs list` for people: a line a run, whole ids, whole states, in whatever width there is. Pure."""

from collections.abc import Sequence

from rich.cells import cell_len
from rich.text import Text

from lantern.cli import draw
from lantern.client.run import Run

_HEADINGS = ("run", "state", "agent", "workflow", "age")
_RUN, _STATE, _AGENT, _WORKFLOW, _AGE = range(5)

_SHORTENED = (_WORKFLOW, _AGENT)
"""What may be shortened."""

_LEFT_OUT = (_WORKFLOW, _AGENT, _AGE, _STATE)
"""What a narrow terminal does without, the first first. Ids stay, so that they can be copied."""

_SHORTEST = 6
"""Cells below which a shortened name says nothing any more."""


def run_table(runs: Sequence[Run], now_us: int, width: int) -> list[Text]:
    """The heading and a line for each run, none wider than `width`, but for the ids alone where these are."""
    rows = [_cells(run, now_us) for run in runs]
    widths = [max(cell_len(heading), *(cell_len(row[i].plain) for row in rows)) for i, heading in enumerate(_HEADINGS)]
    columns = {i: widths[i] for i in range(len(_HEADINGS)) if i != _WORKFLOW or any(run.workflow_id for run in runs)}
    gap = _fit(columns, width)
    head = [Text(heading, style="dim") for heading in _HEADINGS]
    return [_line(row, columns, gap) for row in (head, *rows)]


def age(us: int) -> str:
    """How long ago in at most six characters: `12 s`, `59 m`, `47 h`, `300 d`."""
    seconds = max(0, us) // 1_000_000
    for unit, size, most in (("s", 1, 60), ("m", 60, 60), ("h", 3600, 48)):
        if seconds // size < most:
            return f"{seconds // size} {unit}"
    return f"{seconds // 86_400} d"


def _cells(run: Run, now_us: int) -> list[Text]:
    agent = Text(f"{run.agent_name}@{run.agent_version}")
    return [Text(run.run_id), draw.state_text(run), agent, Text(run.workflow_id), Text(age(now_us - run.create_us))]


def _fit(columns: dict[int, int], width: int) -> int:
    """Makes the columns fit: names are shortened, the longer one first, then columns left out; the gap between them."""
    left_out = iter(_LEFT_OUT)
    while True:
        for gap in (2, 1):
            excess = sum(columns.values()) + gap * (len(columns) - 1) - width
            names = [i for i in _SHORTENED if i in columns]
            spare = sum(max(0, columns[i] - _SHORTEST) for i in names)
            if excess <= spare:
                for _ in range(excess):
                    columns[max(names, key=lambda i: columns[i])] -= 1
                return gap
        dropped = next((i for i in left_out if i in columns), None)
        if dropped is None:
            return 2
        del columns[dropped]


def _line(row: Sequence[Text], columns: dict[int, int], gap: int) -> Text:
    line = Text(no_wrap=True)
    for i, cells in columns.items():
        cell = row[i].copy()
        cell.truncate(cells, overflow="ellipsis")
        blank = " " * (cells - cell_len(cell.plain))
        line.append(" " * gap if line else "")
        line.append_text(Text(blank) + cell if i == _AGE else cell + Text(blank))
    line.rstrip()
    return line
