"""Goal: whatever a program asks for and whatever comes in, in any order and with crashes, one journal tells one story.

Method: the adversary under the storm (tests/storms), seed by seed: steps, markers, timers, signals,
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

from lantern_kernel import kinds, reasons
from lantern_kernel.commands import RunStep
from lantern_kernel.payloads import unpack
from storms import laws
from storms.stormy_journal import Storm

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
            laws.check(storm)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error


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
        f"import sys; sys.path[:0] = [{str(here)!r}, {str(here.parents[1])!r}]\n"
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
