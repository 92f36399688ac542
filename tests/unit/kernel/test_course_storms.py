"""Goal: whatever a program asks for and whatever comes in, in any order and with crashes, one journal tells one story.

Method: the adversary (adversary.py) under the storm (stormy_journal.py), seed by seed: steps, markers, timers, signals,
approvals, children, withdrawals, updates, cancels, pauses, and drivers that die with any prefix of an append written.
After every append fresh code is driven along the journal (cmd_i(code, H<i) = e_i); at the end the laws are counted:
one end per command, no signal lost or taken twice, keys by E2, no attempt before it is on record or after its end.
`LANTERN_TEST_STORMS` says how many seeds, `LANTERN_TEST_SEED` which is the first.
"""

import os
import subprocess
import sys
from collections import Counter
from hashlib import sha256
from pathlib import Path

import pytest
from stormy_journal import Storm

from lantern_kernel import kinds, reasons
from lantern_kernel.commands import ContinueAsNew, RunStep
from lantern_kernel.payloads import unpack

STORMS = int(os.environ.get("LANTERN_TEST_STORMS", "400"))
FIRST = int(os.environ.get("LANTERN_TEST_SEED", "1"))
BATCHES = 8


def weathered(seed: int) -> Storm:
    """A storm that has passed."""
    storm = Storm(seed, size=4 + seed % 20, crashes=seed % 9, resets=seed % 3 if seed % 5 == 0 else 0)
    storm.run()
    return storm


@pytest.mark.parametrize("batch", range(BATCHES))
def test_one_journal_tells_one_story(batch: int) -> None:
    for seed in range(FIRST + batch, FIRST + STORMS, BATCHES):
        try:
            storm = weathered(seed)
            check_events(storm)
            check_keys(storm)
            check_signals(storm)
            check_notices(storm)
            check_children(storm)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error


def check_events(storm: Storm) -> None:
    """One end per command, what is asked for is on record in order, nothing is dispatched at the wrong time."""
    assert not storm.events(kinds.NONDETERMINISM_DETECTED)
    ends = Counter(
        event.step_id
        for event in storm.events(kinds.STEP_COMPLETED, kinds.STEP_FAILED, kinds.TIMER_FIRED, kinds.CHILD_COMPLETED)
        # A child that a reset passes over ends although nobody asks for it any more.
        if event.kind != kinds.CHILD_COMPLETED or not storm.resets
    )
    assert set(ends.values()) <= {1}, f"two ends: {ends.most_common(3)}"
    ended_at = {e.step_id: e.seq for e in storm.events(kinds.STEP_COMPLETED, kinds.STEP_FAILED)}
    started = Counter((e.step_id, e.attempt) for e in storm.events(kinds.STEP_STARTED))
    since = storm.resets[-1][1] if storm.resets else 0
    lately = [each for each in storm.dispatched if each[2] > since]
    dispatched = Counter((step_id, attempt) for step_id, attempt, _ in lately)
    assert all(count <= started[place] for place, count in dispatched.items()), "dispatched without a step_started"
    for step_id, _, stood in lately:
        assert ended_at.get(step_id, stood + 1) > stood, f"{step_id} was dispatched after its end"
    markers = Counter(event.step_id for event in storm.events(kinds.MARKER_RECORDED))
    assert set(markers.values()) <= {1}


def check_keys(storm: Storm) -> None:
    """E2 read off the journal: what was once followed by anything but "not executed" stays to the end."""
    key_attempt: dict[str, int] = {}
    frozen: set[str] = set()
    begun: set[tuple[str, int]] = set()
    for event in storm.events(kinds.STEP_STARTED, kinds.STEP_RETRYING):
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


def check_signals(storm: Storm) -> None:
    """Each signal is told once or carried on, never both, never neither."""
    received = {event.seq: unpack(event.payload).data for event in storm.events(kinds.SIGNAL_RECEIVED)}
    told = [data for what, _, data, _ in storm.last.told if what == "AwaitSignal"]
    assert len(told) == len(set(told)), "a signal was taken twice"
    assert set(told) <= set(received.values())
    end = storm.journal[-1]
    facts = unpack(end.payload).facts
    if end.kind == kinds.RUN_SUCCEEDED and isinstance(storm.last.asked[-1], ContinueAsNew):
        carried = [received[seq] for seq in facts["carry"]]
        assert Counter(carried + told) == Counter(received.values()), "a signal was lost on the way to the next run"


def check_notices(storm: Storm) -> None:
    """A cancel is told at most once, an update once; it is answered at most once, in the order of answering."""
    notices = Counter((what, step_id) for what, step_id, _, _ in storm.last.told if what in ("cancel", "update"))
    assert set(notices.values()) <= {1}
    updates = {event.step_id for event in storm.events(kinds.UPDATE_RECEIVED)}
    answered = Counter(event.step_id for event in storm.events(kinds.UPDATE_COMPLETED))
    assert set(answered) <= updates
    assert set(answered.values()) <= {1}
    end = storm.journal[-1].kind
    if storm.events(kinds.CANCEL_REQUESTED):
        assert end != kinds.RUN_SUCCEEDED


def check_children(storm: Storm) -> None:
    """None is made that is not on record; that none goes on unwanted is looked at while the storm lasts."""
    assert storm.children.keys() <= {event.step_id for event in storm.journal if event.kind == kinds.CHILD_STARTED}


def test_the_storms_are_stormy() -> None:
    """All that is to be tried does come about."""
    seen: Counter[str] = Counter()
    for seed in range(1, 200):
        storm = weathered(seed)
        seen.update(event.kind for event in storm.journal)
        seen.update(unpack(e.payload).facts["code"] for e in storm.events(kinds.STEP_FAILED))
        seen["retried"] += len(storm.events(kinds.STEP_RETRYING))
        seen["steps"] += sum(isinstance(command, RunStep) for command in storm.last.asked)
        seen["cancelled children"] += list(storm.children.values()).count("cancelled")
        seen["resumes"] += len(storm.events(kinds.LEASE_GRANTED)) - 1
    wanted = kinds.KNOWN & set(_EXPECTED)
    assert wanted == set(_EXPECTED)
    missing = [what for what in (*_EXPECTED, reasons.STEP_CANCELLED, "cancelled children") if seen[what] < 3]
    assert not missing, seen
    assert seen["resumes"] > 500


_EXPECTED = (
    kinds.STEP_RETRYING,
    kinds.STEP_FAILED,
    kinds.MARKER_RECORDED,
    kinds.TIMER_FIRED,
    kinds.SIGNAL_RECEIVED,
    kinds.APPROVAL_DECIDED,
    kinds.APPROVAL_DELEGATED,
    kinds.CHILD_COMPLETED,
    kinds.UPDATE_RECEIVED,
    kinds.UPDATE_COMPLETED,
    kinds.CANCEL_REQUESTED,
    kinds.HISTORY_RESET,
    kinds.PAUSE_REQUESTED,
    kinds.RUN_PARKED,
    kinds.RUN_SUCCEEDED,
    kinds.RUN_FAILED,
    kinds.RUN_CANCELLED,
)


def test_another_process_with_other_hashes_writes_the_same_journals() -> None:
    here = Path(__file__).parent
    check = (
        f"import sys; sys.path.insert(0, {str(here)!r})\n"
        "import test_course_storms\n"
        "print(test_course_storms.journals())\n"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", check], check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2")
    }
    assert printed == {f"{journals()}\n".encode()}


def journals() -> str:
    """A digest over what stands in the journals of some storms."""
    total = sha256()
    for seed in range(1, 40):
        total.update(repr(weathered(seed).journal).encode())
    return total.hexdigest()
