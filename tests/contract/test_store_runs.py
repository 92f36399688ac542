"""Goal: runs start once, are read back exactly, and their inboxes are dense and deduplicated, on both databases.

Method: the Store port is driven directly; races are real concurrent calls; no waiting.
"""

import asyncio
from dataclasses import replace

import pytest
from journal_kit import (
    DIGEST,
    LIMITS,
    OTHER_DIGEST,
    attach,
    driven,
    entry,
    event,
    head,
    new_run,
    offer,
    park,
    start,
    start_new,
    succeeded,
    write,
)

from lantern_journal.domain.records import Claim, RunFilter, Settlement, SideEffectState, WorkflowIdPolicy
from lantern_journal.domain.run_state import RunState
from lantern_journal.ports import GroupRefused, Store
from lantern_kernel import reasons
from lantern_kernel.errors import LanternError
from lantern_kernel.event import find_chain_fault


async def test_twenty_starts_with_one_request_id_make_one_run(store: Store) -> None:
    await attach(store)
    answers = await asyncio.gather(*(start(store) for _ in range(20)))
    assert len({answer.run.run_id for answer in answers}) == 1
    assert sum(answer.created for answer in answers) == 1
    assert len((await store.list_runs(RunFilter(tenant_id="default"), "", 100, 1 << 20))[0]) == 1


async def test_a_request_id_with_other_content_is_refused(store: Store) -> None:
    await attach(store)
    await start(store)
    with pytest.raises(LanternError, match=reasons.REQUEST_ID_REUSED):
        await start_new(store, new_run(request_digest=b"e" * 32), LIMITS)


async def test_a_start_repeated_by_the_very_same_call_returns_its_lease(store: Store) -> None:
    """What a lost connection does: the transaction went in, its answer did not come."""
    target = await attach(store)
    new = new_run(target=target)
    first = await start_new(store, new)
    again = await start_new(store, new)
    assert again.created
    assert [e.hash for e in again.events] == [e.hash for e in first.events]
    stranger = await start_new(store, new_run(target=target), LIMITS)
    assert (stranger.created, stranger.epoch, stranger.events) == (False, 0, ())


async def test_an_agent_that_nobody_ever_offered_is_not_found(store: Store) -> None:
    with pytest.raises(LanternError, match=reasons.AGENT_NOT_FOUND):
        await start(store)
    await attach(store, "w1", offer("another"))
    with pytest.raises(LanternError, match=reasons.AGENT_NOT_FOUND):
        await start(store)


async def test_created_with_a_lease_both_events_form_the_chain(store: Store) -> None:
    target = await attach(store)
    started = await start(store, target=target)
    assert [e.kind for e in started.events] == ["run_started", "lease_granted"]
    assert [e.epoch for e in started.events] == [0, 1]
    assert find_chain_fault(started.run.run_id, started.events) is None
    assert (started.run.state, started.run.epoch, started.run.input) == (RunState.RUNNING, 1, b'{"order":1}')
    assert await store.find_orphans(10, LIMITS) == []


@pytest.mark.parametrize("case", ["draining", "old session", "closed session", "not offered"])
async def test_a_lease_that_cannot_be_granted_queues_the_run(store: Store, case: str) -> None:
    await attach(store, "w0")
    target = await attach(store, "w1", offer("another" if case == "not offered" else "order"))
    if case == "draining":
        target = await attach(store, "w1", draining=True)
    elif case == "old session":
        await attach(store, "w1")
    elif case == "closed session":
        await store.close_session("w1", target.session_number)
    started = await start(store, target=target)
    assert (started.created, started.epoch, started.run.state) == (True, 0, RunState.QUEUED)
    assert [orphan.reason for orphan in await store.find_orphans(10, LIMITS)] == ["start"]


async def test_workflow_id_policies(store: Store) -> None:
    target = await attach(store)
    first = await start_new(store, new_run("a", workflow_id="order-1042", target=target), LIMITS)
    for policy in (WorkflowIdPolicy.REJECT, WorkflowIdPolicy.ALLOW_AFTER_CLOSE):
        with pytest.raises(LanternError, match=reasons.WORKFLOW_ID_IN_USE):
            await start_new(store, new_run("b", workflow_id="order-1042", policy=policy), LIMITS)
    used = await start_new(store, new_run("c", workflow_id="order-1042", policy=WorkflowIdPolicy.USE_EXISTING), LIMITS)
    assert (used.created, used.run.run_id) == (False, first.run.run_id)
    await write(store, first.run.run_id, succeeded())
    with pytest.raises(LanternError, match=reasons.WORKFLOW_ID_IN_USE):
        await start_new(store, new_run("d", workflow_id="order-1042", policy=WorkflowIdPolicy.REJECT), LIMITS)
    after = await start_new(store, new_run("e", workflow_id="order-1042"), LIMITS)
    assert after.created
    assert after.run.run_id != first.run.run_id


async def test_twenty_starts_with_one_workflow_id_leave_one_open_run(store: Store) -> None:
    await attach(store)
    answers = await asyncio.gather(
        *(start_new(store, new_run(f"r{i}", workflow_id="w"), LIMITS) for i in range(20)), return_exceptions=True
    )
    created = [answer for answer in answers if not isinstance(answer, BaseException)]
    refused = [answer.reason for answer in answers if isinstance(answer, LanternError)]
    assert len(created) == 1
    assert refused == [reasons.WORKFLOW_ID_IN_USE] * 19


async def test_a_group_of_starts_gets_an_answer_each(store: Store) -> None:
    """One refused, one repeated, one with a lease, one queued: in one transaction, each as if it were alone."""
    target = await attach(store)
    known = await start(store, "known")
    outcomes = await store.start_runs(
        [
            new_run("a", target=target),
            new_run("b", agent_name="nobody"),
            new_run("known"),
            new_run("c", workflow_id="order-1042"),
            new_run("known2", workflow_id="order-1043", target=target),
        ],
        LIMITS,
    )
    answers = [o.reason if isinstance(o, LanternError) else (o.created, o.epoch) for o in outcomes]
    assert answers == [(True, 1), reasons.AGENT_NOT_FOUND, (False, 0), (True, 0), (True, 1)]
    again = outcomes[2]
    assert not isinstance(again, LanternError)
    assert again.run.run_id == known.run.run_id
    for outcome in outcomes:
        if not isinstance(outcome, LanternError):
            assert await store.get_run(outcome.run.run_id) == outcome.run
            events, _ = await store.list_events(outcome.run.run_id, 0, 10, 1 << 20)
            assert find_chain_fault(outcome.run.run_id, events) is None


async def test_versions_are_dense_by_digest_and_a_run_pins_one(store: Store) -> None:
    await attach(store, "w1", offer())
    old = await start(store, "r1")
    newer = await attach(store, "w2", offer("order", OTHER_DIGEST), offer("refund"))
    await attach(store, "w1", offer())
    assert [(a.name, a.version, a.digest) for a in await store.list_agents("default", ("", 0), 10)] == [
        ("order", 1, DIGEST),
        ("order", 2, OTHER_DIGEST),
        ("refund", 1, DIGEST),
    ]
    assert [a.version for a in await store.list_agents("default", ("order", 1), 1)] == [2]
    assert (old.run.agent_version, old.run.agent_digest) == (1, DIGEST)
    assert (await start(store, "r2")).run.agent_version == 2
    older = await attach(store, "w1", offer())
    assert (await start(store, "r3", target=older)).run.agent_version == 1, "that of the creating worker"
    assert (await start(store, "r4", target=newer)).run.agent_version == 2


async def test_a_finished_run_shows_its_exact_result(store: Store) -> None:
    started, _ = await driven(store)
    result = '{"big":9007199254740993,"nul":"\\u0000","smile":"😀"}'.encode()
    await write(store, started.run.run_id, succeeded(result))
    run = await store.get_run(started.run.run_id)
    assert (run.state, run.result, run.input) == (RunState.SUCCEEDED, result, b'{"order":1}')
    assert run.ended_us is not None
    ((listed,), _) = await store.list_runs(RunFilter(tenant_id="default"), "", 10, 1 << 20)
    assert (listed.input, listed.result) == (None, None)


async def test_runs_are_listed_newest_first_by_filter_and_page(store: Store) -> None:
    target = await attach(store)
    made = [(await start(store, f"r{i}", target=target)).run.run_id for i in range(5)]
    newest_first = sorted(made, reverse=True)
    await write(store, made[0], succeeded())

    async def listed(wanted: RunFilter, before: str = "", limit: int = 10, bytes_max: int = 1 << 20) -> list[str]:
        page, more = await store.list_runs(wanted, before, limit, bytes_max)
        assert more is (limit < 5 or bytes_max < 1000)
        return [run.run_id for run in page]

    mine = RunFilter(tenant_id="default")
    assert await listed(mine) == newest_first
    assert await listed(mine, limit=2) == newest_first[:2]
    assert await listed(mine, bytes_max=1) == newest_first[:1], "at least one"
    assert await listed(mine, before=newest_first[1]) == newest_first[2:]
    assert await listed(RunFilter(tenant_id="default", states=(RunState.SUCCEEDED,))) == [made[0]]
    assert await listed(RunFilter(tenant_id="default", agent_name="refund")) == []
    assert await listed(RunFilter(tenant_id="another")) == []


async def test_the_inbox_is_dense_deduplicated_and_wakes(store: Store) -> None:
    started, _ = await driven(store)
    run_id = started.run.run_id
    first = await store.send(entry(run_id, "e1"), LIMITS)
    assert (first.number, first.repeated, first.woken, first.driver) == (1, False, False, "w1")
    answers = await asyncio.gather(*(store.send(entry(run_id, f"e{i % 5 + 2}"), LIMITS) for i in range(20)))
    assert sorted({answer.number for answer in answers}) == [2, 3, 4, 5, 6]
    assert sum(not answer.repeated for answer in answers) == 5
    with pytest.raises(LanternError) as reused:
        await store.send(replace(entry(run_id, "e1"), kind="cancel", name=""), LIMITS)
    assert (reused.value.reason, reused.value.details["field"]) == (reasons.REQUEST_ID_REUSED, "request_id")
    entries, more = await store.list_inbox(run_id, 0, 10, 1 << 20)
    assert ([e.number for e in entries], more) == ([1, 2, 3, 4, 5, 6], False)
    entries, more = await store.list_inbox(run_id, 2, 2, 1 << 20)
    assert ([e.number for e in entries], more) == ([3, 4], True)
    with pytest.raises(GroupRefused) as refused:
        await park(store, run_id, "signal", consumed=5)
    assert isinstance(refused.value.errors[0], LanternError)
    assert refused.value.errors[0].reason == reasons.INBOX_AHEAD
    await park(store, run_id, "signal", consumed=6)
    assert (await store.get_run(run_id)).state is RunState.WAITING
    assert (await store.send(entry(run_id, "e1"), LIMITS)).woken is False, "a repeat wakes nobody"
    assert (await store.send(entry(run_id, "e9"), LIMITS)).woken
    run = await store.get_run(run_id)
    assert (run.state, run.waiting_on, run.inbox_number) == (RunState.QUEUED, "", 7)
    assert [orphan.reason for orphan in await store.find_orphans(10, LIMITS)] == ["signal"]


@pytest.mark.parametrize(("on", "kind", "woken"), [("timer", "signal", False), ("timer", "cancel", True)])
async def test_what_wakes_depends_on_what_is_waited_for(store: Store, on: str, kind: str, woken: bool) -> None:
    started, _ = await driven(store)
    await park(store, started.run.run_id, on, due_us=2**62)
    assert (await store.send(entry(started.run.run_id, kind=kind), LIMITS)).woken is woken


async def test_opening_a_run_shows_only_what_was_not_consumed(store: Store) -> None:
    started, target = await driven(store)
    run_id = started.run.run_id
    for number in (1, 2, 3):
        await store.send(entry(run_id, f"e{number}"), LIMITS)
    await write(store, run_id, event("signal_received", b'{"number":2,"name":"paid","data":1}', "", 0))
    opened = await store.open_run(run_id, 1, target, LIMITS)
    assert [e.number for e in opened.inbox] == [3]


async def test_from_a_cancel_request_on_a_run_cannot_succeed(store: Store) -> None:
    started, _ = await driven(store)
    run_id = started.run.run_id
    await store.send(entry(run_id, kind="cancel"), LIMITS)
    await write(store, run_id, event("cancel_requested", b'{"number":1}', "", 0))
    before = await head(store, run_id)
    with pytest.raises(GroupRefused) as refused:
        await write(store, run_id, succeeded(), consumed=1)
    assert isinstance(refused.value.errors[0], LanternError)
    assert refused.value.errors[0].reason == reasons.CANCEL_REQUESTED
    assert await head(store, run_id) == before, "nothing of it went in"
    await write(store, run_id, event("run_cancelled", b"{}", "", 0), consumed=1)
    assert (await store.get_run(run_id)).state is RunState.CANCELLED
    with pytest.raises(LanternError, match=reasons.RUN_CLOSED):
        await store.send(entry(run_id, "late"), LIMITS)


@pytest.mark.parametrize("case", ["queued", "code_fix"])
async def test_a_run_that_nobody_can_compensate_is_cancelled_at_once(store: Store, case: str) -> None:
    target = await attach(store)
    started = await start(store, target=target if case == "code_fix" else None)
    run_id = started.run.run_id
    if case == "code_fix":
        await park(store, run_id, "code_fix")
    assert (await store.send(entry(run_id, kind="cancel"), LIMITS)).ended
    assert (await store.get_run(run_id)).state is RunState.CANCELLED
    events, _ = await store.list_events(run_id, 0, 100, 1 << 20)
    assert [e.kind for e in events[-2:]] == ["cancel_requested", "run_cancelled"]
    assert find_chain_fault(run_id, events) is None
    assert await store.find_orphans(10, LIMITS) == []


def claim(run_id: str, nonce: bytes = b"n" * 16, epoch: int = 1, worker_id: str = "w1") -> Claim:
    return Claim(
        key="k" * 64, run_id=run_id, step_id="mail", epoch=epoch, sink="mail", worker_id=worker_id, nonce=nonce
    )


async def test_one_claim_wins_and_its_settlement_is_a_fact(store: Store) -> None:
    started, _ = await driven(store)
    run_id = started.run.run_id
    with pytest.raises(LanternError, match=reasons.LEASE_LOST):
        await store.claim_side_effect(claim(run_id, epoch=2))
    answers = await asyncio.gather(*(store.claim_side_effect(claim(run_id, bytes([i]) * 16)) for i in range(8)))
    assert sum(claimed for claimed, _ in answers) == 1
    winner = [claimed for claimed, _ in answers].index(True)
    assert (await store.claim_side_effect(claim(run_id, bytes([winner]) * 16)))[0], "its own lost reply"
    await park(store, run_id, "operator")
    done = Settlement(key="k" * 64, state=SideEffectState.DELIVERED, result=b'{"id":1}', run_id=run_id, worker_id="w1")
    settled, woken = await store.settle_side_effect(done)
    assert (settled.state, settled.result, woken) == (SideEffectState.DELIVERED, b'{"id":1}', True)
    assert await store.settle_side_effect(done) == (settled, True), "told again"
    other = Settlement(key="k" * 64, state=SideEffectState.REFUSED, result=b"0", run_id=run_id, worker_id="w1")
    with pytest.raises(LanternError, match=reasons.SIDE_EFFECT_SETTLED):
        await store.settle_side_effect(other)
    unknown = Settlement(key="x", state=SideEffectState.REFUSED, result=b"0", run_id=run_id, worker_id="w1")
    with pytest.raises(LanternError, match=reasons.SIDE_EFFECT_NOT_FOUND):
        await store.settle_side_effect(unknown)


async def test_what_is_not_there_is_not_found(store: Store) -> None:
    missing = new_run().run_id
    for ask in (
        store.get_run(missing),
        store.list_events(missing, 0, 10, 1000),
        store.list_inbox(missing, 0, 10, 1000),
        store.send(entry(missing), LIMITS),
        store.release_lease(missing, 1, "w1"),
        store.defer_run(missing, None, b"s" * 16, LIMITS),
    ):
        with pytest.raises(LanternError, match=reasons.RUN_NOT_FOUND):
            await ask


async def test_agents_are_listed_in_the_order_of_their_bytes(store: Store) -> None:
    """Whatever language the database sorts by: a page token means the same on every one."""
    names = ["or-der", "Order", "order", "order_b", "ORDER", "orda"]
    await attach(store, "w1", *(offer(name) for name in names))
    assert [agent.name for agent in await store.list_agents("default", ("", 0), 10)] == sorted(names)
    assert [agent.name for agent in await store.list_agents("default", ("Order", 1), 2)] == ["or-der", "orda"]
