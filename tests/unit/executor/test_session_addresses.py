"""Goal: of several journal processes, one that is lost, leaves or stands still costs a worker a re-attach, no more.

Method: the real Session on simulated time over streams that are queues, each with the address that it was opened to,
and a helper process that says what the test lets it say.
"""

import asyncio
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any

import pytest
from executor_fakes import simulate
from session_fakes import FarSide

from lantern.api.journal.v1 import worker_service_pb2 as pb
from lantern_executor.adapters.addresses import JournalAddresses
from lantern_executor.adapters.keeper_pipe import Lines, Order, Report
from lantern_executor.adapters.session import Session, WorkerIdentity

Scenario = Callable[[FarSide, Session, "SilentKeeper"], Coroutine[Any, Any, None]]


class SilentKeeper:
    """The helper process: what it was told, and what the test lets it report."""

    def __init__(self) -> None:
        self.listener: Callable[[Report], None] = lambda report: None
        self.told: list[int] = []
        self.in_pipe: list[Report] = []
        self.closed = False

    def start(self) -> None:
        return

    def close(self) -> None:
        self.closed = True

    def tell(self, session_number: int, silence_s: float) -> None:
        assert silence_s == 10.0
        self.told.append(session_number)

    def look(self) -> None:
        reports, self.in_pipe = self.in_pipe, []
        for report in reports:
            self.listener(report)


def run(monkeypatch: pytest.MonkeyPatch, scenario: Scenario, *addresses: str) -> FarSide:
    """Plays a scenario with an attached session."""
    far, keeper = FarSide(monkeypatch), SilentKeeper()

    async def main() -> None:
        as_any: Any = keeper
        identity = WorkerIdentity(worker_id="w1", capacity=1, offers=())
        session = Session(JournalAddresses(addresses), identity, as_any)
        session.start("executor:1")
        await session.wait_attached()
        await scenario(far, session, keeper)
        await session.close()
        assert keeper.closed

    simulate(main())
    return far


def test_a_journal_that_leaves_is_left_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(far: FarSide, session: Session, keeper: SilentKeeper) -> None:
        for _ in range(3):
            far.say(pb.SessionResponse(move=True))
            await asyncio.sleep(0.1)
            assert session.trusted()
        assert keeper.told == [1, 2, 3, 4]
        await session.set_draining()
        assert session.addresses.present == "b:1", "who drains stays"

    assert run(monkeypatch, scenario, "a:1", "b:1").attached_at == ["a:1", "b:1", "a:1", "b:1", "b:1"]


def test_a_journal_that_stands_still_is_left_after_half_a_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(far: FarSide, session: Session, _: SilentKeeper) -> None:
        far.stands_still.add("a:1")
        await asyncio.sleep(4)
        assert far.attached_at == ["a:1"]
        await asyncio.sleep(2.5)
        assert far.attached_at == ["a:1", "b:1"]

    run(monkeypatch, scenario, "a:1", "b:1")


def test_the_only_journal_has_the_whole_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(far: FarSide, session: Session, _: SilentKeeper) -> None:
        far.stands_still.add("a:1")
        await asyncio.sleep(9)
        assert far.attaches == 1
        await asyncio.sleep(2.5)
        assert far.attaches == 2

    run(monkeypatch, scenario, "a:1")


def test_journals_that_are_not_there_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(far: FarSide, session: Session, _: SilentKeeper) -> None:
        far.absent = {"a:1", "b:1"}
        far.say(pb.SessionResponse(move=True))
        await asyncio.sleep(0.5)
        far.absent = {"c:1"}
        far.say(pb.SessionResponse(move=True))
        await asyncio.sleep(0.5)

    assert run(monkeypatch, scenario, "a:1", "b:1", "c:1").attached_at == ["a:1", "c:1", "a:1"]


def test_a_session_that_the_journal_knows_no_more_is_attached_anew_and_its_leases_are_in_doubt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(far: FarSide, session: Session, keeper: SilentKeeper) -> None:
        returns: list[int] = []
        session.return_listener = lambda: returns.append(session.number)
        now_s = monotonic()
        keeper.in_pipe = [
            Report(beat=1, session_number=1, current=True, sent_s=now_s, answered_s=now_s),
            Report(beat=2, session_number=1, current=False, sent_s=now_s, answered_s=now_s),
        ]
        assert not session.trusted(), "it looks into the pipe before it answers"
        await session.wait_trusted()
        assert (session.number, returns) == (2, [2])
        keeper.in_pipe = [Report(beat=3, session_number=1, current=False, sent_s=now_s, answered_s=now_s)]
        assert session.trusted(), "that is of the earlier session"
        await asyncio.sleep(1)
        assert far.attaches == 2

    run(monkeypatch, scenario, "a:1")


def test_what_the_helper_was_answered_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(far: FarSide, session: Session, keeper: SilentKeeper) -> None:
        returns: list[int] = []
        session.return_listener = lambda: returns.append(session.number)
        stream = session._stream  # pyright: ignore[reportPrivateUsage]
        assert stream is not None
        stream.trust._answered_s -= 20  # pyright: ignore[reportPrivateUsage] - the loop stood still
        began_s = monotonic() - 20
        keeper.in_pipe = [
            Report(beat=0, session_number=1, current=True, sent_s=began_s + second, answered_s=began_s + second + 0.1)
            for second in range(1, 20)
        ]
        assert session.trusted()
        assert returns == [], "its leases were never in doubt"

    run(monkeypatch, scenario, "a:1")


def test_lines_come_out_whole_however_they_come_in() -> None:
    order = Order(beat=7, worker_id="w", session_number=3, addresses=("a:1", "b:1"), silence_s=1.5, patience_s=60.0)
    report = Report(beat=7, session_number=3, current=True, sent_s=1.25, answered_s=1.5)
    data = order.line() + report.line()
    for size in (1, 7, len(data)):
        lines = Lines()
        found = [line for at in range(0, len(data), size) for line in lines.feed(data[at : at + size])]
        assert [Order.of(found[0]), Report.of(found[1])] == [order, report]
        assert len(found) == 2


def test_addresses_are_tried_in_turn() -> None:
    addresses = JournalAddresses(["a:1", "b:1", "c:1"])
    addresses.go_on()
    assert (addresses.present, addresses.in_order) == ("b:1", ("b:1", "c:1", "a:1"))
    addresses.go_on()
    addresses.go_on()
    assert addresses.present == "a:1"
