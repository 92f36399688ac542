"""Goal: claims can be repeated, handed-back runs go on when they should, and bad code is told of, over gRPC.

Method: a real `python -m lantern_journal` for each test, on both databases, spoken to as an executor and recovery do.
"""

import os
import time

import pytest
from journal_process import DIGEST, JournalProcess, Watch, Worker, event, orphans, refusal

from lantern.api.journal.v1 import recovery_service_pb2 as rp
from lantern.api.journal.v1 import worker_service_pb2 as wp
from lantern_kernel import payloads, reasons
from lantern_kernel.event import NewEvent
from lantern_kernel.payloads import ParkFacts, RunErrorFacts


async def test_a_claim_that_is_sent_again_is_answered_as_before(journal: JournalProcess) -> None:
    worker = await Worker(journal, "w1").attach()
    run = await worker.create("r1")
    request = wp.ClaimSideEffectRequest(
        key="k", run_id=run.run_id, step_id="mail", epoch=1, sink="mail", worker_id="w1", nonce=os.urandom(16)
    )
    for _ in range(3):
        answer = await journal.workers().ClaimSideEffect(request)
        assert (answer.claimed, answer.side_effect.state) == (True, wp.SideEffect.STATE_CLAIMED)
    request.nonce = os.urandom(16)
    assert not (await journal.workers().ClaimSideEffect(request)).claimed, "another claim"
    request.nonce = b""
    assert (await refusal(journal.workers().ClaimSideEffect(request))).details["field"] == "nonce"


@pytest.mark.parametrize(
    ("cause", "hint", "reason"),
    [
        (wp.ReleaseLeaseRequest.CAUSE_DRAIN, "queued", "upgrade"),
        (wp.ReleaseLeaseRequest.CAUSE_REFUSED, "queued", "start"),
        (wp.ReleaseLeaseRequest.CAUSE_FAULT, "due", "crash"),
    ],
)
async def test_a_run_that_is_handed_back_is_announced_when_it_may_go_on(
    journal: JournalProcess, cause: wp.ReleaseLeaseRequest.Cause, hint: str, reason: str
) -> None:
    worker = await Worker(journal, "w1").attach()
    run = await worker.create("r1")
    watch = await Watch(journal).begun()
    released = time.monotonic()
    request = wp.ReleaseLeaseRequest(run_id=run.run_id, epoch=1, worker_id="w1", cause=cause)
    await journal.workers().ReleaseLease(request)
    took = await watch.hears(hint, 4) - released
    if hint == "due":
        assert 0.9 < took < 3, "it rests for a second"
    (orphan,) = (await journal.recovery().FindOrphans(rp.FindOrphansRequest())).orphans
    assert (orphan.run_id, orphan.reason, orphan.failed_digest) == (run.run_id, reason, "")


async def test_an_orphan_names_the_code_that_failed_it(journal: JournalProcess) -> None:
    old = await Worker(journal, "w1").attach()
    run = await old.create("r1")
    error = RunErrorFacts(code=reasons.NONDETERMINISM, message="m", details={"digest": "b" * 64})
    park = NewEvent(
        kind="run_parked", payload=ParkFacts(waiting_on="code_fix", error=error).pack(), salt=os.urandom(16)
    )
    await old.accepted(run.append(event(payload=payloads.pack({})), park))
    (orphan,) = (await journal.recovery().FindOrphans(rp.FindOrphansRequest())).orphans
    assert (orphan.agent_digest, orphan.failed_digest) == (DIGEST, "b" * 64)
    assert await old.take(run.run_id, "upgrade") is not None
    assert await orphans(journal) == []
