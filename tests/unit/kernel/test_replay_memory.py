"""Goal: what a driver keeps of a run is in proportion to what its program keeps, not to how long its history is.

Method: histories of two lengths are replayed; what is still allocated afterwards is compared (tracemalloc).
"""

import gc
import tracemalloc

from lantern_kernel import kinds, payloads
from lantern_kernel.commands import RunStep
from lantern_kernel.replay import AppliedEvent, Replay

BYTES_PER_STEP_MAX = 160
"""Of a step that has ended: its id, so that it is not used twice, and its place in a table."""

BYTES_PER_RESULT = 2_000


def _event(seq: int, kind: str, step_id: str, payload: bytes) -> AppliedEvent:
    return AppliedEvent(seq=seq, kind=kind, step_id=step_id, attempt=1, epoch=1, time_us=seq, payload=payload)


def _kept_bytes(steps: int) -> tuple[Replay, int]:
    """What is kept of a run of so many steps with results of 2,000 bytes, all told."""
    result = b'"' + b"r" * BYTES_PER_RESULT + b'"'
    started = payloads.pack({"name": "work", "type": "function", "keyAttempt": 1, "source": "flow.py:1"})
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    replay = Replay(run_id="r", workflow_id="")
    for number in range(steps):
        step_id = f"work[{number}]"
        replay.apply(_event(2 * number + 1, kinds.STEP_STARTED, step_id, started))
        replay.apply(_event(2 * number + 2, kinds.STEP_COMPLETED, step_id, payloads.pack({}, result)))
    for number in range(steps):
        replay.issue(RunStep(step_id=f"work[{number}]", name="work", type="function", input=b"[]", source="flow.py:1"))
        assert replay.next_outcome() is not None
    replay.finish_history()
    gc.collect()
    return replay, tracemalloc.get_traced_memory()[0] - before


def test_steps_that_have_ended_leave_little_behind() -> None:
    tracemalloc.start()
    try:
        short, little = _kept_bytes(500)
        long, much = _kept_bytes(3_500)
    finally:
        tracemalloc.stop()
    assert (short.steps_replayed, long.steps_replayed) == (500, 3_500)
    assert (much - little) / 3_000 < BYTES_PER_STEP_MAX
