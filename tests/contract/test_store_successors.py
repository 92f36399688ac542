"""Goal: a run that goes on as a new one is that new one for everybody: workflow id, parent, signals.

Method: real stores, driven as executors do; the doctor looks at what is left.
"""

from dataclasses import replace

from journal_kit import attach, driven, entry, event, limits, new_run, park, start_new, succeeded, write

from lantern_journal.domain.family import Parent
from lantern_journal.domain.run_state import RunState
from lantern_journal.ports import Store
from lantern_kernel import payloads
from lantern_kernel.event import NewEvent
from lantern_kernel.payloads import ChildFacts


def continued(data: bytes = b'{"round":2}', carry: tuple[int, ...] = ()) -> NewEvent:
    facts: dict[str, object] = {"continueAsNew": True}
    return event("run_succeeded", payloads.pack(facts | ({"carry": list(carry)} if carry else {}), data), "", 0)


async def test_it_has_the_agent_the_workflow_id_and_the_new_input(store: Store) -> None:
    target = await attach(store)
    first = replace(new_run("first", target=target), workflow_id="order-1", durability="async")
    before = (await start_new(store, first)).run
    await write(store, before.run_id, continued())
    ended = await store.get_run(before.run_id)
    assert (ended.state, ended.result) == (RunState.SUCCEEDED, None)
    after = await store.get_run(ended.continued_as)
    assert (after.state, after.input, after.continued_from) == (RunState.QUEUED, b'{"round":2}', before.run_id)
    assert (after.workflow_id, after.durability, after.traceparent) == ("order-1", "async", before.traceparent)
    assert (after.agent_name, after.agent_digest) == (before.agent_name, before.agent_digest)
    (orphan,) = await store.find_orphans(10, limits())
    assert (orphan.run_id, orphan.reason) == (after.run_id, "start")


async def test_signals_that_were_not_used_wait_for_it(store: Store) -> None:
    started, _ = await driven(store)
    run_id = started.run.run_id
    for number in (1, 2):
        await store.send(entry(run_id, f"e{number}", payload=b"%d" % number), limits())
    taken = [
        event("signal_received", payloads.pack({"number": number, "name": "paid"}, b"%d" % number), "", 0)
        for number in (1, 2)
    ]
    top = await write(store, run_id, *taken)
    await write(store, run_id, continued(carry=(top.seq,)), consumed=2)
    after = (await store.get_run(run_id)).continued_as
    (left,), _ = await store.list_inbox(after, 0, 10, 1_000_000)
    assert (left.number, left.kind, left.name, left.payload) == (1, "signal", "paid", b"2")


async def test_a_parent_is_told_by_the_last_one(store: Store) -> None:
    started, target = await driven(store)
    parent = Parent(run_id=started.run.run_id, step_id="c", epoch=1)
    child = (await start_new(store, new_run("c", target=target, parent=parent))).run
    await park(store, started.run.run_id, "child")
    await write(store, child.run_id, continued())
    assert (await store.get_run(started.run.run_id)).state is RunState.WAITING
    last = (await store.get_run(child.run_id)).continued_as
    read = await store.get_run(last)
    assert (read.parent_run_id, read.parent_step_id, read.depth) == (started.run.run_id, "c", 1)
    await write(store, last, succeeded(b"7"))
    assert (await store.get_run(started.run.run_id)).state is RunState.QUEUED
    (told,), _ = await store.list_inbox(started.run.run_id, 0, 10, 1_000_000)
    content = payloads.unpack(told.payload)
    assert (ChildFacts.from_facts(content.facts).run_id, content.data) == (last, b"7")


async def test_an_update_wakes_a_run_that_waits(store: Store) -> None:
    started, _ = await driven(store)
    await park(store, started.run.run_id, "signal")
    sent = await store.send(replace(entry(started.run.run_id, kind="update"), name="address"), limits())
    assert (sent.woken, sent.state) == (True, RunState.QUEUED)
    (left,), _ = await store.list_inbox(started.run.run_id, 0, 10, 1_000_000)
    assert (left.kind, left.name) == ("update", "address")
