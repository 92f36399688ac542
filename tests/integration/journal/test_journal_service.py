"""Goal: the journal's promises hold over gRPC, on both databases: sessions, appends, waking, following, refusals.

Method: a real `python -m lantern_journal` for each test, spoken to as an executor, a client and recovery do.
"""

import asyncio
import os
import signal
import time
from typing import Any

import pytest
from journal_process import (
    DIGEST,
    Driven,
    JournalProcess,
    Watch,
    Worker,
    event,
    history,
    orphans,
    parked,
    refusal,
    succeeded,
)

from lantern.api.journal.v1 import journal_service_pb2 as jp
from lantern.api.journal.v1 import recovery_service_pb2 as rp
from lantern.api.journal.v1 import run_pb2
from lantern.api.journal.v1 import worker_service_pb2 as wp
from lantern_kernel import reasons


async def test_a_run_from_its_start_to_its_result(journal: JournalProcess) -> None:
    worker = await Worker(journal, "w1").attach()
    run = await worker.create("r1", b'{"order": 1042}')

    async def follow() -> list[int]:
        seqs: list[int] = []
        async for message in journal.runs().FollowEvents(jp.FollowEventsRequest(run_id=run.run_id)):
            seqs += [e.seq for e in message.events]
        return seqs

    followed = asyncio.create_task(follow())
    pipeline = [run.append(event(step_id=f"s{i}"), event("step_completed", b'{"data":1}', f"s{i}")) for i in range(20)]
    results = await worker.send(*pipeline)
    assert [r.last_seq for r in results] == list(range(4, 44, 2))
    last = run.append(succeeded(b'{"done": true}'))
    assert await worker.accepted(last) == 43
    assert await worker.accepted(last) == 43, "a repeat of the final append"
    assert (await worker.refused(run.append(event()))).reason == reasons.RUN_CLOSED
    shown = (await journal.runs().GetRun(jp.GetRunRequest(run_id=run.run_id))).run
    assert (shown.state, shown.result, shown.input) == (
        run_pb2.Run.STATE_SUCCEEDED,
        b'{"done": true}',
        b'{"order": 1042}',
    )
    assert shown.traceparent.startswith("00-")
    assert await asyncio.wait_for(followed, 5) == list(range(1, 44))
    assert len(await history(journal, run.run_id)) == 43


async def test_twenty_starts_with_one_request_id(journal: JournalProcess) -> None:
    worker = await Worker(journal, "w1").attach()
    request = jp.CreateRunRequest(request_id="same", agent_name="order", lease_target=worker.target())
    answers = await asyncio.gather(*(journal.runs().CreateRun(request) for _ in range(20)))
    assert len({answer.run.run_id for answer in answers}) == 1
    assert sorted(answer.epoch for answer in answers) == [0] * 19 + [1]
    other = jp.CreateRunRequest(request_id="same", agent_name="order", input=b"2")
    assert (await refusal(journal.runs().CreateRun(other))).reason == reasons.REQUEST_ID_REUSED


async def test_back_within_the_grace_nothing_is_lost(journal: JournalProcess) -> None:
    worker = await Worker(journal, "w1").attach()
    run = await worker.create("r1")
    await worker.accepted(run.append(event()))
    watch = await Watch(journal).begun()
    first = worker.number
    worker.drop()
    await worker.attach()
    assert worker.number == first + 1
    await asyncio.sleep(0.6)
    assert watch.causes() == ["woken"], "as after any attach; no lease has expired"
    assert await orphans(journal) == []
    assert await worker.accepted(run.append(event())) == 4


async def test_a_closed_stream_frees_its_runs_after_the_grace(journal: JournalProcess) -> None:
    worker, other = await Worker(journal, "w1").attach(), await Worker(journal, "w2").attach()
    run = await worker.create("r1")
    await worker.accepted(run.append(event()))
    watch = await Watch(journal).begun()
    dropped = time.monotonic()
    worker.drop()
    took = await watch.hears("lease_expired", 3) - dropped
    assert 0.2 < took < 1.0
    assert await orphans(journal) == [run.run_id]
    taken = await other.take(run.run_id)
    assert taken is not None
    assert (taken.epoch, taken.seq) == (2, 4)
    assert await orphans(journal) == []
    # The first worker comes back and knows nothing of it.
    await worker.attach()
    assert (await worker.refused(run.append(event()))).reason == reasons.LEASE_LOST
    assert await other.accepted(taken.append(succeeded())) == 5
    await history(journal, run.run_id)


async def test_two_workers_race_and_one_story_is_told(journal: JournalProcess) -> None:
    workers = [await Worker(journal, f"w{i}").attach() for i in range(2)]
    run: Driven | None = await workers[0].create("r1")
    run_id = run.run_id
    stale = Driven(run_id, 1, (await journal.runs().ListEvents(jp.ListEventsRequest(run_id=run_id))).events)
    await journal.workers().ReleaseLease(wp.ReleaseLeaseRequest(run_id=run_id, epoch=1, worker_id="w0"))
    taken = await asyncio.gather(workers[1].take(run_id), workers[0].send(stale.append(event())))
    answers = await asyncio.gather(
        *(workers[0].send(stale.append(event())) for _ in range(10)),
        *(workers[1].send(taken[0].append(event())) for _ in range(10) if taken[0]),
    )
    assert taken[0] is not None
    assert all(r.HasField("error") for (r,) in answers[:10]), "epoch 1 is over"
    assert all(not r.HasField("error") for (r,) in answers[10:])
    assert [e.epoch for e in (await history(journal, run_id))[-10:]] == [2] * 10


async def test_a_signal_wakes_a_waiting_run_and_reaches_a_driven_one(journal: JournalProcess) -> None:
    worker = await Worker(journal, "w1").attach()
    run = await worker.create("r1")
    watch = await Watch(journal).begun()

    def signal_(request_id: str) -> jp.SendToRunRequest:
        return jp.SendToRunRequest(
            request_id=request_id, run_id=run.run_id, kind="signal", name="paid", payload=b'{"x":1}'
        )

    assert (await journal.runs().SendToRun(signal_("a"))).number == 1
    repeat = await journal.runs().SendToRun(signal_("a"))
    assert (repeat.number, repeat.repeated_request) == (1, True)
    await worker.until(lambda: worker.inbox == [run.run_id])
    refused_park = run.append(parked("signal"))
    refused = await worker.refused(refused_park)
    assert (refused.reason, refused.details["last_inbox_number"]) == (reasons.INBOX_AHEAD, "1")
    found = (await journal.workers().ListInbox(wp.ListInboxRequest(run_id=run.run_id))).entries
    assert [(e.number, e.kind, e.name, e.payload) for e in found] == [(1, "signal", "paid", b'{"x":1}')]
    run.seq, run.digest = refused_park.first_seq - 1, refused_park.previous_digest
    received = event("signal_received", b'{"number":1,"name":"paid","data":{"x":1}}', "")
    await worker.accepted(run.append(received, parked("signal"), consumed=1))
    assert await orphans(journal) == []
    assert (await journal.runs().SendToRun(signal_("b"))).number == 2
    await watch.hears("woken", 2)
    assert await orphans(journal) == [run.run_id]
    taken = await worker.take(run.run_id, "signal")
    assert taken is not None


async def test_a_due_run_is_announced_at_once(journal: JournalProcess) -> None:
    worker = await Worker(journal, "w1").attach()
    far, near = await worker.create("far"), await worker.create("near")
    watch = await Watch(journal).begun()
    opened = await journal.workers().OpenRun(
        wp.OpenRunRequest(run_id=near.run_id, epoch=1, lease_target=worker.target())
    )
    await worker.accepted(far.append(parked("timer", opened.now_us + 3_600_000_000)))
    await worker.accepted(near.append(parked("timer", opened.now_us + 400_000)))
    began = time.monotonic()
    heard = await watch.hears("due", 3)
    assert 0.2 < heard - began < 0.65
    assert await orphans(journal) == [near.run_id]
    assert await worker.take(near.run_id, "timer") is not None
    assert await worker.take(far.run_id, "timer") is None


async def test_nonsense_is_told_what_is_wrong_and_the_service_goes_on(journal: JournalProcess) -> None:
    worker = await Worker(journal, "w1").attach()
    run = await worker.create("r1")
    runs, workers, recovery = journal.runs(), journal.workers(), journal.recovery()
    run_id = run.run_id
    good = run.append(event())

    def spoiled(**changes: object) -> wp.Append:
        made = wp.Append()
        made.CopyFrom(good)
        for name, value in changes.items():
            setattr(made, name, value)
        return made

    big = wp.Append()
    big.CopyFrom(good)
    big.events[0].payload = b"x" * (70 * 1024 * 1024)
    cases = [
        (runs.CreateRun(jp.CreateRunRequest()), "request_id"),
        (runs.CreateRun(jp.CreateRunRequest(request_id="r", agent_name="o", input=b"{")), "input"),
        (runs.GetRun(jp.GetRunRequest(run_id="\x00")), "run_id"),
        (runs.ListRuns(jp.ListRunsRequest(page_size=-1)), "page_size"),
        (runs.ListRuns(jp.ListRunsRequest(page_token="x" * 5000)), "page_token"),
        (runs.ListEvents(jp.ListEventsRequest(run_id=run_id, after_seq=-(2**63))), "after_seq"),
        (runs.SendToRun(jp.SendToRunRequest(request_id="r", run_id=run_id, kind="?")), "kind"),
        (runs.ListAgents(jp.ListAgentsRequest(tenant_id="a b")), "tenant_id"),
        (workers.AppendEvents(wp.AppendEventsRequest()), "append.run_id"),
        (workers.AppendEvents(wp.AppendEventsRequest(append=spoiled(epoch=-1))), "append.epoch"),
        (workers.AppendEvents(wp.AppendEventsRequest(append=spoiled(epoch=2**63 - 1))), "epoch"),
        (workers.AppendEvents(wp.AppendEventsRequest(append=spoiled(first_seq=2**63 - 1))), "append.first_seq"),
        (workers.AppendEvents(wp.AppendEventsRequest(append=big)), "append.events[0].payload"),
        (workers.OpenRun(wp.OpenRunRequest(run_id=run_id, epoch=1)), "lease_target.worker_id"),
        (workers.ListInbox(wp.ListInboxRequest(run_id=run_id, page_size=-9)), "page_size"),
        (workers.ReleaseLease(wp.ReleaseLeaseRequest(run_id=run_id)), "epoch"),
        (workers.ClaimSideEffect(wp.ClaimSideEffectRequest(key="|")), "key"),
        (workers.SettleSideEffect(wp.SettleSideEffectRequest(key="k")), "state"),
        (recovery.FindOrphans(rp.FindOrphansRequest(page_size=-1)), "page_size"),
        (recovery.AcquireLease(rp.AcquireLeaseRequest(run_id=run_id)), "lease_target.worker_id"),
        (recovery.DeferRun(rp.DeferRunRequest(run_id="?")), "run_id"),
    ]
    for call, field in cases:
        error = await refusal(call)
        assert error.reason in (reasons.INVALID_FIELD, reasons.INVALID_JSON, reasons.PAYLOAD_TOO_LARGE), error
        assert error.details["field"] == field
    # In a session nonsense is refused alone: what comes with it in the same message goes in.
    results = await worker.send(spoiled(previous_digest=b"?"), good, spoiled(run_id="|"), big)
    assert [r.HasField("error") for r in results] == [True, False, True, True]
    assert results[1].last_seq == 3
    assert (await worker.refused(run.append(event(kind="lease_granted")))).details[
        "field"
    ] == "appends[0].events[0].kind"
    assert len(await history(journal, run_id)) == 3


async def test_a_session_must_attach_and_attach_once(journal: JournalProcess) -> None:
    call = journal.workers().Session()
    await call.write(wp.SessionRequest(ping=1))
    assert (await refusal(call.read())).reason == reasons.SESSION_NOT_ATTACHED
    worker = await Worker(journal, "w1").attach()
    await worker.write(wp.SessionRequest(attach=wp.Attach(worker_id="w1")))
    await worker.until(lambda: worker.error)
    assert worker.error is not None
    assert worker.error.details["field"] == "attach"
    await worker.attach()
    await worker.ping(7)
    await worker.until(lambda: worker.pongs == [7])


async def test_a_silent_worker_is_reaped_and_told(database: str) -> None:
    journal = await JournalProcess(database, LANTERN_SESSION_SILENCE="600ms", LANTERN_SESSION_GRACE="100ms").start()
    try:
        silent, lively = await Worker(journal, "silent").attach(), await Worker(journal, "lively").attach()
        lost, kept = await silent.create("r1"), await lively.create("r2")
        await silent.accepted(lost.append(event()))
        await lively.accepted(kept.append(event()))

        async def pings() -> None:
            for number in range(1, 1000):
                await lively.ping(number)
                await asyncio.sleep(0.1)

        pinging = asyncio.create_task(pings())
        await silent.until(lambda: silent.error, 5)
        assert silent.error is not None
        assert silent.error.reason == reasons.SESSION_NOT_ATTACHED
        assert await orphans(journal) == [lost.run_id]
        pinging.cancel()
    finally:
        await journal.close()


async def test_a_grant_that_nobody_opens_is_offered_again(database: str) -> None:
    journal = await JournalProcess(database, LANTERN_GRANT_TTL="300ms").start()
    try:
        worker = await Worker(journal, "w1").attach()
        answer = await journal.runs().CreateRun(jp.CreateRunRequest(request_id="r", agent_name="order"))
        watch = await Watch(journal).begun()
        request = rp.AcquireLeaseRequest(run_id=answer.run.run_id, lease_target=worker.target(), reason="start")
        assert (await journal.recovery().AcquireLease(request)).epoch == 1
        assert await orphans(journal) == []
        await watch.hears("due", 2)
        assert await orphans(journal) == [answer.run.run_id]
        # A run created with its lease is kept by what is appended to it.
        run = await worker.create("r2")
        await worker.accepted(run.append(event()))
        await asyncio.sleep(0.6)
        assert run.run_id not in await orphans(journal)
        # Also where the journal was killed before it noticed.
        run = await worker.create("r3")
        await worker.accepted(run.append(event()))
        await journal.kill()
        await journal.start()
        await worker.attach()
        await asyncio.sleep(0.6)
        assert run.run_id not in await orphans(journal)
    finally:
        await journal.close()


async def test_no_capacity_parks_and_an_offer_wakes(journal: JournalProcess) -> None:
    worker = await Worker(journal, "w1").attach()
    answer = await journal.runs().CreateRun(jp.CreateRunRequest(request_id="r", agent_name="order"))
    worker.drop()
    watch = await Watch(journal).begun()
    await asyncio.sleep(0.5)
    await journal.recovery().DeferRun(rp.DeferRunRequest(run_id=answer.run.run_id))
    run = (await journal.runs().GetRun(jp.GetRunRequest(run_id=answer.run.run_id))).run
    assert (run.state, run.waiting_on, run.error.code) == (run_pb2.Run.STATE_WAITING, "capacity", reasons.NO_CAPACITY)
    await Worker(journal, "w2").attach()
    await watch.hears("woken", 2)
    assert await orphans(journal) == [run.run_id]


async def test_a_stop_tells_workers_to_move_and_answers_what_it_took(journal: JournalProcess) -> None:
    worker = await Worker(journal, "w1").attach()
    run = await worker.create("r1")
    sent = worker.send(*(run.append(event()) for _ in range(50)))
    answers, code = await asyncio.gather(sent, journal.terminate())
    assert code == 0
    assert worker.moved
    assert all(not r.HasField("error") for r in answers)
    await journal.start()
    await worker.attach()
    assert await worker.accepted(run.append(event())) == 53
    assert await orphans(journal) == []


@pytest.mark.parametrize("how", [signal.SIGKILL])
async def test_a_killed_journal_loses_nothing_that_it_acknowledged(journal: JournalProcess, how: int) -> None:
    worker = await Worker(journal, "w1").attach()
    runs = [await worker.create(f"r{i}") for i in range(4)]
    acknowledged = {run.run_id: 2 for run in runs}
    unknown: dict[str, wp.Append] = {}

    async def drive(run: Driven) -> None:
        while True:
            unknown[run.run_id] = append = run.append(event(payload=os.urandom(20)))
            acknowledged[run.run_id] = await worker.accepted(append)

    async def kill() -> None:
        await asyncio.sleep(0.4)
        await journal.kill()

    await asyncio.gather(kill(), *map(drive, runs), return_exceptions=True)
    assert min(acknowledged.values()) > 5, "the kill came in the middle"
    await journal.start()
    await worker.attach()
    assert await orphans(journal) == [], "the sessions that it inherited are given their time"
    for run in runs:
        stored = await history(journal, run.run_id)
        assert len(stored) >= acknowledged[run.run_id]
        # The append whose outcome is unknown is sent again: it goes in once, whatever became of it.
        assert await worker.accepted(unknown[run.run_id]) == run.seq
        assert len(await history(journal, run.run_id)) == run.seq


async def test_workers_come_by_pages_of_bytes(journal: JournalProcess) -> None:
    """A thousand agents with long names each: five workers are above 1 MiB."""
    streams: list[Any] = []
    for number in range(5):
        offers = [
            wp.AgentOffer(name=f"{index:04d}" + "n" * 196, digest=DIGEST, program_kind="code") for index in range(1000)
        ]
        call = journal.workers().Session()
        attach = wp.Attach(worker_id=f"w{number}", address="127.0.0.1:1", capacity=1, agents=offers)
        await call.write(wp.SessionRequest(attach=attach))
        assert (await call.read()).attached.session_number == 1
        streams.append(call)
    for call in streams:
        await call.write(wp.SessionRequest(ping=1))
        assert (await call.read()).pong == 1
    seen: list[str] = []
    token, pages = "", 0
    while True:
        page = await journal.recovery().FindWorkers(rp.FindWorkersRequest(page_token=token))
        assert page.ByteSize() < 1_100_000
        seen += [worker.worker_id for worker in page.workers]
        token, pages = page.next_page_token, pages + 1
        if not token:
            break
    assert (seen, pages > 1) == ([f"w{number}" for number in range(5)], True)
    for call in streams:
        call.cancel()
