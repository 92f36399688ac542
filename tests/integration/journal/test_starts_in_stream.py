"""Goal: a start in the session's stream does what CreateRun does, and its refusal costs nobody else anything.

Method: a real journal process on both databases; its worker's stream, spoken to as an executor does.
"""

import asyncio

from journal_process import Driven, JournalProcess, Worker, event, history, refusal, succeeded

from lantern.api.journal.v1 import journal_service_pb2 as jp
from lantern.api.journal.v1 import worker_service_pb2 as wp
from lantern_kernel import bounds, reasons
from lantern_serving import status


def _request(worker: Worker, request_id: str, payload: bytes = b"1", workflow_id: str = "") -> jp.CreateRunRequest:
    return jp.CreateRunRequest(
        request_id=request_id,
        agent_name="order",
        input=payload,
        workflow_id=workflow_id,
        lease_target=worker.target(),
    )


def _reason(result: wp.StartResult) -> str:
    assert not result.HasField("created"), result
    return status.from_status(result.error).reason


async def test_a_started_run_is_driven_to_its_end(journal: JournalProcess) -> None:
    worker = await Worker(journal, "w1").attach()
    (made,) = await worker.start(_request(worker, "r1", b'{"order": 1042}'))
    assert made.created.created
    run = Driven(made.created.run.run_id, made.created.epoch, made.created.events)
    await worker.accepted(run.append(event(), event("step_completed", b'{"data":1}')))
    await worker.accepted(run.append(succeeded(b"1")))
    assert len(await history(journal, run.run_id)) == 5
    shown = (await journal.runs().GetRun(jp.GetRunRequest(run_id=run.run_id))).run
    assert shown.input == b'{"order": 1042}'


async def test_a_refused_start_costs_no_other_and_no_append(journal: JournalProcess) -> None:
    worker = await Worker(journal, "w1").attach()
    run = await worker.create("r0")
    append = run.append(event(), append_id=1_000_000)
    results = await worker.start(
        _request(worker, "r1"),
        _request(worker, "", b"1"),
        _request(worker, "r3", b"{broken"),
        _request(worker, "r4", b"1" * (bounds.PAYLOAD_INLINE_BYTES_MAX + 1)),
        _request(worker, "r5", workflow_id="no|name"),
        _request(worker, "r0", b'"other than before"'),
        _request(worker, "r8"),
        appends=[append],
    )
    assert results[0].created.created
    assert results[-1].created.created
    unary = [
        (await refusal(journal.runs().CreateRun(request))).reason
        for request in (
            _request(worker, ""),
            _request(worker, "r3", b"{broken"),
            _request(worker, "r4", b"1" * (bounds.PAYLOAD_INLINE_BYTES_MAX + 1)),
            _request(worker, "r5", workflow_id="no|name"),
            _request(worker, "r0", b'"other than before"'),
        )
    ]
    assert [_reason(result) for result in results[1:-1]] == unary
    assert unary[-1] == reasons.REQUEST_ID_REUSED
    await worker.until(lambda: append.append_id in worker.results)
    assert worker.results[append.append_id].last_seq == 3


async def test_one_request_id_in_streams_and_calls_is_one_run(journal: JournalProcess) -> None:
    workers = [await Worker(journal, f"w{n}").attach() for n in range(4)]
    request = jp.CreateRunRequest(request_id="same", agent_name="order", input=b"1")
    streamed = [worker.start(*[request] * 5) for worker in workers]
    calls = [journal.runs().CreateRun(request) for _ in range(5)]
    told, called = await asyncio.gather(asyncio.gather(*streamed), asyncio.gather(*calls))
    answers = [result.created for results in told for result in results] + list(called)
    assert len({answer.run.run_id for answer in answers}) == 1
    assert sum(answer.created for answer in answers) == 1


async def test_large_runs_started_together_come_back_below_the_bound_of_a_message(journal: JournalProcess) -> None:
    worker = await Worker(journal, "w1").attach()
    large = b'"' + b"x" * (bounds.PAYLOAD_INLINE_BYTES_MAX - 2) + b'"'
    for turn in range(4):
        results = await worker.start(*(_request(worker, f"r{turn}.{n}", large) for n in range(8)))
        assert all(result.created.run.input == large for result in results)
