"""The end of a run's journal as its writer knows it: where the next append belongs, and how it is cut."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lantern_kernel.bounds import EVENTS_PER_APPEND_MAX
from lantern_kernel.event import Event, NewEvent

APPEND_BYTES_MAX = 640 * 1024
"""Of one append without the events that end a drive (at most one full payload): with them it stays under 1 MiB."""

APPEND_EVENTS_MAX = EVENTS_PER_APPEND_MAX - 8
"""Of one append, with room for the events that end a drive."""

EVENT_OVERHEAD_BYTES = 128
"""What an event costs on the wire beside payload and step id: kind, salt, attempt, tags."""


@dataclass(kw_only=True, slots=True)
class Append:
    """Events for one run, to go in whole on top of a named event, or not at all (SPEC J2).

    Not frozen, which would double the cost of making one.
    """

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
    # The last inbox entry that the driver has consumed; what a parking or final append is judged by.
    consumed_inbox_number: int

    @property
    def size_bytes(self) -> int:
        """About what it takes on the wire."""
        return EVENT_OVERHEAD_BYTES + sum(event_size_bytes(event) for event in self.events)


def event_size_bytes(event: NewEvent) -> int:
    """About what an event takes on the wire."""
    return EVENT_OVERHEAD_BYTES + len(event.payload) + len(event.step_id)


class Tail:
    """The last event of a run, moved on by every append that went in."""

    def __init__(self, run_id: str, epoch: int, last: Event) -> None:
        self.run_id = run_id
        self._epoch = epoch
        self.seq = last.seq
        self._digest = last.digest

    def append(self, events: Sequence[NewEvent], consumed_inbox_number: int) -> Append:
        """The append that puts `events` on top of the tail."""
        return Append(
            run_id=self.run_id,
            epoch=self._epoch,
            first_seq=self.seq + 1,
            previous_digest=self._digest,
            events=tuple(events),
            consumed_inbox_number=consumed_inbox_number,
        )

    def moved_by(self, append: Append) -> None:
        """Moves on after `append` went in."""
        assert append.first_seq == self.seq + 1, "an append went in on top of the tail"
        self.seq += len(append.events)
        self._digest = append.events[-1].digest(run_id=self.run_id, seq=self.seq, epoch=self._epoch)


def cut(events: Sequence[NewEvent], ending: Sequence[NewEvent] = ()) -> Iterator[Sequence[NewEvent]]:
    """Cuts events into appends of bounded size, in order; `ending` goes whole with the last of them.

    Each prefix of a run's events is a history that makes sense, so losing the later appends loses nothing but work.
    """
    start = size = 0
    for at, event in enumerate(events):
        size += event_size_bytes(event)
        if at > start and (size > APPEND_BYTES_MAX or at - start == APPEND_EVENTS_MAX):
            yield events[start:at]
            start, size = at, event_size_bytes(event)
    if start < len(events) or ending:
        yield (*events[start:], *ending)
