"""Agents in SQL: their versions, the definitions of those that are data, and who published them."""

from typing import Any

import sqlalchemy as sa

from lantern_journal.adapters.schema import agent_definitions, agent_publications, agents
from lantern_journal.adapters.sql_events import Transaction
from lantern_journal.domain.agents import Definition, Publication, Published, Wanted, kind_conflict, unknown_version
from lantern_journal.domain.records import Agent
from lantern_kernel import reasons
from lantern_kernel.errors import LanternError

AGENTS_LOCK = 7_001
"""Taken by whoever offers or publishes agents or parks for lack of one (pg_advisory_xact_lock): none misses another."""


def lock(connection: sa.Connection) -> None:
    """Holds the lock on what is offered until the transaction ends; SQLite has one writer anyway."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(AGENTS_LOCK)))


def kind_of(connection: sa.Connection, tenant_id: str, name: str) -> str:
    """The program kind of an agent: that of its first version, as of all; empty where there is none."""
    query = sa.select(agents.c.program_kind).where(agents.c.tenant_id == tenant_id, agents.c.name == name)
    return connection.execute(query.order_by(agents.c.version).limit(1)).scalar() or ""


def list_agents(connection: sa.Connection, tenant_id: str, after: tuple[str, int], limit: int) -> list[Agent]:
    """Agents by name, then version."""
    name, version = after
    rows = _versions(tenant_id).subquery()
    query = (
        sa.select(rows)
        .where(sa.or_(rows.c.name > name, sa.and_(rows.c.name == name, rows.c.version > version)))
        .order_by(rows.c.name, rows.c.version)
        .limit(limit)
    )
    return [_agent(row) for row in connection.execute(query)]


def find_definition(connection: sa.Connection, wanted: Wanted) -> Definition:
    """A version with its definition."""
    rows = _versions(wanted.tenant_id, wanted.name).subquery()
    query = sa.select(rows, agent_definitions.c.content).outerjoin(
        agent_definitions,
        sa.and_(agent_definitions.c.tenant_id == wanted.tenant_id, agent_definitions.c.digest == rows.c.digest),
    )
    if wanted.version:
        query = query.where(rows.c.version == wanted.version)
    if wanted.digest:
        query = query.where(rows.c.digest == wanted.digest)
    if not wanted.version and not wanted.digest:
        query = query.where(rows.c.place == 1)
    row = connection.execute(query).one_or_none()
    if row is None:
        raise unknown_version(wanted)
    return Definition(agent=_agent(row), content=row.content or b"")


def publish(tx: Transaction, new: Publication) -> Published:
    """Makes a definition the current version of its agent, or finds that this very request did."""
    lock(tx.connection)
    before = tx.connection.execute(
        sa.select(agent_publications).where(
            agent_publications.c.tenant_id == new.tenant_id, agent_publications.c.request_id == new.request_id
        )
    ).one_or_none()
    if before is not None:
        return _published_before(tx, new, before)
    versions = tx.connection.execute(_versions(new.tenant_id, new.name)).all()
    for row in versions:
        if row.program_kind != new.program_kind:
            raise kind_conflict(new.name, row.program_kind, new.program_kind)
    # Later than whatever was published before, whichever way the clock went.
    published_us = max([tx.now_us, *(row.published_us + 1 for row in versions)])
    known = next((row for row in versions if row.digest == new.digest), None)
    version = known.version if known is not None else max((row.version for row in versions), default=0) + 1
    if known is None:
        _insert(tx, new, version, published_us)
    else:
        tx.connection.execute(
            agents.update()
            .where(agents.c.tenant_id == new.tenant_id, agents.c.name == new.name, agents.c.version == version)
            .values(published_us=published_us)
        )
    tx.connection.execute(
        agent_publications.insert().values(
            tenant_id=new.tenant_id,
            request_id=new.request_id,
            request_digest=new.request_digest(),
            name=new.name,
            version=version,
            created=known is None,
        )
    )
    agent = Agent(name=new.name, version=version, digest=new.digest, program_kind=new.program_kind, is_current=True)
    return Published(agent=agent, created=known is None)


def _insert(tx: Transaction, new: Publication, version: int, published_us: int) -> None:
    """The version, and its content where no other agent of the tenant has the same."""
    same = (agent_definitions.c.tenant_id == new.tenant_id, agent_definitions.c.digest == new.digest)
    if tx.connection.execute(sa.select(agent_definitions.c.digest).where(*same)).one_or_none() is None:
        tx.connection.execute(
            agent_definitions.insert().values(
                tenant_id=new.tenant_id, digest=new.digest, content=new.definition, created_us=tx.now_us
            )
        )
    tx.connection.execute(
        agents.insert().values(
            tenant_id=new.tenant_id,
            name=new.name,
            version=version,
            digest=new.digest,
            program_kind=new.program_kind,
            created_us=tx.now_us,
            published_us=published_us,
        )
    )


def _published_before(tx: Transaction, new: Publication, before: Any) -> Published:
    if before.request_digest != new.request_digest():
        raise LanternError(
            reasons.REQUEST_ID_REUSED,
            f"request id {new.request_id!r} was used for another request",
            field="request_id",
            agent=before.name,
        )
    wanted = Wanted(tenant_id=new.tenant_id, name=before.name, version=before.version, digest="")
    return Published(agent=find_definition(tx.connection, wanted).agent, created=before.created)


def _versions(tenant_id: str, name: str | None = None) -> sa.Select[Any]:
    """The versions of a tenant's agents, each with its place among those that new runs could pin: 1 is current."""
    place = sa.func.row_number().over(
        partition_by=agents.c.name, order_by=(agents.c.published_us.desc(), agents.c.version.desc())
    )
    query = sa.select(agents, place.label("place")).where(agents.c.tenant_id == tenant_id)
    return query if name is None else query.where(agents.c.name == name)


def _agent(row: Any) -> Agent:
    return Agent(
        name=row.name,
        version=row.version,
        digest=row.digest,
        program_kind=row.program_kind,
        is_current=row.place == 1,
    )
