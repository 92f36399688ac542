"""What the store in memory keeps: a dictionary per table, a small object per row."""

from dataclasses import dataclass, field, fields
from typing import Any

from lantern_journal.domain.leases import AgentOffer
from lantern_kernel import kinds
from lantern_kernel.chain import genesis, link
from lantern_kernel.event import Event, NewEvent


@dataclass(kw_only=True, slots=True)
class RunRow:
    """A run; columns as in the table `runs`."""

    run_id: str
    tenant_id: str
    request_id: str
    request_digest: bytes
    workflow_id: str
    agent_name: str
    agent_version: int
    agent_digest: str
    state: str
    waiting_on: str
    due_us: int | None
    error: bytes | None
    wake_reason: str
    recover_after_us: int
    created_us: int
    updated_us: int
    ended_us: int | None
    end_seq: int | None
    traceparent: str
    epoch: int
    inbox_number: int
    consumed_inbox: int
    cancel_seq: int | None
    failed_digests: str
    drive_faults: int
    awaited_signals: str
    nothing_to_compensate: bool
    event_level: int
    durability: str = "sync"
    parent_run_id: str = ""
    parent_step_id: str = ""
    depth: int = 0
    abandoned: bool = False
    has_children: bool = False
    continued_as: str = ""
    continued_from: str = ""

    @property
    def is_open(self) -> bool:
        """Whether it has not ended."""
        return self.ended_us is None


@dataclass(kw_only=True, slots=True)
class LockRow:
    """A lease; columns as in `run_locks`."""

    run_id: str
    worker_id: str
    session_number: int
    epoch: int
    acquired_us: int
    expires_us: int
    opened: bool


@dataclass(kw_only=True, slots=True)
class SessionRow:
    """A worker's session; columns as in `worker_sessions`, the agents as values."""

    worker_id: str
    session_number: int
    seen_us: int
    closed: bool
    draining: bool
    address: str
    capacity: int
    tenant_id: str
    agents: tuple[AgentOffer, ...]
    event_level: int


@dataclass(kw_only=True, slots=True)
class EntryRow:
    """An inbox entry; columns as in `run_inbox`."""

    run_id: str
    number: int
    request_id: str
    kind: str
    name: str
    payload: bytes
    created_us: int


@dataclass(kw_only=True, slots=True)
class ReceiptRow:
    """A claim on a delivery; columns as in `side_effect_receipts`."""

    key: str
    run_id: str
    step_id: str
    epoch: int
    sink: str
    worker_id: str
    nonce: bytes
    state: str
    result: bytes
    claimed_us: int
    settled_us: int | None
    settled_by: str


@dataclass(kw_only=True, slots=True)
class StartRequestRow:
    """A start that found a run of another request; columns as in `start_requests`."""

    tenant_id: str
    request_id: str
    request_digest: bytes
    run_id: str


@dataclass(kw_only=True, slots=True)
class AgentRow:
    """A version of an agent; columns as in `agents`."""

    tenant_id: str
    name: str
    version: int
    digest: str
    program_kind: str
    created_us: int
    published_us: int = 0


@dataclass(kw_only=True, slots=True)
class PublicationRow:
    """A request that published something; columns as in `agent_publications`."""

    tenant_id: str
    request_id: str
    request_digest: bytes
    name: str
    version: int
    created: bool


@dataclass(kw_only=True, slots=True)
class DefinitionRow:
    """What was published; columns as in `agent_definitions`."""

    tenant_id: str
    digest: str
    content: bytes
    created_us: int


@dataclass(kw_only=True, slots=True)
class Tables:
    """All that is kept."""

    # By run: its events, the first at index 0.
    events: dict[str, list[Event]] = field(default_factory=dict[str, list[Event]])
    # By run.
    runs: dict[str, RunRow] = field(default_factory=dict[str, RunRow])
    # By run.
    locks: dict[str, LockRow] = field(default_factory=dict[str, LockRow])
    # By worker.
    sessions: dict[str, SessionRow] = field(default_factory=dict[str, SessionRow])
    # By run: its entries, the first at index 0.
    inboxes: dict[str, list[EntryRow]] = field(default_factory=dict[str, list[EntryRow]])
    # By key.
    receipts: dict[str, ReceiptRow] = field(default_factory=dict[str, ReceiptRow])
    # Starts that found a run.
    start_requests: list[StartRequestRow] = field(default_factory=list[StartRequestRow])
    # In the order in which they were made known.
    agents: list[AgentRow] = field(default_factory=list[AgentRow])
    # By tenant and request.
    publications: dict[tuple[str, str], PublicationRow] = field(default_factory=dict[tuple[str, str], PublicationRow])
    # By tenant and digest.
    definitions: dict[tuple[str, str], DefinitionRow] = field(default_factory=dict[tuple[str, str], DefinitionRow])

    def last_kind(self, run_id: str) -> str:
        """The kind of a run's last event; empty where it has none."""
        events = self.events.get(run_id)
        return events[-1].kind if events else ""

    def is_used(self, lock: LockRow) -> bool:
        """Whether something was appended under a lease since it was granted."""
        return self.last_kind(lock.run_id) not in ("", kinds.LEASE_GRANTED)

    def append(self, run_id: str, epoch: int, now_us: int, *news: NewEvent) -> list[Event]:
        """Events that the journal itself makes, on top of what there is; time never falls within a run."""
        events = self.events.setdefault(run_id, [])
        made: list[Event] = []
        for new in news:
            last = events[-1] if events else None
            seq = last.seq + 1 if last else 1
            time_us = max(now_us, last.time_us) if last else now_us
            digest = new.digest(run_id=run_id, seq=seq, epoch=epoch)
            event = Event(
                seq=seq,
                kind=new.kind,
                step_id=new.step_id,
                attempt=new.attempt,
                epoch=epoch,
                time_us=time_us,
                payload=new.payload,
                salt=new.salt,
                digest=digest,
                hash=link(last.hash if last else genesis(run_id), digest, time_us),
            )
            events.append(event)
            made.append(event)
        return made

    def snapshot(self) -> dict[str, list[dict[str, Any]]]:
        """Everything, as rows of columns: what a database that was asked the same must hold."""
        return {
            "journal_events": [
                {"run_id": run_id, **_columns(event)} for run_id, events in self.events.items() for event in events
            ],
            "runs": [_columns(row) for row in self.runs.values()],
            "run_locks": [_columns(row) for row in self.locks.values()],
            "worker_sessions": [
                {**_columns(row), "agents": [[o.name, o.digest, o.program_kind] for o in row.agents]}
                for row in self.sessions.values()
            ],
            "run_inbox": [_columns(row) for rows in self.inboxes.values() for row in rows],
            "side_effect_receipts": [_columns(row) for row in self.receipts.values()],
            "start_requests": [_columns(row) for row in self.start_requests],
            "agents": [_columns(row) for row in self.agents],
            "agent_publications": [_columns(row) for row in self.publications.values()],
            "agent_definitions": [_columns(row) for row in self.definitions.values()],
        }


def _columns(row: Any) -> dict[str, Any]:
    return {column.name: getattr(row, column.name) for column in fields(row)}
