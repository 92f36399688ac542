"""Goal: the helper process says what it is told, to whoever answers, and nothing of a worker that it knows to be gone.

Method: the real `python -m lantern_executor.adapters.keeper` with the test as its parent, and journals that answer as
scripted, one that answers nobody among them.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any, Self

from lantern.api.journal.v1 import worker_service_pb2 as pb
from lantern.api.journal.v1 import worker_service_pb2_grpc as pb_grpc
from lantern_executor.adapters.addresses import JournalAddresses
from lantern_executor.adapters.keeper_pipe import Order, Report
from lantern_executor.adapters.keeper_process import KeeperProcess
from lantern_serving.server import Server

SILENCE_S = 2.0
PATIENCE_S = 2.0
WAIT_S = 10.0


class Script(pb_grpc.JournalWorkerServiceServicer):
    """Knows some sessions, and notes what it is asked."""

    def __init__(self) -> None:
        self.known = {("w1", 1)}
        self.asked: list[tuple[float, int]] = []

    async def KeepSession(  # noqa: N802 - gRPC names it
        self, request_iterator: AsyncIterator[pb.KeepSessionRequest], context: Any
    ) -> AsyncIterator[pb.KeepSessionResponse]:
        async for request in request_iterator:
            self.asked.append((monotonic(), request.session_number))
            yield pb.KeepSessionResponse(
                pong=request.ping,
                session_number=request.session_number,
                current=(request.worker_id, request.session_number) in self.known,
            )


def _scripted() -> Script:
    return Script()  # pyright: ignore[reportAbstractUsage] - only KeepSession is called


@asynccontextmanager
async def serving(journal: Script) -> AsyncGenerator[str]:
    """The address of a running journal."""
    server = Server(
        "127.0.0.1:0",
        {
            "lantern.api.journal.v1.JournalWorkerService": lambda to: (
                pb_grpc.add_JournalWorkerServiceServicer_to_server(journal, to)
            )
        },
    )
    await server.start()
    try:
        yield server.address
    finally:
        await server.drain(0)


@asynccontextmanager
async def deaf() -> AsyncGenerator[str]:
    """The address of somebody who takes connections and never answers."""

    async def connected(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield "{}:{}".format(*server.sockets[0].getsockname())
    finally:
        server.close()


class Helper:
    """The process, its orders and its reports."""

    def __init__(self, *addresses: str) -> None:
        self._addresses = addresses
        self._beat = 0
        self.process: asyncio.subprocess.Process | None = None
        self.reports: list[Report] = []

    async def __aenter__(self) -> Self:
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "lantern_executor.adapters.keeper", str(os.getpid()), "INFO"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self.process is not None
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()

    def order(self, session_number: int = 1, *addresses: str) -> None:
        """Says that the loop moves, and what its session is."""
        assert self.process is not None
        assert self.process.stdin is not None
        self._beat += 1
        order = Order(
            beat=self._beat,
            worker_id="w1",
            session_number=session_number,
            addresses=addresses or self._addresses,
            silence_s=SILENCE_S,
            patience_s=PATIENCE_S,
        )
        self.process.stdin.write(order.line())

    async def report(self) -> Report:
        """The next one."""
        assert self.process is not None
        assert self.process.stdout is not None
        async with asyncio.timeout(WAIT_S):
            return Report.of(await self.process.stdout.readline())

    async def answer(self) -> Report:
        """The next one that tells of an answer."""
        while True:
            report = await self.report()
            if report.session_number:
                return report


async def test_pings_are_answered_with_the_time_at_which_they_were_sent() -> None:
    journal = _scripted()
    async with serving(journal) as address, Helper(address) as helper:
        before_s = monotonic()
        helper.order()
        assert await helper.report() == Report(beat=1)
        answer = await helper.answer()
        assert (answer.session_number, answer.current, answer.beat) == (1, True, 1)
        assert before_s < answer.sent_s < answer.answered_s < monotonic(), "one clock for both processes"
        next_answer = await helper.answer()
        assert SILENCE_S / 20 < next_answer.sent_s - answer.sent_s < SILENCE_S / 2, "ten in a silence"


async def test_a_session_that_is_unknown_is_not_spoken_for_until_the_next() -> None:
    journal = _scripted()
    journal.known = {("w1", 3)}
    async with serving(journal) as address, Helper(address) as helper:
        helper.order(2)
        answer = await helper.answer()
        assert (answer.session_number, answer.current) == (2, False)
        await asyncio.sleep(SILENCE_S / 2)
        assert [number for _, number in journal.asked] == [2]
        helper.order(3)
        answer = await helper.answer()
        assert (answer.session_number, answer.current) == (3, True)


async def test_who_does_not_answer_is_passed_over() -> None:
    journal = _scripted()
    async with deaf() as silent, serving(journal) as address, Helper(silent, "127.0.0.1:1", address) as helper:
        began_s = monotonic()
        helper.order()
        beating = asyncio.create_task(_beat(helper))
        answer = await helper.answer()
        assert answer.current
        assert answer.sent_s - began_s < SILENCE_S, "in time"
        other = _scripted()
        async with serving(other) as moved_to:
            helper.order(1, moved_to, silent)
            async with asyncio.timeout(WAIT_S):
                while not other.asked:  # noqa: ASYNC110 - of another process
                    await asyncio.sleep(0.02)
        beating.cancel()


async def _beat(helper: Helper) -> None:
    while True:
        await asyncio.sleep(0.3)
        helper.order()


async def test_a_loop_that_is_silent_for_long_is_given_up_and_taken_up_again() -> None:
    journal = _scripted()
    async with serving(journal) as address, Helper(address) as helper:
        helper.order()
        await helper.report()
        heard_s = monotonic()
        await helper.answer()
        await asyncio.sleep(PATIENCE_S + SILENCE_S)
        last_s, _ = journal.asked[-1]
        assert PATIENCE_S - SILENCE_S / 2 < last_s - heard_s < PATIENCE_S + SILENCE_S
        asked = len(journal.asked)
        helper.order()
        async with asyncio.timeout(WAIT_S):
            while len(journal.asked) == asked:  # noqa: ASYNC110 - of another process
                await asyncio.sleep(0.02)


async def test_it_ends_with_its_pipe_and_by_no_polite_signal() -> None:
    async with Helper("127.0.0.1:1") as helper:
        helper.order()
        await helper.report()
        assert helper.process is not None
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            helper.process.send_signal(number)
        helper.order()
        assert await helper.report() == Report(beat=2)
        assert helper.process.stdin is not None
        helper.process.stdin.close()
        async with asyncio.timeout(WAIT_S):
            assert await helper.process.wait() == 0


async def test_a_helper_that_ended_is_replaced() -> None:
    journal = _scripted()
    async with serving(journal) as address:
        keeper = KeeperProcess("w1", JournalAddresses([address]), PATIENCE_S)
        answers: asyncio.Queue[Report] = asyncio.Queue()
        keeper.listener = answers.put_nowait
        keeper.start()
        try:
            keeper.tell(1, SILENCE_S)
            async with asyncio.timeout(WAIT_S):
                await answers.get()
                former = keeper.pid
                os.kill(former, signal.SIGKILL)
                while keeper.pid in (0, former):  # noqa: ASYNC110 - of another process
                    await asyncio.sleep(0.02)
                while not answers.empty():
                    answers.get_nowait()
                assert (await answers.get()).current, "the new one knows the session"
        finally:
            keeper.close()
        assert keeper.pid == 0


async def test_a_signal_to_a_helper_that_still_starts_does_not_end_it() -> None:
    journal = _scripted()
    async with serving(journal) as address:
        keeper = KeeperProcess("w1", JournalAddresses([address]), PATIENCE_S)
        answers: asyncio.Queue[Report] = asyncio.Queue()
        keeper.listener = answers.put_nowait
        keeper.start()
        try:
            started = keeper.pid
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                os.kill(started, number)
            keeper.tell(1, SILENCE_S)
            async with asyncio.timeout(WAIT_S):
                assert (await answers.get()).current
            assert keeper.pid == started
        finally:
            keeper.close()
        assert not signal.pthread_sigmask(signal.SIG_BLOCK, []), "our own mask is as it was"
