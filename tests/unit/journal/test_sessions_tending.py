"""Goal: nobody loses a session because the journal could not hear: silence counts only while somebody listened.

Method: the sessions of a process over a table of sessions in memory, with a clock that is set by hand.
"""

from collections.abc import Awaitable, Callable

import pytest
from journal_fakes import LIMITS, FakeClock, FakeStore, as_any, causes, settle

from lantern_journal.application import announcements
from lantern_journal.application import sessions as tended_sessions
from lantern_journal.application.announcements import Hub
from lantern_journal.application.sessions import Listener, LocalSession, Sessions
from lantern_journal.domain.records import Attach, Attached, Tended, Tending
from lantern_kernel import reasons
from lantern_kernel.errors import LanternError


class Table(FakeStore):
    """worker_sessions: number and when it was seen."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.open: dict[str, tuple[int, int]] = {}
        self.adopted = 0
        self.tendings: list[Tending] = []
        self.inbox: tuple[tuple[str, str, int], ...] = ()
        self.fails = False
        # Happens after the next tend was committed and before its answer is seen.
        self.meanwhile: Callable[[], Awaitable[object]] | None = None
        self._attached = 0
        # The process, or its database's clock, gets this much later between its look at the clock and the transaction.
        self.stands_still_s = 0.0
        self.clock_set_us = 0
        # Questions for one session.
        self.looks = 0

    async def is_open_session(self, worker_id: str, number: int) -> bool:
        self.looks += 1
        return self.open.get(worker_id, (0, 0))[0] == number

    async def attach(self, request: Attach) -> Attached:
        self._attached += 1
        self.open[request.worker_id] = (self._attached, self.now_us())
        return Attached(number=self._attached, woken=0)

    async def close_session(self, worker_id: str, number: int) -> int | None:
        self.open.pop(worker_id, None)
        return 0

    async def adopt_sessions(self) -> None:
        self.adopted += 1
        self.open = {worker: (number, self.now_us()) for worker, (number, _) in self.open.items()}

    def now_us(self) -> int:
        return self.clock.now_us() + self.clock_set_us

    async def tend_sessions(self, tending: Tending, limits: object) -> Tended:
        self.tendings.append(tending)
        self.clock.s += self.stands_still_s
        self.stands_still_s = 0
        now_us = self.now_us()
        gone = [(w, number) for w, number in tending.seen if self.open.get(w, (0, 0))[0] != number]
        for worker, number in tending.seen:
            if (worker, number) not in gone:
                self.open[worker] = (number, now_us)
        as_of_us = now_us if tending.as_of_us is None else min(tending.as_of_us, now_us)
        silent = sorted(w for w, (_, seen_us) in self.open.items() if seen_us <= as_of_us - LIMITS.silence_us)
        for worker in silent:
            del self.open[worker]
        if self.fails:
            raise LanternError(reasons.UNAVAILABLE, "the answer was lost")
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        return Tended(
            closed=tuple(silent),
            gone=tuple(gone),
            inbox=tuple(row for row in self.inbox if row[0] in tending.inbox_of),
            now_us=now_us,
        )


class World:
    """The sessions of one process and what they rest on."""

    def __init__(self) -> None:
        self.clock, self.hub = FakeClock(), Hub()
        self.table = Table(self.clock)
        self.sessions = Sessions(as_any(self.table), self.clock, self.hub, LIMITS, grace_s=0)
        self.ended: list[str] = []
        self.told: list[tuple[str, list[str]]] = []

    async def attach(self, worker_id: str) -> LocalSession:
        listener = Listener(
            inbox=lambda run_ids: self.told.append((worker_id, run_ids)),
            end=lambda: self.ended.append(worker_id),
            move=lambda: None,
        )
        request = Attach(worker_id=worker_id, address="", capacity=1, offers=(), tenant_id="", draining=False)
        session = await self.sessions.attach(request, listener)
        assert self.hub.sent["woken"], "runs may have been woken by this, or by a try of it whose answer was lost"
        self.hub.sent.clear()
        return session

    async def pass_s(self, seconds: int, *talking: LocalSession) -> None:
        """Time passes as it should: a tend each second; only `talking` is heard."""
        for _ in range(seconds):
            self.clock.s += 1
            for session in talking:
                self.sessions.heard(session)
            await self.sessions.tend()


@pytest.fixture
def world() -> World:
    return World()


async def test_who_is_silent_while_somebody_listens_is_closed(world: World) -> None:
    await world.attach("silent")
    lively = await world.attach("lively")
    await world.pass_s(9, lively)
    assert world.ended == []
    await world.pass_s(1, lively)
    assert (world.ended, world.table.adopted) == (["silent"], 0)
    assert causes(world.hub) == {announcements.LEASE_EXPIRED}
    await world.pass_s(30, lively)
    assert world.ended == ["silent"], "one that is heard stays"


@pytest.mark.parametrize("stall_s", [9.6, 10.0, 3_600.0])
async def test_a_journal_that_stood_still_closes_nobody(world: World, stall_s: float) -> None:
    session = await world.attach("w")
    world.table.open["elsewhere"] = (3, world.clock.now_us())
    await world.pass_s(1, session)
    world.clock.s += stall_s
    await world.sessions.tend()  # before anything that arrived meanwhile was read
    assert (world.ended, world.table.adopted) == ([], 1)
    assert set(world.table.open) == {"w", "elsewhere"}
    await world.pass_s(9, session)
    assert set(world.table.open) == {"w", "elsewhere"}
    await world.pass_s(2, session)
    assert set(world.table.open) == {"w"}, "silence counts from the stall on"
    assert world.table.adopted == 1


@pytest.mark.parametrize("is_noticed", [False, True])
async def test_a_stream_that_a_stall_broke_has_the_silence_to_come_back(world: World, is_noticed: bool) -> None:
    session = await world.attach("w")
    await world.pass_s(1, session)
    world.clock.s += 60
    if is_noticed:
        await world.sessions.tend()
        world.clock.s += 0.5
    world.sessions.stream_closed(session)
    await settle()
    assert set(world.table.open) == {"w"}
    await world.pass_s(9)
    assert set(world.table.open) == {"w"}
    await world.pass_s(3)
    assert world.table.open == {}, "and no longer"
    other = await world.attach("other")
    world.sessions.stream_closed(other)
    await settle()
    assert world.table.open == {}, "one that breaks later has the grace"


async def test_leases_are_renewed_also_right_after_a_stall(world: World) -> None:
    await world.attach("w")
    world.clock.s += 300
    await world.sessions.tend()
    assert world.table.tendings[-1].renew == ("w",)


async def test_tends_that_fail_are_a_stall(world: World) -> None:
    session = await world.attach("w")
    await world.pass_s(1, session)
    world.table.fails = True
    for _ in range(4):
        world.clock.s += 1
        with pytest.raises(LanternError):
            await world.sessions.tend()
    world.table.fails = False
    world.clock.s += 1
    await world.sessions.tend()
    assert (world.table.adopted, world.ended) == (1, [])
    assert world.table.tendings[-1].seen == ()


async def test_what_was_heard_is_flushed_by_the_tend_that_succeeds(world: World) -> None:
    session = await world.attach("w")
    world.sessions.heard(session)
    world.table.fails = True
    with pytest.raises(LanternError):
        await world.sessions.tend()
    world.table.fails = False
    await world.sessions.tend()
    assert world.table.tendings[-1].seen == (("w", 1),)


async def test_a_tend_whose_answer_was_lost_is_announced_by_the_next(world: World) -> None:
    lively = await world.attach("lively")
    await world.attach("silent")
    await world.pass_s(9, lively)
    world.table.fails = True
    world.clock.s += 1
    world.sessions.heard(lively)
    with pytest.raises(LanternError):
        await world.sessions.tend()
    assert causes(world.hub) == set()
    world.table.fails = False
    await world.pass_s(1, lively)
    assert causes(world.hub) == {announcements.LEASE_EXPIRED}
    world.hub.sent.clear()
    await world.pass_s(1, lively)
    assert causes(world.hub) == set(), "once"


async def test_a_session_attached_while_its_predecessor_is_closed_stays(world: World) -> None:
    await world.attach("w")
    await world.pass_s(9)
    world.table.meanwhile = lambda: world.attach("w")
    await world.pass_s(1)
    assert (world.ended, set(world.table.open)) == ([], {"w"})
    world.table.inbox = (("w", "run", 1),)
    await world.pass_s(1)
    assert world.told == [("w", ["run"])], "its stream is known"


async def test_what_a_worker_was_told_is_remembered_as_long_as_it_waits(world: World) -> None:
    session = await world.attach("w")
    for number in range(1, 1_001):
        world.sessions.push_inbox("w", f"run{number}", 1)
    assert len(world.told) == 1_000
    world.table.inbox = (("w", "run7", 1), ("w", "run8", 2), ("w", "new", 5))
    await world.pass_s(1, session)
    assert world.told[1_000:] == [("w", ["run8"]), ("w", ["new"])], "only what it was not told"
    assert set(session.told) == {"run7", "run8", "new"}
    await world.pass_s(5, session)
    assert len(world.told) == 1_002
    world.table.inbox = ()
    await world.pass_s(1, session)
    assert session.told == {}


async def test_a_worker_that_does_not_consume_is_told_again(world: World) -> None:
    session = await world.attach("w")
    world.table.inbox = (("w", "run", 1),)
    await world.pass_s(10, session)
    assert len(world.told) == 1
    await world.pass_s(1, session)
    assert len(world.told) == 2
    await world.pass_s(9, session)
    assert len(world.told) == 2
    world.sessions.push_inbox("w", "run", 3)
    world.sessions.push_inbox("w", "run", 2)
    assert session.told["run"][0] == 3, "two that come in the other order"


async def test_many_workers_inboxes_are_looked_at_by_turns(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tended_sessions, "INBOX_LOOK_WORKERS_MAX", 2)
    all_of_them = [await world.attach(worker_id) for worker_id in "abcde"]
    await world.pass_s(3, *all_of_them)
    looks = [tending.inbox_of for tending in world.table.tendings]
    assert looks == [("a", "b"), ("c", "d"), ("e", "a")]
    world.sessions.stream_closed(all_of_them[1])
    await world.pass_s(1, *all_of_them)
    assert world.table.tendings[-1].inbox_of == ("c", "d")
    await world.sessions.close()


@pytest.mark.parametrize("stall_s", [10.0, 3_600.0])
async def test_a_stall_between_the_look_and_the_transaction_closes_nobody(world: World, stall_s: float) -> None:
    session = await world.attach("w")
    world.table.open["elsewhere"] = (3, world.clock.now_us())
    await world.pass_s(2, session)
    world.clock.s += 1
    world.table.stands_still_s = stall_s
    await world.sessions.tend()
    assert (world.ended, world.table.adopted) == ([], 0), "nobody had listened"
    world.clock.s += 1
    await world.sessions.tend()
    assert (set(world.table.open), world.table.adopted) == ({"w", "elsewhere"}, 1)
    await world.pass_s(11, session)
    assert set(world.table.open) == {"w"}, "silence counts from then on"
    assert world.table.adopted == 1


@pytest.mark.parametrize("minutes", [10, -10])
async def test_a_database_whose_clock_was_set_closes_nobody(world: World, minutes: int) -> None:
    session = await world.attach("w")
    world.table.open["elsewhere"] = (3, world.clock.now_us())
    await world.pass_s(5, session)
    world.table.clock_set_us = minutes * 60_000_000
    await world.pass_s(2, session)
    assert (set(world.table.open), world.table.adopted) == ({"w", "elsewhere"}, 1)
    await world.pass_s(11, session)
    assert set(world.table.open) == {"w"}, "and the dead are found as soon as ever"
    assert (world.ended, world.table.adopted) == ([], 1)


async def test_a_helper_process_keeps_the_session_of_a_worker_that_is_stuck(world: World) -> None:
    session = await world.attach("w")
    for _ in range(30):
        await world.pass_s(1)
        assert await world.sessions.keep("w", session.number)
    assert (world.ended, world.table.looks) == ([], 0)
    assert world.table.tendings[-1].seen == (("w", session.number),)
    assert not await world.sessions.keep("w", session.number - 1), "an earlier session"
    await world.pass_s(11)
    assert world.ended == ["w"]
    assert not await world.sessions.keep("w", session.number)


async def test_a_session_of_another_journal_is_kept_here(world: World) -> None:
    world.table.open["w"] = (7, world.clock.now_us())
    assert not await world.sessions.keep("w", 6)
    assert not await world.sessions.keep("stranger", 1)
    assert not await world.sessions.keep("w", 8)
    looks = world.table.looks
    for _ in range(30):
        assert await world.sessions.keep("w", 7)
        await world.pass_s(1)
    assert "w" in world.table.open
    assert world.table.looks == looks + 1, "asked once"
    world.table.open["w"] = (8, world.clock.now_us())  # attached elsewhere
    assert await world.sessions.keep("w", 7), "not known here yet"
    await world.pass_s(1)
    assert not await world.sessions.keep("w", 7)
    assert await world.sessions.keep("w", 8)
    await world.pass_s(12)
    assert "w" not in world.table.open, "silence ends it as any other"


async def test_a_stream_that_breaks_ends_a_session_that_is_kept(world: World) -> None:
    session = await world.attach("w")
    await world.pass_s(2, session)
    world.sessions.stream_closed(session)
    assert await world.sessions.keep("w", session.number), "within the grace"
    await settle()
    assert world.table.open == {}
    assert not await world.sessions.keep("w", session.number)


async def test_a_session_that_was_followed_elsewhere_ends_its_stream(world: World) -> None:
    session = await world.attach("w")
    world.table.open["w"] = (session.number + 1, world.clock.now_us())
    await world.pass_s(1, session)
    assert (world.ended, set(world.table.open)) == (["w"], {"w"})


async def test_what_was_kept_is_flushed_by_the_tend_that_succeeds(world: World) -> None:
    world.table.open["w"] = (7, world.clock.now_us())
    assert await world.sessions.keep("w", 7)
    world.table.fails = True
    with pytest.raises(LanternError):
        await world.sessions.tend()
    world.table.fails = False
    await world.sessions.tend()
    assert world.table.tendings[-1].seen == (("w", 7),)


async def test_a_session_that_began_after_a_stall_has_but_the_grace(world: World) -> None:
    await world.pass_s(1)
    world.clock.s += 60
    await world.sessions.tend()
    world.clock.s += 0.1
    session = await world.attach("w")
    world.sessions.stream_closed(session)
    await settle()
    assert world.table.open == {}
