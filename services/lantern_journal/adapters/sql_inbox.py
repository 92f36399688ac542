"""Inboxes in SQL: what others have to say to a run, and what that does to it, in one transaction (SPEC J1, S1)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from lantern_journal.adapters import sql_archives, sql_blobs, sql_family, sql_runs, sql_successors, sql_waking
from lantern_journal.adapters.schema import journal_events, run_inbox, run_locks, runs
from lantern_journal.adapters.sql_events import Transaction, head_of, rows_within, write_events
from lantern_journal.domain import run_state
from lantern_journal.domain.appends import not_found
from lantern_journal.domain.family import NOTHING, Aftermath
from lantern_journal.domain.leases import Limits
from lantern_journal.domain.records import InboxEntry, NewEntry, SentEntry, aftermath_of
from lantern_journal.domain.run_state import RunChange, RunState
from lantern_kernel import kinds, payloads, reasons
from lantern_kernel.bounds import INBOX_ENTRIES_MAX, INBOX_RESERVE
from lantern_kernel.errors import LanternError
from lantern_kernel.event import NewEvent
from lantern_kernel.payloads import ParkFacts

ENTRY_OVERHEAD_BYTES = 300
"""What an entry takes in a message besides its payload, at most nearly always."""

_ADDRESSEE = sa.select(
    runs.c.run_id,
    runs.c.state,
    runs.c.waiting_on,
    runs.c.due_us,
    runs.c.awaited_signals,
    runs.c.nothing_to_compensate,
    runs.c.inbox_number,
    runs.c.consumed_inbox,
    runs.c.epoch,
    runs.c.wake_reason,
    runs.c.tenant_id,
    runs.c.depth,
    runs.c.parent_run_id,
    runs.c.parent_step_id,
    runs.c.has_children,
)


def lock(connection: sa.Connection, run_ids: Sequence[str], ending: Sequence[str] = ()) -> dict[str, Any]:
    """Locks the rows of runs, in their order; what an entry is judged by, without those that there are not.

    Of those that may end, the parents and children as well: they are told of it.
    """
    locked = sql_family.with_relatives(connection, run_ids, ending)
    query = _ADDRESSEE.where(runs.c.run_id.in_(locked)).order_by(runs.c.run_id).with_for_update(of=runs)
    return {row.run_id: row for row in connection.execute(query)}


def send(tx: Transaction, entry: NewEntry, limits: Limits) -> SentEntry:
    """Takes an inbox entry in; see `deliver`."""
    ending = [entry.run_id] if entry.kind == run_state.CANCEL else []
    row = lock(tx.connection, [entry.run_id], ending).get(entry.run_id)
    if row is None:
        raise not_found(entry.run_id)
    return deliver(tx, row, entry)


def deliver(tx: Transaction, row: Any, entry: NewEntry) -> SentEntry:
    """Takes an entry into the inbox of a run whose row is locked, and does what it does where nobody drives the run."""
    state = RunState(row.state)
    before = _taken_in_before(tx.connection, entry)
    if before is not None:
        return SentEntry(number=before, repeated=True, state=state)
    if state in run_state.FINAL:
        if entry.kind == run_state.CANCEL:
            return SentEntry(number=0, repeated=False, state=state, already_ended=True)
        raise run_state.closed_error(entry.run_id, state.value)
    is_reserved = entry.kind not in (run_state.SIGNAL, run_state.UPDATE)
    # There is always room for a decision, one for each approval that the run itself asked for: an expiry that a full
    # inbox refused would be due for ever, and hold up those of all other runs. So there is for the end of a child.
    # And for the end of a parent, which would else not end.
    is_of_family = entry.kind == run_state.CHILD or sql_family.is_from_parent(entry)
    is_kept_out = entry.kind != run_state.DECISION and not is_of_family
    if is_kept_out and row.inbox_number >= INBOX_ENTRIES_MAX + INBOX_RESERVE * is_reserved:
        raise LanternError(
            reasons.INBOX_FULL, f"the run's inbox holds {INBOX_ENTRIES_MAX} entries", run_id=entry.run_id
        )
    number = row.inbox_number + 1
    sql_blobs.name_one(tx, row.tenant_id, entry.payload_blob, entry.run_id, "payload_blob")
    insert(tx, entry, number)
    tx.connection.execute(runs.update().where(runs.c.run_id == entry.run_id).values(inbox_number=number))
    sent = SentEntry(number=number, repeated=False, state=state)
    if state is RunState.RUNNING:
        return replace(sent, driver=driver_of(tx.connection, entry.run_id))
    return _act(tx, row, entry, sent)


def insert(tx: Transaction, entry: NewEntry, number: int) -> None:
    """The entry's row."""
    tx.connection.execute(
        run_inbox.insert().values(
            run_id=entry.run_id,
            number=number,
            request_id=entry.request_id,
            kind=entry.kind,
            name=entry.name,
            payload=entry.payload,
            created_us=tx.now_us,
            payload_blob=sql_blobs.ref_text(entry.payload_blob),
        )
    )


def driver_of(connection: sa.Connection, run_id: str) -> str:
    """The worker that holds the run's lease; empty where none does."""
    return connection.execute(sa.select(run_locks.c.worker_id).where(run_locks.c.run_id == run_id)).scalar() or ""


def _taken_in_before(connection: sa.Connection, entry: NewEntry) -> int | None:
    """The number under which an entry of that request id was taken in; None where none was."""
    query = sa.select(run_inbox).where(run_inbox.c.run_id == entry.run_id, run_inbox.c.request_id == entry.request_id)
    before = connection.execute(query).one_or_none()
    if before is None:
        return None
    known = (before.kind, before.name, before.payload, before.payload_blob)
    if known != (entry.kind, entry.name, entry.payload, sql_blobs.ref_text(entry.payload_blob)):
        raise LanternError(
            reasons.REQUEST_ID_REUSED,
            f"request id {entry.request_id!r} was used for another entry of this run",
            field="request_id",
            run_id=entry.run_id,
        )
    number: int = before.number
    return number


def _act(tx: Transaction, row: Any, entry: NewEntry, sent: SentEntry) -> SentEntry:
    """What an entry does to a run that nobody drives."""
    state = RunState(row.state)
    is_paused = row.waiting_on == "paused"
    nothing = row.nothing_to_compensate
    if entry.kind == run_state.CANCEL and run_state.ends_at_once(
        state, row.waiting_on, row.epoch, nothing_to_compensate=nothing
    ):
        aftermath = _end_at_once(tx, row, entry, sent.number)
        return replace(sent, state=RunState.CANCELLED, ended=True, aftermath=aftermath)
    if entry.kind == run_state.PAUSE and not is_paused:
        _pause(tx, row, entry)
        return replace(sent, state=RunState.WAITING, moved=True)
    if entry.kind == run_state.RESUME and is_paused:
        return _resume(tx, row, entry, sent)
    if state is RunState.WAITING and run_state.wakes(
        entry.kind, entry.name, row.waiting_on, row.awaited_signals.split()
    ):
        if entry.kind == run_state.RESUME:
            # Somebody says that it may be tried again, also with the code that failed.
            tx.connection.execute(runs.update().where(runs.c.run_id == row.run_id).values(failed_digests=""))
        sql_waking.wake(tx, entry.run_id, run_state.wake_reason_of(entry.kind))
        return replace(sent, state=RunState.QUEUED, woken=True)
    return sent


def _end_at_once(tx: Transaction, row: Any, entry: NewEntry, number: int) -> Aftermath:
    head = head_of(tx.connection, entry.run_id)
    asked = NewEvent(kind=kinds.CANCEL_REQUESTED, payload=payloads.pack({"number": number}), salt=entry.salts[0])
    facts = run_state.CANCELLED_ERROR.to_facts()
    ended = NewEvent(kind=kinds.RUN_CANCELLED, payload=payloads.pack(facts), salt=entry.salts[1])
    after, _ = write_events(tx, entry.run_id, head, head.epoch, [asked, ended])
    change = run_state.change_of(entry.run_id, after.seq - 1, [asked, ended], number, after.time_us)
    assert change is not None, "a run that ends changes its row"
    sql_runs.apply_changes(tx.connection, [change], [entry.run_id])
    return settle_ends(tx, [change], [row])


def settle_ends(tx: Transaction, ends: Sequence[RunChange], relations: Sequence[Any]) -> Aftermath:
    """What the ends of runs mean to their relatives: the parent is told, open children are cancelled.

    One that goes on as a new run tells the parent nothing: the new one will, being its child in its place.

    Args:
        tx: In which they end, after their rows are changed.
        ends: Their ends.
        relations: Of those that have a parent or children: run_id, parent_run_id, parent_step_id, has_children. The
            rows of the parents are locked.
    """
    related = {row.run_id: row for row in relations if row.parent_run_id or row.has_children}
    aftermath = NOTHING
    for end in ends:
        if end.continues:
            aftermath += Aftermath(queued=(sql_successors.make(tx, end),))
        kin = related.get(end.run_id)
        if kin is None:
            continue
        entries = [sql_family.end_of_child(tx, end, kin)] if kin.parent_run_id and not end.continues else []
        if kin.has_children:
            children = sql_family.open_children(tx.connection, kin.run_id)
            entries += [sql_family.cancel_of_child(end, child) for child in children]
        # Looked at one by one: the end of one may already have reached the next.
        for entry in entries:
            row = lock(tx.connection, [entry.run_id]).get(entry.run_id)
            if row is not None and RunState(row.state) not in run_state.FINAL:
                aftermath += aftermath_of(entry.run_id, deliver(tx, row, entry))
    return aftermath


def _pause(tx: Transaction, row: Any, entry: NewEntry) -> None:
    """Parks a run that nobody drives; its run_parked remembers what it waited on."""
    cause = run_state.next_state(RunState(row.state), run_state.PAUSED)
    assert cause is RunState.WAITING, "what nobody drives can be paused"
    before = ParkFacts(waiting_on=row.waiting_on, due_us=row.due_us, signals=tuple(row.awaited_signals.split()))
    facts = ParkFacts(
        waiting_on="paused",
        nothing_to_compensate=row.nothing_to_compensate,
        before=before if row.waiting_on else None,
    )
    _park(tx, row, facts, entry.salts[0])


def _resume(tx: Transaction, row: Any, entry: NewEntry, sent: SentEntry) -> SentEntry:
    """Puts a paused run back to what it waited on, or queues it where something of that may have come by now."""
    head = head_of(tx.connection, row.run_id)
    payload = tx.connection.execute(
        sa.select(journal_events.c.payload).where(
            journal_events.c.run_id == row.run_id, journal_events.c.seq == head.seq
        )
    ).scalar_one()
    before = ParkFacts.unpack(payload).before if head.kind == kinds.RUN_PARKED else None
    if before is None:
        # Queued, or paused by its driver.
        sql_waking.wake(tx, row.run_id, run_state.STARTED if row.epoch == 0 else run_state.SIGNALLED)
        return replace(sent, state=RunState.QUEUED, woken=True)
    if before.waiting_on not in run_state.RESTORED_WAITS or _is_called(tx.connection, row, before):
        sql_waking.wake(tx, row.run_id, run_state.SIGNALLED)
        return replace(sent, state=RunState.QUEUED, woken=True)
    assert run_state.next_state(RunState(row.state), run_state.RESUMED) is RunState.WAITING
    _park(tx, row, replace(before, nothing_to_compensate=row.nothing_to_compensate), entry.salts[0])
    return replace(sent, state=RunState.WAITING, moved=True, due_us=before.due_us)


def _is_called(connection: sa.Connection, row: Any, before: ParkFacts) -> bool:
    """Whether an entry that came while the run was paused wakes it from what it waited on before."""
    query = sa.select(run_inbox.c.kind, run_inbox.c.name).where(
        run_inbox.c.run_id == row.run_id, run_inbox.c.number > row.consumed_inbox
    )
    return any(
        run_state.wakes(kind, name, before.waiting_on, before.signals)
        for kind, name in connection.execute(query.distinct())
    )


def _park(tx: Transaction, row: Any, facts: ParkFacts, salt: bytes) -> None:
    """A run_parked of the journal's own: nobody drives the run, so nobody else appends to it."""
    head = head_of(tx.connection, row.run_id)
    event = NewEvent(kind=kinds.RUN_PARKED, payload=facts.pack(), salt=salt)
    after, _ = write_events(tx, row.run_id, head, head.epoch, [event])
    tx.connection.execute(
        runs.update()
        .where(runs.c.run_id == row.run_id)
        .values(
            state=RunState.WAITING.value,
            waiting_on=facts.waiting_on,
            due_us=facts.due_us,
            error=None,
            recover_after_us=0,
            updated_us=after.time_us,
            awaited_signals=" ".join(facts.signals),
        )
    )


def list_inbox(
    connection: sa.Connection, run_id: str, after: int, limit: int, bytes_max: int
) -> tuple[list[InboxEntry], bool]:
    """A page of inbox entries, cut by rows and bytes."""
    archived = connection.execute(sa.select(runs.c.archived).where(runs.c.run_id == run_id)).scalar()
    if archived is None:
        raise not_found(run_id)
    if archived:
        raise sql_archives.refusal(connection, run_id)
    sizes = connection.execute(
        sa.select(run_inbox.c.number, sa.func.length(run_inbox.c.payload))
        .where(run_inbox.c.run_id == run_id, run_inbox.c.number > after)
        .order_by(run_inbox.c.number)
        .limit(limit + 1)
    ).all()
    taken = rows_within((size for _, size in sizes[:limit]), bytes_max, ENTRY_OVERHEAD_BYTES)
    last = sizes[taken - 1][0] if taken else after
    found = connection.execute(
        sa.select(run_inbox)
        .where(run_inbox.c.run_id == run_id, run_inbox.c.number > after, run_inbox.c.number <= last)
        .order_by(run_inbox.c.number)
    )
    return [_entry(row) for row in found], len(sizes) > taken


def _entry(row: Any) -> InboxEntry:
    return InboxEntry(
        number=row.number,
        kind=row.kind,
        name=row.name,
        payload=row.payload,
        created_us=row.created_us,
        payload_blob=sql_blobs.ref_of(row.payload_blob),
    )
