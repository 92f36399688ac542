"""Goal: a follower sees the end of its run, also where nobody told this process of it.

Method: a run in memory that grows behind the back of the hub; the waits are set to nothing.
"""

import asyncio

import pytest
from journal_fakes import LIMITS, FakeStore, as_any, settle

from lantern_journal.adapters.sources import SystemSources
from lantern_journal.application import runs
from lantern_journal.application.announcements import Hub
from lantern_journal.application.committer import GroupCommitter
from lantern_journal.application.runs import Runs
from lantern_journal.application.sessions import Sessions
from lantern_journal.domain.appends import Head, Row, event_of
from lantern_kernel import kinds
from lantern_kernel.event import Event

RUN = "01890000-0000-7000-8000-000000000001"


class Growing(FakeStore):
    """A run that has one more event each third time that its head is asked for; the fourth ends it."""

    def __init__(self, *, is_shared: bool) -> None:
        super().__init__()
        self.is_shared = is_shared
        self.asked = 0

    @property
    def seq(self) -> int:
        return min(1 + self.asked // 3, 4)

    def row(self, seq: int) -> Row:
        kind = kinds.RUN_SUCCEEDED if seq == 4 else "step_started"
        return Row(RUN, seq, kind, "", 0, 1, 1, b"{}", b"", b"", b"")

    async def head(self, run_id: str) -> Head:
        self.asked += 1
        return Head(self.seq, b"", b"", 1, 1, self.row(self.seq).kind)

    async def list_events(self, run_id: str, after: int, limit: int, bytes_max: int) -> tuple[list[Event], bool]:
        return [event_of(self.row(seq)) for seq in range(after + 1, self.seq + 1)], False


def made(store: Growing) -> tuple[Runs, Hub]:
    hub = Hub()
    sessions = Sessions(as_any(store), store.clock, hub, LIMITS, grace_s=0)
    committer = GroupCommitter(as_any(store), store.clock, hub)
    return Runs(as_any(store), store.clock, SystemSources(), hub, sessions, committer, LIMITS), hub


@pytest.mark.parametrize("is_shared", [False, True])
async def test_a_follower_looks_by_itself_now_and_then(monkeypatch: pytest.MonkeyPatch, is_shared: bool) -> None:
    monkeypatch.setattr(runs, "FOLLOW_LOOK_S" if is_shared else "FOLLOW_LOOK_ALONE_S", 0.0)
    following = made(Growing(is_shared=is_shared))[0].follow(RUN, 0)
    async with asyncio.timeout(5):
        assert [event.seq async for events in following for event in events] == [1, 2, 3, 4]


async def test_a_follower_that_leaves_is_forgotten() -> None:
    use_cases, hub = made(Growing(is_shared=False))
    pages = use_cases.follow(RUN, 0)
    assert len(await anext(pages)) == 1
    reading = asyncio.create_task(anext(pages))
    await settle()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    await pages.aclose()
    with hub.follow(RUN) as follower:
        assert as_any(hub)._followers == {RUN: {follower: None}}


async def test_a_run_that_goes_on_here_is_followed_without_a_look() -> None:
    store = Growing(is_shared=True)
    use_cases, hub = made(store)
    as_any(use_cases)._committer.keep(RUN, Head(3, b"", b"", 1, 1, "step_completed"))
    pages = use_cases.follow(RUN, 3)
    reading = asyncio.create_task(anext(pages))
    await settle()
    hub.committed([store.row(4)])
    assert [event.seq for event in await reading] == [4]
    assert store.asked == 0
    await pages.aclose()
