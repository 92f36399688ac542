"""Waking waiting runs, in SQL."""

from typing import Any

import sqlalchemy as sa

from lantern_journal.adapters.schema import runs
from lantern_journal.adapters.sql_events import Transaction
from lantern_journal.domain import run_state
from lantern_journal.domain.run_state import RunState


def wake(tx: Transaction, run_id: str, reason: str) -> None:
    """WAITING to QUEUED, for a row that the caller has locked."""
    tx.connection.execute(runs.update().where(runs.c.run_id == run_id, _IS_WAITING).values(_queued(tx.now_us, reason)))


def wake_where(tx: Transaction, reason: str, *conditions: sa.ColumnElement[bool] | sa.TextClause) -> int:
    """WAITING to QUEUED for whatever meets the conditions, in one statement however many they are; how many."""
    met = sa.select(runs.c.run_id).where(_IS_WAITING, *conditions).order_by(runs.c.run_id).with_for_update()
    return tx.connection.execute(
        runs.update().where(runs.c.run_id.in_(met), _IS_WAITING).values(_queued(tx.now_us, reason))
    ).rowcount


_IS_WAITING = runs.c.state == RunState.WAITING.value


def _queued(now_us: int, reason: str) -> dict[str, Any]:
    assert run_state.next_state(RunState.WAITING, run_state.WOKEN) is RunState.QUEUED
    return {
        "state": RunState.QUEUED.value,
        "waiting_on": "",
        "due_us": None,
        "error": None,
        "awaited_signals": "",
        "wake_reason": reason,
        "recover_after_us": 0,
        "updated_us": now_us,
    }
