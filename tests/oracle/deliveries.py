"""Claims on deliveries, and how they are settled."""

from lantern_journal.domain.records import Claim, Settlement, SideEffect, SideEffectState
from lantern_kernel import reasons
from lantern_kernel.errors import LanternError
from oracle import leasing, waking
from oracle.tables import ReceiptRow, Tables


def claim(tables: Tables, request: Claim, now_us: int) -> tuple[bool, SideEffect]:
    """The first claim of a key wins."""
    run = leasing.run_of(tables, request.run_id)
    if run.epoch != request.epoch or run.state != "RUNNING":
        raise leasing.lost(run.run_id, request.epoch)
    found = tables.receipts.get(request.key)
    if found is None:
        found = tables.receipts[request.key] = ReceiptRow(
            key=request.key,
            run_id=request.run_id,
            step_id=request.step_id,
            epoch=request.epoch,
            sink=request.sink,
            worker_id=request.worker_id,
            nonce=request.nonce,
            state="claimed",
            result=b"",
            claimed_us=now_us,
            settled_us=None,
            settled_by="",
        )
    return found.nonce == request.nonce, _known(found)


def settle(tables: Tables, request: Settlement, now_us: int) -> tuple[SideEffect, bool]:
    """Records how a delivery ended, and wakes whoever waits for an operator's word on it."""
    found = tables.receipts.get(request.key)
    if found is None or found.run_id != request.run_id:
        raise LanternError(reasons.SIDE_EFFECT_NOT_FOUND, "never claimed", key=request.key)
    if found.state != "claimed":
        if (found.state, found.result) != (request.state.value, request.result):
            raise LanternError(reasons.SIDE_EFFECT_SETTLED, "otherwise", key=request.key, state=found.state)
        return _known(found), True  # perhaps this very call, whose answer was lost, woke somebody
    found.state, found.result = request.state.value, request.result
    found.settled_us, found.settled_by = now_us, request.worker_id
    mine = tables.runs[request.run_id]
    woken = False
    for run in tables.runs.values():
        is_same_work = bool(mine.workflow_id) and run.is_open
        is_same_work = is_same_work and (run.tenant_id, run.workflow_id) == (mine.tenant_id, mine.workflow_id)
        if (run is mine or is_same_work) and run.state == "WAITING" and run.waiting_on == "operator":
            waking.wake(run, "signal", now_us)
            woken = True
    return _known(found), woken


def _known(row: ReceiptRow) -> SideEffect:
    return SideEffect(key=row.key, state=SideEffectState(row.state), result=row.result)
