"""Workers' sessions: attach, close, tend, adopt; the agents that they offer."""

from lantern_journal.domain.leases import Limits
from lantern_journal.domain.records import Attach, Attached, Tended, Tending, Worker
from oracle import agents, waking
from oracle.tables import SessionRow, Tables

CLOSED_KEPT_US = 3_600_000_000
CLOSED_DELETED_MAX = 200


def attach(tables: Tables, request: Attach, now_us: int) -> Attached:
    """Opens the worker's next session, makes its agents known, wakes what waited for them."""
    named = [offer for offer in request.offers if offer.name != "*"]
    for offer in named:
        agents.check_kind(tables, request.tenant_id, offer.name, offer.program_kind)
    before = tables.sessions.get(request.worker_id)
    session = SessionRow(
        worker_id=request.worker_id,
        session_number=before.session_number + 1 if before else 1,
        seen_us=now_us,
        closed=False,
        draining=request.draining,
        address=request.address,
        capacity=request.capacity,
        tenant_id=request.tenant_id,
        agents=request.offers,
        event_level=request.event_level,
    )
    tables.sessions[request.worker_id] = session
    for offer in named:
        agents.add(tables, request.tenant_id, offer.name, offer.digest, offer.program_kind, now_us)
    woken = 0
    for run in tables.runs.values():
        offered = [o for o in request.offers if agents.is_of(tables, run.tenant_id, run.agent_name, o)]
        helps = any(waking.can_help(run, offer.digest) for offer in offered)
        helps = helps and request.event_level >= run.event_level
        if helps and run.state == "WAITING" and run.tenant_id == request.tenant_id and not request.draining:
            waking.wake(run, "upgrade", now_us)
            woken += 1
    return Attached(number=session.session_number, woken=woken)


def close(tables: Tables, worker_id: str, number: int, now_us: int) -> int | None:
    """Closes a session that nobody has re-attached, and expires its leases; how many."""
    session = tables.sessions.get(worker_id)
    if session is None or session.session_number != number or session.closed:
        return None
    session.closed = True
    return _expire(tables, worker_id, now_us)


def _expire(tables: Tables, worker_id: str, now_us: int) -> int:
    held = [lock for lock in tables.locks.values() if lock.worker_id == worker_id and lock.expires_us > now_us]
    for lock in held:
        lock.expires_us = now_us
    return len(held)


def tend(tables: Tables, tending: Tending, limits: Limits, now_us: int) -> Tended:
    """What a journal process does each second for the sessions of its workers."""
    sessions = tables.sessions
    for worker_id, number in tending.seen:
        session = sessions.get(worker_id)
        if session is not None and session.session_number == number and not session.closed:
            session.seen_us = now_us
    as_of_us = now_us if tending.as_of_us is None else min(tending.as_of_us, now_us)
    closed = {s.worker_id for s in sessions.values() if not s.closed and as_of_us - s.seen_us >= limits.silence_us}
    for worker_id in closed:
        sessions[worker_id].closed = True
        _expire(tables, worker_id, now_us)
    _open_used(tables, now_us + limits.lease_us)
    for worker_id in tending.renew:
        session = sessions.get(worker_id)
        if session is None or session.closed:
            continue
        for lock in tables.locks.values():
            if lock.worker_id == worker_id and lock.opened:
                lock.expires_us = now_us + limits.lease_us
    gone = tuple((worker, number) for worker, number in tending.seen if not is_open(tables, worker, number))
    _forget(tables, now_us)
    inbox = [
        (lock.worker_id, run.run_id, run.inbox_number)
        for lock in tables.locks.values()
        if lock.worker_id in tending.inbox_of
        for run in (tables.runs[lock.run_id],)
        if run.is_open and run.inbox_number > run.consumed_inbox
    ]
    return Tended(closed=tuple(sorted(closed)), gone=gone, inbox=tuple(inbox), now_us=now_us)


def is_open(tables: Tables, worker_id: str, number: int) -> bool:
    """Whether that is the worker's last session, and open."""
    session = tables.sessions.get(worker_id)
    return session is not None and session.session_number == number and not session.closed


def _open_used(tables: Tables, until_us: int | None) -> None:
    """A lease under which something was appended is as good as opened, while its session is open."""
    for lock in tables.locks.values():
        holder = tables.sessions.get(lock.worker_id)
        if lock.worker_id and not lock.opened and holder is not None and not holder.closed and tables.is_used(lock):
            lock.opened = True
            lock.expires_us = lock.expires_us if until_us is None else until_us


def _forget(tables: Tables, now_us: int) -> None:
    holders = {lock.worker_id for lock in tables.locks.values()}
    old = sorted(
        session.worker_id
        for session in tables.sessions.values()
        if session.closed and now_us - session.seen_us >= CLOSED_KEPT_US and session.worker_id not in holders
    )
    for worker_id in old[:CLOSED_DELETED_MAX]:
        del tables.sessions[worker_id]


def adopt(tables: Tables, now_us: int) -> None:
    """Every open session gets a fresh moment to come back."""
    for session in tables.sessions.values():
        if not session.closed:
            session.seen_us = now_us
    _open_used(tables, None)


def workers(tables: Tables, limits: Limits, now_us: int) -> list[Worker]:
    """Workers with a live session."""
    return [
        Worker(
            worker_id=session.worker_id,
            session_number=session.session_number,
            address=session.address,
            capacity=session.capacity,
            lease_count=sum(lock.worker_id == session.worker_id for lock in tables.locks.values()),
            tenant_id=session.tenant_id,
            offers=session.agents,
            draining=session.draining,
            event_level=session.event_level,
        )
        for session in tables.sessions.values()
        if waking.is_alive(session, now_us, limits)
    ]
