"""Runs that go on in the place of others, in SQL (SPEC S5): made in the transaction in which the other one ends."""

from hashlib import sha256
from typing import Any

import sqlalchemy as sa

from lantern_journal.adapters import sql_blobs, sql_first_rows
from lantern_journal.adapters.schema import journal_events, run_inbox, runs
from lantern_journal.adapters.sql_events import Transaction, insert_rows
from lantern_journal.domain import run_state
from lantern_journal.domain.family import Parent, derived_salts, successor_id
from lantern_journal.domain.records import NewRun, WorkflowIdPolicy
from lantern_journal.domain.run_state import RunChange
from lantern_kernel import kinds, payloads
from lantern_kernel.blobs import BlobRef


def make(tx: Transaction, end: RunChange) -> str:
    """Makes the run that goes on in the place of one whose row has just ended; its id."""
    row = tx.connection.execute(sa.select(runs).where(runs.c.run_id == end.run_id)).one()
    given = payloads.unpack(end.end_payload).content
    run_id = successor_id(end.run_id, end.time_us, end.end_salt)
    parent = Parent(run_id=row.parent_run_id, step_id=row.parent_step_id, epoch=0, abandon=row.abandoned)
    new = NewRun(
        run_id=run_id,
        request_id=f"continued#{end.run_id}",
        request_digest=sha256(end.run_id.encode()).digest(),
        tenant_id=row.tenant_id,
        agent_name=row.agent_name,
        input=given if isinstance(given, bytes) else b"",
        input_blob=given if isinstance(given, BlobRef) else None,
        workflow_id=row.workflow_id,
        policy=WorkflowIdPolicy.ALLOW_AFTER_CLOSE,
        traceparent=row.traceparent,
        target=None,
        salts=derived_salts(end.end_salt, run_id),
        end_salt=b"",
        durability=row.durability,
        parent=parent if row.parent_run_id else None,
        continued_from=end.run_id,
    )
    at = max(tx.now_us, end.time_us)
    version, digest, depth = row.agent_version, row.agent_digest, row.depth
    values = sql_first_rows.row_of_run(
        new, sql_first_rows.run_of(at, new, version, digest, granted=False, depth=depth), event_level=1
    )
    carried = _carried(tx, end)
    values["inbox_number"] = len(carried)
    tx.connection.execute(runs.insert(), [values])
    insert_rows(tx.connection, sql_first_rows.first_rows(at, new, version, digest, granted=False, depth=depth))
    if carried:
        tx.connection.execute(run_inbox.insert(), [{**entry, "run_id": run_id} for entry in carried])
    named = [ref for entry in carried if (ref := sql_blobs.ref_of(entry["payload_blob"])) is not None]
    named += [new.input_blob] if new.input_blob is not None else []
    sql_blobs.write_names(tx, [(row.tenant_id, blob, run_id) for blob in named])
    tx.connection.execute(runs.update().where(runs.c.run_id == end.run_id).values(continued_as=run_id))
    return run_id


def _carried(tx: Transaction, end: RunChange) -> list[dict[str, Any]]:
    """The inbox entries of signals that the other run has taken in and not used, in their order."""
    if not end.carry:
        return []
    events = journal_events.c
    query = sa.select(events.payload).where(
        events.run_id == end.run_id, events.seq.in_(end.carry), events.kind == kinds.SIGNAL_RECEIVED
    )
    entries: list[dict[str, Any]] = []
    for number, payload in enumerate(tx.connection.execute(query.order_by(events.seq)).scalars(), 1):
        signal = payloads.unpack(payload)
        entries.append(
            {
                "number": number,
                "request_id": f"carried#{number}",
                "kind": run_state.SIGNAL,
                "name": str(signal.facts.get("name", "")),
                "payload": signal.data or b"",
                "created_us": tx.now_us,
                "payload_blob": sql_blobs.ref_text(signal.blob),
            }
        )
    return entries
