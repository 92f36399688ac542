"""Goal: two journals and a writer that does not know that it is stale tell one story of every run (J2, append races).

Method: see stale_writers.py; two thousand rounds while the journals' connections to PostgreSQL are killed, in bursts of
one each 30 to 100 ms. That the rounds can fail at all is shown with journals from which one safeguard is taken; two of
the safeguards no honest worker needs, so that they are tested directly.
"""

import asyncio
import contextlib
import itertools
import os
import random
from collections.abc import AsyncGenerator, Callable, Iterable
from pathlib import Path

import ledger
import psycopg
import pytest
from load import AGENT, Driver, Promises
from rig import HERE, MakeDatabase, scaled
from stale_writers import Races
from system import Process

from lantern_executor.domain.run import StartRequest
from lantern_executor.domain.tail import Append
from lantern_journal.adapters.postgres import PostgresStore
from lantern_journal.domain import appends
from lantern_journal.domain.appends import Head, plan_group
from lantern_journal.ports import Collision
from lantern_kernel import chain, kinds, reasons
from lantern_kernel.errors import LanternError
from lantern_kernel.event import NewEvent

ROUNDS = scaled(2000)
BROKEN_ROUNDS = 300
"""As many as a broken journal gets to be found out in; it stops at the first thing that is wrong."""

KILL_S = (0.03, 0.1)
ALL_SHARE = 0.05
BURST_KILLS = 15
REST_S = 2.0
"""After each burst of kills, so that most of the rounds come to their end in time."""

GROUP = 1500
GROUP_TRIES = 20

StartJournal = Callable[..., Process]


@contextlib.asynccontextmanager
async def workers(journals: list[Process], folder: Path) -> AsyncGenerator[tuple[Driver, Driver]]:
    """A worker attached to each of two journals."""
    drivers = [
        Driver(journal.address, f"worker{index}", Promises(folder / f"promises{index}"))
        for index, journal in enumerate(journals)
    ]
    for driver in drivers:
        driver.session.start("127.0.0.1:1")
        await driver.session.wait_attached()
    try:
        yield drivers[0], drivers[1]
    finally:
        for driver in drivers:
            await driver.close()


async def kill_connections(database: str, killed: list[int]) -> None:
    """Kills one of the journals' connections to a database after the other, now and then all of them at once."""
    chance = random.Random(7)
    mine = b"FROM pg_stat_activity WHERE application_name LIKE 'lantern-journal%' AND datname = current_database()"
    one = b"SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid " + mine + b" ORDER BY random() LIMIT 1) AS one"
    all_of_them = b"SELECT count(pg_terminate_backend(pid)) " + mine
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
        for kill in itertools.count(1):
            await asyncio.sleep(chance.uniform(*KILL_S) if kill % BURST_KILLS else REST_S)
            query = all_of_them if chance.random() < ALL_SHARE else one
            row = await (await connection.execute(query)).fetchone()
            killed.append(row[0] if row else 0)


@pytest.mark.timeout(400)
async def test_one_story_while_connections_are_killed(
    make_database: MakeDatabase, start_journal: StartJournal, tmp_path: Path
) -> None:
    database = make_database("postgres")
    journals = [await asyncio.to_thread(start_journal, name, database) for name in ("one", "two")]
    killed: list[int] = []
    async with workers(journals, tmp_path) as drivers:
        races = Races(drivers=drivers)
        killing = asyncio.create_task(kill_connections(database, killed))
        await races.run(ROUNDS)
        killing.cancel()
        await asyncio.wait([killing])
    stored = ledger.read(database)
    faults = races.faults(stored)
    assert faults == [], f"{len(faults)} faults, such as {faults[:5]}\n{journals[0].log_text()[-3000:]}"
    assert races.told["stale writers stopped"] > ROUNDS / 4, "most writers never became stale"
    assert races.told[reasons.LEASE_LOST] > 0
    assert races.told[reasons.APPEND_CONFLICT] > 0
    assert sum(killed) > 0
    print(f"{dict(races.told)}, {sum(killed)} connections killed, {sum(map(len, stored.events.values()))} events")


@pytest.mark.parametrize(
    "safeguard", ["collisions_pass", "repeats_are_not_compared", "a_collision_refuses_the_group", "no_primary_key"]
)
async def test_a_journal_without_a_safeguard_is_found_out(
    safeguard: str, make_database: MakeDatabase, start_journal: StartJournal, tmp_path: Path
) -> None:
    database = make_database("postgres")
    entry = ("-m", "lantern_journal") if safeguard == "no_primary_key" else (str(HERE / "broken_journal.py"), safeguard)
    journals = [await asyncio.to_thread(start_journal, name, database, entry=entry) for name in ("one", "two")]
    if safeguard == "no_primary_key":
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(b"ALTER TABLE journal_events DROP CONSTRAINT journal_events_pkey")
            connection.execute(b"CREATE INDEX no_key ON journal_events (run_id, seq)")
    async with workers(journals, tmp_path) as drivers:
        races = Races(drivers=drivers)
        await races.run(BROKEN_ROUNDS)
    faults = races.faults(ledger.read(database))
    assert faults, f"nobody noticed: {races.told}"
    print(f"{safeguard}: {len(faults)} faults, such as {faults[0]}")


async def fence_faults(driver: Driver) -> list[str]:
    """What the journal takes that no honest worker sends."""
    request = StartRequest(
        request_id="fence",
        tenant_id="default",
        agent_name=AGENT,
        input=b"1",
        workflow_id="",
        workflow_id_policy=0,
        traceparent="",
    )
    created = await driver.journal.create_run(request, with_lease=True)
    run_id, last = created.run.run_id, created.events[-1]

    def append(*, epoch: int = created.epoch, previous_digest: bytes = last.digest) -> Append:
        event = NewEvent(kind=kinds.STEP_STARTED, step_id="s", attempt=1, salt=os.urandom(16))
        return Append(
            run_id=run_id,
            epoch=epoch,
            first_seq=last.seq + 1,
            previous_digest=previous_digest,
            events=(event,),
            consumed_inbox_number=0,
        )

    faults: list[str] = []
    for name, forged, right in (
        ("on top of another event", append(previous_digest=created.events[0].digest), reasons.APPEND_CONFLICT),
        ("under an epoch that was never granted", append(epoch=created.epoch + 1), reasons.INVALID_FIELD),
    ):
        try:
            await driver.session.append(forged)
            faults.append(name)
        except LanternError as error:
            if error.reason != right:
                faults.append(f"{name}, refused with {error}")
    if not faults:
        await driver.session.append(append())
    return faults


@pytest.mark.parametrize(
    ("safeguard", "taken"),
    [
        ("", []),
        ("digests_are_not_compared", ["on top of another event"]),
        ("epochs_to_come_are_taken", ["under an epoch that was never granted"]),
    ],
)
async def test_what_only_a_broken_worker_sends_is_refused(
    safeguard: str, taken: list[str], make_database: MakeDatabase, start_journal: StartJournal, tmp_path: Path
) -> None:
    entry = (str(HERE / "broken_journal.py"), safeguard) if safeguard else ("-m", "lantern_journal")
    journal = await asyncio.to_thread(start_journal, "one", make_database("sqlite"), entry=entry)
    async with workers([journal, journal], tmp_path) as (driver, _):
        assert await fence_faults(driver) == taken


async def count_deadlocks(database: str) -> int:
    """Two stores write the same places at once, again and again, from groups that came in opposite orders."""
    stores = [await PostgresStore.open(database) for _ in range(2)]
    deadlocks = 0
    try:
        for _ in range(GROUP_TRIES):
            runs = [f"01890000-0000-7000-8000-{os.urandom(6).hex()}" for _ in range(GROUP)]
            heads = {
                run_id: Head(1, chain.genesis(run_id), chain.genesis(run_id), 1, 1, kinds.LEASE_GRANTED)
                for run_id in runs
            }
            groups = [[_on_top(run_id, heads[run_id]) for run_id in order] for order in (runs, runs[::-1])]
            plans = [plan_group(group, heads, 2) for group in groups]
            outcomes = await asyncio.gather(
                *(store.insert_group(plan.rows, []) for store, plan in zip(stores, plans, strict=True)),
                return_exceptions=True,
            )
            collided = [outcome for outcome in outcomes if isinstance(outcome, Collision)]
            assert len(collided) == 1, f"one of two goes in: {outcomes}"
            deadlocks += sum("deadlock" in str(outcome) for outcome in collided)
    finally:
        for store in stores:
            await store.close()
    return deadlocks


def _on_top(run_id: str, head: Head) -> appends.Append:
    event = NewEvent(kind=kinds.STEP_STARTED, step_id="s", attempt=1, salt=os.urandom(16))
    return appends.Append(
        run_id=run_id, epoch=head.epoch, first_seq=head.seq + 1, previous_digest=head.digest, events=(event,)
    )


def as_they_came(items: Iterable[int], key: object) -> list[int]:
    """In place of `sorted`."""
    return list(items)


async def test_groups_of_two_journals_never_wait_for_each_other(
    make_database: MakeDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = make_database("postgres")
    with psycopg.connect(database, autocommit=True) as connection:
        name = database.rpartition("/")[2]
        connection.execute(f"ALTER DATABASE {name} SET deadlock_timeout = '20ms'".encode())
    assert await count_deadlocks(database) == 0
    # Were the rows left in the order in which they came, they would.
    monkeypatch.setattr(appends, "sorted", as_they_came, raising=False)
    assert await count_deadlocks(database) > 0
