"""Agents that are data: what is published, and what was wrong with what is not."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

from lantern_journal.domain.records import Agent
from lantern_kernel import reasons
from lantern_kernel.errors import LanternError

FAULTS_TOLD = 5
"""Of the faults of a definition, in the error that refuses it; all of them are told by a check."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """Something that is wrong with a definition."""

    # A JSON pointer (RFC 6901); empty for the whole.
    path: str
    # What kind of fault, lower case with underscores.
    code: str
    # For people.
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Publication:
    """A definition that is to become the current version of an agent."""

    # Unique per logical request within the tenant.
    request_id: str
    # The owner.
    tenant_id: str
    # The agent.
    name: str
    # graph, for now.
    program_kind: str
    # JSON, kept as it is.
    definition: bytes

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of the definition."""
        return sha256(self.definition).hexdigest()

    def request_digest(self) -> bytes:
        """Of the content that a repeated request id must repeat."""
        content = sha256()
        for part in (self.name.encode(), self.program_kind.encode(), self.definition):
            content.update(len(part).to_bytes(8, "big"))
            content.update(part)
        return content.digest()


@dataclass(frozen=True, kw_only=True, slots=True)
class Published:
    """What became of a publication."""

    # The version.
    agent: Agent
    # False where that content had a version before.
    created: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """Which version of an agent is asked for."""

    # The owner.
    tenant_id: str
    # The agent.
    name: str
    # Its number; 0 where `digest` or nothing tells.
    version: int
    # SHA-256 (hex) of its definition; empty where the number or nothing tells.
    digest: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Definition:
    """A version with its definition."""

    # The version.
    agent: Agent
    # As published; empty for code.
    content: bytes


def kind_conflict(name: str, known: str, asked: str) -> LanternError:
    """A name belongs to the program kind that had it first."""
    return LanternError(
        reasons.AGENT_KIND_CONFLICT,
        f"the agent {name!r} is {known} in this tenant, and cannot be {asked} as well: choose another name",
        field="name",
        agent=name,
        program_kind=known,
    )


def unknown_version(wanted: Wanted) -> LanternError:
    """Nobody published or offered that."""
    which = f" version {wanted.version}" if wanted.version else f" of digest {wanted.digest}" if wanted.digest else ""
    return LanternError(
        reasons.AGENT_NOT_FOUND,
        f"there is no agent {wanted.name!r}{which} in this tenant",
        field="name",
        agent=wanted.name,
    )


def invalid(faults: Sequence[Fault]) -> LanternError:
    """What refuses a definition with these faults, the first of which it tells."""
    told = "; ".join(f"{fault.path or 'the definition'}: {fault.message}" for fault in faults[:FAULTS_TOLD])
    more = f"; and {len(faults) - FAULTS_TOLD} more" if len(faults) > FAULTS_TOLD else ""
    return LanternError(
        reasons.DEFINITION_INVALID, told + more, field="definition", faults=len(faults), path=faults[0].path
    )
