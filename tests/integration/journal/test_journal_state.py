"""Goal: who is first decides over gRPC, too: cancels, a workflow id that is taken over, pauses, approvals.

Method: a real `python -m lantern_journal` for each test, spoken to by the Python client and as an executor does.
"""

import asyncio
import time

import pytest
from journal_process import JournalProcess, Watch, Worker, event, history, parked, refusal, succeeded

import lantern
from lantern.api.journal.v1 import journal_service_pb2 as jp
from lantern.client import Approval
from lantern_kernel import kinds, payloads, reasons
from lantern_kernel.errors import LanternError
from lantern_kernel.payloads import ApprovalFacts
from lantern_serving import status

CANCELS = 40


async def test_cancels_against_the_end_of_their_runs(journal: JournalProcess) -> None:
    worker = await Worker(journal, "w1").attach()
    made = [await worker.create(f"r{i}") for i in range(CANCELS)]
    async with lantern.Client(journal.address) as client:
        results, answers = await asyncio.gather(
            worker.send(*(run.append(succeeded()) for run in made)),
            asyncio.gather(*(client.cancel(run.run_id) for run in made)),
        )
        for run, result, answer in zip(made, results, answers, strict=True):
            if not result.HasField("error"):
                assert (answer.already_ended, answer.state) == (True, "SUCCEEDED")
                continue
            assert status.from_status(result.error).reason == reasons.INBOX_AHEAD
            assert not answer.already_ended
            run.seq, run.digest = run.seq - 1, (await history(journal, run.run_id))[-1].digest
            asked = event(kinds.CANCEL_REQUESTED, payloads.pack({"number": 1}), "")
            late = run.append(asked, succeeded(), consumed=1)
            assert (await worker.refused(late)).reason == reasons.CANCEL_REQUESTED
            run.seq, run.digest = run.seq - 2, (await history(journal, run.run_id))[-1].digest
            await worker.accepted(run.append(asked, event(kinds.RUN_CANCELLED, b"{}", ""), consumed=1))
            assert (await client.cancel(run.run_id)).state == "CANCELLED"


async def test_a_start_that_takes_a_workflow_id_over_fences_the_driver(journal: JournalProcess) -> None:
    worker = await Worker(journal, "w1").attach()
    async with lantern.Client(journal.address) as client:
        request = jp.CreateRunRequest(
            request_id="a", agent_name="order", workflow_id="order-1042", lease_target=worker.target()
        )
        old = (await journal.runs().CreateRun(request)).run
        new = await client.start(
            "order", workflow_id="order-1042", policy="terminate-existing", signal="go", signal_payload={"x": 1}
        )
        await worker.until(lambda: old.run_id in worker.inbox)
        ended = await client.get(old.run_id)
        assert ended.error is not None
        assert (ended.state, ended.error.code) == ("CANCELLED", reasons.RUN_TERMINATED)
        assert (ended.error.details or {})["by"] == new.run_id
        found = await client.start("order", workflow_id="order-1042", policy="use-existing", signal="go")
        assert found.run_id == new.run_id
    events = await history(journal, old.run_id)
    assert (events[-1].kind, events[-1].epoch) == (kinds.RUN_CANCELLED, 2)
    run = await worker.take(new.run_id, "start")
    assert run is not None
    late = jp.CreateRunRequest(request_id="b", agent_name="order", workflow_id="order-1042")
    assert (await refusal(journal.runs().CreateRun(late))).reason == reasons.WORKFLOW_ID_IN_USE


async def test_a_paused_run_falls_back_into_its_timer(journal: JournalProcess) -> None:
    worker = await Worker(journal, "w1").attach()
    run = await worker.create("r1")
    watch = await Watch(journal).begun()
    due_us = int((time.time() + 2.0) * 1e6)
    await worker.accepted(run.append(parked("timer", due_us)))
    async with lantern.Client(journal.address) as client:
        assert (await client.pause(run.run_id)).state == "WAITING"
        paused = await client.get(run.run_id)
        assert (paused.waiting_on, paused.due_us) == ("paused", None)
        await asyncio.sleep(2.2)
        assert await worker.take(run.run_id, "timer") is None, "its time has come, but it is held"
        assert "due" not in watch.causes()
        assert (await client.resume(run.run_id)).state == "WAITING"
        shown = await client.get(run.run_id)
        assert (shown.waiting_on, shown.due_us) == ("timer", due_us)
        await watch.hears("due", 2.0)
    assert await worker.take(run.run_id, "timer") is not None
    watch.stop()


async def test_approvals_are_listed_delegated_decided_and_expire(journal: JournalProcess) -> None:
    worker = await Worker(journal, "w1").attach()
    run = await worker.create("r1")
    soon_us = int((time.time() + 1.0) * 1e6)
    asked = [
        ApprovalFacts(approval_id="ship", assignee="ann", title="Ship it?"),
        ApprovalFacts(approval_id="refund#2", expires_us=soon_us),
    ]
    await worker.accepted(
        run.append(*(event(kinds.APPROVAL_REQUESTED, facts.pack(b"{}"), "s") for facts in asked), parked("approval"))
    )
    watch = await Watch(journal).begun()
    async with lantern.Client(journal.address) as client:
        page = await client.approvals(page_size=1)
        rest = await client.approvals(page_size=1, page_token=page.next_page_token)
        assert [a.approval_id for a in (*page.approvals, *rest.approvals)] == ["refund#2", "ship"]
        assert not rest.next_page_token
        assert (await client.delegate(run.run_id, "ship", "eve", "ann")).assignee == "eve"
        assert [a.approval_id for a in (await client.approvals(assignee="eve")).approvals] == ["ship"]
        decided = await client.approve(run.run_id, "ship", "eve", comment={"why": "paid"}, request_id="d1")
        again = await client.approve(run.run_id, "ship", "eve", request_id="d1")
        other = await client.approve(run.run_id, "ship", "bob")
        assert [each.already_decided for each in (decided, again, other)] == [False, False, True]
        assert (other.approval.decided_by, other.approval.comment) == ("eve", b'{"why":"paid"}')
        with pytest.raises(LanternError) as contrary:
            await client.deny(run.run_id, "ship", "bob")
        assert contrary.value.reason == reasons.APPROVAL_DECIDED
        assert contrary.value.details["decided_by"] == "eve"
        await watch.hears("woken", 2.0)
        driven = await worker.take(run.run_id, "approval")
        assert driven is not None
        # By now or soon, whether the run is driven already or still asleep.
        expired: tuple[Approval, ...] = ()
        for _ in range(200):
            if expired := (await client.approvals(states=["EXPIRED"])).approvals:
                break
            await asyncio.sleep(0.05)
        assert [approval.approval_id for approval in expired] == ["refund#2"]
        with pytest.raises(LanternError, match=reasons.APPROVAL_DECIDED):
            await client.approve(run.run_id, "refund#2", "eve")
        with pytest.raises(LanternError, match=reasons.APPROVAL_NOT_FOUND):
            await client.approve(run.run_id, "nothing", "eve")
    watch.stop()


async def test_what_a_run_still_asked_for_is_withdrawn_with_its_end(journal: JournalProcess) -> None:
    worker = await Worker(journal, "w1").attach()
    run = await worker.create("r1")
    asked = event(kinds.APPROVAL_REQUESTED, ApprovalFacts(approval_id="ship").pack(), "s")
    await worker.accepted(run.append(asked))
    repeated = run.append(event(kinds.APPROVAL_REQUESTED, ApprovalFacts(approval_id="ship").pack(), "s"))
    assert (await worker.refused(repeated)).reason == reasons.INVALID_FIELD
    run.seq, run.digest = 3, (await history(journal, run.run_id))[-1].digest
    await worker.accepted(run.append(succeeded()))
    async with lantern.Client(journal.address) as client:
        (approval,) = (await client.approvals(states=(), run_id=run.run_id)).approvals
        assert approval.state == "WITHDRAWN"
        with pytest.raises(LanternError, match=reasons.RUN_CLOSED):
            await client.approve(run.run_id, "ship", "eve")
        with pytest.raises(LanternError, match="page_token"):
            await client.approvals(page_token="bm9uZQ==")
