"""Parks that come too late, in SQL: what the run is to wait for has come before it was parked."""

from collections.abc import Sequence

import sqlalchemy as sa

from lantern_journal.adapters import sql_agents, sql_sessions, sql_waking
from lantern_journal.adapters.schema import journal_events, runs, side_effect_receipts
from lantern_journal.adapters.sql_events import Transaction
from lantern_journal.domain import leases, run_state
from lantern_journal.domain.records import SideEffectState
from lantern_journal.domain.run_state import RunChange
from lantern_kernel import kinds, names, payloads
from lantern_kernel.errors import LanternError

CODE_FIX, OPERATOR = "code_fix", "operator"


def lock(tx: Transaction, changes: Sequence[RunChange]) -> None:
    """Keeps what is offered as it is where a run parks for the lack of code; before any run's row is locked."""
    if any(change.waiting_on == CODE_FIX for change in changes):
        sql_agents.lock(tx.connection)


def wake_late(tx: Transaction, changes: Sequence[RunChange]) -> tuple[str, ...]:
    """Queues the runs that were just parked for something that had come before; their ids."""
    woken: list[str] = []
    for change in changes:
        if change.waiting_on == CODE_FIX and _is_fixed(tx, change):
            sql_waking.wake(tx, change.run_id, run_state.UPGRADED)
        elif change.waiting_on == OPERATOR and _is_decided(tx, change.run_id):
            sql_waking.wake(tx, change.run_id, run_state.SIGNALLED)
        else:
            continue
        woken.append(change.run_id)
    return tuple(woken)


def _is_fixed(tx: Transaction, change: RunChange) -> bool:
    """Notes the code that failed; whether some is offered that has not failed yet."""
    row = tx.connection.execute(
        sa.select(
            runs.c.tenant_id, runs.c.agent_name, runs.c.agent_digest, runs.c.failed_digests, runs.c.event_level
        ).where(runs.c.run_id == change.run_id)
    ).one()
    failed = leases.failed_too(run_state.digest_of(change.error) or row.agent_digest, row.failed_digests)
    tx.connection.execute(runs.update().where(runs.c.run_id == change.run_id).values(failed_digests=failed))
    offers = sql_sessions.find_offers(tx, row.tenant_id, row.agent_name, row.event_level)
    return leases.is_fixed_by(offers, failed)


def _is_decided(tx: Transaction, run_id: str) -> bool:
    """See `is_settled`. Under its lock: who settles it either comes before this, or sees the run parked."""
    return is_settled(tx.connection, run_id, lock=True)


def is_settled(connection: sa.Connection, run_id: str, *, lock: bool = False) -> bool:
    """Whether one of the deliveries that this drive left undecided is settled by now.

    They are those of its step_waiting events. A claim of another run counts as well: runs of one workflow id may share
    their keys.
    """
    query = sa.select(journal_events.c.payload).where(
        journal_events.c.run_id == run_id,
        journal_events.c.kind == kinds.STEP_WAITING,
        journal_events.c.epoch == sa.select(runs.c.epoch).where(runs.c.run_id == run_id).scalar_subquery(),
    )
    keys = {_key_of(payload) for payload in connection.execute(query).scalars()} - {""}
    if not keys:
        return False
    claimed = (
        sa.select(side_effect_receipts.c.state)
        .where(side_effect_receipts.c.key.in_(sorted(keys)))
        .order_by(side_effect_receipts.c.key)
    )
    found = connection.execute(claimed.with_for_update(read=True) if lock else claimed).scalars()
    return any(state != SideEffectState.CLAIMED for state in found)


def _key_of(payload: bytes) -> str:
    """The key of the delivery that a step waits for; empty where its payload, which is the worker's, names none."""
    try:
        facts = payloads.unpack(payload).facts
    except (LanternError, RecursionError):
        return ""
    key = facts.get("key")
    return key if facts.get("on") == OPERATOR and isinstance(key, str) and names.USER_ID.fullmatch(key) else ""
