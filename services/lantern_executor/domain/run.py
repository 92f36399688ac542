"""Runs as the executor sees them: what it asks the journal for and what comes back."""

from dataclasses import dataclass
from enum import Enum

from lantern_kernel import kinds, payloads
from lantern_kernel.blobs import BlobRef
from lantern_kernel.event import Event, NewEvent
from lantern_kernel.inbox import InboxEntry
from lantern_kernel.payloads import RunErrorFacts


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One run, as the journal shows it."""

    # UUIDv7, made by the journal.
    run_id: str
    # The tenant that owns it.
    tenant_id: str
    # The user's own name for this piece of work; may be empty.
    workflow_id: str
    # The agent that it executes.
    agent_name: str
    # The version that it pinned.
    agent_version: int
    # SHA-256 (hex) of that version's definition.
    agent_digest: str
    # QUEUED, RUNNING, WAITING, SUCCEEDED, FAILED or CANCELLED.
    state: str
    # For WAITING: on what; else empty.
    waiting_on: str
    # When a WAITING run goes on by itself, microseconds since the epoch; None where only an entry can wake it.
    due_us: int | None
    # When it was created, microseconds since the epoch.
    created_us: int
    # When its state last changed.
    updated_us: int
    # When it ended; None while it has not.
    ended_us: int | None
    # JSON, as given.
    input: bytes
    # For SUCCEEDED: JSON.
    result: bytes
    # For FAILED, CANCELLED and some WAITING: why.
    error: RunErrorFacts | None
    # W3C trace context.
    traceparent: str
    # The number of the last inbox entry; 0 when there is none.
    last_inbox_number: int
    # The number of leases granted so far.
    epoch: int
    # The blob that holds the input, `input` being empty then.
    input_blob: BlobRef | None = None
    # The blob that holds the result, `result` being empty then.
    result_blob: BlobRef | None = None


class HandBack(Enum):
    """Why a run is handed back before its end."""

    # This process stops; the run can go on elsewhere at once.
    DRAIN = "drain"
    # The drive itself failed; the journal lets some time pass, and more each time.
    FAULT = "fault"


@dataclass(frozen=True, kw_only=True, slots=True)
class StartSignal:
    """A signal that goes with a start."""

    # Its name.
    name: str
    # JSON.
    payload: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Parent:
    """The run that starts another one as its child."""

    # The run.
    run_id: str
    # The step that the child is in it.
    step_id: str
    # The lease under which the parent is driven.
    epoch: int
    # Whether the child goes on when the parent has ended.
    abandon: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class StartRequest:
    """What somebody wants to have started."""

    # Unique per logical request.
    request_id: str
    # The tenant.
    tenant_id: str
    # The agent to execute.
    agent_name: str
    # JSON.
    input: bytes
    # The user's own name for this work; may be empty.
    workflow_id: str
    # A value of JournalService's WorkflowIdPolicy.
    workflow_id_policy: int
    # W3C trace context of the caller; empty starts a trace.
    traceparent: str
    # Sent to the run, whether it is new or not; None for none.
    signal: StartSignal | None = None
    # The blob that holds the input, `input` being empty then.
    input_blob: BlobRef | None = None
    # Whose child it is; None for nobody's.
    parent: Parent | None = None
    # When its events are committed: sync, async or exit; empty is sync.
    durability: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class CreatedRun:
    """What the journal answered to a start."""

    # The run.
    run: Run
    # False when it was there already.
    created: bool
    # The epoch of the lease that this very call was granted; 0 for none.
    epoch: int
    # The run's events so far, where a lease was granted.
    events: tuple[Event, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunEnd:
    """How a run ended."""

    # SUCCEEDED, FAILED or CANCELLED.
    state: str
    # For SUCCEEDED: JSON.
    result: bytes = b""
    # The blob that holds the result, `result` being empty then.
    result_blob: BlobRef | None = None
    # For FAILED and CANCELLED: why.
    error: RunErrorFacts | None = None


_STATES = {kinds.RUN_SUCCEEDED: "SUCCEEDED", kinds.RUN_FAILED: "FAILED", kinds.RUN_CANCELLED: "CANCELLED"}


def end_of(event: NewEvent) -> RunEnd | None:
    """What the last event of a drive says of the run's end; None where it only parks or another goes on for it."""
    state = _STATES.get(event.kind)
    if state is None:
        return None
    said = payloads.unpack(event.payload)
    if state != "SUCCEEDED":
        return RunEnd(state=state, error=RunErrorFacts.from_facts(said.facts))
    if said.facts.get("continueAsNew"):
        return None
    return RunEnd(state=state, result=said.data or b"", result_blob=said.blob)


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenedRun:
    """What a drive begins with."""

    # The run.
    run: Run
    # The first page of its events.
    events: tuple[Event, ...]
    # The place of the last event of the history.
    head_seq: int
    # Entries that no event has consumed.
    inbox: tuple[InboxEntry, ...]
    # The journal's time, microseconds since the epoch.
    now_us: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Offer:
    """An agent that this executor can drive."""

    # Its name.
    name: str
    # SHA-256 (hex) of its definition.
    digest: str
    # code, graph or llm.
    program_kind: str
