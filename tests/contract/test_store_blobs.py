"""Goal: a blob is there once and whole, stays while a run names it, and is never collected under a name that was given.

Method: the store and the Blobs use case over both databases; appends, starts, entries and settlements that name blobs,
and a race of the collection against those who name. Ages are set by how long blobs are spared: 0 makes all of them old.
"""

import asyncio
import os
import random
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from journal_kit import LIMITS, SOURCES, attach, driven, entry, event, head, new_run, start, start_new
from test_store_appends import append_on, committer_of, reason_of

from lantern_journal.adapters.clock import CarriedClock
from lantern_journal.application import blobs as application_blobs
from lantern_journal.application.announcements import Hub
from lantern_journal.application.blobs import WRITE_BYTES, Blobs
from lantern_journal.application.runs import Runs, StartRequest
from lantern_journal.domain.blobs import CHUNK_BYTES, START, Upload
from lantern_journal.domain.records import Claim, Settlement, SideEffectState, WorkflowIdPolicy
from lantern_journal.ports import Store
from lantern_kernel import payloads, reasons
from lantern_kernel.blobs import BlobRef
from lantern_kernel.errors import LanternError
from lantern_kernel.event import NewEvent

TENANT = "default"
KEPT_US = 86_400_000_000


def blobs_of(store: Store, kept_us: int = KEPT_US) -> Blobs:
    return Blobs(store, CarriedClock(), SOURCES, Hub(), kept_us=kept_us)


async def parts_of(content: bytes, size: int = CHUNK_BYTES) -> AsyncIterator[bytes]:
    for at in range(0, len(content), size):
        yield content[at : at + size]


async def put(store: Store, content: bytes, tenant_id: str = TENANT, part: int = CHUNK_BYTES) -> BlobRef:
    blob = BlobRef.of(content)
    await blobs_of(store).put(tenant_id, blob, parts_of(content, part))
    return blob


async def get(store: Store, blob: BlobRef, offset: int = 0, tenant_id: str = TENANT) -> bytes:
    return b"".join([chunk async for chunk in blobs_of(store).get(tenant_id, blob, offset)])


async def is_there(store: Store, blob: BlobRef) -> bool:
    return await store.find_blob(TENANT, blob) is not None


def naming(kind: str, blob: BlobRef, step_id: str = "s") -> NewEvent:
    return event(kind, payloads.pack({"name": "n"}, blob), step_id)


SIZES = [1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, WRITE_BYTES, WRITE_BYTES + 1, 3 * WRITE_BYTES + 7]


@pytest.mark.parametrize("size", SIZES)
async def test_content_comes_back_from_any_offset(store: Store, size: int) -> None:
    content = os.urandom(size)
    blob = await put(store, content, part=100_003)
    for offset in {0, 1, size - 1, size, size // 2, min(size, CHUNK_BYTES)}:
        assert await get(store, blob, offset) == content[offset:]
    assert await blobs_of(store).put(TENANT, blob, parts_of(content)) is False, "known already"


async def test_a_blob_belongs_to_its_tenant(store: Store) -> None:
    blob = await put(store, b"x" * 300_000, "acme")
    with pytest.raises(LanternError) as caught:
        await get(store, blob)
    assert (caught.value.reason, caught.value.details["sha256"]) == (reasons.BLOB_NOT_FOUND, blob.sha256)
    assert await get(store, blob, tenant_id="acme") == b"x" * 300_000
    assert await blobs_of(store).has("acme", [BlobRef.of(b"other"), blob]) == [blob]


@pytest.mark.parametrize("what", ["shorter", "longer", "other"])
async def test_what_is_not_as_declared_is_refused_and_leaves_nothing(store: Store, what: str) -> None:
    content = os.urandom(2 * WRITE_BYTES)
    sent = {"shorter": content[:-1], "longer": content + b"x", "other": content[:-1] + b"\0"}[what]
    hub = Hub()
    blobs = Blobs(store, CarriedClock(), SOURCES, hub, kept_us=KEPT_US)
    with pytest.raises(LanternError) as caught:
        await blobs.put(TENANT, BlobRef.of(content), parts_of(sent))
    assert caught.value.reason == reasons.BLOB_MISMATCH
    assert not await is_there(store, BlobRef.of(content))
    await hub.finish(5)
    assert await chunks_left(store) == 0


async def chunks_left(store: Store) -> int:
    """How many chunks are kept, of whatever upload."""
    import sqlalchemy as sa

    from lantern_journal.adapters.schema import journal_blob_chunks
    from lantern_journal.adapters.sql_store import SqlStore

    assert isinstance(store, SqlStore)
    count = sa.select(sa.func.count()).select_from(journal_blob_chunks)
    return await store._look(lambda connection: connection.execute(count).scalar_one())  # pyright: ignore[reportPrivateUsage]


async def test_a_cut_upload_leaves_nothing(store: Store) -> None:
    content, reached = os.urandom(2 * WRITE_BYTES), asyncio.Event()
    hub = Hub()
    blobs = Blobs(store, CarriedClock(), SOURCES, hub, kept_us=KEPT_US)

    async def stuck() -> AsyncIterator[bytes]:
        async for part in parts_of(content[: WRITE_BYTES + 5]):
            yield part
        reached.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(blobs.put(TENANT, BlobRef.of(content), stuck()))
    await reached.wait()
    assert await chunks_left(store) > 0
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await hub.finish(5)
    assert await chunks_left(store) == 0
    assert not await is_there(store, BlobRef.of(content))


async def test_an_upload_that_nobody_went_on_with_is_collected(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    upload = Upload(upload_id="u", tenant_id=TENANT, blob=BlobRef.of(b"x"))
    assert await store.begin_upload(upload)
    assert await store.begin_upload(upload), "a repeat after a lost answer"
    await store.write_chunks("u", 0, [b"x"])
    await store.write_chunks("u", 0, [b"x"])
    assert (await store.collect_blobs(START, 0)).uploads == 0, "younger than an hour"
    monkeypatch.setattr("lantern_journal.domain.blobs.UPLOAD_KEPT_US", 0)
    assert (await store.collect_blobs(START, 0)).uploads == 1
    assert await chunks_left(store) == 0
    for call in (store.write_chunks("u", 1, [b"x"]), store.finish_upload(upload)):
        with pytest.raises(LanternError) as caught:
            await call
        assert caught.value.reason == reasons.UNAVAILABLE, "sent again from the start it goes in"


async def test_of_two_uploads_of_one_content_one_is_kept(store: Store) -> None:
    content = os.urandom(WRITE_BYTES + 1)
    blob = BlobRef.of(content)
    both = await asyncio.gather(*(blobs_of(store).put(TENANT, blob, parts_of(content)) for _ in range(2)))
    assert sorted(both) == [False, True]
    assert await chunks_left(store) == 5
    assert await get(store, blob) == content


async def test_a_repeated_finish_knows_its_own_work(store: Store) -> None:
    upload = Upload(upload_id="u", tenant_id=TENANT, blob=BlobRef.of(b"x" * 9))
    await store.begin_upload(upload)
    await store.write_chunks("u", 0, [b"x" * 9])
    assert await store.finish_upload(upload)
    assert await store.finish_upload(upload)
    await store.abandon_upload("u")
    assert await get(store, upload.blob) == b"x" * 9


async def test_an_append_that_names_an_absent_blob_is_refused_alone(store: Store) -> None:
    target = await attach(store)
    runs = [(await start(store, f"r{i}", target=target)).run.run_id for i in range(3)]
    committer = committer_of(store)
    tops = await store.heads(runs)
    blob, absent = await put(store, b"there" * 100_000), BlobRef.of(b"nowhere")
    appends = [
        append_on(runs[0], tops[runs[0]], naming("step_completed", blob)),
        append_on(runs[1], tops[runs[1]], event(), naming("step_completed", absent)),
        append_on(runs[2], tops[runs[2]], event()),
    ]
    answers = await asyncio.gather(*(reason_of(committer, a) for a in appends))
    assert answers == ["went in", reasons.BLOB_NOT_FOUND, "went in"]
    wrong_size = replace(blob, size=blob.size + 1)
    again = append_on(runs[1], tops[runs[1]], naming("step_completed", wrong_size))
    assert await reason_of(committer, again) == reasons.BLOB_NOT_FOUND, "and its size is part of its name"
    await put(store, b"nowhere")
    assert await reason_of(committer, appends[1]) == "went in"
    assert await reason_of(committer, appends[1]) == "went in", "a repeat"


async def test_a_result_in_a_blob_is_that_of_the_run(store: Store) -> None:
    started, _ = await driven(store)
    run_id = started.run.run_id
    blob = await put(store, b"r" * 300_000)
    final = append_on(run_id, await head(store, run_id), event("run_succeeded", payloads.pack({}, blob), "", 0))
    assert await reason_of(committer_of(store), final) == "went in"
    run = await store.get_run(run_id)
    assert (run.result, run.result_blob) == (None, blob)
    assert not (await store.collect_blobs(START, 0)).blobs


async def test_an_input_in_a_blob(store: Store) -> None:
    target = await attach(store)
    blob = BlobRef.of(b"i" * 300_000)
    new = new_run(target=target, input=b"", input_blob=blob)
    outcomes = await store.start_runs([new, new_run("r2")], LIMITS)
    assert isinstance(outcomes[0], LanternError)
    assert (outcomes[0].reason, outcomes[0].details["field"]) == (reasons.BLOB_NOT_FOUND, "input_blob")
    assert not isinstance(outcomes[1], LanternError), "refused alone"
    await put(store, b"i" * 300_000)
    started = await start_new(store, new)
    again = await start_new(store, new)
    for run in (started.run, again.run, await store.get_run(new.run_id)):
        assert (run.input, run.input_blob) == (None, blob)
    assert payloads.named_blob(started.events[0].payload) == blob
    assert not (await store.collect_blobs(START, 0)).blobs, "named from the very start"


async def test_a_request_id_is_bound_to_the_blob_too(store: Store) -> None:
    def digest(blob: BlobRef | None, given: bytes = b"") -> bytes:
        return StartRequest(
            request_id="r",
            tenant_id=TENANT,
            agent_name="order",
            input=given,
            workflow_id="",
            policy=WorkflowIdPolicy.REJECT,
            traceparent="",
            target=None,
            input_blob=blob,
        ).digest()

    assert Runs
    assert len({digest(BlobRef.of(b"a")), digest(BlobRef.of(b"b")), digest(None), digest(None, b"1")}) == 4


async def test_an_entry_in_a_blob(store: Store) -> None:
    started, _ = await driven(store)
    run_id = started.run.run_id
    blob = BlobRef.of(b"p" * 300_000)
    sent = replace(entry(run_id, payload=b""), payload_blob=blob)
    with pytest.raises(LanternError) as caught:
        await store.send(sent, LIMITS)
    assert (caught.value.reason, caught.value.details["field"]) == (reasons.BLOB_NOT_FOUND, "payload_blob")
    await put(store, b"p" * 300_000)
    assert (await store.send(sent, LIMITS)).number == 1, "the refused one left no number behind"
    assert (await store.send(sent, LIMITS)).repeated
    with pytest.raises(LanternError) as caught:
        await store.send(replace(sent, payload_blob=None), LIMITS)
    assert caught.value.reason == reasons.REQUEST_ID_REUSED
    entries, _ = await store.list_inbox(run_id, 0, 10, 1000)
    assert [(e.payload, e.payload_blob) for e in entries] == [(b"", blob)]
    assert not (await store.collect_blobs(START, 0)).blobs


async def test_a_delivery_with_its_result_in_a_blob(store: Store) -> None:
    started, _ = await driven(store)
    run_id = started.run.run_id
    claim = Claim(key="k", run_id=run_id, step_id="s", epoch=1, sink="mail", worker_id="w1", nonce=SOURCES.salt())
    await store.claim_side_effect(claim)
    blob = BlobRef.of(b"d" * 300_000)
    done = Settlement(
        key="k", state=SideEffectState.DELIVERED, result=b"", run_id=run_id, worker_id="w1", result_blob=blob
    )
    with pytest.raises(LanternError) as caught:
        await store.settle_side_effect(done)
    assert (caught.value.reason, caught.value.details["field"]) == (reasons.BLOB_NOT_FOUND, "result_blob")
    await put(store, b"d" * 300_000)
    settled, _ = await store.settle_side_effect(done)
    assert (settled.result, settled.result_blob) == (b"", blob)
    assert (await store.settle_side_effect(done))[0] == settled
    assert (await store.claim_side_effect(claim))[1] == settled
    with pytest.raises(LanternError) as caught:
        await store.settle_side_effect(replace(done, result=b"1", result_blob=None))
    assert caught.value.reason == reasons.SIDE_EFFECT_SETTLED
    assert not (await store.collect_blobs(START, 0)).blobs


async def test_the_collection_takes_what_is_old_and_unnamed(store: Store) -> None:
    started, _ = await driven(store)
    run_id = started.run.run_id
    kept, loose = await put(store, b"k" * 300_000), await put(store, b"l" * 300_000)
    named = append_on(run_id, await head(store, run_id), naming("step_completed", kept))
    assert await reason_of(committer_of(store), named) == "went in"
    collected, has_more = await blobs_of(store).collect()
    assert (collected.blobs, has_more) == (0, False), "nothing is old"
    collected, has_more = await blobs_of(store, kept_us=0).collect()
    assert (collected.blobs, collected.size, has_more) == (1, 300_000, False)
    assert (await is_there(store, kept), await is_there(store, loose)) == (True, False)
    assert await chunks_left(store) == 2
    late = append_on(run_id, await head(store, run_id), naming("step_completed", loose))
    assert await reason_of(committer_of(store), late) == reasons.BLOB_NOT_FOUND
    await put(store, b"l" * 300_000)
    assert await reason_of(committer_of(store), late) == "went in"


async def test_one_pass_does_a_bounded_amount(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lantern_journal.domain.blobs.COLLECT_LOOKED_AT_MAX", 4)
    monkeypatch.setattr("lantern_journal.domain.blobs.COLLECT_DELETED_MAX", 3)
    for number in range(10):
        await put(store, b"%d" % number)
    after, sizes = START, list[int]()
    while True:
        done = await store.collect_blobs(after, 0)
        sizes.append(done.blobs)
        after = done.after
        if after == START:
            break
    assert sum(sizes) == 10
    assert max(sizes) == 3
    assert await chunks_left(store) == 0


async def test_the_collection_never_takes_what_is_being_named(store: Store) -> None:
    """Appends, starts and uploads against a collection to which every blob is old: what went in is there."""
    target = await attach(store)
    wanted_each, names = 8, 4
    runs = [(await start(store, f"r{i}", target=target)).run.run_id for i in range(names)]
    for number in range(3):
        await put(store, b"loose %d" % number)
    stop = asyncio.Event()
    collected = 0

    async def collect() -> None:
        nonlocal collected
        while not stop.is_set():
            collected += (await store.collect_blobs(START, 0)).blobs
            await asyncio.sleep(random.random() / 100)

    async def name(run_id: str, index: int) -> list[BlobRef]:
        committer = committer_of(store)
        went_in: list[BlobRef] = []
        number = 0
        while len(went_in) < wanted_each:
            number += 1
            # Shared with another run half of the time.
            content = b"%d %d" % (number, index if number % 2 else 0)
            blob = await put(store, content)
            wanted = append_on(run_id, await head(store, run_id), naming("step_completed", blob))
            outcome = await reason_of(committer, wanted)
            assert outcome in ("went in", reasons.BLOB_NOT_FOUND)
            if outcome == "went in":
                went_in.append(blob)
        return went_in

    collecting = [asyncio.create_task(collect()) for _ in range(3)]
    named = await asyncio.gather(*(name(run_id, index) for index, run_id in enumerate(runs)))
    stop.set()
    await asyncio.gather(*collecting)
    wanted = {blob for went_in in named for blob in went_in}
    assert collected > 0, "some were taken"
    assert await blobs_of(store).has(TENANT, sorted(wanted)) == sorted(wanted)
    for blob in sorted(wanted)[:20]:
        assert BlobRef.of(await get(store, blob)) == blob


async def test_a_silent_upload_gives_up_its_turn(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application_blobs, "PART_S_MAX", 0.2)
    monkeypatch.setattr(application_blobs, "UPLOADS_AT_ONCE", 1)
    content, hub = os.urandom(2 * WRITE_BYTES), Hub()
    blobs = Blobs(store, CarriedClock(), SOURCES, hub, kept_us=KEPT_US)

    async def silent() -> AsyncIterator[bytes]:
        async for part in parts_of(content[: WRITE_BYTES + 5]):
            yield part
        await asyncio.Event().wait()

    task = asyncio.create_task(blobs.put(TENANT, BlobRef.of(content), silent()))
    await asyncio.sleep(0)
    async with asyncio.timeout(20):
        assert await blobs.put(TENANT, BlobRef.of(b"y"), parts_of(b"y"))
        with pytest.raises(LanternError) as caught:
            await task
    assert caught.value.reason == reasons.UNAVAILABLE
    await hub.finish(5)
    assert await chunks_left(store) == 1
