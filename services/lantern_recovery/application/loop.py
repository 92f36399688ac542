"""When passes are made: at start, every interval, and at once when the journal announces orphans."""

import asyncio
import logging
from contextlib import aclosing

from lantern_kernel.errors import LanternError
from lantern_recovery.application.sweep import PassReport, Sweep
from lantern_recovery.ports import Journal, Pause, Sources

log = logging.getLogger(__name__)

RETRY_S_MIN, RETRY_S_MAX = 0.05, 2.0
"""Pauses while the journal cannot be reached: doubling between these."""


class SweepLoop:
    """Makes passes for ever; whatever goes wrong is logged and the loop goes on."""

    def __init__(self, sweep: Sweep, pause: Pause, interval_s: float) -> None:
        self._sweep = sweep
        self._pause = pause
        self._interval_s = interval_s

    async def run(self) -> None:
        """Runs until cancelled."""
        retry_s = RETRY_S_MIN
        while True:
            report = await self._try_pass()
            if report is None:
                # The journal is away. The watch says when it is back; this is for the case that only a call failed.
                await self._pause.wait(min(retry_s, self._interval_s))
                retry_s = min(retry_s * 2, RETRY_S_MAX)
                continue
            retry_s = RETRY_S_MIN
            if report.more_at_once:
                await asyncio.sleep(0)
                continue
            again_s = self._interval_s if report.again_s is None else min(report.again_s, self._interval_s)
            await self._pause.wait(again_s)

    async def _try_pass(self) -> PassReport | None:
        try:
            return await self._sweep.run_pass()
        except LanternError as error:
            log.warning("pass failed", extra={"action": "pass_failed", "reason": error.reason})
        except Exception:
            # A fault of ours in one pass must not end all later ones.
            log.exception("pass failed", extra={"action": "pass_failed"})
        return None


class Watch:
    """Follows the journal's announcements and rings for a pass; they are hints, and may be merged.

    Every new connection rings once: what was announced while there was none is not known.
    """

    def __init__(self, journal: Journal, loop_pause: Pause, own_pause: Pause, sources: Sources) -> None:
        self._journal = journal
        self._loop_pause = loop_pause
        self._own_pause = own_pause
        self._sources = sources

    async def run(self) -> None:
        """Runs until cancelled."""
        retry_s = RETRY_S_MIN
        while True:
            try:
                async with aclosing(self._journal.watch_orphans()) as causes:
                    async for cause in causes:
                        log.debug("announced", extra={"action": "announced", "cause": cause})
                        retry_s = RETRY_S_MIN
                        self._loop_pause.ring()
            except LanternError as error:
                log.warning("watch broke", extra={"action": "watch_broke", "reason": error.reason})
            except Exception:
                log.exception("watch broke", extra={"action": "watch_broke"})
            await self._own_pause.wait(retry_s * (0.5 + 0.5 * self._sources.random01()))
            retry_s = min(retry_s * 2, RETRY_S_MAX)
