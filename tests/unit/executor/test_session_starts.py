"""Goal: starts that ride in the session's stream are answered each for itself, and none waits for ever.

Method: the real Session on simulated time over streams that are queues: the far side answers as it is told.
"""

import asyncio

import pytest
from executor_fakes import simulate
from session_fakes import FarSide

from lantern.api.journal.v1 import journal_service_pb2 as journal_pb
from lantern_executor.adapters.addresses import JournalAddresses
from lantern_executor.adapters.session import MESSAGE_BYTES_MAX, Session, WorkerIdentity
from lantern_kernel import reasons
from lantern_kernel.errors import LanternError
from lantern_serving import channels


async def _attached(far: FarSide) -> Session:
    session = Session(JournalAddresses(["journal:1"]), WorkerIdentity(worker_id="w1", capacity=1, offers=()))
    session.start("executor:1")
    await session.wait_attached()
    return session


def _request(number: int, agent: str = "order", size: int = 2) -> journal_pb.CreateRunRequest:
    return journal_pb.CreateRunRequest(request_id=f"r{number}", agent_name=agent, input=b"1" * size)


def test_each_start_gets_its_own_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        far = FarSide(monkeypatch)
        far.takes_starts = True
        session = await _attached(far)
        assert session.takes_starts
        agents = ["order", "", "order"]
        made = await asyncio.gather(
            *(session.create_run(_request(n, agent)) for n, agent in enumerate(agents)), return_exceptions=True
        )
        first, refused, third = made
        assert isinstance(first, journal_pb.CreateRunResponse)
        assert isinstance(third, journal_pb.CreateRunResponse)
        assert (first.run.run_id, third.run.run_id) == ("run of r0", "run of r2")
        assert isinstance(refused, LanternError)
        assert (refused.reason, refused.message) == (reasons.INVALID_FIELD, "agent_name: is empty")
        await session.close()

    simulate(main())


def test_many_large_starts_go_in_messages_of_their_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        far = FarSide(monkeypatch)
        far.takes_starts = True
        session = await _attached(far)
        count = 20
        await asyncio.gather(*(session.create_run(_request(n, size=MESSAGE_BYTES_MAX // 4)) for n in range(count)))
        assert [start.request.request_id for start in far.starts] == [f"r{n}" for n in range(count)]
        assert len({start.start_id for start in far.starts}) == count
        await session.close()

    simulate(main())


def test_a_stream_that_breaks_gives_its_starts_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        far = FarSide(monkeypatch)
        far.takes_starts, far.unanswered = True, "silent"
        session = await _attached(far)
        starting = asyncio.create_task(session.create_run(_request(1, "silent")))
        await asyncio.sleep(0.1)
        assert not starting.done()
        assert far.stream is not None
        far.stream.answers.put_nowait(None)  # pyright: ignore[reportArgumentType] - the end of the stream
        with pytest.raises(LanternError) as caught:
            await starting
        assert caught.value.reason == reasons.UNAVAILABLE
        await session.wait_attached()
        assert (await session.create_run(_request(1))).created, "the next stream takes it"
        await session.close()

    simulate(main())


def test_a_start_without_an_answer_ends_at_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        far = FarSide(monkeypatch)
        far.takes_starts, far.unanswered = True, "silent"
        session = await _attached(far)
        began_s = asyncio.get_running_loop().time()
        with pytest.raises(LanternError) as caught:
            await session.create_run(_request(1, "silent"))
        assert caught.value.reason == reasons.DEADLINE_EXCEEDED
        assert asyncio.get_running_loop().time() - began_s == pytest.approx(channels.RPC_DEADLINE_S, abs=0.1)
        assert (await session.create_run(_request(2))).created
        await session.close()

    simulate(main())


def test_a_journal_from_before_is_not_sent_any(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        session = await _attached(FarSide(monkeypatch))
        assert not session.takes_starts
        await session.close()

    simulate(main())
