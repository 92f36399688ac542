"""Runs in archive files: where they are, and how far a pass came."""

from dataclasses import dataclass

from lantern_kernel import archive, reasons
from lantern_kernel.errors import LanternError


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A run that has ended and is old enough."""

    # When it ended.
    ended_us: int
    # The run.
    run_id: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ArchivedRun:
    """A run in a finished file."""

    # The run.
    run_id: str
    # Where its first byte is in the file, and how many there are; they are a gzip member of their own.
    offset: int
    # See `offset`.
    length: int
    # Its events.
    event_count: int
    # The chain's hash after the last of them.
    head_hash: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Archive:
    """Where an archived run is."""

    # The file's name within the archive folder.
    file: str
    # As in ArchivedRun.
    offset: int
    # As in ArchivedRun.
    length: int
    # As in ArchivedRun.
    event_count: int
    # As in ArchivedRun.
    head_hash: bytes
    # When.
    archived_us: int


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptBlob:
    """A payload of a run that is kept apart."""

    # Of its content, hexadecimal.
    sha256: str
    # Bytes.
    size: int
    # Under which its chunks are kept.
    upload_id: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """The right to archive, held by one journal at a time until it is let go, taken by another, or its term is over."""

    # Grows with each taking; what an older holder writes is refused.
    number: int
    # Files that an older holder began and never took into use.
    leftovers: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class PassCounts:
    """What a pass did."""

    # Runs that are now in files.
    runs: int = 0
    # Their events.
    events: int = 0
    # Files that were finished.
    files: int = 0
    # Runs that stay because something is wrong with their events.
    faulty: int = 0
    # Partitions that were dropped.
    partitions: int = 0
    # Whether another journal is at it, so that nothing was done.
    is_busy: bool = False


def file_name(first_run_id: str, turn: int, number: int) -> str:
    """The name of a file, unlike any other of this database: no turn and number come twice."""
    return f"runs-{first_run_id}-{turn}-{number}.jsonl.gz"


def fault_of(checked: archive.CheckedRun, written: ArchivedRun) -> str | None:
    """What is wrong with a run that was read again from its file."""
    if checked.fault is not None:
        return checked.fault
    if (checked.event_count, checked.head_hash) != (written.event_count, written.head_hash):
        return "other events are in the file than were written"
    return None


def archived_error(run_id: str, file: str) -> LanternError:
    """The answer to whoever wants the events of an archived run."""
    return LanternError(
        reasons.RUN_ARCHIVED, f"the events of run {run_id} are in the archive file {file}", run_id=run_id, file=file
    )
