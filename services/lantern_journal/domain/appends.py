"""Judging appends against the heads of their runs, and the rows that go in (SPEC J1, J2, J5).

The order of judgement is normative: a stale epoch, a repeat, a closed run, the wrong place or other content.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from lantern_journal.domain.blobs import NamedBlobs
from lantern_journal.domain.run_state import RunChange, change_of
from lantern_kernel import chain, kinds, payloads, reasons
from lantern_kernel.blobs import BlobRef
from lantern_kernel.bounds import EVENTS_PER_RUN_MAX
from lantern_kernel.errors import InvalidField, LanternError
from lantern_kernel.event import Event, NewEvent


class Head(NamedTuple):
    """The last event of a run, as far as the next one depends on it."""

    # Its place; 0 before the first event.
    seq: int
    # Its digest, which the next append names; `chain.genesis` before the first event.
    digest: bytes
    # The chain up to it.
    hash: bytes
    # The run's epoch: a grant is an event.
    epoch: int
    # Its time; the next is not below.
    time_us: int
    # Its kind: after a terminal one nothing follows, after run_parked only a grant.
    kind: str


class Row(NamedTuple):
    """A journal row, in the order of the table's columns."""

    run_id: str
    seq: int
    kind: str
    step_id: str
    attempt: int
    epoch: int
    time_us: int
    payload: bytes
    salt: bytes
    digest: bytes
    hash: bytes


@dataclass(kw_only=True, slots=True)
class Append:
    """Events that a driver wants on top of a named event. Not frozen, which would double the cost of making one."""

    # The run.
    run_id: str
    # The lease under which it is written.
    epoch: int
    # The place of the first event.
    first_seq: int
    # The digest of the event before it.
    previous_digest: bytes
    # At least one.
    events: tuple[NewEvent, ...]
    # The last inbox entry that the driver has consumed; matters for parking and final appends.
    consumed_inbox_number: int = 0
    # The worker's own number for it.
    append_id: int = 0
    # Bytes of its payloads.
    size: int = field(init=False)
    # What its payloads name.
    blobs: tuple[BlobRef, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.size = sum([len(event.payload) for event in self.events])
        named = [payloads.named_blob(event.payload) for event in self.events]
        self.blobs = tuple([blob for blob in named if blob is not None])


class Verdict(Enum):
    """What a head says about an append."""

    # It goes on top.
    FITS = auto()
    # A later lease exists. Final whatever the head's age: epochs never fall.
    STALE = auto()
    # It starts at or below the head: a repeat if the same content stands there.
    LOOK = auto()
    # The run has ended.
    CLOSED = auto()
    # The epoch was never granted.
    NEVER_GRANTED = auto()
    # The drive under this epoch was ended by its own run_parked.
    PARKED = auto()
    # Not on top of the event that it names.
    CONFLICT = auto()
    # The run has as many events as it may have.
    FULL = auto()


def genesis(run_id: str) -> Head:
    """The head before the first event."""
    start = chain.genesis(run_id)
    return Head(0, start, start, 0, 0, "")


def event_of(row: Row) -> Event:
    """A row as an event."""
    return Event(
        seq=row.seq,
        kind=row.kind,
        step_id=row.step_id,
        attempt=row.attempt,
        epoch=row.epoch,
        time_us=row.time_us,
        payload=row.payload,
        salt=row.salt,
        digest=row.digest,
        hash=row.hash,
    )


def judge(append: Append, head: Head) -> Verdict:
    """What a head says about an append, in the normative order. Only STALE is final where the head may be old."""
    if append.epoch < head.epoch:
        return Verdict.STALE
    if append.first_seq <= head.seq:
        return Verdict.LOOK
    return judge_place(append, head)


def judge_place(append: Append, head: Head) -> Verdict:
    """What is left to judge of an append that is neither stale nor a repeat."""
    if head.kind in kinds.TERMINAL:
        return Verdict.CLOSED
    if append.epoch > head.epoch:
        return Verdict.NEVER_GRANTED
    if head.kind == kinds.RUN_PARKED:
        return Verdict.PARKED
    if append.first_seq != head.seq + 1 or append.previous_digest != head.digest:
        return Verdict.CONFLICT
    last = head.seq + len(append.events)
    if last > EVENTS_PER_RUN_MAX and append.events[-1].kind not in kinds.ENDS_DRIVE:
        return Verdict.FULL
    return Verdict.FITS


def is_repeat(append: Append, stored: Sequence[Event]) -> bool:
    """Whether exactly this content already stands at this place; time and hash are the journal's and not compared."""
    return len(stored) == len(append.events) and all(
        (old.kind, old.step_id, old.attempt, old.epoch, old.payload, old.salt)
        == (new.kind, new.step_id, new.attempt, append.epoch, new.payload, new.salt)
        for old, new in zip(stored, append.events, strict=True)
    )


def error_of(verdict: Verdict, append: Append, head: Head) -> LanternError:
    """The refusal that a verdict means."""
    run_id = append.run_id
    match verdict:
        case Verdict.STALE:
            return LanternError(
                reasons.LEASE_LOST, f"epoch {append.epoch} is over: the run is at {head.epoch}", run_id=run_id
            )
        case Verdict.PARKED:
            return LanternError(reasons.LEASE_LOST, f"epoch {append.epoch} ended with run_parked", run_id=run_id)
        case Verdict.CLOSED:
            return LanternError(reasons.RUN_CLOSED, f"the run has ended: {head.kind}", run_id=run_id, kind=head.kind)
        case Verdict.NEVER_GRANTED:
            return InvalidField("epoch", f"{append.epoch} was never granted: the run is at {head.epoch}", run_id=run_id)
        case Verdict.FULL:
            return LanternError(
                reasons.EVENTS_FULL, f"a run has at most {EVENTS_PER_RUN_MAX} events", run_id=run_id, seq=head.seq
            )
        case _:
            return LanternError(
                reasons.APPEND_CONFLICT,
                f"the run's last event is {head.seq}; seq {append.first_seq} does not go on top of it as named",
                run_id=run_id,
                head_seq=head.seq,
            )


def not_found(run_id: str) -> LanternError:
    """There is no such run."""
    return LanternError(reasons.RUN_NOT_FOUND, f"there is no run {run_id}", field="run_id", run_id=run_id)


def rows_of(run_id: str, head: Head, epoch: int, now_us: int, events: Sequence[NewEvent], rows: list[Row]) -> Head:
    """Adds the rows of events on top of a head to `rows`; returns the new head. Time never falls within a run."""
    time_us = max(now_us, head.time_us)
    seq, digest, link = head.seq, head.digest, head.hash
    kind = head.kind
    # Spelled out, since here is where most of the journal's own work is.
    for kind, salt, step_id, attempt, payload in events:
        seq += 1
        digest = chain.event_digest(run_id, seq, kind, step_id, attempt, epoch, chain.payload_digest(salt, payload))
        link = chain.link(link, digest, time_us)
        rows.append(Row(run_id, seq, kind, step_id, attempt, epoch, time_us, payload, salt, digest, link))
    return Head(seq, digest, link, epoch, time_us, kind)


class Top(NamedTuple):
    """What a group is put on top of: the last event of one of its runs."""

    # The run.
    run_id: str
    # Its place.
    seq: int
    # Its digest.
    digest: bytes


@dataclass(kw_only=True, slots=True)
class GroupPlan:
    """What becomes of a group of appends, judged against given heads."""

    # What goes in, sorted by run id: one lock order for all journals, hence no deadlocks.
    rows: list[Row] = field(default_factory=list[Row])
    # What changes in the rows of runs, sorted likewise.
    changes: list[RunChange] = field(default_factory=list[RunChange])
    # What the rows are put on top of, for each run.
    tops: list[Top] = field(default_factory=list[Top])
    # What the appends that name blobs name, sorted likewise.
    blobs: list[NamedBlobs] = field(default_factory=list[NamedBlobs])
    # The heads after it.
    heads: dict[str, Head] = field(default_factory=dict[str, Head])
    # Which appends go in, and the place of the last event of each.
    fits: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    # Which are stale, whatever the head's age.
    stale: list[int] = field(default_factory=list[int])
    # Which need a look at the database, with what the head said.
    odd: list[tuple[int, Verdict]] = field(default_factory=list[tuple[int, Verdict]])


def plan_group(appends: Sequence[Append], heads: Mapping[str, Head], now_us: int) -> GroupPlan:
    """Judges a group in order of run id, arrival order within a run. A run whose append is odd waits with the rest."""
    plan = GroupPlan()
    waiting: set[str] = set()
    for index in sorted(range(len(appends)), key=lambda i: appends[i].run_id):
        append = appends[index]
        run_id = append.run_id
        head = plan.heads.get(run_id) or heads.get(run_id)
        if head is None or run_id in waiting:
            waiting.add(run_id)
            plan.odd.append((index, Verdict.LOOK))
            continue
        verdict = judge(append, head)
        if verdict is Verdict.STALE:
            plan.stale.append(index)
        elif verdict is not Verdict.FITS:
            waiting.add(run_id)
            plan.odd.append((index, verdict))
        else:
            time_us = max(now_us, head.time_us)
            change = change_of(run_id, append.first_seq, append.events, append.consumed_inbox_number, time_us)
            if run_id not in plan.heads:
                plan.tops.append(Top(run_id, head.seq, head.digest))
            plan.heads[run_id] = after = rows_of(run_id, head, append.epoch, now_us, append.events, plan.rows)
            plan.fits.append((index, after.seq))
            if change is not None:
                plan.changes.append(change)
            if append.blobs:
                plan.blobs.append(NamedBlobs(run_id=run_id, last_seq=after.seq, blobs=append.blobs))
    return plan
