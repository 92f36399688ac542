"""Replay of a history by fresh code: whether it asks for what is recorded, and for the same as the code that ran."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from lantern.testing.drive import load
from lantern.testing.programs import WatchedProgram
from lantern.testing.stored import StoredRun
from lantern_kernel import kinds, payloads
from lantern_kernel.blobs import Content
from lantern_kernel.commands import Command, End
from lantern_kernel.course.course import Course
from lantern_kernel.event import Event


class ReplayDiffers(AssertionError):
    """Replayed code does not ask for what the code asked for that ran: it is not deterministic."""


class NoChance:
    """A replay decides nothing by chance; what it would append is thrown away."""

    def random_bytes(self, count: int) -> bytes:
        """See Chance."""
        return bytes(count)

    def random01(self) -> float:
        """See Chance."""
        return 0.0


@contextmanager
def replayed(
    run_id: str,
    workflow_id: str,
    events: Sequence[Event],
    program_of: Callable[[], WatchedProgram],
    content: Callable[[Content], bytes],
) -> Generator[tuple[Course, WatchedProgram]]:
    """Fresh code, brought to where a history ends; closed at the end.

    Raises:
        LanternError: HISTORY_UNREADABLE, or a blob is not at hand.
    """
    now_us = events[-1].time_us if events else 0
    epoch = events[-1].epoch if events else 0
    course, program = load(
        run_id,
        workflow_id,
        events,
        program_of,
        epoch=epoch,
        chance=NoChance(),
        now_us=lambda: now_us,
        is_looking_only=True,
    )
    try:
        course.advance(beginning=False)
        while course.wanted is not None:
            course.provide(content(course.wanted))
            course.advance(beginning=False)
        yield course, program
    finally:
        program.close()


def replay(
    run_id: str,
    workflow_id: str,
    events: Sequence[Event],
    program_of: Callable[[], WatchedProgram],
    content: Callable[[Content], bytes],
) -> tuple[list[Command], dict[str, Any] | None]:
    """Replays a whole history: what the code asked for, and the facts of the first difference; None where none is.

    Raises:
        LanternError: As `replayed`.
    """
    with replayed(run_id, workflow_id, events, program_of, content) as (course, program):
        return list(program.commands), _difference(course)


def _difference(course: Course) -> dict[str, Any] | None:
    for event in course.ending:
        if event.kind == kinds.NONDETERMINISM_DETECTED:
            return dict(payloads.unpack(event.payload).facts)
    return None


def check_replay(
    run: StoredRun,
    asked: Sequence[Command],
    program_of: Callable[[StoredRun], WatchedProgram],
    content: Callable[[Content], bytes],
) -> None:
    """Replays what a run's journal holds by now; it must ask for exactly what the code asked for that ran.

    Raises:
        ReplayDiffers: It does not.
    """
    if any(event.kind == kinds.NONDETERMINISM_DETECTED for event in run.events[-2:]):
        return  # said by the run itself
    again, difference = replay(run.run_id, run.workflow_id, tuple(run.events), lambda: program_of(run), content)
    place = f"run {run.run_id} after event {len(run.events)}"
    if difference is not None:
        raise ReplayDiffers(f"{place}: {said(difference)}")
    for number, (one, other) in enumerate(zip(asked, again, strict=False), 1):
        if one != other:
            raise ReplayDiffers(f"{place}: command {number} was {_shown(one)}; replayed, it is {_shown(other)}")
    if len(asked) != len(again):
        longer, word = (asked, "did not ask") if len(asked) > len(again) else (again, "asked")
        extra = longer[min(len(asked), len(again))]
        raise ReplayDiffers(f"{place}: replayed, the code {word} for {_shown(extra)}")


def check_history(
    run: StoredRun, program_of: Callable[[StoredRun], WatchedProgram], content: Callable[[Content], bytes]
) -> None:
    """Replays a run's whole history; ReplayDiffers where the code does not ask for what it records."""
    _, difference = replay(run.run_id, run.workflow_id, tuple(run.events), lambda: program_of(run), content)
    if difference is not None:
        raise ReplayDiffers(f"run {run.run_id}: {said(difference)}")


def said(difference: dict[str, Any]) -> str:
    """The facts of nondeterminism_detected as a sentence."""
    recorded_at, asked_at = difference.get("recordedSource"), difference.get("askedSource")
    return (
        f"event {difference['seq']} records {difference['recorded']}"
        + (f" (at {recorded_at})" if recorded_at else "")
        + f", but the code now asks for {difference['asked']}"
        + (f" (at {asked_at})" if asked_at else "")
    )


def _shown(command: Command) -> str:
    if isinstance(command, End):
        return repr(command)
    source = getattr(command, "source", "")
    name = type(command).__name__
    content = getattr(command, "input", None)
    more = f" with {content.decode(errors='replace')[:200]}" if isinstance(content, bytes) else ""
    return f"{name} {command.step_id}{more}" + (f" (at {source})" if source else "")
