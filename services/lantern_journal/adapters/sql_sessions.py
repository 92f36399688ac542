"""Workers' sessions and the agents that they offer, in SQL."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from lantern_journal.adapters import sql_waking
from lantern_journal.adapters.schema import agents, journal_events, run_locks, runs, worker_sessions
from lantern_journal.adapters.sql_events import Transaction
from lantern_journal.domain import leases, run_state
from lantern_journal.domain.leases import AgentOffer, Limits, Session
from lantern_journal.domain.records import Agent, Attach, Attached, Tended, Tending, Worker
from lantern_journal.domain.run_state import RunState
from lantern_kernel import kinds

AGENTS_LOCK = 7_001
"""Taken by whoever offers agents or parks for lack of one (pg_advisory_xact_lock), so that neither misses the other."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundSession:
    """A row of worker_sessions."""

    # Its life.
    session: Session
    # Whose agents it offers.
    tenant_id: str
    # What it can drive.
    offers: tuple[AgentOffer, ...]


def lock_agents(connection: sa.Connection) -> None:
    """Holds the lock on what is offered until the transaction ends; SQLite has one writer anyway."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(AGENTS_LOCK)))


def find(connection: sa.Connection, worker_id: str) -> FoundSession | None:
    """A worker's session, open or not."""
    return find_all(connection, [worker_id]).get(worker_id)


def find_all(connection: sa.Connection, worker_ids: Sequence[str]) -> dict[str, FoundSession]:
    """The sessions of workers, open or not, by worker."""
    query = sa.select(worker_sessions).where(worker_sessions.c.worker_id.in_(worker_ids))
    return {
        row.worker_id: FoundSession(
            session=Session(
                worker_id=row.worker_id,
                number=row.session_number,
                seen_us=row.seen_us,
                closed=row.closed,
                draining=row.draining,
            ),
            tenant_id=row.tenant_id,
            offers=_offers(row.agents),
        )
        for row in connection.execute(query)
    }


def _offers(text: str) -> tuple[AgentOffer, ...]:
    return tuple(AgentOffer(name=name, digest=digest, program_kind=kind) for name, digest, kind in json.loads(text))


_ATTACH = sa.text(
    "INSERT INTO worker_sessions (worker_id, session_number, seen_us, closed, draining, address, capacity, tenant_id,"
    " agents) VALUES (:worker_id, 1, :now, false, :draining, :address, :capacity, :tenant_id, :agents)"
    " ON CONFLICT (worker_id) DO UPDATE SET session_number = worker_sessions.session_number + 1,"
    " seen_us = excluded.seen_us, closed = excluded.closed, draining = excluded.draining, address = excluded.address,"
    " capacity = excluded.capacity, tenant_id = excluded.tenant_id, agents = excluded.agents RETURNING session_number"
)


def attach(tx: Transaction, request: Attach) -> Attached:
    """Opens the worker's next session, registers its agents, wakes what waited for them."""
    lock_agents(tx.connection)
    number: int = tx.connection.execute(
        _ATTACH,
        {
            "worker_id": request.worker_id,
            "now": tx.now_us,
            "draining": request.draining,
            "address": request.address,
            "capacity": request.capacity,
            "tenant_id": request.tenant_id,
            "agents": json.dumps([[o.name, o.digest, o.program_kind] for o in request.offers]),
        },
    ).scalar_one()
    _register(tx, request)
    woken = 0 if request.draining else _wake_waiting(tx, request)
    return Attached(number=number, woken=woken)


def _register(tx: Transaction, request: Attach) -> None:
    """Gives each digest not seen before the next version of its name."""
    names = sorted({offer.name for offer in request.offers})
    known: dict[str, dict[str, int]] = {name: {} for name in names}
    query = sa.select(agents.c.name, agents.c.digest, agents.c.version).where(
        agents.c.tenant_id == request.tenant_id, agents.c.name.in_(names)
    )
    for name, digest, version in tx.connection.execute(query):
        known[name][digest] = version
    for offer in request.offers:
        versions = known[offer.name]
        if offer.digest in versions:
            continue
        versions[offer.digest] = max(versions.values(), default=0) + 1
        tx.connection.execute(
            agents.insert().values(
                tenant_id=request.tenant_id,
                name=offer.name,
                version=versions[offer.digest],
                digest=offer.digest,
                program_kind=offer.program_kind,
                created_us=tx.now_us,
            )
        )


def _wake_waiting(tx: Transaction, request: Attach) -> int:
    waiting = tx.connection.execute(
        sa.select(runs.c.run_id, runs.c.agent_name, runs.c.agent_digest, runs.c.waiting_on, runs.c.error)
        .where(
            runs.c.state == RunState.WAITING.value,
            runs.c.ended_us.is_(None),
            runs.c.waiting_on.in_(["capacity", "code_fix"]),
            runs.c.tenant_id == request.tenant_id,
            runs.c.agent_name.in_(sorted({offer.name for offer in request.offers})),
        )
        .order_by(runs.c.run_id)
        .with_for_update()
    ).all()
    woken = [
        row.run_id
        for row in waiting
        if leases.wakes_on_offer(
            row.waiting_on, _failed_digest(row.error, row.agent_digest), request.offers, row.agent_name
        )
    ]
    if woken:
        sql_waking.wake(tx, woken, run_state.UPGRADED)
    return len(woken)


def _failed_digest(error: bytes | None, pinned: str) -> str:
    """The code that could not drive the run: as its error says, else what it pinned."""
    facts = run_state.error_facts(error)
    return (facts.details or {}).get("digest", pinned) if facts is not None else pinned


def close_session(tx: Transaction, worker_id: str, number: int) -> int | None:
    """Closes a session that has not been re-attached, and expires its leases."""
    found = find(tx.connection, worker_id)
    if found is None or found.session.number != number:
        return None
    # Expired as opened, they tell of a crash rather than of a start.
    _open_used_leases(tx, tx.now_us, of_worker=worker_id)
    closed = tx.connection.execute(
        worker_sessions.update()
        .where(
            worker_sessions.c.worker_id == worker_id,
            worker_sessions.c.session_number == number,
            sa.not_(worker_sessions.c.closed),
        )
        .values(closed=True)
    ).rowcount
    return _expire_leases(tx, [worker_id]) if closed else None


def _expire_leases(tx: Transaction, workers: Sequence[str]) -> int:
    return tx.connection.execute(
        run_locks.update()
        .where(run_locks.c.run_id.in_(_locks_of(workers)), run_locks.c.expires_us > tx.now_us)
        .values(expires_us=tx.now_us)
    ).rowcount


def _locks_of(workers: Sequence[str]) -> sa.Select[tuple[str]]:
    """The locks of workers, taken in one order."""
    return (
        sa.select(run_locks.c.run_id)
        .where(run_locks.c.worker_id.in_(workers), run_locks.c.worker_id != "")
        .order_by(run_locks.c.run_id)
        .with_for_update()
    )


_SEEN = (
    worker_sessions.update()
    .where(
        worker_sessions.c.worker_id == sa.bindparam("worker"),
        worker_sessions.c.session_number == sa.bindparam("number"),
        sa.not_(worker_sessions.c.closed),
    )
    .values(seen_us=sa.bindparam("at"))
)

# Not after the session closed and its leases expired with it: the run would be stranded for a whole lease.
_HOLDER_IS_OPEN = sa.exists().where(
    worker_sessions.c.worker_id == run_locks.c.worker_id, sa.not_(worker_sessions.c.closed)
)


def _open_used_leases(tx: Transaction, until_us: int, *, of_worker: str = "") -> None:
    """A lease that was never opened, but under which something was appended, is as good as opened.

    So it is with a run that was created with its lease. The run's last event tells: a grant that nobody has used is
    still on top.
    """
    last_kind = (
        sa.select(journal_events.c.kind)
        .where(journal_events.c.run_id == run_locks.c.run_id)
        .order_by(journal_events.c.seq.desc())
        .limit(1)
        .correlate(run_locks)
        .scalar_subquery()
    )
    used = (
        sa.select(run_locks.c.run_id)
        .where(sa.text("NOT opened AND worker_id <> ''"), last_kind != kinds.LEASE_GRANTED, _HOLDER_IS_OPEN)
        .order_by(run_locks.c.run_id)
        .with_for_update(skip_locked=True)
    )
    if of_worker:
        used = used.where(run_locks.c.worker_id == of_worker)
    tx.connection.execute(
        run_locks.update().where(run_locks.c.run_id.in_(used)).values(opened=True, expires_us=until_us)
    )


def tend_sessions(tx: Transaction, tending: Tending, limits: Limits) -> Tended:
    """See `Store.tend_sessions`; statements only for what there is to do."""
    connection, until = tx.connection, tx.now_us + limits.lease_us
    if tending.seen:
        connection.execute(_SEEN, [{"worker": w, "number": n, "at": tx.now_us} for w, n in sorted(tending.seen)])
    _open_used_leases(tx, until)
    if tending.renew:
        connection.execute(
            run_locks.update()
            .where(run_locks.c.run_id.in_(_locks_of(tending.renew)), run_locks.c.opened, _HOLDER_IS_OPEN)
            .values(expires_us=until)
        )
    silent = connection.execute(
        worker_sessions.update()
        .where(sa.not_(worker_sessions.c.closed), worker_sessions.c.seen_us <= tx.now_us - limits.silence_us)
        .values(closed=True)
        .returning(worker_sessions.c.worker_id)
    ).scalars()
    closed = tuple(sorted(silent))
    if closed:
        _expire_leases(tx, closed)
    lost = _closed_by_others(connection, [worker for worker, _ in tending.seen])
    return Tended(closed=tuple(sorted({*closed, *lost})), inbox=_unconsumed(connection, tending.inbox_of))


def _closed_by_others(connection: sa.Connection, workers: Sequence[str]) -> list[str]:
    """Workers that we hear, but whose sessions another journal process took for silent while we could not write."""
    if not workers:
        return []
    query = sa.select(worker_sessions.c.worker_id).where(
        worker_sessions.c.worker_id.in_(workers), worker_sessions.c.closed
    )
    return list(connection.execute(query).scalars())


def _unconsumed(connection: sa.Connection, workers: Sequence[str]) -> tuple[tuple[str, str, int], ...]:
    if not workers:
        return ()
    query = (
        sa.select(run_locks.c.worker_id, runs.c.run_id, runs.c.inbox_number)
        .join(runs, runs.c.run_id == run_locks.c.run_id)
        .where(run_locks.c.worker_id.in_(workers), run_locks.c.worker_id != "")
        .where(runs.c.inbox_number > runs.c.consumed_inbox)
    )
    return tuple((worker, run_id, number) for worker, run_id, number in connection.execute(query))


def adopt_sessions(tx: Transaction) -> None:
    """Every open session was heard from just now, as far as we may judge."""
    tx.connection.execute(
        worker_sessions.update()
        .where(sa.not_(worker_sessions.c.closed), worker_sessions.c.seen_us < tx.now_us)
        .values(seen_us=tx.now_us)
    )


def is_offered(tx: Transaction, tenant_id: str, name: str, limits: Limits) -> bool:
    """Whether a live session that takes work offers an agent of that name."""
    return any(
        worker.tenant_id == tenant_id and not worker.draining and leases.offer_of(worker.offers, name)
        for worker in find_workers(tx, limits)
    )


def find_workers(tx: Transaction, limits: Limits) -> list[Worker]:
    """Workers with a live session."""
    held = (
        sa.select(run_locks.c.worker_id, sa.func.count().label("held"))
        .where(run_locks.c.worker_id != "")
        .group_by(run_locks.c.worker_id)
        .subquery()
    )
    found = tx.connection.execute(
        sa.select(worker_sessions, sa.func.coalesce(held.c.held, 0).label("held"))
        .outerjoin(held, held.c.worker_id == worker_sessions.c.worker_id)
        .where(sa.not_(worker_sessions.c.closed), worker_sessions.c.seen_us > tx.now_us - limits.silence_us)
    )
    return [
        Worker(
            worker_id=row.worker_id,
            session_number=row.session_number,
            address=row.address,
            capacity=row.capacity,
            lease_count=row.held,
            tenant_id=row.tenant_id,
            offers=_offers(row.agents),
            draining=row.draining,
        )
        for row in found
    ]


def list_agents(connection: sa.Connection, tenant_id: str, after: tuple[str, int], limit: int) -> list[Agent]:
    """Agents by name, then version."""
    name, version = after
    query = (
        sa.select(agents)
        .where(agents.c.tenant_id == tenant_id)
        .where(sa.or_(agents.c.name > name, sa.and_(agents.c.name == name, agents.c.version > version)))
        .order_by(agents.c.name, agents.c.version)
        .limit(limit)
    )
    return [
        Agent(name=row.name, version=row.version, digest=row.digest, program_kind=row.program_kind)
        for row in connection.execute(query)
    ]
