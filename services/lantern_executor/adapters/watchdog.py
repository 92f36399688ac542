"""Watches over the event loop from a thread: says where it stands still, and ends the process when it does for good.

A worker whose loop is stuck drives nothing, answers nobody, and cannot even be drained. Its runs are taken over when
its session is found silent; the process itself is ended here, so that whoever supervises it starts a new one.
"""

import asyncio
import logging
import os
import sys
import threading
import traceback
from time import sleep

from lantern_executor.domain.stall import StallMeter

log = logging.getLogger(__name__)

LOOK_S = 0.5
WARN_S = 2.0
EXIT_STUCK = 70
"""EX_SOFTWARE of sysexits.h."""

FRAMES_SHOWN = 3


class Watchdog:
    """One per process; `start` is called in the loop that it watches."""

    def __init__(self, limit_s: float) -> None:
        self._meter = StallMeter(look_s=LOOK_S, warn_s=WARN_S, limit_s=limit_s)
        self._beats = 0
        self._thread_id = 0

    def start(self) -> None:
        """Begins to beat and to watch."""
        self._thread_id = threading.get_ident()
        self._beat(asyncio.get_running_loop())
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        self._beats += 1
        loop.call_later(LOOK_S / 2, self._beat, loop)

    def _watch(self) -> None:
        while True:
            sleep(LOOK_S)
            match self._meter.look(self._beats):
                case "stalls":
                    log.warning("the event loop stands still", extra={"action": "loop_stalled", **self._facts()})
                case "stuck":
                    log.error("the event loop is stuck", extra={"action": "loop_stuck", **self._facts()})
                    logging.shutdown()
                    os._exit(EXIT_STUCK)
                case _:
                    pass

    def _facts(self) -> dict[str, object]:
        """How long, and what it executes: the innermost frames."""
        frame = sys._current_frames().get(self._thread_id)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - the one way to see another thread
        stack = traceback.extract_stack(frame)[-FRAMES_SHOWN:] if frame else []
        return {
            "stalled_s": self._meter.stalled_s,
            "where": [f"{entry.filename}:{entry.lineno} {entry.name}" for entry in reversed(stack)],
            "hint": "async steps and workflow code must not compute or block for long; plain functions run in threads",
        }
