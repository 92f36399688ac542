"""Agents: their versions, what is published, and which offers are of which."""

from lantern_journal.domain.agents import Definition, Publication, Published, Wanted
from lantern_journal.domain.leases import AgentOffer
from lantern_journal.domain.records import Agent
from lantern_kernel import reasons
from lantern_kernel.errors import LanternError
from oracle.tables import AgentRow, DefinitionRow, PublicationRow, Tables


def versions(tables: Tables, tenant_id: str, name: str) -> list[AgentRow]:
    """Those of an agent, the first one first."""
    return [row for row in tables.agents if (row.tenant_id, row.name) == (tenant_id, name)]


def current(tables: Tables, tenant_id: str, name: str) -> AgentRow:
    """The version published last; where none was, the last one."""
    return max(versions(tables, tenant_id, name), key=lambda row: (row.published_us, row.version))


def is_of(tables: Tables, tenant_id: str, name: str, offer: AgentOffer) -> bool:
    """Whether an offer is of an agent: of that name, or of all agents of its kind."""
    if offer.name == "*":
        return any(row.program_kind == offer.program_kind for row in versions(tables, tenant_id, name))
    return offer.name == name


def check_kind(tables: Tables, tenant_id: str, name: str, kind: str) -> None:
    """A name has one program kind."""
    for row in versions(tables, tenant_id, name):
        if row.program_kind != kind:
            raise LanternError(
                reasons.AGENT_KIND_CONFLICT, "another kind", field="name", agent=name, program_kind=row.program_kind
            )


def add(tables: Tables, tenant_id: str, name: str, digest: str, kind: str, now_us: int) -> tuple[AgentRow, bool]:
    """The version of a digest, and whether it is new."""
    known = versions(tables, tenant_id, name)
    for row in known:
        if row.digest == digest:
            return row, False
    row = AgentRow(
        tenant_id=tenant_id, name=name, version=len(known) + 1, digest=digest, program_kind=kind, created_us=now_us
    )
    tables.agents.append(row)
    return row, True


def publish(tables: Tables, new: Publication, now_us: int) -> Published:
    """Makes a definition current."""
    before = tables.publications.get((new.tenant_id, new.request_id))
    if before is not None:
        if before.request_digest != new.request_digest():
            raise LanternError(reasons.REQUEST_ID_REUSED, "reused", field="request_id", agent=before.name)
        row = versions(tables, new.tenant_id, before.name)[before.version - 1]
        return Published(agent=agent_of(tables, row), created=before.created)
    check_kind(tables, new.tenant_id, new.name, new.program_kind)
    last_us = max((row.published_us for row in versions(tables, new.tenant_id, new.name)), default=-1)
    row, created = add(tables, new.tenant_id, new.name, new.digest, new.program_kind, now_us)
    row.published_us = max(now_us, last_us + 1)
    content = DefinitionRow(tenant_id=new.tenant_id, digest=new.digest, content=new.definition, created_us=now_us)
    tables.definitions.setdefault((new.tenant_id, new.digest), content)
    tables.publications[new.tenant_id, new.request_id] = PublicationRow(
        tenant_id=new.tenant_id,
        request_id=new.request_id,
        request_digest=new.request_digest(),
        name=new.name,
        version=row.version,
        created=created,
    )
    return Published(agent=agent_of(tables, row), created=created)


def find(tables: Tables, wanted: Wanted) -> Definition:
    """A version with its definition."""
    for row in versions(tables, wanted.tenant_id, wanted.name):
        seen = agent_of(tables, row)
        if wanted.version or wanted.digest:
            is_wanted = row.version == wanted.version or row.digest == wanted.digest
        else:
            is_wanted = seen.is_current
        if is_wanted:
            kept = tables.definitions.get((row.tenant_id, row.digest))
            return Definition(agent=seen, content=kept.content if kept else b"")
    raise LanternError(reasons.AGENT_NOT_FOUND, "unknown", field="name", agent=wanted.name)


def page(tables: Tables, tenant_id: str, after: tuple[str, int], limit: int) -> list[Agent]:
    """Agents by name, then version."""
    rows = sorted((row for row in tables.agents if row.tenant_id == tenant_id), key=lambda a: (a.name, a.version))
    return [agent_of(tables, row) for row in rows if (row.name, row.version) > after][:limit]


def agent_of(tables: Tables, row: AgentRow) -> Agent:
    """A version as the port shows it."""
    return Agent(
        name=row.name,
        version=row.version,
        digest=row.digest,
        program_kind=row.program_kind,
        is_current=current(tables, row.tenant_id, row.name) is row,
    )
