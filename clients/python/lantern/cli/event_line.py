"""One event as a line for people, for `runs watch`."""

from rich.text import Text

from lantern.cli import draw
from lantern.cli.waterfall import Bar, Point, build
from lantern_kernel import kinds, payloads
from lantern_kernel.errors import LanternError
from lantern_kernel.event import Event

_STYLES = {
    kinds.LEASE_GRANTED: "bold cyan",
    kinds.STEP_COMPLETED: "green",
    kinds.STEP_RETRYING: "yellow",
    kinds.STEP_FAILED: "red",
    kinds.NONDETERMINISM_DETECTED: "red",
    kinds.RUN_PARKED: "yellow",
    kinds.RUN_SUCCEEDED: "bold green",
    kinds.RUN_FAILED: "bold red",
    kinds.RUN_CANCELLED: "bold magenta",
}

_KIND_CELLS = 18


def event_line(event: Event, begin_us: int, width: int) -> Text:
    """`seq  time since the start  kind  what it is about`, in one line of at most `width` cells."""
    style = "bold red" if _reason(event) == "crash" else _STYLES.get(event.kind, "")
    line = Text(f"{event.seq:>5} {draw.duration(event.time_us - begin_us):>9}  ", style="dim")
    line.append(f"{event.kind:<{_KIND_CELLS}} ", style=style)
    line.append(" ".join(_about(event).split()))
    line.truncate(max(draw.WIDTH_MIN, width), overflow="ellipsis")
    line.no_wrap = True
    return line


def _about(event: Event) -> str:
    parts = [event.step_id] if event.step_id else []
    if event.attempt > 1:
        parts.append(f"attempt {event.attempt}")
    if event.kind == kinds.LEASE_GRANTED:
        facts = _facts(event)
        number = f"resume {event.epoch} · " if event.epoch > 1 else ""
        parts.append(f"{number}{facts.get('reason', '')} · worker {facts.get('worker', '')} · epoch {event.epoch}")
    elif event.kind in {kinds.RUN_FAILED, kinds.RUN_CANCELLED}:
        facts = _facts(event)
        parts.append(": ".join(str(facts[name]) for name in ("code", "message") if facts.get(name)))
    else:
        # The picture of this one event says what is to be said of it.
        for row in build([event]).rows:
            if isinstance(row, Bar) and row.what == "wait":
                parts.append(f"on {row.label}")
            if isinstance(row, Point) and row.what == "signal":
                parts.append(row.label)
            if isinstance(row, Bar | Point) and row.note:
                parts.append(row.note)
    return "  ".join(part for part in parts if part)


def _facts(event: Event) -> dict[str, object]:
    try:
        return dict(payloads.unpack(event.payload).facts)
    except LanternError:
        return {}


def _reason(event: Event) -> object:
    return _facts(event).get("reason") if event.kind == kinds.LEASE_GRANTED else None
