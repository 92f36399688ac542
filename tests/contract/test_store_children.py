"""Goal: a child belongs to its parent in every transaction that matters: its start, its end, the parent's end.

Method: real stores, driven as executors do; the doctor looks at what is left.
"""

import asyncio
from dataclasses import replace

import pytest
from journal_kit import LIMITS, attach, driven, entry, event, new_run, offer, park, start_new, succeeded, write

from lantern_journal.domain.appends import Head
from lantern_journal.domain.family import Parent
from lantern_journal.domain.records import LeaseTarget, NewRun, Run, WorkflowIdPolicy
from lantern_journal.domain.run_state import RunState
from lantern_journal.ports import Collision, GroupRefused, Store
from lantern_kernel import payloads, reasons
from lantern_kernel.bounds import CHILD_DEPTH_MAX
from lantern_kernel.errors import LanternError
from lantern_kernel.payloads import ChildFacts


def child_of(run: Run, step_id: str = "c", *, abandon: bool = False, **changes: object) -> NewRun:
    parent = Parent(run_id=run.run_id, step_id=step_id, epoch=run.epoch, abandon=abandon)
    return replace(new_run(f"child:{run.run_id}:{step_id}"), parent=parent, **changes)  # pyright: ignore[reportArgumentType] - any field


async def test_a_child_knows_its_parent_and_its_depth(store: Store) -> None:
    started, _ = await driven(store)
    child = (await start_new(store, child_of(started.run, "pay[1]"))).run
    read = await store.get_run(child.run_id)
    assert (read.parent_run_id, read.parent_step_id, read.depth) == (started.run.run_id, "pay[1]", 1)
    (first, *_), _ = await store.list_events(child.run_id, 0, 10, 1_000_000)
    facts = payloads.unpack(first.payload).facts
    assert facts["parent"] == {"runId": started.run.run_id, "stepId": "pay[1]", "depth": 1}


async def test_the_end_of_a_child_wakes_the_parent_that_waits_for_it(store: Store) -> None:
    started, target = await driven(store)
    child = (await start_new(store, child_of(started.run, target=target))).run
    await park(store, started.run.run_id, "child")
    top = (await store.heads([child.run_id]))[child.run_id]
    await write(store, child.run_id, succeeded(b'{"paid":1}'), on=top)
    parent = await store.get_run(started.run.run_id)
    assert (parent.state, parent.waiting_on) == (RunState.QUEUED, "")
    (told,), _ = await store.list_inbox(parent.run_id, 0, 10, 1_000_000)
    content = payloads.unpack(told.payload)
    assert (told.kind, told.name, content.data) == ("child", "c", b'{"paid":1}')
    assert ChildFacts.from_facts(content.facts) == ChildFacts(run_id=child.run_id, state="SUCCEEDED")


async def test_a_failed_child_says_why(store: Store) -> None:
    started, target = await driven(store)
    child = (await start_new(store, child_of(started.run, target=target))).run
    failed = event("run_failed", payloads.pack({"code": "CARD_DECLINED", "message": "no money"}), "", 0)
    await write(store, child.run_id, failed)
    (told,), _ = await store.list_inbox(started.run.run_id, 0, 10, 1_000_000)
    facts = ChildFacts.from_facts(payloads.unpack(told.payload).facts)
    assert facts.state == "FAILED"
    assert facts.error is not None
    assert (facts.error.code, facts.error.message) == ("CARD_DECLINED", "no money")
    # The parent is driven: its driver is to be told.
    assert (await store.get_run(started.run.run_id)).state is RunState.RUNNING


async def test_a_parents_end_ends_what_nobody_drives_below_it(store: Store) -> None:
    started, target = await driven(store)
    child = (await start_new(store, child_of(started.run, target=target))).run
    grandchild = (await start_new(store, child_of(replace(child, epoch=1)))).run
    kept = (await start_new(store, child_of(started.run, "d", abandon=True))).run
    await write(store, started.run.run_id, succeeded())
    # It is driven: its driver compensates first.
    assert (await store.get_run(child.run_id)).state is RunState.RUNNING
    (asked,), _ = await store.list_inbox(child.run_id, 0, 10, 1_000_000)
    assert asked.kind == "cancel"
    assert (await store.get_run(kept.run_id)).state is RunState.QUEUED
    cancelled = event("run_cancelled", b"{}", "", 0)
    await write(store, child.run_id, event("cancel_requested", b'{"number":1}', "", 0), cancelled, consumed=1)
    ended = await store.get_run(grandchild.run_id)
    assert ended.state is RunState.CANCELLED
    # Who has ended is told nothing any more.
    assert await store.list_inbox(started.run.run_id, 0, 10, 1_000_000) == ([], False)


async def test_a_cancel_that_ends_a_parked_parent_reaches_all_below_it(store: Store) -> None:
    started, _ = await driven(store)
    children = [(await start_new(store, child_of(started.run, f"c{n}"))).run for n in range(3)]
    nothing = payloads.ParkFacts(waiting_on="child", nothing_to_compensate=True).pack()
    await write(store, started.run.run_id, event("run_parked", nothing, "", 0))
    sent = await store.send(entry(started.run.run_id, kind="cancel"), LIMITS)
    assert sent.ended
    assert sorted(sent.aftermath.moved) == sorted(child.run_id for child in children)
    assert {(await store.get_run(child.run_id)).state for child in children} == {RunState.CANCELLED}


async def test_who_takes_over_a_workflow_id_ends_the_children_too(store: Store) -> None:
    target = await attach(store)
    named = replace(new_run("first", target=target), workflow_id="order-1")
    parent = (await start_new(store, named)).run
    child = (await start_new(store, child_of(parent))).run
    policy = WorkflowIdPolicy.TERMINATE_EXISTING
    taken = await start_new(store, replace(new_run("second"), workflow_id="order-1", policy=policy))
    assert taken.aftermath.moved == (child.run_id,)
    assert (await store.get_run(child.run_id)).state is RunState.CANCELLED


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"epoch": 7}, reasons.LEASE_LOST),
        ({"run_id": "00000000-0000-7000-8000-00000000ffff"}, reasons.RUN_NOT_FOUND),
    ],
)
async def test_only_the_driver_of_the_parent_starts_children(
    store: Store, change: dict[str, object], reason: str
) -> None:
    started, _ = await driven(store)
    new = child_of(started.run)
    assert new.parent is not None
    wrong = replace(new, parent=replace(new.parent, **change))  # pyright: ignore[reportArgumentType] - any field
    with pytest.raises(LanternError) as refused:
        await start_new(store, wrong)
    assert refused.value.reason == reason


async def test_a_run_that_has_ended_starts_no_children(store: Store) -> None:
    started, _ = await driven(store)
    new = child_of(started.run)
    first = await start_new(store, new)
    await write(store, started.run.run_id, succeeded())
    with pytest.raises(LanternError) as refused:
        await start_new(store, child_of(started.run, "late"))
    assert refused.value.reason == reasons.RUN_CLOSED
    # A repeat of what it did start finds that.
    assert (await start_new(store, replace(new, run_id=new_run().run_id))).run.run_id == first.run.run_id


async def test_runs_are_at_most_five_deep(store: Store) -> None:
    started, target = await driven(store)
    run = started.run
    for depth in range(1, CHILD_DEPTH_MAX + 1):
        run = (await start_new(store, child_of(run, target=target))).run
        assert run.depth == depth
    with pytest.raises(LanternError) as refused:
        await start_new(store, child_of(run))
    assert refused.value.reason == reasons.CHILD_TOO_DEEP


async def test_parents_and_children_that_end_at_once_all_end(store: Store) -> None:
    """Each takes the rows of the other; whoever waits does so in one order."""
    target = await attach(store, "w1", offer())
    for turn in range(5):
        parent = (await start_new(store, new_run(f"p{turn}", target=target))).run
        children = [await _child(store, parent, f"c{n}", target) for n in range(4)]
        work = [write(store, child.run_id, succeeded()) for child in children]
        answers = await asyncio.gather(write(store, parent.run_id, succeeded()), *work, return_exceptions=True)
        for run in (parent, *children):
            await _end_if_running(store, run)
        assert all(isinstance(answer, Collision | GroupRefused | Head) for answer in answers), answers
        states = [(await store.get_run(run.run_id)).state for run in (parent, *children)]
        assert set(states) <= {RunState.SUCCEEDED, RunState.CANCELLED}


async def _end_if_running(store: Store, run: Run) -> None:
    """What was refused had not seen something: the parent the end of a child, or a child its parent's."""
    read = await store.get_run(run.run_id)
    if read.state is not RunState.RUNNING:
        return
    entries, _ = await store.list_inbox(run.run_id, 0, 100, 1_000_000)
    cancels = [each for each in entries if each.kind == "cancel"]
    taken = [event("cancel_requested", payloads.pack({"number": each.number}), "", 0) for each in cancels]
    end = event("run_cancelled", b"{}", "", 0) if taken else succeeded()
    await write(store, run.run_id, *taken, end, consumed=read.inbox_number)


async def _child(store: Store, parent: Run, step_id: str, target: LeaseTarget) -> Run:
    return (await start_new(store, child_of(parent, step_id, target=target))).run


async def test_the_durability_of_a_run_is_kept(store: Store) -> None:
    await attach(store)
    run = (await start_new(store, replace(new_run(), durability="exit"))).run
    assert (await store.get_run(run.run_id)).durability == "exit"
    (first,), _ = await store.list_events(run.run_id, 0, 10, 1_000_000)
    assert payloads.unpack(first.payload).facts["durability"] == "exit"
