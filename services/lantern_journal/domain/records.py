"""What the journal keeps and what is asked of it, as values. All times: integer microseconds since the Unix epoch."""

from dataclasses import dataclass
from enum import StrEnum

from lantern_journal.domain.archives import Archive
from lantern_journal.domain.family import NOTHING, Aftermath, Parent
from lantern_journal.domain.leases import AgentOffer
from lantern_journal.domain.run_state import RunState
from lantern_kernel.blobs import BlobRef
from lantern_kernel.event import Event
from lantern_kernel.payloads import RunErrorFacts


class WorkflowIdPolicy(StrEnum):
    """What happens when a workflow id is taken (SPEC S2)."""

    REJECT = "reject"
    USE_EXISTING = "use-existing"
    ALLOW_AFTER_CLOSE = "allow-after-close"
    TERMINATE_EXISTING = "terminate-existing"


class SideEffectState(StrEnum):
    """How far a delivery got (SPEC E4)."""

    CLAIMED = "claimed"
    DELIVERED = "delivered"
    REFUSED = "refused"


class ReleaseCause(StrEnum):
    """Why a run is handed back."""

    # The worker stops; the run can go on elsewhere at once.
    DRAIN = "drain"
    # The drive itself failed; the run is tried again after a pause.
    FAULT = "fault"
    # The worker did not take what was acquired for it; nothing has changed for the run.
    REFUSED = "refused"


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaseTarget:
    """A worker's session."""

    # The worker.
    worker_id: str
    # The number of its session.
    session_number: int


@dataclass(frozen=True, kw_only=True, slots=True)
class StartSignal:
    """A signal that goes with a start: for the run that it makes, or for the one that it finds."""

    # Its name.
    name: str
    # JSON.
    payload: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class NewRun:
    """A run that is to be started."""

    # Made for this call; by it the call knows its own work again after a lost connection.
    run_id: str
    # Unique per logical request within the tenant.
    request_id: str
    # Of the content; the same request id must come with the same.
    request_digest: bytes
    # The owner.
    tenant_id: str
    # What to execute.
    agent_name: str
    # JSON.
    input: bytes
    # The user's own name for it; may be empty.
    workflow_id: str
    # What to do when that name is taken.
    policy: WorkflowIdPolicy
    # W3C trace context.
    traceparent: str
    # Whose lease it is created with; None queues it.
    target: LeaseTarget | None
    # For run_started and lease_granted.
    salts: tuple[bytes, bytes]
    # For the run_cancelled of the run that this one takes the place of.
    end_salt: bytes
    # The blob that holds the input; `input` is empty then.
    input_blob: BlobRef | None = None
    # Sent to the run, whether it is new or not; None for none.
    signal: StartSignal | None = None
    # The journal's time when it was asked for; 0: the database is asked for its own.
    asked_us: int = 0
    # When its events are committed: sync, async or exit (SPEC J7).
    durability: str = "sync"
    # Whose child it is; None for nobody's.
    parent: Parent | None = None
    # In whose place it goes on; only the journal itself says so.
    continued_from: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """A run."""

    # UUIDv7.
    run_id: str
    # The owner.
    tenant_id: str
    # The user's own name; may be empty.
    workflow_id: str
    # What it executes.
    agent_name: str
    # The version it pinned.
    agent_version: int
    # The digest of that version.
    agent_digest: str
    # Where it stands.
    state: RunState
    # For WAITING: on what.
    waiting_on: str
    # When it goes on by itself.
    due_us: int | None
    # When it was created.
    created_us: int
    # When its state last changed.
    updated_us: int
    # When it ended.
    ended_us: int | None
    # Why it ended badly or waits.
    error: RunErrorFacts | None
    # W3C trace context.
    traceparent: str
    # The last inbox entry.
    inbox_number: int
    # The last inbox entry that its driver has consumed.
    consumed_inbox: int
    # Leases granted so far.
    epoch: int
    # The place of its terminal event.
    end_seq: int | None
    # Whether its events are in an archive file.
    archived: bool = False
    # Which; None where it is not archived or was not asked for.
    archive: Archive | None = None
    # Its input; None where it was not asked for.
    input: bytes | None = None
    # Its result; None where there is none or it was not asked for.
    result: bytes | None = None
    # The blob that holds the input; `input` is None then.
    input_blob: BlobRef | None = None
    # The blob that holds the result; `result` is None then.
    result_blob: BlobRef | None = None
    # When its events are committed: sync, async or exit.
    durability: str = "sync"
    # Whose child it is, and which step of that; empty for nobody's.
    parent_run_id: str = ""
    # See `parent_run_id`.
    parent_step_id: str = ""
    # 0 where no run has started it, else one more than its parent's.
    depth: int = 0
    # The run that goes on in its place; empty where none does.
    continued_as: str = ""
    # The run in whose place it goes on; empty where it is nobody's.
    continued_from: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Terminated:
    """A run that another start has ended."""

    # The run.
    run_id: str
    # Who drove it; empty where nobody did.
    driver: str


@dataclass(frozen=True, kw_only=True, slots=True)
class StartedRun:
    """What became of a start."""

    # The run, new or existing.
    run: Run
    # Whether this call made it.
    created: bool
    # Its events where this call granted the lease; else none.
    events: tuple[Event, ...] = ()
    # What became of the signal that went with it; None where none did, or where it was started before.
    sent: "SentEntry | None" = None
    # The run that was ended to make room for it; None where none was.
    terminated: Terminated | None = None
    # What became of others with that.
    aftermath: Aftermath = NOTHING

    @property
    def epoch(self) -> int:
        """The epoch granted by this call; 0 where none was."""
        return self.events[-1].epoch if self.events else 0


@dataclass(frozen=True, kw_only=True, slots=True)
class InboxEntry:
    """Something that others have to say to a run."""

    # Dense within the run, from 1.
    number: int
    # signal, cancel, pause, resume, decision, delegation or child.
    kind: str
    # For a signal its name, for a decision or delegation the approval's id; else empty.
    name: str
    # JSON.
    payload: bytes
    # When it was taken in.
    created_us: int
    # The blob that holds the payload; `payload` is empty then.
    payload_blob: BlobRef | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class NewEntry:
    """An inbox entry that is to be taken in."""

    # Unique per logical request within the run.
    request_id: str
    # The run.
    run_id: str
    # signal, cancel, pause, resume, decision, delegation or child.
    kind: str
    # For a signal its name, for a decision or delegation the approval's id; else empty.
    name: str
    # JSON.
    payload: bytes
    # For the events that the journal itself writes where nobody drives the run.
    salts: tuple[bytes, bytes]
    # The blob that holds the payload; `payload` is empty then.
    payload_blob: BlobRef | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SentEntry:
    """What became of an inbox entry."""

    # Its number.
    number: int
    # It had been taken in before.
    repeated: bool
    # Where the run stands after it.
    state: RunState
    # A cancel that came too late: the run had ended before, and nothing was taken in (the number is 0).
    already_ended: bool = False
    # The run was waiting and is now queued.
    woken: bool = False
    # The run ended in this very transaction.
    ended: bool = False
    # The journal wrote an event of the run: it was paused, or fell back into what it waited on before.
    moved: bool = False
    # Where it fell back into a wait: when that is due; None where it is not.
    due_us: int | None = None
    # Who drives the run now; empty where nobody does.
    driver: str = ""
    # What became of others with the run's end.
    aftermath: Aftermath = NOTHING


def aftermath_of(run_id: str, sent: SentEntry) -> Aftermath:
    """What there is to tell of an entry that the journal itself put into a run's inbox."""
    return sent.aftermath + Aftermath(
        queued=(run_id,) if sent.woken else (),
        moved=(run_id,) if sent.ended or sent.moved else (),
        entries=((sent.driver, run_id, sent.number),) if sent.driver else (),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenedRun:
    """What a driver needs to begin."""

    # The run, with its input.
    run: Run
    # The first page of its history.
    events: tuple[Event, ...]
    # The place of its last event.
    head_seq: int
    # Entries not consumed, at most a page.
    inbox: tuple[InboxEntry, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Grant:
    """A lease that is to be granted."""

    # The run.
    run_id: str
    # For whom.
    target: LeaseTarget
    # start, crash, timer, signal, approval or upgrade.
    reason: str
    # For lease_granted; by it the call knows its own work again after a lost connection.
    salt: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Attach:
    """A worker that makes itself known."""

    # Unique per process start.
    worker_id: str
    # Where its ExecutorService listens.
    address: str
    # Runs at once.
    capacity: int
    # What it can drive.
    offers: tuple[AgentOffer, ...]
    # Whose agents these are.
    tenant_id: str
    # It is granted nothing any more.
    draining: bool
    # The event level that it knows.
    event_level: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Attached:
    """The session stands."""

    # Its number.
    number: int
    # Waiting runs that it woke.
    woken: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Tending:
    """What a journal process does for the sessions of its workers, each second or so, in one transaction."""

    # Sessions heard from since the last time: worker and number.
    seen: tuple[tuple[str, int], ...] = ()
    # Workers whose leases are to be renewed.
    renew: tuple[str, ...] = ()
    # Workers whose drives may have missed an inbox entry.
    inbox_of: tuple[str, ...] = ()
    # Silence is judged as of then at the latest, in the database's time: later, nobody may have listened.
    as_of_us: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Tended:
    """What came of it."""

    # Workers whose sessions were silent for too long and are closed now.
    closed: tuple[str, ...]
    # Those of `seen` that are not the worker's open session any more: closed by others, or followed by a later one.
    gone: tuple[tuple[str, int], ...]
    # Driven runs with entries that their driver has not consumed: worker, run, last number.
    inbox: tuple[tuple[str, str, int], ...]
    # The database's time of this transaction.
    now_us: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Orphan:
    """A run that needs a driver."""

    # The run.
    run_id: str
    # Its owner.
    tenant_id: str
    # What it executes.
    agent_name: str
    # The version it pinned.
    agent_version: int
    # The digest of that version.
    agent_digest: str
    # start, crash, timer, signal, approval or upgrade.
    reason: str
    # The digest of the code whose replay of it failed last; empty where none did.
    failed_digest: str = ""
    # The event level that its driver has to know.
    event_level: int = 1
    # code, graph or llm: what a driver of every agent of a kind goes by.
    program_kind: str = "code"


@dataclass(frozen=True, kw_only=True, slots=True)
class Worker:
    """A worker with a live session."""

    # Unique per process start.
    worker_id: str
    # The number of its session.
    session_number: int
    # Where its ExecutorService listens.
    address: str
    # Runs at once.
    capacity: int
    # Leases that it holds.
    lease_count: int
    # Whose agents it offers.
    tenant_id: str
    # What it can drive.
    offers: tuple[AgentOffer, ...]
    # It is granted nothing any more.
    draining: bool
    # The event level that it knows.
    event_level: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Agent:
    """A version of an agent."""

    # Its name.
    name: str
    # Dense per name, from 1.
    version: int
    # SHA-256 (hex) of its definition.
    digest: str
    # code, graph or llm.
    program_kind: str
    # Whether new runs pin this version, where no worker's offer decides.
    is_current: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """A claim on one delivery that is to be made."""

    # The idempotency key.
    key: str
    # The run.
    run_id: str
    # The step.
    step_id: str
    # The lease under which it is claimed.
    epoch: int
    # Where it goes, for people.
    sink: str
    # The claiming worker.
    worker_id: str
    # The worker's, random, once per claim; by it a repeat after a lost answer is known.
    nonce: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class SideEffect:
    """What is known of a delivery."""

    # The idempotency key.
    key: str
    # How far it got.
    state: SideEffectState
    # What came back (JSON).
    result: bytes
    # The blob that holds it; `result` is empty then.
    result_blob: BlobRef | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Settlement:
    """How a delivery ended."""

    # The idempotency key.
    key: str
    # DELIVERED or REFUSED.
    state: SideEffectState
    # What came back (JSON).
    result: bytes
    # The run.
    run_id: str
    # The settling worker, or an operator's name.
    worker_id: str
    # The blob that holds the result; `result` is empty then.
    result_blob: BlobRef | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RunFilter:
    """Which runs to list."""

    # The owner.
    tenant_id: str
    # Only these; empty is all.
    states: tuple[RunState, ...] = ()
    # Only this one; empty is all.
    workflow_id: str = ""
    # Only of this agent; empty is all.
    agent_name: str = ""
