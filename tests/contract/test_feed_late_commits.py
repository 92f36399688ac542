"""Goal: of 100,000 events whose transactions commit late and in any order, a reader misses none and gets none twice.

Method: on PostgreSQL, writers on connections of their own insert by the store's own statement and keep their
transactions open for a while; some take their transaction's id long before, some write several times, some roll back.
The next events of a run come from whoever gets it next, so that transactions build on each other. One more write
transaction stays open all the time. Readers on two stores read meanwhile; they forget what they have back to a cursor
of theirs and go on from there, or begin where another one was.
"""

import asyncio
import random
from collections import Counter

import psycopg
import pytest

from lantern_journal.adapters.postgres import PostgresStore
from lantern_journal.adapters.sources import SystemSources
from lantern_journal.adapters.sql_events import POSTGRES_INSERT, insert_parameters
from lantern_journal.adapters.sql_store import SqlStore
from lantern_journal.domain import feed_cursor
from lantern_journal.domain.appends import Row
from lantern_journal.domain.feed import FeedFilter

EVENTS = 100_000
WRITERS = 16
RUNS = 400
RUNS_PER_TRANSACTION = 6
EVENTS_PER_RUN_MAX = 30
HOLD_S_MAX = 0.08

Place = tuple[str, int]


class Runs:
    """Which runs nobody has in hand, and their last events."""

    def __init__(self, dice: random.Random) -> None:
        sources = SystemSources()
        self.heads = {sources.run_id(1_700_000_000_000_000): 0 for _ in range(RUNS)}
        self._free = list(self.heads)
        self._dice = dice

    @property
    def written(self) -> int:
        return sum(self.heads.values())

    def take(self) -> list[str]:
        self._dice.shuffle(self._free)
        taken, self._free = self._free[:RUNS_PER_TRANSACTION], self._free[RUNS_PER_TRANSACTION:]
        return sorted(taken)

    def give_back(self, run_ids: list[str]) -> None:
        self._free += run_ids


async def write_late(url: str, runs: Runs, dice: random.Random) -> None:
    """Transactions one after another until there are enough events."""
    async with await psycopg.AsyncConnection.connect(url, prepare_threshold=0) as connection:
        while runs.written < EVENTS:
            taken = runs.take()
            heads = {run_id: runs.heads[run_id] for run_id in taken}
            if dice.random() < 0.3:
                await connection.execute("SELECT pg_current_xact_id()")
                await asyncio.sleep(dice.uniform(0, HOLD_S_MAX))
            for _ in range(dice.choice((1, 1, 2))):
                rows: list[Row] = []
                for run_id in taken:
                    for _ in range(dice.randint(1, EVENTS_PER_RUN_MAX)):
                        heads[run_id] += 1
                        rows.append(row(run_id, heads[run_id]))
                await connection.execute(POSTGRES_INSERT.encode(), insert_parameters(rows))
                await asyncio.sleep(dice.uniform(0, HOLD_S_MAX) if dice.random() < 0.7 else 0)
            if dice.random() < 0.1:
                await connection.rollback()
            else:
                await connection.commit()
                runs.heads.update(heads)
            runs.give_back(taken)


def row(run_id: str, seq: int) -> Row:
    return Row(run_id, seq, "marker_recorded", "m", 0, 1, seq, b"{}", b"s" * 16, b"d" * 32, b"h" * 32)


class Reader:
    """Reads, forgets and reads again, as a consumer does that restarts at its last cursor."""

    def __init__(self, store: SqlStore, token: str, already: list[Place], dice: random.Random) -> None:
        self.read, self.tokens = list(already), [(len(already), token)]
        self._store, self._dice = store, dice
        self.pages = 0

    async def follow(self, runs: Runs, writing: asyncio.Future[list[None]]) -> None:
        while True:
            is_last_look = writing.done()
            page = await self._store.read_feed(feed_cursor.from_token(self.tokens[-1][1]), FeedFilter())
            self.pages += 1
            self.read += [(entry.run_id, event.seq) for entry in page.entries for event in entry.events]
            self.tokens.append((len(self.read), feed_cursor.to_token(page.cursor)))
            if is_last_look and page.is_end and len(self.read) >= runs.written:
                return
            if self._dice.random() < 0.02:
                del self.tokens[self._dice.randrange(len(self.tokens)) + 1 :]
                del self.read[self.tokens[-1][0] :]
            if page.is_end:
                await asyncio.sleep(0.02)


def check(reader: Reader, heads: dict[str, int]) -> None:
    assert [place for place, count in Counter(reader.read).items() if count > 1] == [], "twice"
    latest = dict.fromkeys(heads, 0)
    for run_id, seq in reader.read:
        assert seq == latest[run_id] + 1, "not dense in its run"
        latest[run_id] = seq
    assert latest == heads, "missed"


@pytest.mark.parametrize("store", ["postgres"], indirect=True)
async def test_nothing_is_missed_and_nothing_comes_twice(store: SqlStore, postgres_url: str) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print("seed", seed)
    dice = random.Random(seed)
    runs = Runs(dice)
    begin = feed_cursor.to_token(await store.begin_feed(at_beginning=True))
    other = await PostgresStore.open(postgres_url)
    url = postgres_url.replace("+psycopg", "")
    try:
        async with await psycopg.AsyncConnection.connect(url) as unrelated:
            await unrelated.execute("SELECT pg_current_xact_id()")
            writing = asyncio.gather(*(write_late(url, runs, dice) for _ in range(WRITERS)))
            readers = [Reader(reads, begin, [], dice) for reads in (store, other)]
            following = [asyncio.create_task(reader.follow(runs, writing)) for reader in readers]
            for reads in (other, store):
                await asyncio.sleep(1)
                # One more that begins somewhere in the middle of what another one has read.
                count, token = dice.choice(readers[0].tokens)
                readers.append(Reader(reads, token, readers[0].read[:count], dice))
                following.append(asyncio.create_task(readers[-1].follow(runs, writing)))
            await writing
            await asyncio.wait_for(asyncio.gather(*following), 60)
    finally:
        await other.close()
    assert runs.written >= EVENTS
    for reader in readers:
        check(reader, runs.heads)
