"""Goal: whatever happens to the database in the middle of a write, an append is answered by what became of it.

Method: the committer over one run in memory whose database goes away at chosen moments; no waits.
"""

import asyncio
from collections.abc import Sequence

import pytest
from journal_fakes import FakeStore, as_any, settle

from lantern_journal.application import committer as committers
from lantern_journal.application.announcements import Hub
from lantern_journal.application.committer import GroupCommitter, HeadCache
from lantern_journal.domain.appends import Append, Head, Row, event_of, genesis, rows_of
from lantern_journal.ports import Disconnected
from lantern_kernel import kinds, reasons
from lantern_kernel.errors import LanternError
from lantern_kernel.event import Event, NewEvent
from lantern_kernel.payloads import ParkFacts

RUN = "01890000-0000-7000-8000-000000000001"


def new(kind: str, payload: bytes = b"{}") -> NewEvent:
    return NewEvent(kind=kind, payload=payload, salt=b"s" * 16)


class OneRun(FakeStore):
    """A run with its grant; `lost` writes go in without an answer, `away` looks fail."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[Row] = []
        self.head = rows_of(RUN, genesis(RUN), 1, 1, [new(kinds.LEASE_GRANTED)], self.rows)
        self.lost = self.away = 0
        self.away_reason = reasons.UNKNOWN_OUTCOME
        self.look_s = 0.0

    async def heads(self, run_ids: Sequence[str]) -> dict[str, Head]:
        return {RUN: self.head}

    async def insert_group(self, rows: Sequence[Row], changes: object, **_: object) -> None:
        self.rows += rows
        last = rows[-1]
        self.head = Head(last.seq, last.digest, last.hash, last.epoch, last.time_us, last.kind)
        if self.lost:
            self.lost -= 1
            raise Disconnected("the answer was lost")

    def full(self) -> None:
        """From now on the database takes no group."""

        async def refuse(rows: Sequence[Row], changes: object, **_: object) -> None:
            raise LanternError(reasons.UNAVAILABLE, "the disk is full", retry_after_s=1.0, cause="disk_full")

        self.insert_group = refuse

    async def list_events(self, run_id: str, after: int, limit: int, bytes_max: int) -> tuple[list[Event], bool]:
        self.clock.s += self.look_s
        if self.away:
            self.away -= 1
            raise LanternError(self.away_reason, "the database does not answer", retry_after_s=1.0)
        return [event_of(row) for row in self.rows if row.seq > after][:limit], False

    def append(self, *events: NewEvent) -> Append:
        return Append(run_id=RUN, epoch=1, first_seq=self.head.seq + 1, previous_digest=self.head.digest, events=events)


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committers, "OUTCOME_BACKOFF_S_FIRST", 0.0)


@pytest.fixture
def store() -> OneRun:
    return OneRun()


def made(store: OneRun, hub: Hub | None = None) -> GroupCommitter:
    return GroupCommitter(as_any(store), store.clock, hub or Hub())


@pytest.mark.parametrize("reason", [reasons.UNKNOWN_OUTCOME, reasons.UNAVAILABLE])
async def test_a_look_that_fails_leaves_the_outcome_open_until_one_succeeds(store: OneRun, reason: str) -> None:
    store.lost, store.away, store.away_reason = 1, 3, reason
    assert await made(store).append(store.append(new("step_started"))) == 2
    assert len(store.rows) == 2, "it went in once"


async def test_an_outage_that_lasts_is_an_unknown_outcome(store: OneRun) -> None:
    store.lost, store.away = 1, 1_000
    committer = made(store)
    append = store.append(new("step_started"))
    with pytest.raises(LanternError) as caught:
        await committer.append(append)
    assert (caught.value.reason, caught.value.retry_after_s) == (reasons.UNKNOWN_OUTCOME, 1)
    store.away = 0
    assert await committer.append(append) == 2, "the same append again"


async def test_an_outage_holds_the_others_up_for_a_bounded_time(store: OneRun) -> None:
    store.lost, store.away, store.look_s = 1, 1_000, 4.0
    began_s = store.clock.s
    with pytest.raises(LanternError) as caught:
        await made(store).append(store.append(new("step_started")))
    assert caught.value.reason == reasons.UNKNOWN_OUTCOME
    assert store.clock.s - began_s == 12.0


async def test_a_fault_of_the_journal_is_none_of_the_database(store: OneRun) -> None:
    store.lost, store.away, store.away_reason = 1, 1_000, reasons.HISTORY_UNREADABLE
    with pytest.raises(LanternError) as caught:
        await made(store).append(store.append(new("step_started")))
    assert caught.value.reason == reasons.INTERNAL


async def test_what_the_database_says_of_itself_is_told_to_all_and_may_be_repeated(store: OneRun) -> None:
    """Neither a fault of the journal (INTERNAL would end the drive) nor one to try again here, one by one."""
    store.full()
    committer = made(store)
    appends = [store.append(new("step_started")), store.append(new("step_completed"))]
    refused = await asyncio.gather(*map(committer.append, appends), return_exceptions=True)
    assert [(e.reason, e.details["cause"]) for e in refused if isinstance(e, LanternError)] == [
        (reasons.UNAVAILABLE, "disk_full")
    ] * 2
    del store.insert_group
    assert await committer.append(appends[0]) == 2, "there is room again"


async def test_what_follows_a_commit_follows_one_whose_answer_was_lost(store: OneRun) -> None:
    hub = Hub()
    store.lost = 1
    with hub.follow(RUN, 1) as follower:
        reading = asyncio.create_task(follower.take())
        park = ParkFacts(waiting_on="timer", due_us=77).pack()
        assert await made(store, hub).append(store.append(new(kinds.RUN_PARKED, park))) == 2
        await settle()
        assert reading.done()
        assert await reading == [], "the reader looks"
    assert hub.next_due_us == 77


def test_the_heads_in_use_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committers, "HEADS_MAX", 3)
    cache = HeadCache()
    cache.put({name: genesis(name) for name in "abc"})
    assert cache.get("a") == genesis("a")
    cache.put({"b": genesis("b")})
    cache.put({"d": genesis("d")})
    assert [name for name in "abcd" if cache.get(name)] == ["a", "b", "d"]
    cache.put({name: genesis(name) for name in "efghi"})
    assert [name for name in "abcdefghi" if cache.get(name)] == ["g", "h", "i"]
    cache.drop(["g", "z"])
    assert cache.get("g") is None
    cache.clear()
    assert cache.get("h") is None
