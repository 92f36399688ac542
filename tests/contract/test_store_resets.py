"""Goal: a run that its new code cannot replay goes on from an earlier event, once, and only where that is safe.

Method: real stores; the doctor looks at what is left.
"""

import pytest
from journal_kit import DIGEST, LIMITS, SOURCES, attach, driven, event, grant, offer, park, succeeded, write

from lantern_journal.domain.family import Reset
from lantern_journal.domain.run_state import RunState
from lantern_journal.ports import Store
from lantern_kernel import kinds, payloads, reasons
from lantern_kernel.errors import LanternError
from lantern_kernel.payloads import ApprovalFacts


def back(run_id: str, to_seq: int, request_id: str = "back") -> Reset:
    return Reset(request_id=request_id, run_id=run_id, to_seq=to_seq, salt=SOURCES.salt())


async def blocked(store: Store) -> str:
    """A run that waits for other code than that which is offered."""
    started, _ = await driven(store)
    run_id = started.run.run_id
    await write(store, run_id, event(), event("step_completed", b'{"data":1}'))
    await park(store, run_id, "code_fix", failed=DIGEST)
    return run_id


async def refusal_of(store: Store, reset: Reset) -> str:
    with pytest.raises(LanternError) as refused:
        await store.reset_run(reset)
    return refused.value.reason


async def test_it_is_queued_with_one_event_more(store: Store) -> None:
    run_id = await blocked(store)
    before, _ = await store.list_events(run_id, 0, 100, 1_000_000)
    run, repeated = await store.reset_run(back(run_id, 2))
    assert (run.state, run.waiting_on, repeated) == (RunState.QUEUED, "", False)
    after, _ = await store.list_events(run_id, 0, 100, 1_000_000)
    assert after[:-1] == before
    assert (after[-1].kind, payloads.unpack(after[-1].payload).facts["toSeq"]) == (kinds.HISTORY_RESET, 2)


async def test_it_is_given_only_to_code_that_knows_resets_also_to_what_failed(store: Store) -> None:
    run_id = await blocked(store)
    await store.reset_run(back(run_id, 2))
    (orphan,) = await store.find_orphans(10, LIMITS)
    assert (orphan.run_id, orphan.reason, orphan.event_level, orphan.failed_digest) == (run_id, "upgrade", 2, "")
    old = await attach(store, "old", offer(), level=1)
    assert await store.acquire_lease(grant(run_id, old, "upgrade"), LIMITS) == 0
    new = await attach(store, "new", offer(), level=2)
    assert await store.acquire_lease(grant(run_id, new, "upgrade"), LIMITS) == 2


async def test_a_repeat_sets_nothing_back(store: Store) -> None:
    run_id = await blocked(store)
    await store.reset_run(back(run_id, 2))
    run, repeated = await store.reset_run(back(run_id, 2))
    assert (run.state, repeated) == (RunState.QUEUED, True)
    events, _ = await store.list_events(run_id, 0, 100, 1_000_000)
    assert [each.kind for each in events].count(kinds.HISTORY_RESET) == 1
    assert await refusal_of(store, back(run_id, 3)) == reasons.REQUEST_ID_REUSED


async def test_only_what_waits_for_code_and_only_to_an_event_before_the_last(store: Store) -> None:
    run_id = await blocked(store)
    events, _ = await store.list_events(run_id, 0, 100, 1_000_000)
    assert await refusal_of(store, back(run_id, events[-1].seq)) == reasons.INVALID_FIELD
    started, _ = await driven(store, "other", "w2")
    assert await refusal_of(store, back(started.run.run_id, 1)) == reasons.INVALID_FIELD
    await write(store, started.run.run_id, succeeded())
    assert await refusal_of(store, back(started.run.run_id, 1)) == reasons.RUN_CLOSED
    assert await refusal_of(store, back("00000000-0000-7000-8000-00000000ffff", 1)) == reasons.RUN_NOT_FOUND


async def test_an_approval_that_was_asked_for_is_not_passed_over(store: Store) -> None:
    started, _ = await driven(store)
    run_id = started.run.run_id
    asked = event("approval_requested", ApprovalFacts(approval_id="pay").pack(), "pay", 0)
    top = await write(store, run_id, asked)
    await park(store, run_id, "code_fix", failed=DIGEST)
    assert await refusal_of(store, back(run_id, top.seq - 1)) == reasons.INVALID_FIELD
    run, _ = await store.reset_run(back(run_id, top.seq))
    assert run.state is RunState.QUEUED
