"""Goal: the session outlives whatever goes wrong in it, and one append that cannot be sent costs no other.

Method: the real Session on simulated time over streams that are queues: the far side takes every append it is sent.
"""

import asyncio
from collections.abc import Sequence

import grpc
import pytest
from executor_fakes import simulate
from session_fakes import FarSide

from lantern_executor.adapters.addresses import JournalAddresses
from lantern_executor.adapters.session import Session, WorkerIdentity
from lantern_executor.domain.tail import Append
from lantern_kernel import reasons
from lantern_kernel.errors import LanternError
from lantern_kernel.event import NewEvent


def _append(run_id: str, *, step_id: str = "a", size: int = 10, first_seq: int = 2) -> Append:
    event = NewEvent(kind="step_started", step_id=step_id, payload=bytes(size), salt=bytes(16))
    return Append(
        run_id=run_id,
        epoch=1,
        first_seq=first_seq,
        previous_digest=bytes(32),
        events=(event,),
        consumed_inbox_number=0,
    )


def _session() -> Session:
    return Session(JournalAddresses(["journal:1"]), WorkerIdentity(worker_id="w1", capacity=1, offers=()))


UNEXPECTED = [ValueError("no address"), RuntimeError("closed"), AssertionError(), KeyError("x")]


def test_unexpected_faults_are_survived_wherever_they_come_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        far = FarSide(monkeypatch)
        far.connect_faults = list(UNEXPECTED)
        session = _session()
        standing = session.start("executor:1")
        await session.wait_attached()
        far.write_faults = list(UNEXPECTED)
        far.close_faults = list(UNEXPECTED)
        await session.append(_append("run1"))
        assert far.run_ids == ["run1"]
        assert far.attaches == 1 + len(UNEXPECTED)
        assert not standing.done()
        assert session.trusted()
        await session.close()

    simulate(main())


def test_a_fault_without_end_is_retried_with_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        far = FarSide(monkeypatch)
        far.connect_faults = [ValueError("no address") for _ in range(1_000)]
        session = _session()
        standing = session.start("executor:1")
        await asyncio.sleep(60)
        assert not standing.done()
        assert 60 < 1_000 - len(far.connect_faults) < 70
        await session.close()

    simulate(main())


@pytest.mark.parametrize(
    "poison",
    [
        _append("bad", step_id="\ud800"),  # no UTF-8
        _append("bad", first_seq=2**63),  # no int64
    ],
)
@pytest.mark.parametrize("at", [0, 1, 2])
def test_an_append_that_cannot_be_encoded_is_answered_and_costs_no_other(
    monkeypatch: pytest.MonkeyPatch, poison: Append, at: int
) -> None:
    async def main() -> None:
        far = FarSide(monkeypatch)
        session = _session()
        session.start("executor:1")
        await session.wait_attached()
        appends = [_append("run1"), _append("run2")]
        appends.insert(at, poison)
        answers: Sequence[object] = await asyncio.gather(*map(session.append, appends), return_exceptions=True)
        error = answers[at]
        assert isinstance(error, LanternError)
        assert error.reason == reasons.INTERNAL
        assert [answer for answer in answers if answer is not error] == [None, None]
        assert far.run_ids == ["run1", "run2"]
        assert far.attaches == 1
        await session.close()

    simulate(main())


def test_what_was_being_sent_when_the_stream_broke_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        far = FarSide(monkeypatch)
        session = _session()
        returns: list[int] = []
        session.return_listener = lambda: returns.append(1)
        session.start("executor:1")
        await session.wait_attached()
        far.write_faults = [
            grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata()),
            ValueError("odd"),
        ]
        await asyncio.gather(*(session.append(_append(f"run{n}", size=200_000)) for n in range(10)))
        assert sorted(far.run_ids) == sorted(f"run{n}" for n in range(10))
        assert (far.attaches, len(returns)) == (3, 2)
        await session.close()

    simulate(main())
