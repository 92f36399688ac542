"""Groups that end or park drives, as one autocommit statement on PostgreSQL.

The statement judges, inserts and changes in one go what nearly all such groups ask for: drives of running runs end,
whose inbox is consumed and of which nobody is still to decide anything. It does all of that or nothing; where it does
nothing, `SqlStore.insert_group` finds out why, and is also the one that does what is out of the ordinary. So the
conditions here need not be exact, but they must never let pass what that would refuse.
"""

from collections.abc import Sequence
from typing import Any

from lantern_journal.adapters.postgres_arrays import BinaryArray, byteas, int8s, texts
from lantern_journal.adapters.schema import EVENT_COLUMNS
from lantern_journal.adapters.sql_events import POSTGRES_EVENT_ARRAYS, insert_parameters
from lantern_journal.adapters.sql_parks import CODE_FIX, OPERATOR
from lantern_journal.domain import run_state
from lantern_journal.domain.appends import Row
from lantern_journal.domain.run_state import RunChange, RunState

_NAMES = ", ".join(EVENT_COLUMNS)
_NONE = -1
"""Says NULL among numbers, which are all positive."""

_CHANGES = (
    *(("run_id", "text"), ("consumed", "bigint"), ("number", "bigint"), ("state", "text"), ("waiting_on", "text")),
    *(("due_us", "bigint"), ("error", "bytea"), ("time_us", "bigint"), ("end_seq", "bigint"), ("signals", "text")),
    ("as_it_stands", "text"),
)
_CHANGE_ARRAYS = ", ".join(f"%b::{kind}[]" for _, kind in _CHANGES)
_CHANGE_NAMES = ", ".join(name for name, _ in _CHANGES)

# Runs are locked before their locks, each in order (`sql_sessions.hold`): the locks are looked at only after the gate.
GROUP_SQL = (
    f"WITH change AS MATERIALIZED (SELECT * FROM unnest({_CHANGE_ARRAYS}) AS u({_CHANGE_NAMES})),"
    " gate AS MATERIALIZED (SELECT r.run_id, r.state, r.inbox_number, r.cancel_seq, EXISTS (SELECT 1 FROM approvals"
    " WHERE approvals.run_id = r.run_id AND approvals.state = 'PENDING') AS asking,"
    " r.parent_run_id <> '' OR r.has_children AS has_relatives"
    " FROM runs r WHERE r.run_id = ANY(%b::text[]) ORDER BY r.run_id FOR UPDATE OF r),"
    " verdict AS MATERIALIZED (SELECT bool_and(coalesce(NOT gate.asking AND gate.state = 'RUNNING'"
    " AND change.consumed <= gate.inbox_number AND change.number >= gate.inbox_number"
    " AND (gate.cancel_seq IS NULL OR change.state <> 'SUCCEEDED')"
    " AND (change.end_seq = -1 OR NOT gate.has_relatives), false)) AS fits"
    " FROM change LEFT JOIN gate ON gate.run_id = change.run_id),"
    " held AS MATERIALIZED (SELECT l.run_id FROM run_locks l WHERE (SELECT fits FROM verdict)"
    " AND l.run_id = ANY(%b::text[]) ORDER BY l.run_id FOR UPDATE OF l),"
    " released AS (UPDATE run_locks SET worker_id = '', expires_us = 0, opened = false FROM held"
    " WHERE run_locks.run_id = held.run_id),"
    " changed AS (UPDATE runs SET consumed_inbox = greatest(runs.consumed_inbox, change.number),"
    " state = change.state, waiting_on = change.waiting_on, due_us = nullif(change.due_us, -1),"
    " error = nullif(change.error, ''::bytea), wake_reason = %b, recover_after_us = 0, updated_us = change.time_us,"
    " ended_us = CASE WHEN change.end_seq = -1 THEN NULL ELSE change.time_us END,"
    " drive_faults = 0, end_seq = nullif(change.end_seq, -1), awaited_signals = change.signals,"
    " nothing_to_compensate = change.as_it_stands = 'y'"
    " FROM change WHERE runs.run_id = change.run_id AND (SELECT fits FROM verdict)),"
    " feed AS (INSERT INTO journal_feed (xid, time_us, entries)"
    " SELECT pg_current_xact_id()::text::bigint, %b::bigint, %b::bytea FROM verdict WHERE verdict.fits)"
    f" INSERT INTO journal_events ({_NAMES})"
    f" SELECT u.* FROM unnest({POSTGRES_EVENT_ARRAYS}) AS u, verdict WHERE verdict.fits"
)


def are_plain(changes: Sequence[RunChange]) -> bool:
    """Whether the statement can do these changes, as far as they themselves say."""
    return len({change.run_id for change in changes}) == len(changes) and all(
        change.ends_with
        and not change.cancel_seq
        and not change.approvals
        and not change.continues
        and change.waiting_on not in (CODE_FIX, OPERATOR)
        and (change.due_us is None or change.due_us >= 0)
        for change in changes
    )


def parameters(rows: Sequence[Row], changes: Sequence[RunChange]) -> list[Any]:
    """What GROUP_SQL takes."""
    run_ids = texts([change.run_id for change in changes])
    states = [_state_after(change) for change in changes]
    columns: list[BinaryArray] = [
        run_ids,
        int8s([change.consumed for change in changes]),
        int8s([max(change.taken_in, change.consumed) for change in changes]),
        texts([state.value for state in states]),
        texts([change.waiting_on for change in changes]),
        int8s([_NONE if change.due_us is None else change.due_us for change in changes]),
        byteas([change.error or b"" for change in changes]),
        int8s([change.time_us for change in changes]),
        int8s([c.last_seq if s in run_state.FINAL else _NONE for c, s in zip(changes, states, strict=True)]),
        texts([" ".join(change.signals) for change in changes]),
        texts(["y" if change.nothing_to_compensate else "n" for change in changes]),
    ]
    return [*columns, run_ids, run_ids, run_state.TIMER, *insert_parameters(rows)]


def _state_after(change: RunChange) -> RunState:
    state = run_state.next_state(RunState.RUNNING, change.ends_with)
    assert state is not None, "a running run can be parked and ended"
    return state
