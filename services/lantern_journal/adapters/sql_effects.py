"""Claims on deliveries to the outside world, in SQL (SPEC E4)."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from lantern_journal.adapters import sql_blobs, sql_waking
from lantern_journal.adapters.schema import runs, side_effect_receipts
from lantern_journal.adapters.sql_events import Transaction
from lantern_journal.adapters.sql_leases import lease_lost
from lantern_journal.domain import run_state
from lantern_journal.domain.appends import not_found
from lantern_journal.domain.records import Claim, Settlement, SideEffect, SideEffectState
from lantern_journal.domain.run_state import RunState
from lantern_kernel import reasons
from lantern_kernel.errors import LanternError

receipts = side_effect_receipts


def claim(tx: Transaction, request: Claim) -> tuple[bool, SideEffect]:
    """The first claim of a key wins; a stale epoch claims nothing."""
    run = tx.connection.execute(
        sa.select(runs.c.epoch, runs.c.state).where(runs.c.run_id == request.run_id).with_for_update()
    ).one_or_none()
    if run is None:
        raise not_found(request.run_id)
    if run.epoch != request.epoch or RunState(run.state) is not RunState.RUNNING:
        raise lease_lost(request.run_id, request.epoch)
    found = _find(tx, request.key)
    if found is not None:
        return found.nonce == request.nonce, _side_effect(found)
    tx.connection.execute(
        receipts.insert().values(
            key=request.key,
            run_id=request.run_id,
            step_id=request.step_id,
            epoch=request.epoch,
            sink=request.sink,
            worker_id=request.worker_id,
            nonce=request.nonce,
            state=SideEffectState.CLAIMED.value,
            result=b"",
            claimed_us=tx.now_us,
            settled_by="",
        )
    )
    return True, SideEffect(key=request.key, state=SideEffectState.CLAIMED, result=b"")


def settle(tx: Transaction, request: Settlement) -> tuple[SideEffect, bool]:
    """Records a fact, whoever holds the lease by now, and wakes a run that waits for an operator."""
    concerned = _lock_concerned(tx, request.run_id)
    found = _find(tx, request.key, lock=True)
    if found is None or found.run_id != request.run_id:
        raise LanternError(
            reasons.SIDE_EFFECT_NOT_FOUND, f"the run never claimed a delivery of key {request.key!r}", key=request.key
        )
    if found.state != SideEffectState.CLAIMED:
        asked = (request.state.value, request.result, sql_blobs.ref_text(request.result_blob))
        if (found.state, found.result, found.result_blob) == asked:
            # Perhaps by this very call, whose answer was lost before it could be told that the run was woken.
            return _side_effect(found), True
        raise LanternError(
            reasons.SIDE_EFFECT_SETTLED,
            f"the delivery is recorded as {found.state}, with what came back then",
            key=request.key,
            state=found.state,
        )
    tenant_id = next(run.tenant_id for run in concerned if run.run_id == request.run_id)
    sql_blobs.name_one(tx, tenant_id, request.result_blob, request.run_id, "result_blob")
    tx.connection.execute(
        receipts.update()
        .where(receipts.c.key == request.key)
        .values(
            state=request.state.value,
            result=request.result,
            result_blob=sql_blobs.ref_text(request.result_blob),
            settled_us=tx.now_us,
            settled_by=request.worker_id,
        )
    )
    waiting = [run.run_id for run in concerned if run.state == RunState.WAITING and run.waiting_on == "operator"]
    for run_id in waiting:
        sql_waking.wake(tx, run_id, run_state.SIGNALLED)
    settled = SideEffect(key=request.key, state=request.state, result=request.result, result_blob=request.result_blob)
    return settled, bool(waiting)


def _lock_concerned(tx: Transaction, run_id: str) -> Sequence[Any]:
    """The run, and the open one of its workflow id, which may wait for the same delivery."""
    mine = (
        sa.select(runs.c.tenant_id, runs.c.workflow_id)
        .where(runs.c.run_id == run_id, runs.c.workflow_id != "")
        .subquery()
    )
    other = runs.alias()
    open_one = (
        sa.select(other.c.run_id)
        .join(mine, sa.and_(other.c.tenant_id == mine.c.tenant_id, other.c.workflow_id == mine.c.workflow_id))
        .where(other.c.ended_us.is_(None), other.c.workflow_id != "")
    )
    return tx.connection.execute(
        sa.select(runs.c.run_id, runs.c.state, runs.c.waiting_on, runs.c.tenant_id)
        .where(sa.or_(runs.c.run_id == run_id, runs.c.run_id.in_(open_one)))
        .order_by(runs.c.run_id)
        .with_for_update()
    ).all()


def _find(tx: Transaction, key: str, *, lock: bool = False) -> Any | None:
    query = sa.select(receipts).where(receipts.c.key == key)
    return tx.connection.execute(query.with_for_update() if lock else query).one_or_none()


def _side_effect(row: Any) -> SideEffect:
    return SideEffect(
        key=row.key,
        state=SideEffectState(row.state),
        result=row.result,
        result_blob=sql_blobs.ref_of(row.result_blob),
    )
