"""Goal: the statement that starts runs on PostgreSQL does what the common path does, and only that.

Method: rows and events of runs that were started either way, compared; what is out of the ordinary, one thing at a
time, must be answered by the common path, which the test counts.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, cast

import pytest
import sqlalchemy as sa
from journal_kit import LIMITS, attach, new_run, offer, start_new, succeeded, write

from lantern_journal.adapters import sql_store
from lantern_journal.adapters.engines import postgres_sync_engine
from lantern_journal.adapters.postgres import PostgresStore
from lantern_journal.adapters.schema import run_locks, runs, worker_sessions
from lantern_journal.domain.leases import Limits
from lantern_journal.domain.records import LeaseTarget, NewRun, StartedRun, StartSignal, WorkflowIdPolicy
from lantern_journal.ports import Store
from lantern_kernel import payloads, reasons
from lantern_kernel.errors import LanternError
from lantern_kernel.event import find_chain_fault

pytestmark = pytest.mark.parametrize("store", ["postgres"], indirect=True)

OWN = frozenset({"run_id", "request_id", "traceparent", "acquired_us", "expires_us", "created_us", "updated_us"})
"""What differs between two runs that were started alike."""


class Common:
    """Counts the groups that go the common way."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.groups = 0
        common = sql_store.SqlStore.start_runs

        async def counted(
            store: sql_store.SqlStore, starts: Sequence[NewRun], limits: Limits
        ) -> list[StartedRun | LanternError]:
            self.groups += 1
            return await common(store, starts, limits)

        monkeypatch.setattr(sql_store.SqlStore, "start_runs", counted)


@pytest.fixture
def common(monkeypatch: pytest.MonkeyPatch) -> Common:
    """The count of groups that went the common way."""
    return Common(monkeypatch)


async def known_worker(store: Store) -> LeaseTarget:
    """A worker for which a run was started before, so that what its runs pin is known."""
    target = await attach(store, "w1")
    await start_new(store, asked(target, "first"))
    return target


def asked(target: LeaseTarget | None, request_id: str, **changes: object) -> NewRun:
    return new_run(request_id, target=target, asked_us=1_700_000_000_000_000, **changes)


def rows_of(url: str, run_id: str) -> dict[str, Any]:
    with postgres_sync_engine(url).connect() as connection:
        found: dict[str, Any] = {}
        for table in (runs, run_locks):
            row = connection.execute(sa.select(table).where(table.c.run_id == run_id)).mappings().one()
            found |= {f"{table.name}.{name}": value for name, value in row.items() if name not in OWN}
        return found


async def test_both_ways_leave_the_same(store: Store, postgres_url: str, common: Common) -> None:
    target = await known_worker(store)
    assert common.groups == 1
    slow = await start_new(store, new_run("slow", target=target, workflow_id="order-1"))
    assert common.groups == 2
    quick = await start_new(store, asked(target, "quick", workflow_id="order-2"))
    assert common.groups == 2, "it went as one statement"
    mine, theirs = rows_of(postgres_url, quick.run.run_id), rows_of(postgres_url, slow.run.run_id)
    assert (mine.pop("runs.workflow_id"), theirs.pop("runs.workflow_id")) == ("order-2", "order-1")
    assert mine == theirs
    stored, _ = await store.list_events(quick.run.run_id, 0, 10, 1 << 20)
    others, _ = await store.list_events(slow.run.run_id, 0, 10, 1 << 20)
    assert tuple(stored) == quick.events
    assert find_chain_fault(quick.run.run_id, stored) is None
    assert [event.kind for event in stored] == [event.kind for event in others]
    facts = [payloads.unpack(events[0].payload).facts for events in (stored, others)]
    own = {"workflowId", "requestId", "traceparent"}
    assert facts[0].keys() == facts[1].keys() > own
    assert {name: facts[0][name] for name in facts[0].keys() - own} == {n: facts[1][n] for n in facts[1].keys() - own}
    assert stored[1].payload == others[1].payload
    assert await store.get_run(quick.run.run_id) == quick.run


async def test_its_lease_ends_by_the_clock_of_the_database(store: Store, postgres_url: str) -> None:
    target = await known_worker(store)
    quick = await start_new(store, asked(target, "quick"))
    with postgres_sync_engine(postgres_url).connect() as connection:
        lock = connection.execute(sa.select(run_locks).where(run_locks.c.run_id == quick.run.run_id)).one()
        now_us = connection.execute(sa.text("SELECT extract(epoch FROM clock_timestamp()) * 1000000")).scalar_one()
    assert lock.expires_us - lock.acquired_us == LIMITS.grant_us
    assert -60_000_000 < lock.acquired_us - now_us <= 0
    await write(store, quick.run.run_id, succeeded())


async def test_many_go_in_at_once(store: Store, common: Common) -> None:
    target = await known_worker(store)
    news = [asked(target, f"r{number}") for number in range(60)]
    outcomes = await store.start_runs(news, LIMITS)
    assert common.groups == 1
    heads = await store.heads([new.run_id for new in news])
    for new, outcome in zip(news, outcomes, strict=True):
        assert isinstance(outcome, StartedRun)
        assert (outcome.run.run_id, outcome.epoch, heads[new.run_id].seq) == (new.run_id, 1, 2)


async def test_a_repeat_finds_its_run(store: Store, common: Common) -> None:
    target = await known_worker(store)
    new = asked(target, "again")
    first = await start_new(store, new)
    repeated = await start_new(store, asked(target, "again"))
    assert (repeated.run.run_id, repeated.created, repeated.events) == (first.run.run_id, False, ())
    # The very same call, after its connection was lost.
    own = await start_new(store, new)
    assert (own.created, own.events) == (True, first.events)
    assert common.groups == 3


def _change_session(**values: object) -> Callable[[str], None]:
    def change(url: str) -> None:
        with postgres_sync_engine(url).begin() as connection:
            connection.execute(worker_sessions.update().values(**values))

    return change


def _nothing(url: str) -> None:
    del url


ODD: dict[str, tuple[dict[str, object], Callable[[str], None]]] = {
    "a workflow id that was used": ({"workflow_id": "taken", "policy": WorkflowIdPolicy.REJECT}, _nothing),
    "a signal": ({"signal": StartSignal(name="paid", payload=b"1")}, _nothing),
    "another agent": ({"agent_name": "nobody's"}, _nothing),
    "another tenant": ({"tenant_id": "other"}, _nothing),
    "a session that is closed": ({}, _change_session(closed=True)),
    "one that is draining": ({}, _change_session(draining=True)),
    "one that was silent": ({}, _change_session(seen_us=1)),
    "one that was followed": ({}, _change_session(session_number=7)),
}


@pytest.mark.parametrize("what", ODD)
async def test_what_is_out_of_the_ordinary_goes_the_common_way(
    store: Store, postgres_url: str, common: Common, what: str
) -> None:
    changes, prepare = ODD[what]
    target = await known_worker(store)
    await start_new(store, asked(target, "named", workflow_id="taken"))
    prepare(postgres_url)
    news = [asked(target, "odd", **changes), asked(target, "plain")]
    groups = common.groups
    outcomes = await store.start_runs(news, LIMITS)
    assert common.groups == groups + 1
    plain = outcomes[1]
    assert isinstance(plain, StartedRun), "its neighbour is started all the same"
    assert plain.created
    if changes.get("agent_name") or changes.get("tenant_id") or changes.get("workflow_id"):
        assert isinstance(outcomes[0], LanternError)
    elif not changes:
        assert plain.epoch == 0, "queued: the session can take no lease"


async def test_a_later_session_is_learned_anew(store: Store, common: Common) -> None:
    await known_worker(store)
    other = "f" * 64
    target = await attach(store, "w1", offer(digest=other))
    first = await start_new(store, asked(target, "after"))
    second = await start_new(store, asked(target, "after that"))
    assert common.groups == 2
    assert first.run.agent_digest == second.run.agent_digest == other
    assert (first.run.agent_version, second.run.agent_version) == (2, 2)


async def test_what_was_known_is_worth_nothing_after_a_lost_connection(store: Store, common: Common) -> None:
    target = await known_worker(store)
    cast("PostgresStore", store).generation += 1
    await start_new(store, asked(target, "after"))
    assert common.groups == 2
    await start_new(store, asked(target, "after that"))
    assert common.groups == 2, "it was learned anew"


@pytest.fixture
async def other(postgres_url: str) -> AsyncIterator[PostgresStore]:
    """The store of a second journal process."""
    opened = await PostgresStore.open(postgres_url)
    yield opened
    await opened.close()


async def known_workers(store: Store, other: Store) -> list[tuple[Store, LeaseTarget]]:
    """A worker at each of two journals, whose runs' pins are known."""
    workers = [(each, await attach(each, f"w{number}")) for number, each in enumerate((store, other))]
    for number, (each, target) in enumerate(workers):
        await start_new(each, asked(target, f"first-{number}"))
    return workers


@pytest.mark.parametrize("same", ["request id", "workflow id"])
async def test_of_two_journals_one_starts_it(store: Store, other: PostgresStore, same: str) -> None:
    workers = await known_workers(store, other)
    for number in range(20):
        named = [f"r{number}"] * 2 if same == "request id" else [f"r{number}-0", f"r{number}-1"]
        workflow_id = "" if same == "request id" else f"order-{number}"
        news = [asked(workers[i][1], named[i], workflow_id=workflow_id) for i in range(2)]
        groups = await asyncio.gather(
            *(each.start_runs([n], LIMITS) for (each, _), n in zip(workers, news, strict=True))
        )
        outcomes = [outcome for group in groups for outcome in group]
        made = [each for each in outcomes if isinstance(each, StartedRun) and each.created]
        assert len(made) == 1, outcomes
        if same == "request id":
            assert {each.run.run_id for each in outcomes if isinstance(each, StartedRun)} == {made[0].run.run_id}
        else:
            (refused,) = [each for each in outcomes if isinstance(each, LanternError)]
            assert refused.reason == reasons.WORKFLOW_ID_IN_USE


async def test_no_lease_is_left_with_a_session_that_closes_meanwhile(
    store: Store, other: PostgresStore, postgres_url: str
) -> None:
    """The close either comes before the start, which queues the run then, or finds the lease and ends it."""
    for number in range(20):
        target = await attach(store, "w1")
        await start_new(store, asked(target, f"before-{number}"))
        started, _ = await asyncio.gather(
            start_new(store, asked(target, f"r{number}")), other.close_session("w1", target.session_number)
        )
        with postgres_sync_engine(postgres_url).connect() as connection:
            lock = connection.execute(
                sa.select(run_locks).where(run_locks.c.run_id == started.run.run_id)
            ).one_or_none()
        assert (lock is None) == (started.epoch == 0)
        assert lock is None or lock.expires_us <= (await other.ping())
