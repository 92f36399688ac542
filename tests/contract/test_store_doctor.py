"""Goal: the doctor names exactly what is wrong, nothing where nothing is, and sets right what follows from the events.

Method: runs of every kind, in order; then each column of their rows, each part of an event, locks and the feed are
changed by hand, past the store. That operations leave nothing to find, the whole contract suite shows (see conftest).
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import sqlalchemy as sa
from doctor_kit import faults, findings, rebuild
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from journal_kit import (
    LIMITS,
    attach,
    driven,
    entry,
    event,
    grant,
    head,
    limits,
    new_run,
    park,
    start,
    start_new,
    succeeded,
    write,
)
from test_store_appends import append_on, committer_of
from test_store_blobs import put
from test_store_waking import claim, undecided

from lantern_journal.adapters.postgres import PostgresStore
from lantern_journal.adapters.schema import (
    approvals,
    journal_blob_refs,
    journal_events,
    journal_feed,
    run_archives,
    run_inbox,
    run_locks,
    runs,
    side_effect_receipts,
    worker_sessions,
)
from lantern_journal.adapters.sql_events import Transaction
from lantern_journal.adapters.sqlite import SqliteStore
from lantern_journal.domain.family import Parent
from lantern_journal.domain.findings import Severity
from lantern_journal.domain.projection import COLUMNS
from lantern_journal.domain.records import ReleaseCause
from lantern_journal.ports import Collision, GroupRefused
from lantern_kernel import payloads
from lantern_kernel.bounds import INBOX_ENTRIES_MAX, INBOX_RESERVE
from lantern_kernel.errors import LanternError
from lantern_kernel.payloads import ApprovalFacts

Kept = PostgresStore | SqliteStore


async def change(store: Kept, *statements: sa.Executable) -> None:
    """Past everything."""

    def execute(tx: Transaction) -> None:
        for statement in statements:
            tx.connection.execute(statement)

    await store._transact(execute)  # pyright: ignore[reportPrivateUsage]


async def row_of(store: Kept, run_id: str) -> dict[str, Any]:
    def read(connection: sa.Connection) -> dict[str, Any]:
        found = connection.execute(sa.select(runs).where(runs.c.run_id == run_id)).one()
        return {column: getattr(found, column) for column in COLUMNS}

    return await store._read(read)  # pyright: ignore[reportPrivateUsage]


async def ended(store: Kept, request_id: str = "e1") -> str:
    started, _ = await driven(store, request_id)
    await store.send(entry(started.run.run_id, kind="cancel"), LIMITS)
    taken = event("cancel_requested", b'{"number":1}', "", 0)
    run_id = started.run.run_id
    await write(store, run_id, event(), event("step_failed"), taken, consumed=1)
    failed = event("run_failed", b'{"code":"STEP_FAILED","message":"no","stepId":"s"}', "", 0)
    await write(store, run_id, failed, consumed=1)
    return run_id


async def parked(store: Kept, request_id: str = "p1", on: str = "signal", due_us: int | None = None) -> str:
    started, _ = await driven(store, request_id)
    await park(store, started.run.run_id, on, due_us)
    return started.run.run_id


async def running(store: Kept, request_id: str = "q1") -> str:
    started, _ = await driven(store, request_id)
    await write(store, started.run.run_id, event())
    return started.run.run_id


async def test_nothing_is_found_where_all_is_well(store: Kept) -> None:
    await ended(store)
    await parked(store)
    await parked(store, "p2", "timer", 2**60)
    await running(store)
    await start(store, "q2")
    assert await faults(store) == []
    assert await rebuild(store) == []


TAMPERED: list[tuple[str, object]] = [
    ("agent_name", "other"),
    ("agent_version", 7),
    ("agent_digest", "c" * 64),
    ("workflow_id", "other"),
    ("request_id", "other"),
    ("traceparent", "00-0-0-00"),
    ("created_us", 5),
    ("epoch", 3),
    ("cancel_seq", 2),
    ("inbox_number", 9),
    ("awaited_signals", "other"),
    ("nothing_to_compensate", True),
]
ONLY_ENDED: list[tuple[str, object]] = [
    ("state", "RUNNING"),
    ("waiting_on", "signal"),
    ("due_us", 5),
    ("error", b'{"code":"X","message":"y"}'),
    ("error", b"no json"),
    ("error", None),
    ("ended_us", None),
    ("end_seq", 3),
    ("consumed_inbox", 0),
    ("cancel_seq", None),
]
ONLY_PARKED: list[tuple[str, object]] = [
    ("state", "RUNNING"),
    ("state", "SUCCEEDED"),
    ("waiting_on", "operator"),
    ("due_us", 5),
    ("error", b'{"code":"X","message":"y"}'),
    ("ended_us", 5),
    ("end_seq", 2),
    ("consumed_inbox", 4),
]


ONLY_RUNNING: list[tuple[str, object]] = [("state", "WAITING"), ("waiting_on", "signal"), ("due_us", 5)]


@pytest.mark.parametrize(
    ("make", "cases"),
    [(ended, TAMPERED + ONLY_ENDED), (parked, TAMPERED + ONLY_PARKED), (running, TAMPERED + ONLY_RUNNING)],
)
async def test_a_tampered_column_is_named_and_set_right(
    store: Kept, make: Callable[[Kept], Any], cases: list[tuple[str, object]]
) -> None:
    run_id = await make(store)
    before = await row_of(store, run_id)
    for column, value in cases:
        await change(store, runs.update().where(runs.c.run_id == run_id).values({column: value}))
        found = await faults(store, run_id)
        # Another state makes other things wrong as well.
        assert f"projection.{column}" in found if column == "state" else found == [f"projection.{column}"], value
        changed = await rebuild(store, run_id)
        assert column in {one.column for one in changed}
        assert await faults(store, run_id) == []
        assert await row_of(store, run_id) == before
        assert await rebuild(store, run_id) == [], "done twice is done"


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("kind", "step_retrying"),
        ("step_id", "other"),
        ("attempt", 2),
        ("epoch", 2),
        ("time_us", 5),
        ("payload", b"{ }"),
        ("salt", b"t" * 16),
        ("salt", b"t"),
        ("digest", b"d" * 32),
        ("hash", b"h" * 32),
    ],
)
async def test_a_changed_event_is_named_and_nothing_is_rebuilt_from_it(store: Kept, column: str, value: object) -> None:
    run_id = await running(store)
    await write(store, run_id, event(), event())
    where = (journal_events.c.run_id == run_id, journal_events.c.seq == 4)
    await change(
        store,
        journal_events.update().where(*where).values({column: value}),
        runs.update().where(runs.c.run_id == run_id).values(agent_name="other"),
    )
    found = [f for f in await findings(store, run_id) if f.severity is Severity.FAULT]
    assert [f.message for f in found if f.subject == "chain" and "event 4" in f.message]
    assert not any(f.mendable for f in found)
    assert await rebuild(store, run_id) == []


async def test_missing_events_and_rows_are_named(store: Kept) -> None:
    first, second, third = [await running(store, name) for name in ("a", "b", "c")]
    await change(
        store,
        journal_events.delete().where(journal_events.c.run_id == first, journal_events.c.seq == 2),
        runs.delete().where(runs.c.run_id == second),
        journal_events.delete().where(journal_events.c.run_id == third),
    )
    assert "chain.chain" in await faults(store, first)
    assert await faults(store, second) == ["projection.row"]
    assert await faults(store, third) == ["chain.events"]
    for run_id in (first, second, third):
        assert await rebuild(store, run_id) == []


async def test_a_lock_follows_from_the_grants(store: Kept) -> None:
    run_id = await running(store)
    for statement, fault in (
        (run_locks.delete(), "lease.lock"),
        (run_locks.update().values(epoch=5), "lease.epoch"),
        (run_locks.update().values(worker_id="thief"), "lease.holder"),
    ):
        await change(store, statement)
        assert fault in await faults(store, run_id)
        assert "lock" in {one.column for one in await rebuild(store, run_id)}
        assert await faults(store, run_id) == []
    assert run_id in {orphan.run_id for orphan in await store.find_orphans(10, LIMITS)}
    target = await attach(store)
    assert await store.acquire_lease(grant(run_id, target), LIMITS) == 2
    assert await faults(store, run_id) == []


async def test_an_ended_run_holds_no_lease(store: Kept) -> None:
    run_id = await ended(store)
    await change(store, run_locks.update().values(worker_id="w1", expires_us=2**60))
    assert await faults(store, run_id) == ["lease.holder"]
    await rebuild(store)
    assert await faults(store, run_id) == []


async def test_leases_live_no_longer_than_their_sessions(store: Kept) -> None:
    run_id = await running(store)
    await change(store, worker_sessions.update().values(closed=True))
    assert await faults(store, run_id) == ["session.closed"]
    await change(store, worker_sessions.delete())
    assert await faults(store, run_id) == ["session.session"]
    await change(store, run_locks.update().values(expires_us=1))
    assert await faults(store, run_id) == []
    assert [f.subject for f in await findings(store, run_id)] == ["expired"], "an orphan is no fault"


async def test_a_session_that_nobody_closes_is_named(store: Kept) -> None:
    await running(store)
    await change(store, worker_sessions.update().values(seen_us=1))
    assert await faults(store) == ["session.silent"]


async def test_a_run_that_nothing_wakes_is_named(store: Kept) -> None:
    timer = await parked(store, "t", "timer", 2**60)
    await change(store, runs.update().where(runs.c.run_id == timer).values(due_us=None))
    assert await faults(store, timer) == ["projection.due_us", "wake_source.due"]
    await rebuild(store, timer)
    assert await faults(store, timer) == []
    signal = await parked(store, "s", "signal")
    cancel = {
        "run_id": signal,
        "number": 1,
        "request_id": "x",
        "kind": "cancel",
        "name": "",
        "payload": b"",
        "created_us": 1,
    }
    await change(
        store, run_inbox.insert().values(cancel), runs.update().where(runs.c.run_id == signal).values(inbox_number=1)
    )
    assert await faults(store, signal) == ["wake_source.cancel"]
    waits = await parked(store, "c", "capacity")
    assert await faults(store, waits) == ["wake_source.capacity"], "its worker offers the agent"


async def test_approvals_follow_from_their_events(store: Kept) -> None:
    run_id = await running(store)
    await write(store, run_id, event("approval_requested", ApprovalFacts(approval_id="s").pack()))
    assert await faults(store, run_id) == []
    await change(store, approvals.update().values(requested_seq=1))
    assert await faults(store, run_id) == ["approval.requested"]
    await change(store, approvals.update().values(requested_seq=4))
    await write(store, run_id, succeeded())
    assert await faults(store, run_id) == []
    await change(store, approvals.update().values(state="PENDING"))
    assert await faults(store, run_id) == ["approval.pending"]
    await change(store, approvals.delete())
    assert await faults(store, run_id) == ["approval.requested"]


async def test_content_that_an_event_names_is_there(store: Kept) -> None:
    run_id = await running(store)
    blob = await put(store, b"7" * 300_000)
    head_before = await head(store, run_id)
    append = append_on(run_id, head_before, event("step_succeeded", payloads.pack({}, blob)))
    await committer_of(store).append(append)
    assert await faults(store, run_id) == []
    await change(store, journal_blob_refs.delete())
    assert await faults(store, run_id) == ["blob.named"]


async def test_a_settled_delivery_wakes_who_waits_for_it(store: Kept) -> None:
    started, _ = await driven(store)
    run_id = started.run.run_id
    await store.claim_side_effect(claim(run_id))
    await write(store, run_id, undecided())
    await park(store, run_id, "operator")
    assert await faults(store, run_id) == []
    await change(store, side_effect_receipts.update().values(state="DELIVERED"))
    assert await faults(store, run_id) == ["wake_source.operator"]


async def test_an_archived_run_has_its_archive(store: Kept) -> None:
    run_id = await ended(store)
    end_seq = (await row_of(store, run_id))["end_seq"]
    archive = {"file": "f", "byte_offset": 0, "byte_length": 1, "head_hash": b"h", "archived_us": 1}
    await change(
        store,
        run_archives.insert().values(run_id=run_id, event_count=end_seq, **archive),
        runs.update().where(runs.c.run_id == run_id).values(archived=True),
    )
    assert await faults(store, run_id) == ["archive.left"]
    await change(store, journal_events.delete().where(journal_events.c.run_id == run_id))
    assert await faults(store, run_id) == []
    await change(store, run_archives.delete())
    assert await faults(store, run_id) == ["archive.events"]


async def test_the_feed_holds_every_event(store: Kept) -> None:
    await running(store)
    assert await faults(store) == []
    last = sa.select(sa.func.max(journal_feed.c.id)).scalar_subquery()
    first = sa.select(sa.func.min(journal_feed.c.id)).scalar_subquery()
    await write(store, await running(store, "other"), event())
    await change(store, journal_feed.delete().where(journal_feed.c.id == last))
    assert await faults(store) == ["feed.missing"]
    middle = first + 1
    await change(store, journal_feed.delete().where(journal_feed.c.id == middle))
    await write(store, (await store.list_run_ids("", 1))[0], event())
    assert await faults(store) == ["feed.missing", "feed.order"]


async def test_the_database_is_looked_at(store: Kept) -> None:
    await change(store, sa.text("CREATE INDEX stray ON runs (agent_name)"))
    assert await faults(store) == ["database.schema"]
    await change(store, sa.text("DROP INDEX stray"))
    facts = await store.read_database(LIMITS)
    assert (facts.damage, facts.missing_revisions, facts.differences) == ((), "", ())


STEPS = st.lists(
    st.sampled_from(["step", "signal", "cancel", "park", "timer", "grant", "release", "fault", "defer", "close"]),
    max_size=12,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, end=st.booleans())
async def test_whatever_was_done_the_rows_follow_from_the_events(store: Kept, steps: list[str], end: bool) -> None:
    """Any history that the store takes: nothing is found, nothing is set right."""
    count = len(await store.list_run_ids("", 1_000))
    started, target = await driven(store, f"h{count}")
    run_id = started.run.run_id
    for number, step in enumerate(steps):
        await try_step(store, run_id, target, step, number)
        assert await faults(store, run_id) == [], step
    if end:
        await tolerate(write(store, run_id, succeeded(), consumed=(await store.get_run(run_id)).inbox_number))
    assert await faults(store, run_id) == []
    before = await row_of(store, run_id)
    assert await rebuild(store, run_id) == []
    assert await row_of(store, run_id) == before


async def try_step(store: Kept, run_id: str, target: Any, step: str, number: int) -> None:
    run = await store.get_run(run_id)
    consumed = run.inbox_number
    driven_now = run.state.value == "RUNNING"
    match step:
        case "step" if driven_now:
            await tolerate(write(store, run_id, event(step_id=f"s{number}")))
        case "park" if driven_now:
            await tolerate(park(store, run_id, "signal", consumed=consumed))
        case "timer" if driven_now:
            await tolerate(park(store, run_id, "timer", 1, consumed=consumed))
        case "signal" | "cancel":
            await tolerate(store.send(entry(run_id, f"x{number}", step), LIMITS))
        case "grant":
            await tolerate(store.acquire_lease(grant(run_id, target), limits(grant_us=0, silence_us=2**50)))
        case "release":
            await tolerate(store.release_lease(run_id, run.epoch, "w1"))
        case "fault":
            await tolerate(store.release_lease(run_id, run.epoch, "w1", ReleaseCause.FAULT))
        case "defer":
            await tolerate(store.defer_run(run_id, None, bytes(16), LIMITS))
        case "close":
            await tolerate(store.close_session("w1", target.session_number))
        case _:
            pass


async def tolerate(work: Any) -> None:
    """What the store refuses is as good as what it takes: nothing of it may be half done."""
    with suppress(LanternError, GroupRefused, Collision):
        await work


async def test_a_child_that_nobody_told_of_its_parents_end_is_named(store: Kept) -> None:
    started, target = await driven(store)
    parent = Parent(run_id=started.run.run_id, step_id="c", epoch=1)
    child = (await start_new(store, new_run("c", target=target, parent=parent))).run
    await write(store, started.run.run_id, succeeded())
    assert await faults(store) == []
    told = run_inbox.update().where(run_inbox.c.run_id == child.run_id, run_inbox.c.kind == "cancel")
    await change(store, told.values(kind="signal"))
    assert await faults(store) == ["wake_source.parent"]


async def test_a_full_inbox_keeps_no_parent_from_its_end(store: Kept) -> None:
    started, target = await driven(store)
    parent = Parent(run_id=started.run.run_id, step_id="c", epoch=1)
    child = (await start_new(store, new_run("c", target=target, parent=parent))).run
    full = INBOX_ENTRIES_MAX + INBOX_RESERVE
    await change(store, runs.update().where(runs.c.run_id == child.run_id).values(inbox_number=full))
    await write(store, started.run.run_id, succeeded())
    (told,), _ = await store.list_inbox(child.run_id, 0, 10, 1_000_000)
    assert (told.number, told.kind) == (full + 1, "cancel")
