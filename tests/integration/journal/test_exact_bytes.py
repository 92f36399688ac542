"""Goal: whatever JSON goes in comes back to the byte, of any size up to and around every bound, through real services.

Method: hypothesis makes JSON texts (astral characters, NUL escapes, huge integers, any spacing) and sizes around 0, 1,
256 KiB and the edge of a page; each goes in as an input, an entry, an event and a result of a real journal process.
"""

import json
from collections.abc import AsyncIterator
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from journal_process import Driven, JournalProcess, Worker, event, history

from lantern.api.journal.v1 import blob_service_pb2_grpc as blob_grpc
from lantern.api.journal.v1 import journal_service_pb2 as jp
from lantern.api.journal.v1 import worker_service_pb2 as wp
from lantern.client import blobs
from lantern_kernel import payloads
from lantern_kernel.blobs import BlobRef, Content
from lantern_kernel.bounds import PAYLOAD_INLINE_BYTES_MAX

_numbers = count(1)

scalars: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(2**53 - 2, 2**53 + 2),
    st.integers(10**300, 10**301),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"])),
    st.sampled_from(["\x00", "a\x00b", "\U0001f600", "\U0010ffff", "\u2028", '"data":', "}}"]),
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=3)
    ),
    max_leaves=8,
)


def _text(value: Any, indent: int | None, ascii_only: bool) -> bytes:
    return json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode()


def _sized(size: int) -> bytes:
    return b" " * (size - 1) + b"7"


texts = st.builds(_text, values, st.sampled_from([None, 0, 3]), st.booleans())
BOUNDS = [1, 2, PAYLOAD_INLINE_BYTES_MAX, 1024 * 1024]
sizes = st.sampled_from(sorted({max(1, bound + step) for bound in BOUNDS for step in (-1, 0, 1)}))
bodies = st.one_of(texts, st.builds(_sized, sizes))


class Exact:
    """Puts content in at every place, and reads it back."""

    def __init__(self, journal: JournalProcess, worker: Worker) -> None:
        self._journal, self._worker = journal, worker
        self._runs, self._blobs = journal.runs(), blob_grpc.JournalBlobServiceStub(journal.channel())

    async def _named(self, body: bytes) -> Content:
        if len(body) <= PAYLOAD_INLINE_BYTES_MAX:
            return body
        blob = BlobRef.of(body)
        await blobs.send(self._blobs, "default", blob, body)
        return blob

    async def _read(self, inline: bytes, held: BlobRef | None) -> bytes:
        return inline if held is None else await blobs.fetch(self._blobs, "default", held, bytearray())

    async def check(self, body: bytes) -> None:
        content = await self._named(body)
        field: dict[str, Any] = (
            {"input": body} if isinstance(content, bytes) else {"input_blob": blobs.blob_to_wire(content)}
        )
        request = jp.CreateRunRequest(
            request_id=f"r{next(_numbers)}", agent_name="order", lease_target=self._worker.target(), **field
        )
        run = (await self._runs.CreateRun(request)).run
        entry = {name.replace("input", "payload"): value for name, value in field.items()}
        await self._runs.SendToRun(
            jp.SendToRunRequest(request_id="e", run_id=run.run_id, kind="signal", name="s", **entry)
        )
        listed = await self._journal.workers().ListInbox(wp.ListInboxRequest(run_id=run.run_id))
        (said,) = listed.entries
        driven = Driven(run.run_id, 1, (await self._runs.ListEvents(jp.ListEventsRequest(run_id=run.run_id))).events)
        done = event("step_completed", payloads.pack({"text": '"data":'}, content))
        over = event("run_succeeded", payloads.pack({}, content), "")
        await self._worker.accepted(driven.append(done, over, consumed=1))
        events = await history(self._journal, run.run_id)
        answer = await self._runs.GetRun(jp.GetRunRequest(run_id=run.run_id))
        assert answer.ByteSize() < 3 * 1024 * 1024
        for inline, held in (
            (answer.run.input, answer.run.input_blob if answer.run.HasField("input_blob") else None),
            (answer.run.result, answer.run.result_blob if answer.run.HasField("result_blob") else None),
            (said.payload, said.payload_blob if said.HasField("payload_blob") else None),
        ):
            assert await self._read(inline, None if held is None else blobs.blob_from_wire(held)) == body
        for recorded in (events[0], events[-2], events[-1]):
            unpacked = payloads.unpack(recorded.payload)
            assert await self._read(unpacked.data or b"", unpacked.blob) == body


@pytest.fixture
async def exact(journal: JournalProcess) -> AsyncIterator[Exact]:
    worker = await Worker(journal, "w1").attach()
    yield Exact(journal, worker)
    worker.drop()


async def test_what_goes_in_comes_back_to_the_byte(exact: Exact) -> None:
    found: list[bytes] = []

    @settings(max_examples=40, database=None, deadline=None)
    @given(bodies)
    def collect(body: bytes) -> None:
        found.append(body)

    collect()
    around = sorted({max(1, bound + step) for bound in BOUNDS for step in (-1, 0, 1)})
    for body in [*found, *map(_sized, around)]:
        await exact.check(body)
