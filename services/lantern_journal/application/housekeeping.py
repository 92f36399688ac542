"""What the journal does beside its callers' work, now and then: partitions ahead of time, runs into the archive.

Level-triggered: a pass looks at what is there and does what is missing, and one that fails is followed by another.
Several journals may do the same at once.
"""

import asyncio
import logging

from lantern_journal.application.retention import Retention
from lantern_journal.domain.archives import PassCounts
from lantern_journal.ports import Store
from lantern_kernel import reasons
from lantern_kernel.errors import LanternError

log = logging.getLogger(__name__)

INTERVAL_S = 600.0
RETRY_S = 15.0
"""After a pass that failed."""

WEEKS_AHEAD = 4


class Housekeeping:
    """A bounded pass every ten minutes.

    Args:
        retention: None where no run is ever archived.
    """

    def __init__(self, store: Store, retention: Retention | None = None) -> None:
        self._store, self._retention = store, retention

    async def run(self) -> None:
        """Passes for ever."""
        while True:
            is_done = await self.make_partitions() and await self._archive()
            await asyncio.sleep(INTERVAL_S if is_done else RETRY_S)

    async def make_partitions(self) -> bool:
        """Makes the partitions of the weeks to come; whether it could."""
        try:
            made = await self._store.make_partitions(WEEKS_AHEAD)
        except Exception as error:
            # Nothing that ends the process: the default partition takes what has no other.
            _say("partitions are made later", "partitions_later", error)
            return False
        if made:
            log.info("partitions made", extra={"action": "partitions_made", "partitions": made})
        return True

    async def archive(self) -> PassCounts:
        """One pass over the runs that are old enough; ARCHIVE_OFF where none ever is."""
        if self._retention is None:
            raise LanternError(reasons.ARCHIVE_OFF, "runs are kept for ever: LANTERN_RETENTION is not set")
        counts = await self._retention.run_pass()
        if counts.runs or counts.partitions:
            log.info(
                "runs archived",
                extra={"action": "archived", "runs": counts.runs, "partitions": counts.partitions},
            )
        return counts

    async def _archive(self) -> bool:
        if self._retention is None:
            return True
        try:
            await self.archive()
        except Exception as error:
            _say("runs are archived later", "archive_later", error)
            return False
        return True


def _say(what: str, action: str, error: Exception) -> None:
    log.warning(what, extra={"action": action, "cause": type(error).__name__, "hint": str(error)[:300]})
