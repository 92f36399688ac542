"""What a run's events say as a picture: bars on one time scale, points, and the resumes between them. Pure.

A step_started with no end before a later lease_granted is a crash point (SPEC R5): its driver was lost in that step,
and the step runs again as the same attempt. Its bar ends where the next driver took over, since nobody knows how far
the lost one got.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from lantern_kernel import kinds, payloads
from lantern_kernel.errors import LanternError
from lantern_kernel.event import Event

_JOURNAL_PARKS = frozenset({"capacity", "code_fix"})
"""What the journal itself parks runs on."""


class Outcome(Enum):
    """How a bar ended."""

    COMPLETED = "ok"
    FAILED = "failed"
    RETRIED = "retry"
    # Its driver was lost in it.
    CRASHED = "crash"
    # Its driver gave the run away in the middle of it, or the run ended.
    INTERRUPTED = "cut off"
    # Whether it was delivered is not known; its operator is asked.
    UNKNOWN = "unknown"
    RUNNING = "running"
    WAITING = "waiting"


@dataclass(frozen=True, kw_only=True, slots=True)
class Bar:
    """Something that lasted: a step's attempt, a timer, an approval, a child, a wait of the whole run."""

    # The id of the step, timer, approval or child, or what the run waited on.
    label: str
    # step, timer, approval, child or wait.
    what: str
    # 1 for the first try of a step; 0 for all else.
    attempt: int = 0
    # How many tries the step has at most; 0 where not known.
    attempts_max: int = 0
    # The lease under which it began.
    epoch: int = 0
    # Microseconds since the Unix epoch.
    begin_us: int
    # None while it lasts.
    end_us: int | None = None
    # How it ended.
    outcome: Outcome
    # What went wrong and what is done about it, who decided, or which run it was; may be empty.
    note: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """Something that happened at once: a marker, a signal, a cancel, a detected non-determinism."""

    # What it is about.
    label: str
    # marker, signal, cancel or nondeterminism; for kinds not known here, the kind.
    what: str
    # When.
    at_us: int
    # More about it; may be empty.
    note: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Resume:
    """A driver took the run up; number 1 is the start."""

    # 1 for the first drive.
    number: int
    # start, crash, timer, signal, approval or upgrade.
    reason: str
    # Who drives from here on.
    worker: str
    # Its lease.
    epoch: int
    # When.
    at_us: int
    # Steps whose end is recorded: they are replayed, not run.
    replayed_steps: int


Row = Bar | Point | Resume


@dataclass(frozen=True, kw_only=True, slots=True)
class Waterfall:
    """A run as rows, in the order in which they began."""

    # The left end of the time scale.
    begin_us: int
    # The right end, never before the left one.
    end_us: int
    # In order.
    rows: tuple[Row, ...]

    @property
    def resumes(self) -> int:
        """Drives after the first."""
        return max(0, sum(isinstance(row, Resume) for row in self.rows) - 1)

    @property
    def crashes(self) -> int:
        """Steps during which a driver was lost."""
        return sum(isinstance(row, Bar) and row.outcome is Outcome.CRASHED for row in self.rows)


def build(events: Iterable[Event], now_us: int | None = None) -> Waterfall:
    """The picture of a run's events, in order of seq; `now_us` is the right end for a run that goes on."""
    builder = _Builder()
    for event in events:
        builder.add(event)
    return builder.waterfall(now_us)


class _Builder:
    """Takes events one by one; open bars are found by what they are about."""

    def __init__(self) -> None:
        self._rows: list[Row] = []
        # (what, step id) -> place in rows of the bar that has not ended.
        self._open: dict[tuple[str, str], int] = {}
        self._ended_steps: set[str] = set()
        self._drives = 0
        self._first_us: int | None = None
        self._last_us = 0
        self._last_kind = ""
        self._closed = False

    def add(self, event: Event) -> None:
        self._first_us = event.time_us if self._first_us is None else self._first_us
        self._last_us = event.time_us
        facts = _facts(event)
        match event.kind:
            case kinds.LEASE_GRANTED:
                self._grant(event, facts)
            case kinds.STEP_STARTED:
                bar = _bar(event, "step", attempt=event.attempt, attempts_max=_integer(facts.get("of")))
                self._begin("step", event.step_id, bar)
            case kinds.STEP_COMPLETED:
                self._ended_steps.add(event.step_id)
                self._end("step", event.step_id, event, Outcome.COMPLETED)
            case kinds.STEP_FAILED:
                self._ended_steps.add(event.step_id)
                self._end("step", event.step_id, event, Outcome.FAILED, _error_note(facts))
            case kinds.STEP_RETRYING:
                self._end("step", event.step_id, event, Outcome.RETRIED, _retry_note(facts))
            case kinds.TIMER_STARTED:
                self._begin("timer", event.step_id, _bar(event, "timer"))
            case kinds.TIMER_FIRED:
                self._end("timer", event.step_id, event, Outcome.COMPLETED)
            case kinds.RUN_PARKED:
                self._park(event, facts)
            case kinds.APPROVAL_REQUESTED:
                self._begin("approval", event.step_id, _bar(event, "approval"))
            case kinds.APPROVAL_DECIDED:
                outcome = Outcome.COMPLETED if facts.get("decision") == "approved" else Outcome.FAILED
                self._end("approval", event.step_id, event, outcome, _decision_note(facts))
            case kinds.CHILD_STARTED:
                self._begin("child", event.step_id, _bar(event, "child", note=str(facts.get("agent", ""))))
            case kinds.CHILD_COMPLETED:
                outcome = Outcome.COMPLETED if facts.get("state") == "SUCCEEDED" else Outcome.FAILED
                self._end("child", event.step_id, event, outcome, f"run {facts.get('runId', '')}")
            case kinds.STEP_WAITING:
                # An approval's own wait is told by its bar.
                if ("approval", event.step_id) not in self._open:
                    self._end("step", event.step_id, event, Outcome.UNKNOWN)
            case kinds.RUN_STARTED:
                pass
            case kind if kind in kinds.TERMINAL:
                self._closed = True
                self._end_wait(event)
                self._cut_off(event.time_us, Outcome.INTERRUPTED)
            case _:
                self._rows.append(_point(event, facts))
        self._last_kind = event.kind

    def waterfall(self, now_us: int | None) -> Waterfall:
        begin_us = self._first_us or 0
        end_us = self._last_us if self._closed or now_us is None else max(self._last_us, now_us)
        return Waterfall(begin_us=begin_us, end_us=end_us, rows=tuple(self._rows))

    def _begin(self, what: str, step_id: str, bar: Bar) -> None:
        self._open[what, step_id] = len(self._rows)
        self._rows.append(bar)

    def _end(self, what: str, step_id: str, event: Event, outcome: Outcome, note: str = "") -> None:
        place = self._open.pop((what, step_id), None)
        if place is None:
            # Its beginning is not in these events: show at least its end.
            self._rows.append(
                _bar(event, what, attempt=event.attempt, end_us=event.time_us, outcome=outcome, note=note)
            )
            return
        self._close(place, event.time_us, outcome, note)

    def _close(self, place: int, end_us: int, outcome: Outcome, note: str = "") -> None:
        bar = self._rows[place]
        assert isinstance(bar, Bar), "only bars are open"
        self._rows[place] = replace(bar, end_us=end_us, outcome=outcome, note=note)

    def _grant(self, event: Event, facts: Mapping[str, Any]) -> None:
        self._drives += 1
        reason = str(facts.get("reason", ""))
        self._end_wait(event)
        self._cut_off(event.time_us, Outcome.CRASHED if reason == "crash" else Outcome.INTERRUPTED)
        self._rows.append(
            Resume(
                number=self._drives,
                reason=reason,
                worker=str(facts.get("worker", "")),
                epoch=event.epoch,
                at_us=event.time_us,
                replayed_steps=len(self._ended_steps),
            )
        )

    def _end_wait(self, event: Event) -> None:
        """Whatever the run waited on: it is driven, waits for something else, or has ended."""
        place = self._open.pop(("wait", ""), None)
        if place is not None:
            self._close(place, event.time_us, Outcome.COMPLETED)

    def _cut_off(self, at_us: int, outcome: Outcome) -> None:
        """Ends the steps that are open; timers go on across drives, but not across the end of the run."""
        for (what, step_id), place in list(self._open.items()):
            if what == "step" or self._closed:
                self._close(place, at_us, outcome)
                del self._open[what, step_id]

    def _park(self, event: Event, facts: Mapping[str, Any]) -> None:
        error = facts.get("error")
        note = _error_note(error) if isinstance(error, dict) else ""
        on = str(facts.get("on", ""))
        # A driver parks in the middle of a step only where its program differs from the history, which it says just
        # before. Else the journal did, since the driver was lost and no other can take the run up.
        lost = on in _JOURNAL_PARKS and self._last_kind != kinds.NONDETERMINISM_DETECTED
        self._cut_off(event.time_us, Outcome.CRASHED if lost else Outcome.INTERRUPTED)
        self._end_wait(event)
        bar = _bar(event, "wait", label=on, outcome=Outcome.WAITING, note=note)
        self._begin("wait", "", bar)


def _bar(
    event: Event,
    what: str,
    *,
    label: str = "",
    attempt: int = 0,
    attempts_max: int = 0,
    end_us: int | None = None,
    outcome: Outcome = Outcome.RUNNING,
    note: str = "",
) -> Bar:
    return Bar(
        label=label or event.step_id,
        what=what,
        attempt=attempt,
        attempts_max=attempts_max,
        epoch=event.epoch,
        begin_us=event.time_us,
        end_us=end_us,
        outcome=outcome,
        note=note,
    )


def _point(event: Event, facts: Mapping[str, Any]) -> Point:
    match event.kind:
        case kinds.MARKER_RECORDED:
            return Point(label=event.step_id, what="marker", at_us=event.time_us)
        case kinds.SIGNAL_RECEIVED:
            return Point(label=str(facts.get("name", "")), what="signal", at_us=event.time_us)
        case kinds.CANCEL_REQUESTED:
            return Point(label="cancel", what="cancel", at_us=event.time_us)
        case kinds.NONDETERMINISM_DETECTED:
            sides = [
                f"{side} {facts.get(side, '')} ({facts.get(side + 'Source', '')})" for side in ("recorded", "asked")
            ]
            label = event.step_id or "program"
            return Point(label=label, what="nondeterminism", at_us=event.time_us, note=", ".join(sides))
        case _:
            return Point(label=event.step_id, what=event.kind, at_us=event.time_us)


def _facts(event: Event) -> Mapping[str, Any]:
    """What the payload says; nothing where it was not made by the engine of this version."""
    try:
        return payloads.unpack(event.payload).facts
    except LanternError:
        return {}


def _integer(value: object) -> int:
    return value if isinstance(value, int) else 0


def _error_note(facts: Mapping[str, Any]) -> str:
    code, message = str(facts.get("code", "")), str(facts.get("message", ""))
    return f"{code}: {message}" if message else code


def _decision_note(facts: Mapping[str, Any]) -> str:
    by = str(facts.get("by", ""))
    return str(facts.get("decision", "")) + (f" by {by}" if by else "")


def _retry_note(facts: Mapping[str, Any]) -> str:
    error = facts.get("error")
    parts: Sequence[str] = [_error_note(error)] if isinstance(error, dict) else []
    delay = facts.get("delayMs")
    again = [f"again in {delay} ms"] if isinstance(delay, int) else []
    # Unknown: it may have happened, so the next request bears the same key (SPEC E2).
    outcome = facts.get("outcome")
    known = [f"outcome {str(outcome).replace('_', ' ')}"] if outcome else []
    return " · ".join([*parts, *known, *again])
