"""Runs that belong to others, in SQL: what a parent may start, whom the end of a run concerns, what they are told."""

from collections.abc import Collection, Sequence
from typing import Any

import sqlalchemy as sa

from lantern_journal.adapters import sql_blobs
from lantern_journal.adapters.schema import runs
from lantern_journal.adapters.sql_events import Transaction
from lantern_journal.domain import run_state
from lantern_journal.domain.appends import not_found
from lantern_journal.domain.family import Parent, derived_salts
from lantern_journal.domain.records import NewEntry, NewRun
from lantern_journal.domain.run_state import RunChange, RunState
from lantern_kernel import kinds, payloads, reasons
from lantern_kernel.bounds import CHILD_DEPTH_MAX
from lantern_kernel.errors import LanternError
from lantern_kernel.payloads import ChildFacts, RunErrorFacts


def with_relatives(connection: sa.Connection, run_ids: Sequence[str], ending: Sequence[str]) -> list[str]:
    """Which rows are to be locked for these runs, all in one order: also parents and children of those that may end.

    Run ids rise with time, but for the clocks of several journals: a parent and its child that end at once would else
    wait for each other. It is a statement of its own, before the one that locks: PostgreSQL looks at a row anew that
    another transaction changed meanwhile, and does not find it again where the condition is a union over its own table.
    """
    if not ending:
        return sorted(set(run_ids))
    parents = sa.select(runs.c.parent_run_id).where(runs.c.run_id.in_(ending), runs.c.parent_run_id != "")
    children = sa.select(runs.c.run_id).where(runs.c.parent_run_id.in_(ending), runs.c.parent_run_id != "")
    children = children.where(runs.c.ended_us.is_(None), sa.not_(runs.c.abandoned))
    found = connection.execute(sa.union_all(parents, children)).scalars()
    return sorted({*run_ids, *found})


def depth_below(new: NewRun, parent: Parent, row: Any) -> int:
    """The depth of a child of the parent whose row is locked; refused where that may not start it."""
    if row is None or row.tenant_id != new.tenant_id:
        raise not_found(parent.run_id)
    state = RunState(row.state)
    if state in run_state.FINAL:
        raise run_state.closed_error(parent.run_id, state)
    if row.epoch != parent.epoch or state is not RunState.RUNNING:
        raise LanternError(
            reasons.LEASE_LOST,
            f"epoch {parent.epoch} of the parent is over: it is {state} at {row.epoch}",
            run_id=parent.run_id,
        )
    depth: int = row.depth + 1
    if depth > CHILD_DEPTH_MAX:
        raise LanternError(
            reasons.CHILD_TOO_DEEP,
            f"a run at depth {row.depth} starts no others: at most {CHILD_DEPTH_MAX} are below one another",
            run_id=parent.run_id,
            depth=depth,
        )
    return depth


def note_parents(tx: Transaction, starts: Sequence[NewRun], made: Collection[str]) -> None:
    """Notes with the parents, whose rows are locked, that they have children."""
    parents = {new.parent.run_id for new in starts if new.parent is not None and new.run_id in made}
    if parents:
        tx.connection.execute(runs.update().where(runs.c.run_id.in_(sorted(parents))).values(has_children=True))


def open_children(connection: sa.Connection, run_id: str) -> Sequence[str]:
    """The children of a run that its end cancels, in order, their rows locked."""
    query = sa.select(runs.c.run_id).where(
        runs.c.parent_run_id == run_id, runs.c.ended_us.is_(None), sa.not_(runs.c.abandoned)
    )
    return connection.execute(query.order_by(runs.c.run_id).with_for_update()).scalars().all()


def end_of_child(tx: Transaction, end: RunChange, row: Any) -> NewEntry:
    """What the parent is told of a child's end. `#` keeps its request id apart from those of senders."""
    content = payloads.unpack(end.end_payload)
    state = run_state.next_state(RunState.RUNNING, end.ends_with)
    assert state is not None, "a running run can be ended"
    is_success = end.ends_with == kinds.RUN_SUCCEEDED
    error = RunErrorFacts.from_facts(content.facts)
    facts = ChildFacts(run_id=end.run_id, state=state.value, error=None if is_success or not error.code else error)
    result = content.content if is_success else None
    if content.blob is not None and is_success:
        sql_blobs.write_names(tx, [(_tenant(tx.connection, end.run_id), content.blob, row.parent_run_id)])
    return NewEntry(
        request_id=f"child#{row.parent_step_id}",
        run_id=row.parent_run_id,
        kind=run_state.CHILD,
        name=row.parent_step_id,
        payload=payloads.pack(facts.to_facts(), result),
        salts=derived_salts(end.end_salt, row.parent_run_id),
    )


def _tenant(connection: sa.Connection, run_id: str) -> str:
    tenant: str = connection.execute(sa.select(runs.c.tenant_id).where(runs.c.run_id == run_id)).scalar_one()
    return tenant


_FROM_PARENT = "parent#"
"""Begins the request ids of cancels that the end of a parent sends; `#` keeps them apart from those of senders."""


def is_from_parent(entry: NewEntry) -> bool:
    """Whether the end of a parent is what this entry says."""
    return entry.request_id.startswith(_FROM_PARENT)


def cancel_of_child(end: RunChange, child: str) -> NewEntry:
    """What a child is told of its parent's end."""
    return NewEntry(
        request_id=f"{_FROM_PARENT}{end.run_id}",
        run_id=child,
        kind=run_state.CANCEL,
        name="",
        payload=payloads.pack({"parent": end.run_id}),
        salts=derived_salts(end.end_salt, child),
    )
