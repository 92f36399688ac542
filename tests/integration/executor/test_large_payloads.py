"""Goal: inputs, step outputs, signals and results of many MiB just work, through kill -9 as well (failure kind B26).

Method: a real journal, real executors and the Python client; the messages of the journal are measured, and an executor
kills itself (SIGKILL) before and after it has uploaded, and before and after the append that names what it uploaded.
"""

import json
from collections import Counter
from pathlib import Path

import pytest
from executor_processes import Cluster, cluster

from lantern.api.journal.v1 import blob_service_pb2 as blob_pb
from lantern.api.journal.v1 import blob_service_pb2_grpc as blob_grpc
from lantern.api.journal.v1 import journal_service_pb2 as journal_pb
from lantern.client import Client
from lantern_executor import wire
from lantern_kernel import kinds, payloads, reasons
from lantern_kernel.errors import InvalidField
from lantern_kernel.event import find_chain_fault

MIB = 1024 * 1024
DOOMED = Path(__file__).parents[2] / "acceptance" / "doomed_executor.py"


def client_of(at: Cluster) -> Client:
    return Client(at.journal.address, [service.address for service in at.executors])


async def test_many_mebibytes_go_through_every_place_and_no_message_is_large(tmp_path: Path) -> None:
    async with cluster(tmp_path) as at, client_of(at) as client:
        order = {"size": 5 * MIB, "pad": "p" * (20 * MIB)}
        run = await client.start("bulky", order)
        await client.signal(run.run_id, "hint", "s" * MIB)
        result = await client.result(run.run_id)
        assert result == {"given": 20 * MIB, "first": "f" * 5 * MIB, "second": 5 * MIB}
        assert json.loads((await client.get(run.run_id)).input) == order
        lean = await client.get(run.run_id, contents=False)
        assert lean.input_blob is not None
        assert lean.result_blob is not None
        assert (lean.input, lean.result) == (b"", b"")
        answer = await at.runs().GetRun(journal_pb.GetRunRequest(run_id=run.run_id))
        page = await at.runs().ListEvents(journal_pb.ListEventsRequest(run_id=run.run_id))
        assert answer.ByteSize() + page.ByteSize() < 10_000
        assert not page.next_page_token
        assert find_chain_fault(run.run_id, wire.to_events(page.events)) is None
        completed = [e for e in await client.events(run.run_id) if e.kind == kinds.STEP_COMPLETED]
        blob = payloads.unpack(completed[0].payload).blob
        assert blob is not None
        assert json.loads(await client.blob(blob)) == "f" * 5 * MIB


async def test_64_mib_is_the_bound(tmp_path: Path) -> None:
    async with cluster(tmp_path) as at, client_of(at) as client:
        for send in (
            client.start("bulky", "x" * (64 * MIB - 1)),
            client.signal("00000000-0000-7000-8000-000000000000", "s", payload_json=b" " * (64 * MIB) + b"1"),
        ):
            with pytest.raises(InvalidField) as caught:
                await send
            assert caught.value.reason == reasons.PAYLOAD_TOO_LARGE
            assert caught.value.details["field"] in ("input", "payload")
            assert (caught.value.details["size"], caught.value.details["limit"]) == ("67108865", "67108864")


DEATHS = {
    # Nothing of the first step is on record, so it is done again.
    ("put_blob", 1, "before"): {"first": 2, "second": 1},
    ("put_blob", 1, "after"): {"first": 2, "second": 1},
    ("append", 2, "before"): {"first": 2, "second": 1},
    ("append", 2, "after"): {"first": 1, "second": 1},
    # The second step's end goes with the run's: with its result uploaded, nothing is on record yet.
    ("put_blob", 3, "after"): {"first": 1, "second": 2},
    ("append", 3, "before"): {"first": 1, "second": 2},
    ("append", 3, "after"): {"first": 1, "second": 1},
}
"""Where the executor dies, and how often each step is done in all."""


@pytest.mark.parametrize(("call", "number", "moment"), list(DEATHS))
async def test_a_death_around_the_upload_costs_one_step_at_most(
    tmp_path: Path, call: str, number: int, moment: str
) -> None:
    async with cluster(tmp_path, executors=0) as at:
        doomed = await at.add_executor((str(DOOMED), call, str(number), moment))
        run = await at.start_run("bulky", {"size": 5 * MIB})
        assert await doomed.ended() == -9
        await at.add_executor()
        if (call, number, moment) != ("append", 3, "after"):
            await at.recover(run.run_id, 1)
        await at.until(run.run_id, "SUCCEEDED", "FAILED")
        async with client_of(at) as client:
            assert await client.result(run.run_id) == {"given": 0, "first": "f" * 5 * MIB, "second": 5 * MIB}
        assert Counter(line.split()[1] for line in at.effects()) == DEATHS[call, number, moment]
        blobs = blob_grpc.JournalBlobServiceStub(at.channel(at.journal.address))
        collected = await blobs.CollectBlobs(blob_pb.CollectBlobsRequest())
        assert (collected.blobs, collected.has_more) == (0, False), "younger than a day"
