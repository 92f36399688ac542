"""Children: who may start one, and what the end of a run means to its parent and its children."""

from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from typing import Any
from uuid import UUID

from lantern_journal.domain.appends import not_found
from lantern_journal.domain.family import NOTHING, Aftermath
from lantern_journal.domain.records import NewEntry, NewRun, SentEntry
from lantern_kernel import kinds, reasons
from lantern_kernel.errors import LanternError
from lantern_kernel.event import Event, NewEvent
from lantern_kernel.payloads import pack, unpack
from oracle import leasing
from oracle.tables import EntryRow, RunRow, Tables

Send = Callable[[Tables, NewEntry, int], SentEntry]
STATES = {kinds.RUN_SUCCEEDED: "SUCCEEDED", kinds.RUN_FAILED: "FAILED", kinds.RUN_CANCELLED: "CANCELLED"}


def depth_of(tables: Tables, new: NewRun, replaced: RunRow | None) -> int:
    """How deep a new run stands; raises why its parent may not start it."""
    if new.parent is None:
        return 0
    parent = tables.runs.get(new.parent.run_id)
    if parent is not None and parent is replaced:
        raise LanternError(reasons.RUN_CLOSED, "ended by this start", run_id=parent.run_id, state="CANCELLED")
    if parent is None or parent.tenant_id != new.tenant_id:
        raise not_found(new.parent.run_id)
    if not parent.is_open:
        raise LanternError(reasons.RUN_CLOSED, "ended", run_id=parent.run_id, state=parent.state)
    if (parent.state, parent.epoch) != ("RUNNING", new.parent.epoch):
        raise leasing.lost(parent.run_id, new.parent.epoch)
    if parent.depth >= 5:
        raise LanternError(reasons.CHILD_TOO_DEEP, "too deep", run_id=parent.run_id, depth=parent.depth + 1)
    return parent.depth + 1


def name(tables: Tables, new: NewRun, run: RunRow, facts: dict[str, Any]) -> None:
    """What of it stands in the rows of a new run and its parent, and in its run_started."""
    if new.durability != "sync":
        run.durability = facts["durability"] = new.durability
    if new.parent is None:
        return
    run.parent_run_id, run.parent_step_id, run.abandoned = new.parent.run_id, new.parent.step_id, new.parent.abandon
    tables.runs[new.parent.run_id].has_children = True
    facts["parent"] = {"runId": run.parent_run_id, "stepId": run.parent_step_id, "depth": run.depth}
    facts["parent"] |= {"abandoned": True} if run.abandoned else {}


def ended(tables: Tables, run: RunRow, end: Event, now_us: int, send: Send) -> Aftermath:
    """The end of a run: its parent is told while that is open, and its children are to end as well."""
    told = NOTHING
    goes_on = end.kind == kinds.RUN_SUCCEEDED and unpack(end.payload).facts.get("continueAsNew") is True
    if goes_on:
        told += Aftermath(queued=(_go_on(tables, run, end, now_us),))
    for to, entry in [*([] if goes_on else _to_parent(run, end)), *_to_children(tables, run, end)]:
        relative = tables.runs[to]
        if relative.is_open:
            sent = send(tables, entry, now_us)
            told += sent.aftermath
            told += Aftermath(
                queued=(to,) if sent.woken else (),
                moved=(to,) if sent.ended else (),
                entries=((sent.driver, to, sent.number),) if sent.driver else (),
            )
    return told


def _to_parent(run: RunRow, end: Event) -> list[tuple[str, NewEntry]]:
    if not run.parent_run_id:
        return []
    content = unpack(end.payload)
    facts: dict[str, Any] = {"runId": run.run_id, "state": STATES[end.kind]}
    result = content.data if end.kind == kinds.RUN_SUCCEEDED else None
    if end.kind != kinds.RUN_SUCCEEDED and content.facts.get("code"):
        keep = ("code", "message", "stepId", "details")
        facts["error"] = {member: content.facts[member] for member in keep if content.facts.get(member)}
        facts["error"].setdefault("message", "")
    entry = _entry(end, run.parent_run_id, f"child#{run.parent_step_id}", "child", run.parent_step_id)
    return [(run.parent_run_id, _with(entry, pack(facts, result)))]


def _to_children(tables: Tables, run: RunRow, end: Event) -> list[tuple[str, NewEntry]]:
    mine = [r for r in tables.runs.values() if r.parent_run_id == run.run_id and r.is_open and not r.abandoned]
    return [
        (child.run_id, _with(_entry(end, child.run_id, f"parent#{run.run_id}", "cancel", ""), _of_parent(run)))
        for child in sorted(mine, key=lambda child: child.run_id)
    ]


def _of_parent(run: RunRow) -> bytes:
    return pack({"parent": run.run_id})


def _entry(end: Event, to: str, request_id: str, kind: str, called: str) -> dict[str, Any]:
    made = sha256(b"lantern.family\0" + end.salt + to.encode()).digest()
    salts = (made[:16], made[16:])
    return {"request_id": request_id, "run_id": to, "kind": kind, "name": called, "salts": salts}


def _with(entry: dict[str, Any], payload: bytes) -> NewEntry:
    return NewEntry(payload=payload, **entry)


def _go_on(tables: Tables, run: RunRow, end: Event, now_us: int) -> str:
    """A new run in the place of one that has ended, with the signals that it had left."""
    content, at = unpack(end.payload), max(now_us, end.time_us)
    random = sha256(b"lantern.successor\0" + end.salt + run.run_id.encode()).digest()
    clock = (end.time_us // 1000) << 80 | 7 << 76 | (end.time_us % 1000 * 4096 // 1000) << 64
    run_id = str(UUID(int=clock | 2 << 62 | int.from_bytes(random[:8], "big") >> 2))
    facts: dict[str, Any] = {"agent": run.agent_name, "version": run.agent_version, "digest": run.agent_digest}
    facts |= {"workflowId": run.workflow_id, "requestId": f"continued#{run.run_id}", "traceparent": run.traceparent}
    facts |= {} if run.durability == "sync" else {"durability": run.durability}
    if run.parent_run_id:
        facts["parent"] = {"runId": run.parent_run_id, "stepId": run.parent_step_id, "depth": run.depth}
        facts["parent"] |= {"abandoned": True} if run.abandoned else {}
    facts["continuedFrom"] = run.run_id
    salt = sha256(b"lantern.family\0" + end.salt + run_id.encode()).digest()[:16]
    tables.append(run_id, 0, at, NewEvent(kind=kinds.RUN_STARTED, payload=pack(facts, content.data), salt=salt))
    signals = [event for event in tables.events[run.run_id] if event.seq in content.facts.get("carry", [])]
    carried = [unpack(event.payload) for event in signals if event.kind == kinds.SIGNAL_RECEIVED]
    tables.inboxes[run_id] = [
        EntryRow(
            run_id=run_id,
            number=number,
            request_id=f"carried#{number}",
            kind="signal",
            name=str(signal.facts.get("name", "")),
            payload=signal.data or b"",
            created_us=now_us,
        )
        for number, signal in enumerate(carried, 1)
    ]
    tables.runs[run_id] = replace(
        run,
        run_id=run_id,
        request_id=f"continued#{run.run_id}",
        request_digest=sha256(run.run_id.encode()).digest(),
        state="QUEUED",
        wake_reason="start",
        created_us=at,
        updated_us=at,
        ended_us=None,
        end_seq=None,
        epoch=0,
        inbox_number=len(carried),
        consumed_inbox=0,
        cancel_seq=None,
        failed_digests="",
        event_level=1,
        has_children=False,
        continued_from=run.run_id,
        continued_as="",
    )
    run.continued_as = run_id
    return run_id
