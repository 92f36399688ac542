"""What the journal in memory keeps."""

from dataclasses import dataclass, field

from lantern_kernel.blobs import BlobRef, Content
from lantern_kernel.event import Event
from lantern_kernel.payloads import ApprovalFacts, ParkFacts, RunErrorFacts, unpack

FINAL = frozenset({"SUCCEEDED", "FAILED", "CANCELLED"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """Something that others have to say to a run."""

    # Dense within the run, from 1.
    number: int
    # See `waking`.
    kind: str
    # For a signal or an update: its name. For a decision or a delegation: the approval's id.
    name: str
    # JSON; may be empty.
    payload: bytes
    # Names the request that brought it.
    request_id: str
    # The blob that holds the payload, `payload` being empty then.
    payload_blob: BlobRef | None = None


@dataclass(kw_only=True, slots=True)
class Approval:
    """Something that a run asks somebody to decide."""

    # What its event says.
    facts: ApprovalFacts
    # The step that asks.
    step_id: str
    # What the step shows to whoever decides (JSON); None where it shows nothing.
    data: bytes | None
    # PENDING, APPROVED, DENIED, EXPIRED, or WITHDRAWN where its run ended first.
    state: str = "PENDING"
    # Whose inbox it is in.
    assignee: str = ""
    # Who decided.
    by: str = ""


@dataclass(kw_only=True, slots=True)
class Claim:
    """The claim on one delivery (SPEC E4)."""

    # The run that made it.
    run_id: str
    # Which claim it was.
    nonce: bytes
    # claimed, delivered or refused.
    state: str = "claimed"
    # JSON, or the blob that holds it.
    result: Content = b""


@dataclass(kw_only=True, slots=True)
class StoredRun:
    """A run as the journal has it."""

    # UUIDv7.
    run_id: str
    # The user's own name for the work; may be empty.
    workflow_id: str
    # What it executes.
    agent_name: str
    # The version that it pinned.
    agent_digest: str
    # JSON; empty where a blob holds it.
    input: bytes
    # The blob that holds the input.
    input_blob: BlobRef | None
    # QUEUED, RUNNING, WAITING, SUCCEEDED, FAILED or CANCELLED.
    state: str = "QUEUED"
    # For WAITING: on what, until when, for which signals, and whether a cancel may end it so.
    park: ParkFacts | None = None
    # For FAILED, CANCELLED and some WAITING: why.
    error: RunErrorFacts | None = None
    # For SUCCEEDED: the result, or the blob that holds it.
    result: Content = b""
    # The leases granted so far.
    epoch: int = 0
    # Whether somebody holds the last of them.
    is_held: bool = False
    # Why it needs a driver: the reason of the next grant.
    cause: str = "start"
    # In order.
    events: list[Event] = field(default_factory=list[Event])
    # The steps whose end is recorded: none of them may be executed again.
    ended_steps: set[str] = field(default_factory=set[str])
    # What others said, in order.
    inbox: list[Entry] = field(default_factory=list[Entry])
    # The last entry that an event took in.
    taken_in: int = 0
    # Whether a cancel was taken in.
    is_cancel_requested: bool = False
    # The run and the step that began it as a child; None for none.
    parent: tuple[str, str] | None = None
    # How many parents it has above it.
    depth: int = 0
    # Whether it goes on when its parent ends.
    is_abandoned: bool = False
    # The run that goes on where this one ended; empty for none.
    continued_as: str = ""
    # The run where this one goes on; empty for none.
    continued_from: str = ""
    # By id, in the order in which they were asked for.
    approvals: dict[str, Approval] = field(default_factory=dict[str, Approval])

    @property
    def is_open(self) -> bool:
        """Whether it has not ended."""
        return self.state not in FINAL

    @property
    def durability(self) -> str:
        """When its events are committed: sync, async or exit."""
        return str(unpack(self.events[0].payload).facts.get("durability", "sync"))

    @property
    def waiting_on(self) -> str:
        """For WAITING: on what; else empty."""
        return self.park.waiting_on if self.park is not None and self.state == "WAITING" else ""

    @property
    def due_us(self) -> int | None:
        """When a WAITING run goes on by itself."""
        return self.park.due_us if self.park is not None and self.state == "WAITING" else None
