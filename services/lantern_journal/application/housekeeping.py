"""What the journal does beside its callers' work, now and then: partitions ahead of time.

Level-triggered: a pass looks at what is there and does what is missing, and one that fails is followed by another.
Several journals may do the same at once.
"""

import asyncio
import logging

from lantern_journal.ports import Store

log = logging.getLogger(__name__)

INTERVAL_S = 600.0
RETRY_S = 15.0
"""After a pass that failed."""

WEEKS_AHEAD = 4


class Housekeeping:
    """A bounded pass every ten minutes."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def run(self) -> None:
        """Passes for ever."""
        while True:
            is_done = await self.tidy()
            await asyncio.sleep(INTERVAL_S if is_done else RETRY_S)

    async def tidy(self) -> bool:
        """One pass; whether all of it was done."""
        try:
            made = await self._store.make_partitions(WEEKS_AHEAD)
        except Exception as error:
            # Nothing that ends the process: the default partition takes what has no other.
            log.warning(
                "partitions are made later",
                extra={"action": "partitions_later", "cause": type(error).__name__, "hint": str(error)[:200]},
            )
            return False
        if made:
            log.info("partitions made", extra={"action": "partitions_made", "partitions": made})
        return True
