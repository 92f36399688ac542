"""The executor's end of its helper process: starts it, tells it each second that the loop moves, hears what it got.

See `keeper`. One that ends or hangs is replaced; until then, and where none can be started, the pings in the session's
own stream do.
"""

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from time import monotonic

from lantern_executor.adapters.addresses import JournalAddresses
from lantern_executor.adapters.keeper_pipe import IGNORED_SIGNALS, Lines, Order, Report

log = logging.getLogger(__name__)

BEAT_S = 1.0
BEATS_UNREAD_MAX = 5
"""A helper that has read none of so many is hung. Beats are counted, not seconds: while we stand still none is sent."""

START_BEATS_MAX = 30
"""The same for one that has just been started, on a machine that may be busy."""

RESTART_S_MIN = 1.0
RESTART_S_MAX = 30.0
STABLE_S = 60.0
"""A helper that lived longer is replaced at once."""

LOOK_INTERVAL_S = 0.05
"""What is in the pipe is looked at no more often: shorter than any grace."""

READ_BYTES = 65_536
MODULE = "lantern_executor.adapters.keeper"


class KeeperProcess:
    """One at a time. Started from the main thread only: the kernel ends it when that *thread* ends.

    Args:
        worker_id: For whom it speaks.
        addresses: Where the journal listens; the present one may change at any time.
        patience_s: How long it speaks on while our loop stands still.
    """

    def __init__(self, worker_id: str, addresses: JournalAddresses, patience_s: float) -> None:
        self.listener: Callable[[Report], None] = lambda report: None
        self._worker_id, self._addresses, self._patience_s = worker_id, addresses, patience_s
        self._session_number = 0
        self._silence_s = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self._ended: list[subprocess.Popen[bytes]] = []
        self._lines = Lines()
        self._beat = 0
        self._beat_read = 0
        self._beats_unread_max = START_BEATS_MAX
        self._started_s = 0.0
        self._restart_s = RESTART_S_MIN
        self._looked_s = 0.0
        self._task: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        """Of the present process; 0 where there is none."""
        return self._process.pid if self._process is not None else 0

    def start(self) -> None:
        """Starts it, and keeps it."""
        self._start_process()
        self._task = asyncio.create_task(self._keep(), name="keeper")

    def close(self) -> None:
        """Ends it."""
        if self._task is not None:
            self._task.cancel()
        self._end_process()
        for process in self._ended:
            process.wait()

    def tell(self, session_number: int, silence_s: float) -> None:
        """The worker has attached this session; the helper is told at once."""
        self._session_number, self._silence_s = session_number, silence_s
        self._send()

    def look(self) -> None:
        """Takes what the helper has reported, without waiting: after a stall it lies there, and nobody was told yet."""
        now_s = monotonic()
        if self._process is not None and now_s - self._looked_s >= LOOK_INTERVAL_S:
            self._looked_s = now_s
            self._read(self._process)

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            self._ended = [process for process in self._ended if process.poll() is None]
            if self._process is None:
                if monotonic() - self._started_s >= self._restart_s:
                    self._start_process()
            elif self._beat - self._beat_read > self._beats_unread_max:
                self._lost("it does not read")
            self._send()

    def _start_process(self) -> None:
        if self._started_s and monotonic() - self._started_s < STABLE_S:
            self._restart_s = min(self._restart_s * 2, RESTART_S_MAX)
        else:
            self._restart_s = RESTART_S_MIN
        self._started_s = monotonic()
        # It begins with these signals blocked, as a mask is inherited: one to the whole group would else end it while
        # it still starts. What comes for us meanwhile is delivered after it.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, IGNORED_SIGNALS)
        try:
            # Never a fork that goes on in Python: grpc does not survive one.
            process = subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, "-m", MODULE, str(os.getpid()), logging.getLevelName(log.getEffectiveLevel())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
            )
        except OSError as error:
            log.warning("no helper process", extra={"action": "keeper_not_started", "cause": str(error)})
            return
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        assert process.stdin is not None and process.stdout is not None, "both are pipes"  # noqa: PT018
        os.set_blocking(process.stdin.fileno(), False)
        os.set_blocking(process.stdout.fileno(), False)
        self._process, self._lines = process, Lines()
        self._beat_read, self._beats_unread_max = self._beat, START_BEATS_MAX
        asyncio.get_running_loop().add_reader(process.stdout.fileno(), self._read, process)
        log.info("helper process started", extra={"action": "keeper_started", "pid": process.pid})
        self._send()

    def _end_process(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None and process.stdout is not None, "both are pipes"  # noqa: PT018
        asyncio.get_running_loop().remove_reader(process.stdout.fileno())
        process.stdin.close()
        process.stdout.close()
        process.kill()  # it may hang; there is nothing that it could lose
        self._ended.append(process)

    def _lost(self, cause: str) -> None:
        log.warning("helper process lost", extra={"action": "keeper_lost", "pid": self.pid, "cause": cause})
        self._end_process()

    def _send(self) -> None:
        process = self._process
        if process is None or process.stdin is None or not self._session_number:
            return
        self._beat += 1
        order = Order(
            beat=self._beat,
            worker_id=self._worker_id,
            session_number=self._session_number,
            addresses=self._addresses.in_order,
            silence_s=self._silence_s,
            patience_s=self._patience_s,
        )
        try:
            os.write(process.stdin.fileno(), order.line())
        except BlockingIOError:
            pass  # it hangs: the beats that it has not read tell
        except OSError as error:
            self._lost(str(error))

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        while process is self._process and process.stdout is not None:
            try:
                data = os.read(process.stdout.fileno(), READ_BYTES)
            except BlockingIOError:
                return
            except OSError as error:
                self._lost(str(error))
                return
            if not data:
                self._lost("it ended")
                return
            for line in self._lines.feed(data):
                report = Report.of(line)
                self._beat_read = max(self._beat_read, report.beat)
                self._beats_unread_max = BEATS_UNREAD_MAX
                if report.session_number:
                    self.listener(report)
