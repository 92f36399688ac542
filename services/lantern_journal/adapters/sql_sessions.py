"""Workers' sessions and the agents that they offer, in SQL."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from lantern_journal.adapters import sql_agents, sql_waking
from lantern_journal.adapters.schema import agents, run_locks, runs, worker_sessions
from lantern_journal.adapters.sql_events import Transaction
from lantern_journal.domain import agents as published
from lantern_journal.domain import leases, run_state
from lantern_journal.domain.leases import AgentOffer, Limits, Session
from lantern_journal.domain.records import Attach, Attached, Tended, Tending, Worker
from lantern_kernel import kinds
from lantern_kernel.names import ANY_AGENT


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundSession:
    """A row of worker_sessions."""

    # Its life.
    session: Session
    # Whose agents it offers.
    tenant_id: str
    # What it can drive.
    offers: tuple[AgentOffer, ...]
    # The event level that it knows.
    event_level: int


def find(connection: sa.Connection, worker_id: str) -> FoundSession | None:
    """A worker's session, open or not."""
    return _found(connection, sa.select(worker_sessions).where(worker_sessions.c.worker_id == worker_id)).get(worker_id)


def is_open(connection: sa.Connection, worker_id: str, number: int) -> bool:
    """Whether a worker's session of that number is its last one, and open."""
    return _is_current(find(connection, worker_id), number)


def hold(connection: sa.Connection, worker_ids: Sequence[str], *, to_change: bool = False) -> dict[str, FoundSession]:
    """The sessions of workers, by worker, which stay as they are until the transaction ends.

    Sessions are locked before runs, and runs before their locks, each in order: nobody waits for somebody who waits.
    """
    query = sa.select(worker_sessions).where(worker_sessions.c.worker_id.in_(worker_ids))
    return _found(connection, query.order_by(worker_sessions.c.worker_id).with_for_update(read=not to_change))


def _found(connection: sa.Connection, query: sa.Select[Any]) -> dict[str, FoundSession]:
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
            event_level=row.event_level,
        )
        for row in connection.execute(query)
    }


def _offers(text: str) -> tuple[AgentOffer, ...]:
    return tuple(AgentOffer(name=name, digest=digest, program_kind=kind) for name, digest, kind in json.loads(text))


_ATTACH = sa.text(
    "INSERT INTO worker_sessions (worker_id, session_number, seen_us, closed, draining, address, capacity, tenant_id,"
    " agents, event_level)"
    " VALUES (:worker_id, 1, :now, false, :draining, :address, :capacity, :tenant_id, :agents, :event_level)"
    " ON CONFLICT (worker_id) DO UPDATE SET session_number = worker_sessions.session_number + 1,"
    " seen_us = excluded.seen_us, closed = excluded.closed, draining = excluded.draining, address = excluded.address,"
    " capacity = excluded.capacity, tenant_id = excluded.tenant_id, agents = excluded.agents,"
    " event_level = excluded.event_level RETURNING session_number"
)


def attach(tx: Transaction, request: Attach) -> Attached:
    """Opens the worker's next session, registers its agents, wakes what waited for them."""
    sql_agents.lock(tx.connection)
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
            "event_level": request.event_level,
        },
    ).scalar_one()
    _register(tx, request)
    woken = 0 if request.draining else _wake_waiting(tx, request)
    return Attached(number=number, woken=woken)


def _register(tx: Transaction, request: Attach) -> None:
    """Gives each digest not seen before the next version of its name; AGENT_KIND_CONFLICT."""
    offers = [offer for offer in request.offers if offer.name != ANY_AGENT]
    known: dict[str, dict[str, int]] = {offer.name: {} for offer in offers}
    kinds_known: dict[str, str] = {}
    query = sa.select(agents.c.name, agents.c.digest, agents.c.version, agents.c.program_kind).where(
        agents.c.tenant_id == request.tenant_id, agents.c.name.in_(sorted(known))
    )
    for name, digest, version, kind in tx.connection.execute(query):
        known[name][digest] = version
        kinds_known[name] = kind
    for offer in offers:
        if kinds_known.setdefault(offer.name, offer.program_kind) != offer.program_kind:
            raise published.kind_conflict(offer.name, kinds_known[offer.name], offer.program_kind)
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
    woken = 0
    # By name, or by program kind where every agent of it is offered.
    for name, kind in sorted({(o.name, o.program_kind if o.name == ANY_AGENT else "") for o in request.offers}):
        digests = sorted({o.digest for o in request.offers if o.name == name and kind in ("", o.program_kind)})
        woken += sql_waking.wake_where(
            tx,
            run_state.UPGRADED,
            # The literal conditions are those of a partial index.
            sa.text("waiting_on IN ('capacity', 'code_fix') AND ended_us IS NULL"),
            runs.c.tenant_id == request.tenant_id,
            runs.c.agent_name.in_(_agents_of(request.tenant_id, kind)) if kind else runs.c.agent_name == name,
            runs.c.event_level <= request.event_level,
            sa.or_(*(_is_helped_by(digest) for digest in digests)),
        )
    return woken


def _agents_of(tenant_id: str, kind: str) -> sa.Select[tuple[str]]:
    return sa.select(agents.c.name).where(agents.c.tenant_id == tenant_id, agents.c.program_kind == kind)


def _is_helped_by(digest: str) -> sa.ColumnElement[bool]:
    """Whether code of that digest gives a waiting run a chance (SPEC L4).

    WAITING(capacity) is helped by code other than that which failed last, WAITING(code_fix) by code that never failed.
    """
    has_failed = sa.func.replace(runs.c.failed_digests, digest, "") != runs.c.failed_digests
    failed_last = sa.func.substr(runs.c.failed_digests, 1, leases.DIGEST_LENGTH) == digest
    return sa.or_(
        sa.and_(runs.c.waiting_on == "capacity", sa.not_(failed_last)),
        sa.and_(runs.c.waiting_on == "code_fix", sa.not_(has_failed)),
    )


def close_session(tx: Transaction, worker_id: str, number: int) -> int | None:
    """Closes a session that has not been re-attached, and expires its leases."""
    found = hold(tx.connection, [worker_id], to_change=True).get(worker_id)
    if found is None or found.session.number != number or found.session.closed:
        return None
    _close(tx, [worker_id])
    return _expire_leases(tx, [worker_id])


def _close(tx: Transaction, workers: Sequence[str]) -> None:
    tx.connection.execute(worker_sessions.update().where(worker_sessions.c.worker_id.in_(workers)).values(closed=True))


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


USED = (
    "coalesce((SELECT e.kind FROM journal_events e WHERE e.run_id = run_locks.run_id ORDER BY e.seq DESC LIMIT 1)"
    f" <> '{kinds.LEASE_GRANTED}', false)"
)
"""A lease that was never opened, but under which something was appended, is as good as opened.

So it is with a run that was created with its lease. The run's last event tells: a grant that nobody has used is still
on top.
"""

_SEEN = (
    worker_sessions.update()
    .where(
        worker_sessions.c.worker_id == sa.bindparam("worker"),
        worker_sessions.c.session_number == sa.bindparam("number"),
        sa.not_(worker_sessions.c.closed),
    )
    .values(seen_us=sa.bindparam("at"))
)

CLOSED_KEPT_US = 3_600_000_000
"""Sessions that closed longer ago are deleted: a worker's id never comes back once its process is gone."""

CLOSED_DELETED_MAX = 200
"""Of them, in one go."""


def tend_sessions(tx: Transaction, tending: Tending, limits: Limits) -> Tended:
    """See `Store.tend_sessions`; statements only for what there is to do."""
    connection, until = tx.connection, tx.now_us + limits.lease_us
    seen = {worker for worker, _ in tending.seen}
    held = hold(connection, sorted({*seen, *tending.renew}), to_change=True) if seen or tending.renew else {}
    if tending.seen:
        connection.execute(_SEEN, [{"worker": w, "number": n, "at": tx.now_us} for w, n in sorted(tending.seen)])
    closed = _silent(tx, limits, tx.now_us if tending.as_of_us is None else min(tending.as_of_us, tx.now_us))
    if closed:
        _close(tx, closed)
        _expire_leases(tx, closed)
    _open_used_leases(tx, until)
    # Not of a session that closed, whose leases expired with it: the run would be stranded for a whole lease.
    renew = [w for w in tending.renew if w in held and not held[w].session.closed and w not in closed]
    if renew:
        connection.execute(
            run_locks.update()
            .where(run_locks.c.run_id.in_(_locks_of(renew)), run_locks.c.opened)
            .values(expires_us=until)
        )
    _forget_closed(tx)
    return Tended(
        closed=tuple(closed),
        gone=tuple((worker, number) for worker, number in tending.seen if not _is_current(held.get(worker), number)),
        inbox=_unconsumed(connection, tending.inbox_of),
        now_us=tx.now_us,
    )


def _is_current(found: FoundSession | None, number: int) -> bool:
    return found is not None and found.session.number == number and not found.session.closed


def _silent(tx: Transaction, limits: Limits, as_of_us: int) -> list[str]:
    """Open sessions that were silent for too long then, held; without those that another journal process holds."""
    query = (
        sa.select(worker_sessions.c.worker_id)
        .where(sa.not_(worker_sessions.c.closed), worker_sessions.c.seen_us <= as_of_us - limits.silence_us)
        .order_by(worker_sessions.c.worker_id)
        .with_for_update(skip_locked=True)
    )
    return list(tx.connection.execute(query).scalars())


def _open_used_leases(tx: Transaction, until_us: int | None) -> None:
    """Writes down that a lease was opened where something was appended under it; see `USED`.

    The sessions are held, as for a renewal; one that another journal process holds waits for the next time.
    """
    unopened = sa.select(run_locks.c.worker_id).where(sa.text("NOT opened AND worker_id <> ''")).distinct()
    holders = (
        sa.select(worker_sessions.c.worker_id)
        .where(worker_sessions.c.worker_id.in_(unopened), sa.not_(worker_sessions.c.closed))
        .order_by(worker_sessions.c.worker_id)
        .with_for_update(skip_locked=True)
    )
    workers = list(tx.connection.execute(holders).scalars())
    if not workers:
        return
    used = (
        sa.select(run_locks.c.run_id)
        .where(sa.text("NOT opened AND worker_id <> ''"), run_locks.c.worker_id.in_(workers), sa.text(USED))
        .order_by(run_locks.c.run_id)
        .with_for_update(skip_locked=True)
    )
    values: dict[str, Any] = {"opened": True} if until_us is None else {"opened": True, "expires_us": until_us}
    tx.connection.execute(run_locks.update().where(run_locks.c.run_id.in_(used)).values(values))


def _forget_closed(tx: Transaction) -> None:
    """Deletes some of the sessions that closed long ago and hold no lease."""
    holds = sa.exists().where(run_locks.c.worker_id == worker_sessions.c.worker_id, run_locks.c.worker_id != "")
    old = (
        sa.select(worker_sessions.c.worker_id)
        # The literal condition is that of a partial index.
        .where(sa.text("closed"), worker_sessions.c.seen_us <= tx.now_us - CLOSED_KEPT_US, sa.not_(holds))
        .order_by(worker_sessions.c.worker_id)
        .limit(CLOSED_DELETED_MAX)
        .with_for_update(skip_locked=True)
    )
    found = list(tx.connection.execute(old).scalars())
    if found:
        tx.connection.execute(worker_sessions.delete().where(worker_sessions.c.worker_id.in_(found)))


def _unconsumed(connection: sa.Connection, workers: Sequence[str]) -> tuple[tuple[str, str, int], ...]:
    if not workers:
        return ()
    query = (
        sa.select(run_locks.c.worker_id, runs.c.run_id, runs.c.inbox_number)
        .join(runs, runs.c.run_id == run_locks.c.run_id)
        .where(run_locks.c.worker_id.in_(workers), run_locks.c.worker_id != "")
        .where(sa.text("inbox_number > consumed_inbox AND ended_us IS NULL"))
    )
    return tuple((worker, run_id, number) for worker, run_id, number in connection.execute(query))


def adopt_sessions(tx: Transaction) -> None:
    """Every open session was heard from just now, as far as we may judge, and drives what it has appended to."""
    stale = (
        sa.select(worker_sessions.c.worker_id)
        .where(sa.not_(worker_sessions.c.closed), worker_sessions.c.seen_us != tx.now_us)
        .order_by(worker_sessions.c.worker_id)
        .with_for_update()
    )
    tx.connection.execute(
        worker_sessions.update().where(worker_sessions.c.worker_id.in_(stale)).values(seen_us=tx.now_us)
    )
    _open_used_leases(tx, None)


def find_offers(tx: Transaction, tenant_id: str, name: str, event_level: int) -> list[AgentOffer]:
    """The offers of an agent by sessions that take work and know that event level.

    Those count that were not heard from lately: after an outage every session is silent to us, and one that is dead is
    closed before long. A run that waits for capacity beside a live worker would wait for ever.
    """
    # An exact look into the JSON: within a string of it the quotes would be escaped.
    wanted = [f"[{json.dumps(each)}, " for each in (name, ANY_AGENT)]
    query = sa.select(worker_sessions.c.agents).where(
        sa.not_(worker_sessions.c.closed),
        sa.not_(worker_sessions.c.draining),
        worker_sessions.c.tenant_id == tenant_id,
        worker_sessions.c.event_level >= event_level,
        sa.or_(*(sa.func.replace(worker_sessions.c.agents, w, "") != worker_sessions.c.agents for w in wanted)),
    )
    found = [offer for text in tx.connection.execute(query).scalars() for offer in _offers(text)]
    return leases.offers_of(found, name, sql_agents.kind_of(tx.connection, tenant_id, name))


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
            event_level=row.event_level,
        )
        for row in found
    ]
