"""Runs in SQL: read, list, and what appends change in them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from lantern_journal.adapters import sql_approval_rows, sql_archives, sql_family
from lantern_journal.adapters.schema import journal_events, run_locks, runs
from lantern_journal.adapters.sql_events import rows_within
from lantern_journal.domain import approvals, run_state
from lantern_journal.domain.appends import not_found
from lantern_journal.domain.records import Run, RunFilter
from lantern_journal.domain.run_state import RunChange, RunGate, RunState
from lantern_journal.ports import GroupRefused
from lantern_kernel import kinds, payloads
from lantern_kernel.blobs import BlobRef, Content

RUN_OVERHEAD_BYTES = 1_000
"""What a row takes in a message besides its payload, at most nearly always."""


def get_run(connection: sa.Connection, run_id: str) -> Run:
    """A run with its input and result."""
    row = connection.execute(sa.select(runs).where(runs.c.run_id == run_id)).one_or_none()
    if row is None:
        raise not_found(run_id)
    if row.archived:
        return replace(_run(row, None, None), archive=sql_archives.archive_of(connection, run_id))
    wanted = [1] + ([row.end_seq] if row.state == RunState.SUCCEEDED else [])
    found: dict[int, bytes] = {
        row.seq: row.payload
        for row in connection.execute(
            sa.select(journal_events.c.seq, journal_events.c.payload).where(
                journal_events.c.run_id == run_id, journal_events.c.seq.in_(wanted)
            )
        )
    }
    given = payloads.unpack(found[1]).content if 1 in found else None
    # Of a run that goes on as another the data are the input of that one.
    has_result = row.state == RunState.SUCCEEDED and not row.continued_as
    result = payloads.unpack(found[row.end_seq]).content if has_result else None
    return _run(row, given, result)


def list_runs(
    connection: sa.Connection, wanted: RunFilter, before: str, limit: int, bytes_max: int
) -> tuple[list[Run], bool]:
    """A page of runs, newest first (run ids are ordered by time), cut by rows and bytes: errors may be large."""
    where = [runs.c.tenant_id == wanted.tenant_id]
    if before:
        where.append(runs.c.run_id < before)
    if wanted.states:
        where.append(runs.c.state.in_([state.value for state in wanted.states]))
    if wanted.workflow_id:
        where.append(runs.c.workflow_id == wanted.workflow_id)
    if wanted.agent_name:
        where.append(runs.c.agent_name == wanted.agent_name)
    sizes = connection.execute(
        sa.select(runs.c.run_id, sa.func.coalesce(sa.func.length(runs.c.error), 0))
        .where(*where)
        .order_by(runs.c.run_id.desc())
        .limit(limit + 1)
    ).all()
    taken = rows_within(((size for _, size in sizes[:limit])), bytes_max, RUN_OVERHEAD_BYTES)
    page = [run_id for run_id, _ in sizes[:taken]]
    found = connection.execute(sa.select(runs).where(runs.c.run_id.in_(page)).order_by(runs.c.run_id.desc()))
    return [_run(row, None, None) for row in found], len(sizes) > taken


def _run(row: Any, given: Content | None, result: Content | None) -> Run:
    return Run(
        run_id=row.run_id,
        tenant_id=row.tenant_id,
        workflow_id=row.workflow_id,
        agent_name=row.agent_name,
        agent_version=row.agent_version,
        agent_digest=row.agent_digest,
        state=RunState(row.state),
        waiting_on=row.waiting_on,
        due_us=row.due_us,
        created_us=row.created_us,
        updated_us=row.updated_us,
        ended_us=row.ended_us,
        error=run_state.error_facts(row.error),
        traceparent=row.traceparent,
        inbox_number=row.inbox_number,
        consumed_inbox=row.consumed_inbox,
        epoch=row.epoch,
        end_seq=row.end_seq,
        archived=row.archived,
        input=given if isinstance(given, bytes) else None,
        result=result if isinstance(result, bytes) else None,
        input_blob=given if isinstance(given, BlobRef) else None,
        result_blob=result if isinstance(result, BlobRef) else None,
        durability=row.durability,
        parent_run_id=row.parent_run_id,
        parent_step_id=row.parent_step_id,
        depth=row.depth,
        continued_as=row.continued_as,
        continued_from=row.continued_from,
    )


_GATE = sa.select(
    runs.c.run_id,
    runs.c.state,
    runs.c.inbox_number,
    runs.c.cancel_seq,
    sql_approval_rows.HAS_PENDING.label("asking"),
    runs.c.parent_run_id,
    runs.c.parent_step_id,
    runs.c.has_children,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    """What of the runs that a group changes has to be known beside their gates."""

    # Those that have approvals pending.
    asking: frozenset[str] = frozenset()
    # The rows of those that have a parent or children.
    relations: tuple[Any, ...] = ()


def check_changes(connection: sa.Connection, changes: Sequence[RunChange]) -> Checked:
    """Locks the rows of runs that a group changes, in order, and refuses what may not happen.

    Of those that end, the rows of their parents and children as well.
    """
    wanted = sorted({change.run_id for change in changes})
    ending = sorted({change.run_id for change in changes if change.ends_with in kinds.TERMINAL})
    locked = sql_family.with_relatives(connection, wanted, ending)
    query = _GATE.where(runs.c.run_id.in_(locked)).order_by(runs.c.run_id).with_for_update(of=runs)
    found = connection.execute(query).all()
    gates = {
        row.run_id: RunGate(state=RunState(row.state), inbox_number=row.inbox_number, cancel_seq=row.cancel_seq)
        for row in found
    }
    asked_before = sql_approval_rows.known(connection, changes)
    errors: dict[int, Exception] = {}
    for index, change in enumerate(changes):
        gate = gates.get(change.run_id)
        error = not_found(change.run_id) if gate is None else run_state.refusal(change, gate)
        error = error or approvals.repeated(change.run_id, change.approvals, asked_before)
        if gate is not None and change.cancel_seq and gate.cancel_seq is None:
            # An append behind it in this very group is judged as if it came in the next.
            gates[change.run_id] = replace(gate, cancel_seq=change.cancel_seq)
        if error is not None:
            errors[index] = error
    if errors:
        raise GroupRefused(errors)
    return Checked(
        asking=frozenset(row.run_id for row in found if row.asking),
        relations=tuple(row for row in found if row.parent_run_id or row.has_children),
    )


_CONSUME = (
    runs.update()
    .where(runs.c.run_id == sa.bindparam("of_run"))
    .values(
        consumed_inbox=sa.case(
            (runs.c.consumed_inbox < sa.bindparam("number"), sa.bindparam("number")), else_=runs.c.consumed_inbox
        ),
        cancel_seq=sa.func.coalesce(runs.c.cancel_seq, sa.bindparam("cancelled_at", type_=sa.BigInteger)),
    )
)
_END_DRIVE = (
    runs.update()
    .where(runs.c.run_id == sa.bindparam("of_run"))
    .values(
        state=sa.bindparam("new_state"),
        waiting_on=sa.bindparam("on"),
        due_us=sa.bindparam("due"),
        error=sa.bindparam("why"),
        wake_reason=run_state.TIMER,
        recover_after_us=0,
        updated_us=sa.bindparam("at"),
        ended_us=sa.bindparam("ended"),
        drive_faults=0,
        end_seq=sa.bindparam("end"),
        awaited_signals=sa.bindparam("signals"),
        nothing_to_compensate=sa.bindparam("as_it_stands"),
    )
)


def apply_changes(connection: sa.Connection, changes: Sequence[RunChange], asking: Collection[str]) -> None:
    """Changes the rows of runs as their events say, and releases the lease where the drive ends.

    `asking` are the runs that had approvals pending: with their end these are withdrawn.
    """
    sql_approval_rows.add(connection, changes)
    connection.execute(
        _CONSUME,
        [
            {
                "of_run": change.run_id,
                "number": max(change.taken_in, change.consumed if change.ends_with else 0),
                "cancelled_at": change.cancel_seq or None,
            }
            for change in changes
        ],
    )
    ending = [change for change in changes if change.ends_with]
    if not ending:
        return
    connection.execute(_END_DRIVE, [_ending_values(change) for change in ending])
    connection.execute(
        run_locks.update()
        .where(run_locks.c.run_id.in_(locks_of([change.run_id for change in ending])))
        .values(worker_id="", expires_us=0, opened=False)
    )
    _withdraw(connection, ending, asking)


def _withdraw(connection: sa.Connection, ending: Sequence[RunChange], asking: Collection[str]) -> None:
    final = [c for c in ending if c.ends_with in kinds.TERMINAL and (c.run_id in asking or c.approvals)]
    if final:
        sql_approval_rows.withdraw(connection, final)


def locks_of(run_ids: Sequence[str]) -> sa.Select[tuple[str]]:
    """The locks of runs, taken in one order."""
    locks = sa.select(run_locks.c.run_id).where(run_locks.c.run_id.in_(run_ids))
    return locks.order_by(run_locks.c.run_id).with_for_update()


def _ending_values(change: RunChange) -> dict[str, object]:
    state = run_state.next_state(RunState.RUNNING, change.ends_with)
    assert state is not None, "a running run can be parked and ended"
    final = state in run_state.FINAL
    return {
        "of_run": change.run_id,
        "new_state": state.value,
        "on": change.waiting_on,
        "due": change.due_us,
        "why": change.error,
        "at": change.time_us,
        "ended": change.time_us if final else None,
        "end": change.last_seq if final else None,
        "signals": " ".join(change.signals),
        "as_it_stands": change.nothing_to_compensate,
    }
