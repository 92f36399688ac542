"""One journal row, and the check that a run's rows form its chain."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from lantern_kernel import chain


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """One event of a run, as recorded."""

    # Dense within the run, from 1.
    seq: int
    # See `kinds`.
    kind: str
    # The step, marker or timer that it is about; empty for events of the run itself.
    step_id: str
    # 1 for the first try of a step; 0 where there is none.
    attempt: int
    # The lease under which it was written.
    epoch: int
    # Microseconds since the Unix epoch, by the journal's clock.
    time_us: int
    # See `payloads`.
    payload: bytes
    # 16 random bytes.
    salt: bytes
    # See `chain`.
    digest: bytes
    # See `chain`.
    hash: bytes


# Not frozen, which would more than double what making one costs: there are some for every step.
@dataclass(kw_only=True, slots=True)
class AppliedEvent:
    """What the replay core needs to know of an event."""

    # Dense within the run, from 1.
    seq: int
    # See `kinds`.
    kind: str
    # The step, marker or timer; empty for events of the run.
    step_id: str
    # As recorded: 0 where there is none.
    attempt: int
    # The lease under which it was written.
    epoch: int
    # Journal time in microseconds; for an event about to be appended, the driver's best knowledge of it.
    time_us: int
    # See `payloads`.
    payload: bytes


class NewEvent(NamedTuple):
    """An event that is about to be written. A tuple, since making one is a good part of what a step costs."""

    # As in Event.
    kind: str
    # As in Event.
    salt: bytes
    # As in Event.
    step_id: str = ""
    # As in Event.
    attempt: int = 0
    # As in Event.
    payload: bytes = b"{}"

    def digest(self, *, run_id: str, seq: int, epoch: int) -> bytes:
        """The digest that it will have at that place."""
        kind, salt, step_id, attempt, payload = self
        return chain.event_digest(run_id, seq, kind, step_id, attempt, epoch, chain.payload_digest(salt, payload))


class ChainCheck:
    """Checks a run's events as a chain, one after the other: dense seq, time never falling, digest and hash."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._time_us = 0
        # Of the last event that was checked.
        self.seq = 0
        self.kind = ""
        self.hash = chain.genesis(run_id)

    def fault_of(self, event: Event) -> str | None:
        """What is wrong with the next event; None where nothing is."""
        seq = self.seq + 1
        if event.seq != seq:
            return f"event {seq} is missing: {event.seq} stands in its place"
        if event.time_us < self._time_us:
            return f"event {seq}: time falls from {self._time_us} to {event.time_us}"
        if len(event.salt) != chain.SALT_BYTES:
            return f"event {seq}: its salt has {len(event.salt)} bytes"
        new = NewEvent(
            kind=event.kind, step_id=event.step_id, attempt=event.attempt, payload=event.payload, salt=event.salt
        )
        if event.digest != new.digest(run_id=self._run_id, seq=seq, epoch=event.epoch):
            return f"event {seq}: its digest does not follow from its content"
        link = chain.link(self.hash, event.digest, event.time_us)
        if event.hash != link:
            return f"event {seq}: its hash does not follow from the one before"
        self.go_on_from(event)
        return None

    def go_on_from(self, event: Event) -> None:
        """Takes an event as it is, so as to find what is wrong behind it."""
        self.seq, self.kind, self.hash, self._time_us = event.seq, event.kind, event.hash, event.time_us


def find_chain_fault(run_id: str, events: Iterable[Event]) -> str | None:
    """What is wrong with a run's events as a chain, from its first on; None where nothing is."""
    check = ChainCheck(run_id)
    return next((fault for event in events if (fault := check.fault_of(event)) is not None), None)
