"""What holds in every storm, read off the journal and off what the program was told."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol

from lantern_kernel import kinds
from lantern_kernel.commands import ContinueAsNew
from lantern_kernel.event import Event
from lantern_kernel.payloads import unpack
from storms.adversary import Adversary


class Story(Protocol):
    """A run that has ended."""

    @property
    def journal(self) -> Sequence[Event]:
        """All its events."""
        ...

    @property
    def resets(self) -> Sequence[tuple[int, int]]:
        """The resets in its history."""
        ...

    @property
    def last(self) -> Adversary:
        """The program that saw the end."""
        ...

    @property
    def dispatched(self) -> Sequence[tuple[str, int, int]]:
        """Each attempt: step, number, how many events stood then. Those that may begin unrecorded are left out."""
        ...

    @property
    def children(self) -> Mapping[str, str]:
        """Of each child that was made, by its step: open, ended or cancelled."""
        ...

    def events(self, *of: str) -> list[Event]:
        """The events of these kinds that no reset passes over."""
        ...


def check(story: Story) -> None:
    """All laws."""
    for law in (check_events, check_keys, check_signals, check_notices, check_children):
        law(story)


def check_events(story: Story) -> None:
    """One end per command, what is asked for is on record in order, nothing is dispatched at the wrong time."""
    assert not story.events(kinds.NONDETERMINISM_DETECTED)
    ends = Counter(
        event.step_id
        for event in story.events(kinds.STEP_COMPLETED, kinds.STEP_FAILED, kinds.TIMER_FIRED, kinds.CHILD_COMPLETED)
        # A child that a reset passes over ends although nobody asks for it any more.
        if event.kind != kinds.CHILD_COMPLETED or not story.resets
    )
    assert set(ends.values()) <= {1}, f"two ends: {ends.most_common(3)}"
    ended_at = {e.step_id: e.seq for e in story.events(kinds.STEP_COMPLETED, kinds.STEP_FAILED)}
    started = Counter((e.step_id, e.attempt) for e in story.events(kinds.STEP_STARTED))
    since = story.resets[-1][1] if story.resets else 0
    lately = [each for each in story.dispatched if each[2] > since]
    dispatched = Counter((step_id, attempt) for step_id, attempt, _ in lately)
    assert all(count <= started[place] for place, count in dispatched.items()), "dispatched without a step_started"
    for step_id, _, stood in lately:
        assert ended_at.get(step_id, stood + 1) > stood, f"{step_id} was dispatched after its end"
    markers = Counter(event.step_id for event in story.events(kinds.MARKER_RECORDED))
    assert set(markers.values()) <= {1}


def check_keys(story: Story) -> None:
    """E2 read off the journal: what was once followed by anything but "not executed" stays to the end."""
    key_attempt: dict[str, int] = {}
    frozen: set[str] = set()
    begun: set[tuple[str, int]] = set()
    for event in story.events(kinds.STEP_STARTED, kinds.STEP_RETRYING):
        facts = unpack(event.payload).facts
        expected = key_attempt.setdefault(event.step_id, 1)
        if event.kind == kinds.STEP_STARTED:
            assert facts["keyAttempt"] == expected, event
            if (event.step_id, event.attempt) in begun:
                frozen.add(event.step_id)
            begun.add((event.step_id, event.attempt))
            continue
        if facts["outcome"] != "not_executed":
            frozen.add(event.step_id)
        key_attempt[event.step_id] = expected if event.step_id in frozen else expected + 1
        assert facts["keyAttempt"] == key_attempt[event.step_id], event


def check_signals(story: Story) -> None:
    """Each signal is told once or carried on, never both, never neither."""
    received = {event.seq: unpack(event.payload).data for event in story.events(kinds.SIGNAL_RECEIVED)}
    told = [data for what, _, data, _ in story.last.told if what == "AwaitSignal"]
    assert len(told) == len(set(told)), "a signal was taken twice"
    assert set(told) <= set(received.values())
    end = story.journal[-1]
    facts = unpack(end.payload).facts
    if end.kind == kinds.RUN_SUCCEEDED and isinstance(story.last.asked[-1], ContinueAsNew):
        carried = [received[seq] for seq in facts["carry"]]
        assert Counter(carried + told) == Counter(received.values()), "a signal was lost on the way to the next run"


def check_notices(story: Story) -> None:
    """A cancel is told at most once, an update once; it is answered at most once, in the order of answering."""
    notices = Counter((what, step_id) for what, step_id, _, _ in story.last.told if what in ("cancel", "update"))
    assert set(notices.values()) <= {1}
    updates = {event.step_id for event in story.events(kinds.UPDATE_RECEIVED)}
    answered = Counter(event.step_id for event in story.events(kinds.UPDATE_COMPLETED))
    assert set(answered) <= updates
    assert set(answered.values()) <= {1}
    end = story.journal[-1].kind
    if story.events(kinds.CANCEL_REQUESTED):
        assert end != kinds.RUN_SUCCEEDED


def check_children(story: Story) -> None:
    """None is made that is not on record; that none goes on unwanted is looked at while the storm lasts."""
    assert story.children.keys() <= {event.step_id for event in story.journal if event.kind == kinds.CHILD_STARTED}
