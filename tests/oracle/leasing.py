"""Leases: grant, open, release, set aside."""

from lantern_journal.domain.appends import not_found
from lantern_journal.domain.leases import Limits
from lantern_journal.domain.records import Grant, LeaseTarget, ReleaseCause
from lantern_journal.domain.run_state import error_bytes
from lantern_kernel import kinds, reasons
from lantern_kernel.errors import LanternError
from lantern_kernel.event import NewEvent
from lantern_kernel.payloads import pack
from oracle import agents, waking
from oracle.tables import LockRow, RunRow, Tables


def run_of(tables: Tables, run_id: str) -> RunRow:
    """A run; raises RUN_NOT_FOUND."""
    run = tables.runs.get(run_id)
    if run is None:
        raise not_found(run_id)
    return run


def lost(run_id: str, epoch: int) -> LanternError:
    """The lease is not, or no longer, the caller's."""
    return LanternError(reasons.LEASE_LOST, f"epoch {epoch} is not the caller's", run_id=run_id)


def clear(tables: Tables, run_id: str) -> None:
    """Releases a lease: row and epoch stay."""
    lock = tables.locks.get(run_id)
    if lock is not None:
        lock.worker_id, lock.expires_us, lock.opened = "", 0, False


def acquire(tables: Tables, grant: Grant, limits: Limits, now_us: int) -> int:
    """Grants a lease to a session; 0 where it is not to be had."""
    run = run_of(tables, grant.run_id)
    head = tables.events[grant.run_id][-1]
    if head.kind == kinds.LEASE_GRANTED and head.salt == grant.salt:
        return head.epoch  # this very call, before its answer was lost
    needs = run.state in ("QUEUED", "RUNNING") or (
        run.state == "WAITING" and run.due_us is not None and run.due_us <= now_us
    )
    session = tables.sessions.get(grant.target.worker_id)
    if not needs or session is None or session.session_number != grant.target.session_number:
        return 0
    if session.draining or not waking.is_alive(session, now_us, limits) or session.tenant_id != run.tenant_id:
        return 0
    if session.event_level < run.event_level:
        return 0
    offered = [o for o in session.agents if agents.is_of(tables, run.tenant_id, run.agent_name, o)]
    if not any(offer.digest != waking.failed_last(run) for offer in offered):
        return 0
    if not waking.is_takeable(tables, tables.locks.get(run.run_id), now_us, limits):
        return 0
    run.epoch += 1
    tables.locks[run.run_id] = LockRow(
        run_id=run.run_id,
        worker_id=session.worker_id,
        session_number=session.session_number,
        epoch=run.epoch,
        acquired_us=now_us,
        expires_us=now_us + limits.grant_us,
        opened=False,
    )
    event = granted_event(grant.target, grant.reason, grant.salt)
    (made,) = tables.append(run.run_id, run.epoch, now_us, event)
    run.state, run.waiting_on, run.due_us, run.error = "RUNNING", "", None, None
    run.wake_reason, run.updated_us = grant.reason, made.time_us
    run.awaited_signals, run.nothing_to_compensate = "", False
    run.event_level = session.event_level
    return run.epoch


def granted_event(target: LeaseTarget, reason: str, salt: bytes) -> NewEvent:
    """The event of a grant."""
    facts = {"worker": target.worker_id, "session": target.session_number, "reason": reason}
    return NewEvent(kind=kinds.LEASE_GRANTED, payload=pack(facts), salt=salt)


def open_lease(tables: Tables, run_id: str, epoch: int, target: LeaseTarget, limits: Limits, now_us: int) -> None:
    """Makes a grant a full lease."""
    run_of(tables, run_id)
    lock = tables.locks.get(run_id)
    if lock is None or lock.worker_id != target.worker_id or lock.epoch != epoch:
        raise lost(run_id, epoch)
    if lock.expires_us <= now_us and not lock.opened and not tables.is_used(lock):
        raise lost(run_id, epoch)
    session = tables.sessions.get(target.worker_id)
    if session is None or session.closed or session.session_number < target.session_number:
        raise LanternError(reasons.SESSION_NOT_ATTACHED, "no open session", worker=target.worker_id)
    lock.opened, lock.expires_us = True, now_us + limits.lease_us


def release(tables: Tables, run_id: str, epoch: int, worker_id: str, cause: ReleaseCause, now_us: int) -> int:
    """Hands a run back; when it may go on, also where it was handed back before."""
    run = run_of(tables, run_id)
    if run.epoch != epoch:
        raise lost(run_id, epoch)
    lock = tables.locks.get(run_id)
    if lock is None or lock.worker_id == "":
        return run.recover_after_us
    if lock.worker_id != worker_id:
        raise lost(run_id, epoch)
    got_somewhere = tables.is_used(lock)
    clear(tables, run_id)
    if run.state not in ("QUEUED", "RUNNING"):
        return run.recover_after_us
    run.state, run.recover_after_us, run.updated_us = "QUEUED", 0, now_us
    if cause is ReleaseCause.DRAIN:
        run.wake_reason = "upgrade"
    elif cause is ReleaseCause.FAULT:
        run.wake_reason = "crash"
        run.drive_faults = 1 if got_somewhere else run.drive_faults + 1
        run.recover_after_us = now_us + min(60_000_000, 1_000_000 * 2 ** (run.drive_faults - 1))
    return run.recover_after_us


def defer(tables: Tables, run_id: str, delay_us: int | None, salt: bytes, limits: Limits, now_us: int) -> None:
    """Sets a run aside for a while, or parks it until code for it is offered."""
    run = run_of(tables, run_id)
    if not run.is_open or not waking.is_takeable(tables, tables.locks.get(run_id), now_us, limits):
        return
    is_due = run.due_us is not None and run.due_us <= now_us
    offers = waking.offers_of(tables, run)
    if delay_us is None and any(offer.digest != waking.failed_last(run) for offer in offers):
        delay_us = 1_000_000
    if delay_us is not None:
        if run.state != "WAITING" or is_due:
            run.recover_after_us = now_us + delay_us
        return
    park = waking.park_of(run, failed=bool(offers))
    if run.state == "WAITING":
        if is_due:
            run.waiting_on, run.due_us, run.awaited_signals = park.waiting_on, None, ""
            run.error, run.updated_us = error_bytes(park.error), now_us
        return
    (made,) = tables.append(run_id, run.epoch, now_us, NewEvent(kind=kinds.RUN_PARKED, payload=park.pack(), salt=salt))
    run.state, run.waiting_on, run.due_us, run.error = "WAITING", park.waiting_on, None, error_bytes(park.error)
    run.wake_reason, run.recover_after_us, run.updated_us = "upgrade", 0, made.time_us
    clear(tables, run_id)
