"""The helper process of an executor: keeps its session known to the journal while its own loop cannot speak.

Started by the executor as `python -m lantern_executor.adapters.keeper PARENT_PID LOG_LEVEL`; runs no user code, so
that no step, whatever it does with the interpreter, costs the executor its leases (SPEC L2). It speaks for its parent
only while that is alive: told so by the parent's event loop each second, for a while on trust, and not at all while the
parent is stopped (SIGSTOP) or gone. It ends with its parent, however that ends.
"""

import asyncio
import itertools
import logging
import os
import signal
import sys
from pathlib import Path
from time import monotonic

import grpc

from lantern.api.journal.v1 import worker_service_pb2 as pb
from lantern.api.journal.v1 import worker_service_pb2_grpc as pb_grpc
from lantern_executor.adapters.keeper_pipe import IGNORED_SIGNALS, Lines, Order, Report
from lantern_kernel import reasons
from lantern_kernel.errors import LanternError
from lantern_serving import channels, logs
from lantern_serving.parents import end_with

log = logging.getLogger("lantern_executor.keeper")

PING_INTERVAL_S = 1.0
PINGS_PER_SILENCE = 10
"""At least; a journal with a shorter patience than usual is pinged more often."""

TRIES_PER_SILENCE = 4
"""A ping that is not answered within this share of the journal's patience goes to the next process."""

RECONNECT_S_MIN = 0.1
RECONNECT_S_MAX = 1.0
FAILURES_COUNTED = 100
NOTABLE_SILENCE_S = 5.0
READ_BYTES = 65_536


class Keeper:
    """Takes orders, pings, reports. `run` does it until the process ends."""

    def __init__(self, parent_pid: int, orders: int, reports: int) -> None:
        self._parent_pid, self._orders, self._reports = parent_pid, orders, reports
        self._lines = Lines()
        self._order: Order | None = None
        self._heard_s = monotonic()
        self._news = asyncio.Event()  # a session or an address that is not the last one
        self._pings = itertools.count(1)
        self._unknown = 0  # the session that the journal knows no more
        self._failures = 0  # since the last answer
        self._noted = ""  # what was logged of the parent's present silence

    async def run(self) -> None:
        """Speaks to one journal process after another."""
        os.set_blocking(self._orders, False)
        os.set_blocking(self._reports, False)
        asyncio.get_running_loop().add_reader(self._orders, self._read)
        await self._news.wait()
        at = 0
        while True:
            addresses = self._present().addresses
            address = addresses[at % len(addresses)]
            try:
                await self._speak(address)
                at = 0  # the executor has gone to another one: so do we
                continue
            except asyncio.CancelledError:
                cause = "the call was cancelled"  # by grpc.aio, which tells a lost connection so at times
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError, TimeoutError, LanternError) as error:
                cause = error.code().name if isinstance(error, grpc.aio.AioRpcError) else repr(error)
            if self._failures < len(addresses):  # once for each, not as long as it lasts
                log.info("no answer", extra={"action": "keeper_unanswered", "address": address, "cause": cause})
            await asyncio.sleep(min(RECONNECT_S_MIN * 2 ** (self._failures // len(addresses)), RECONNECT_S_MAX))
            self._failures = min(self._failures + 1, FAILURES_COUNTED)
            at += 1

    def _present(self) -> Order:
        assert self._order is not None, "run waits for the first one"
        return self._order

    def _read(self) -> None:
        try:
            data = os.read(self._orders, READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            os._exit(0)  # our parent has ended, or wants us to
        for line in self._lines.feed(data):
            known, self._order = self._order, Order.of(line)
            self._heard_s = monotonic()
            if known is None or _subject(known) != _subject(self._order):
                self._news.set()
            self._report(Report(beat=self._order.beat))

    def _report(self, report: Report) -> None:
        try:
            os.write(self._reports, report.line())
        except BlockingIOError:
            pass  # the parent has not read for long; what it will need is the last report
        except OSError:
            os._exit(0)

    async def _speak(self, address: str) -> None:
        """Pings one process; returns when the executor has gone to another, raises where there is no answer."""
        channel = channels.connect(address)
        call = pb_grpc.JournalWorkerServiceStub(channel).KeepSession()
        at_first = self._present().addresses[0]
        try:
            while (order := self._present()).addresses[0] == at_first:
                self._news.clear()
                if self._may_speak(order):
                    await self._ping(call, order)  # pyright: ignore[reportArgumentType] - types-grpcio says less
                await self._pause(min(PING_INTERVAL_S, order.silence_s / PINGS_PER_SILENCE))
        finally:
            call.cancel()
            await channel.close()

    async def _ping(
        self, call: "grpc.aio.StreamStreamCall[pb.KeepSessionRequest, pb.KeepSessionResponse]", order: Order
    ) -> None:
        sent_s = monotonic()
        async with asyncio.timeout(order.silence_s / TRIES_PER_SILENCE):
            await call.write(
                pb.KeepSessionRequest(
                    worker_id=order.worker_id, session_number=order.session_number, ping=next(self._pings)
                )
            )
            answer = await call.read()
        if not isinstance(answer, pb.KeepSessionResponse):
            raise LanternError(reasons.UNAVAILABLE, "the journal ended the stream")
        self._failures = 0
        if not answer.current:
            self._unknown = answer.session_number
        self._report(
            Report(
                beat=self._present().beat,
                session_number=answer.session_number,
                current=answer.current,
                sent_s=sent_s,
                answered_s=monotonic(),
            )
        )

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            pass

    def _may_speak(self, order: Order) -> bool:
        """Whether there is a session to speak for, and its worker is alive as far as we can tell."""
        silent_s = monotonic() - self._heard_s
        if silent_s > order.patience_s:
            self._note("given_up", "the executor is stuck for good; nobody speaks for it any more", silent_s)
        elif silent_s > NOTABLE_SILENCE_S:
            self._note("speaking", "the executor's event loop is silent; its session is kept", silent_s)
        else:
            self._noted = ""
        return silent_s <= order.patience_s and order.session_number != self._unknown and not self._is_stopped()

    def _note(self, what: str, message: str, silent_s: float) -> None:
        if self._noted != what:
            self._noted = what
            log.warning(message, extra={"action": f"keeper_{what}", "silent_s": round(silent_s, 1)})

    def _is_stopped(self) -> bool:
        """Whether our parent is stopped, by a signal or a debugger; ends us where it is gone."""
        if os.getppid() != self._parent_pid:
            os._exit(0)
        try:
            stat = Path(f"/proc/{self._parent_pid}/stat").read_bytes()
        except OSError:
            return False  # a system without /proc: only its silence tells
        return stat.rpartition(b")")[2].split()[0] in {b"T", b"t"}


def _subject(order: Order) -> tuple[int, str]:
    return order.session_number, order.addresses[0]


def main() -> None:
    """Runs until the parent ends."""
    parent_pid, log_level = int(sys.argv[1]), sys.argv[2]
    for number in IGNORED_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    end_with(parent_pid, signal.SIGKILL)
    logs.configure("executor-keeper", log_level)
    asyncio.run(Keeper(parent_pid, sys.stdin.fileno(), sys.stdout.fileno()).run())


if __name__ == "__main__":
    main()
