"""Waking waiting runs, in SQL."""

from collections.abc import Sequence

from lantern_journal.adapters.schema import runs
from lantern_journal.adapters.sql_events import Transaction
from lantern_journal.domain import run_state
from lantern_journal.domain.run_state import RunState


def wake(tx: Transaction, run_ids: Sequence[str], reason: str) -> None:
    """WAITING to QUEUED, for rows that the caller has locked."""
    assert run_state.next_state(RunState.WAITING, run_state.WOKEN) is RunState.QUEUED
    tx.connection.execute(
        runs.update()
        .where(runs.c.run_id.in_(run_ids), runs.c.state == RunState.WAITING.value)
        .values(
            state=RunState.QUEUED.value,
            waiting_on="",
            due_us=None,
            error=None,
            wake_reason=reason,
            recover_after_us=0,
            updated_us=tx.now_us,
        )
    )
