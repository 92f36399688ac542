"""Setting a run back to an earlier event, in SQL: one event more, nothing is taken away."""

import sqlalchemy as sa

from lantern_journal.adapters import sql_archives, sql_runs, sql_waking
from lantern_journal.adapters.schema import approvals, journal_events, runs
from lantern_journal.adapters.sql_events import Transaction, head_of, write_events
from lantern_journal.domain import run_state
from lantern_journal.domain.appends import not_found
from lantern_journal.domain.family import Reset
from lantern_journal.domain.records import Run
from lantern_journal.domain.run_state import RunState
from lantern_kernel import kinds, payloads, reasons
from lantern_kernel.errors import InvalidField, LanternError
from lantern_kernel.event import NewEvent

LEVEL_OF_RESETS = 2
"""The event level that knows history_reset: code below it would replay what is passed over."""


def reset(tx: Transaction, wanted: Reset) -> tuple[Run, bool]:
    """Sets a run back that waits on code_fix and queues it; the run, and whether it had been done before."""
    connection = tx.connection
    row = connection.execute(sa.select(runs).where(runs.c.run_id == wanted.run_id).with_for_update()).one_or_none()
    if row is None:
        raise not_found(wanted.run_id)
    if row.archived:
        raise sql_archives.refusal(connection, wanted.run_id)
    if _done_before(tx, wanted):
        return sql_runs.get_run(connection, wanted.run_id), True
    state = RunState(row.state)
    if state in run_state.FINAL:
        raise run_state.closed_error(wanted.run_id, state)
    if row.waiting_on != "code_fix":
        stands = f"{state} on {row.waiting_on}" if row.waiting_on else state.value
        raise InvalidField("run_id", f"only a run that waits on code_fix is set back; it is {stands}")
    head = head_of(connection, wanted.run_id)
    if wanted.to_seq >= head.seq:
        raise InvalidField("to_seq", f"{wanted.to_seq} is none of the events before the last, {head.seq}")
    _check_approvals(tx, wanted)
    facts = {"toSeq": wanted.to_seq, "requestId": wanted.request_id}
    event = NewEvent(kind=kinds.HISTORY_RESET, payload=payloads.pack(facts), salt=wanted.salt)
    write_events(tx, wanted.run_id, head, head.epoch, [event])
    connection.execute(
        runs.update()
        .where(runs.c.run_id == wanted.run_id)
        .values(failed_digests="", event_level=max(row.event_level, LEVEL_OF_RESETS))
    )
    sql_waking.wake(tx, wanted.run_id, run_state.UPGRADED)
    return sql_runs.get_run(connection, wanted.run_id), False


def _done_before(tx: Transaction, wanted: Reset) -> bool:
    events = journal_events.c
    query = sa.select(events.payload).where(events.run_id == wanted.run_id, events.kind == kinds.HISTORY_RESET)
    for payload in tx.connection.execute(query).scalars():
        facts = payloads.unpack(payload).facts
        if facts.get("requestId") == wanted.request_id:
            if facts.get("toSeq") == wanted.to_seq:
                return True
            message = f"request id {wanted.request_id!r} was used to set this run back to another event"
            raise LanternError(reasons.REQUEST_ID_REUSED, message, field="request_id", run_id=wanted.run_id)
    return False


def _check_approvals(tx: Transaction, wanted: Reset) -> None:
    """An approval is asked for once: code that asks again for one that is passed over would be refused."""
    query = sa.select(approvals.c.approval_id, approvals.c.requested_seq).where(
        approvals.c.run_id == wanted.run_id, approvals.c.requested_seq > wanted.to_seq
    )
    found = tx.connection.execute(query.order_by(approvals.c.requested_seq)).first()
    if found is not None:
        message = (
            f"approval {found.approval_id} was asked for at {found.requested_seq}: set it back to there at the most"
        )
        raise InvalidField("to_seq", message)
