"""What the journal needs from outside: a store, a clock, randomness."""

from collections.abc import AsyncIterator, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from lantern_journal.domain.agents import Definition, Publication, Published, Wanted
from lantern_journal.domain.appends import Head, Row, Top
from lantern_journal.domain.approvals import Approval, ApprovalFilter, Decided, Decision, Delegation, Expired
from lantern_journal.domain.archives import ArchivedRun, Candidate, KeptBlob, Turn
from lantern_journal.domain.blobs import Collected, NamedBlobs, Place, StoredBlob, Upload
from lantern_journal.domain.diagnosis import DatabaseFacts, RunFacts
from lantern_journal.domain.family import Aftermath, Reset
from lantern_journal.domain.feed import FeedFilter, FeedPage
from lantern_journal.domain.feed_cursor import Cursor, Snapshot
from lantern_journal.domain.leases import Limits
from lantern_journal.domain.records import (
    Agent,
    Attach,
    Attached,
    Claim,
    Grant,
    InboxEntry,
    LeaseTarget,
    NewEntry,
    NewRun,
    OpenedRun,
    Orphan,
    ReleaseCause,
    Run,
    RunFilter,
    SentEntry,
    Settlement,
    SideEffect,
    StartedRun,
    Tended,
    Tending,
    Worker,
)
from lantern_journal.domain.run_state import RunChange
from lantern_kernel.archive import CheckedRun
from lantern_kernel.blobs import BlobRef
from lantern_kernel.errors import LanternError
from lantern_kernel.event import Event


class Collision(Exception):
    """Somebody else has written one of those places; nothing of this write went in."""


class Disconnected(Exception):
    """The database cannot be reached or was lost: whether the write went in is not known. Ask again by content."""


class GroupRefused(Exception):
    """Some appends of a group may not change their runs, or name blobs that are not there; nothing of it went in.

    Args:
        errors: For each refused change (its index in the group's changes) why.
        blobs: For each refused naming of blobs (its index in what the group names) why.
    """

    def __init__(self, errors: Mapping[int, Exception], blobs: Mapping[int, Exception] = MappingProxyType({})) -> None:
        super().__init__(f"{len(errors) + len(blobs)} appends are refused")
        self.errors = errors
        self.blobs = blobs


class Clock(Protocol):
    """The journal's time (SPEC J5): the database's, carried by the monotonic clock in between."""

    def now_us(self) -> int:
        """Microseconds since the Unix epoch."""
        ...

    def monotonic_s(self) -> float:
        """Seconds since an arbitrary moment, never falling."""
        ...


class Sources(Protocol):
    """Randomness."""

    def salt(self) -> bytes:
        """16 random bytes."""
        ...

    def run_id(self, now_us: int) -> str:
        """A fresh UUIDv7 of that time."""
        ...

    def traceparent(self) -> str:
        """A fresh, sampled W3C trace context."""
        ...


class Store(Protocol):
    """All that is kept. Every method that writes is one transaction, and safe to repeat after Disconnected.

    Those whose repeat could not be told from a second request do so by content (run id, salt, nonce).
    Errors: LanternError as the RPC of that name documents; Disconnected.
    """

    @property
    def generation(self) -> int:
        """Grows whenever the database connection was lost: what is cached of the database is then worth nothing."""
        ...

    @property
    def is_shared(self) -> bool:
        """Whether other journal processes may write to the same database."""
        ...

    async def close(self) -> None:
        """Closes all connections."""
        ...

    async def ping(self) -> int:
        """The database's time, microseconds; also settles whether it can be reached."""
        ...

    async def heads(self, run_ids: Sequence[str]) -> dict[str, Head]:
        """The heads of runs; runs without events are left out."""
        ...

    async def head(self, run_id: str) -> Head:
        """The head of one run, seq 0 where there is none. Insists as the other reads do; `heads` does not."""
        ...

    async def insert_group(
        self,
        rows: Sequence[Row],
        changes: Sequence[RunChange],
        *,
        blobs: Sequence[NamedBlobs] = (),
        tops: Sequence[Top] = (),
    ) -> Aftermath:
        """Writes a group whole, or raises Collision, GroupRefused or Disconnected.

        `tops` is what it is put on top of: a store that is set to check digests raises Collision where the database no
        longer holds that, as after a failover that lost commits.

        Returns what became of others: parents that are told, children that are cancelled. Also the runs that were
        parked for something that had come before: they are queued at once, to be announced.
        """
        ...

    async def start_runs(self, starts: Sequence[NewRun], limits: Limits) -> list[StartedRun | LanternError]:
        """Starts runs, or finds those that were started before; for each the run, or why it alone was refused.

        No two of them have the same request id or workflow id in one tenant.
        """
        ...

    async def get_run(self, run_id: str) -> Run:
        """A run with its input and result."""
        ...

    async def list_runs(self, wanted: RunFilter, before: str, limit: int, bytes_max: int) -> tuple[list[Run], bool]:
        """Runs below a run id (empty: from the newest), newest first, without input and result; and whether more."""
        ...

    async def list_events(self, run_id: str, after_seq: int, limit: int, bytes_max: int) -> tuple[list[Event], bool]:
        """Events after a seq and whether there are more now; at least one where there is one. RUN_NOT_FOUND."""
        ...

    async def list_inbox(self, run_id: str, after: int, limit: int, bytes_max: int) -> tuple[list[InboxEntry], bool]:
        """Inbox entries after a number and whether there are more now. RUN_NOT_FOUND."""
        ...

    async def list_agents(self, tenant_id: str, after: tuple[str, int], limit: int) -> list[Agent]:
        """Agents after a (name, version), in that order."""
        ...

    async def find_definition(self, wanted: Wanted) -> Definition:
        """A version of an agent with its definition. AGENT_NOT_FOUND."""
        ...

    async def publish_agent(self, publication: Publication) -> Published:
        """Makes a definition the current version of its agent, once per request. AGENT_KIND_CONFLICT."""
        ...

    async def send(self, entry: NewEntry, limits: Limits) -> SentEntry:
        """Takes an inbox entry in and wakes the run where it waits."""
        ...

    async def reset_run(self, reset: Reset) -> tuple[Run, bool]:
        """Sets a run that waits on code_fix back to an event, and queues it; whether that had been done before."""
        ...

    async def open_run(self, run_id: str, epoch: int, target: LeaseTarget, limits: Limits) -> OpenedRun:
        """Makes a grant a full lease and reads what its driver needs."""
        ...

    async def acquire_lease(self, grant: Grant, limits: Limits) -> int:
        """Grants a lease; its epoch, or 0 where it was not granted."""
        ...

    async def release_lease(
        self, run_id: str, epoch: int, worker_id: str, cause: ReleaseCause = ReleaseCause.DRAIN
    ) -> int:
        """Clears the holder and queues the run, or finds that done; until when it is set aside (0: it is not)."""
        ...

    async def defer_run(self, run_id: str, delay_us: int | None, salt: bytes, limits: Limits) -> None:
        """Sets a run aside for a time or, without one, until its agent is offered."""
        ...

    async def attach(self, attach: Attach) -> Attached:
        """Opens a worker's next session, makes its agents known and wakes the runs that waited for them."""
        ...

    async def close_session(self, worker_id: str, number: int) -> int | None:
        """Closes a session by compare-and-set and expires its leases: how many, or None where it has moved on."""
        ...

    async def tend_sessions(self, tending: Tending, limits: Limits) -> Tended:
        """Flushes, renews, opens, and closes whatever session has been silent for too long."""
        ...

    async def is_open_session(self, worker_id: str, number: int) -> bool:
        """Whether a worker's session of that number is its last one, and open."""
        ...

    async def adopt_sessions(self) -> None:
        """Gives every open session a fresh moment to come back (SPEC L2)."""
        ...

    async def find_orphans(self, limit: int, limits: Limits) -> list[Orphan]:
        """Runs that need a driver, fair over tenants, oldest first."""
        ...

    async def find_workers(self, limits: Limits) -> list[Worker]:
        """Workers with a live session."""
        ...

    async def next_due_us(self, after_us: int) -> int | None:
        """The first moment after `after_us` at which a run becomes an orphan by itself; None where there is none."""
        ...

    async def publish(self, cause: str) -> None:
        """Tells the other journal processes that there may be orphans; may get lost."""
        ...

    def announcements(self) -> AsyncIterator[str]:
        """What the other journal processes publish, for as long as the connection lasts."""
        ...

    async def claim_side_effect(self, claim: Claim) -> tuple[bool, SideEffect]:
        """Claims a delivery; whether this call did, and what is known of it."""
        ...

    async def settle_side_effect(self, settlement: Settlement) -> tuple[SideEffect, bool]:
        """Records how a delivery ended; what is recorded, and whether a run may have been woken, now or before."""
        ...

    # Blobs.

    async def begin_upload(self, upload: Upload) -> bool:
        """Whether there is something to upload; False where the blob is there, which spares it for another while."""
        ...

    async def write_chunks(self, upload_id: str, first: int, data: Sequence[bytes]) -> None:
        """Keeps the next chunks of an upload, from that number on; UNAVAILABLE where it was given up meanwhile."""
        ...

    async def finish_upload(self, upload: Upload) -> bool:
        """Makes an upload whose chunks are whole the blob; False where another upload was first, and is kept."""
        ...

    async def abandon_upload(self, upload_id: str) -> None:
        """Deletes an upload that is not finished."""
        ...

    async def has_blobs(self, tenant_id: str, wanted: Sequence[BlobRef]) -> set[BlobRef]:
        """Which of these are there; those are spared for another while."""
        ...

    async def find_blob(self, tenant_id: str, blob: BlobRef) -> StoredBlob | None:
        """Where a blob's content is."""
        ...

    async def read_chunk(self, upload_id: str, number: int) -> bytes | None:
        """A chunk of a blob; None where it was deleted meanwhile."""
        ...

    async def collect_blobs(self, after: Place, kept_us: int) -> Collected:
        """Deletes some blobs behind a place that nothing names and nobody has touched for so long, and dead uploads."""
        ...

    # Housekeeping.

    async def make_partitions(self, ahead: int) -> list[str]:
        """Makes partitions for the events of this week and that many following ones; the names of those it made.

        Harmless where they are there already or another journal makes them. Tried once.
        """
        ...

    async def begin_feed(self, *, at_beginning: bool) -> Cursor:
        """A cursor of the feed before everything that is still there, or after everything that is there now."""
        ...

    async def read_feed(self, cursor: Cursor, wanted: FeedFilter, until: Snapshot | None = None) -> FeedPage:
        """The page after a cursor, of bounded size; where it begins a round, up to `until` if that is later.

        FEED_CURSOR_INVALID, FEED_CURSOR_EXPIRED.
        """
        ...

    async def trim_feed(self, before_us: int, most: int) -> int:
        """Drops the oldest rows of the feed that are older than a time, at most so many; how many."""
        ...

    async def feed_consumer(self, name: str) -> str:
        """The cursor that a consumer has committed; empty where it has not yet."""
        ...

    async def commit_feed_consumer(self, name: str, before: str, after: str) -> None:
        """Moves a consumer's cursor from `before` (empty: it has none) to `after`. FEED_CURSOR_MOVED."""
        ...

    # Approvals.

    async def list_approvals(self, wanted: ApprovalFilter, after: tuple[int, str, str], limit: int) -> list[Approval]:
        """Approvals behind a position (time, run, approval), oldest first, without comments."""
        ...

    async def decide_approval(self, decision: Decision) -> Decided:
        """Takes a decision, or says what is recorded: the same one before. APPROVAL_DECIDED where it is another.

        One that comes after its time is recorded as the expiry that it has met (`expired`).
        """
        ...

    async def delegate_approval(self, delegation: Delegation) -> Decided:
        """Gives a pending approval to somebody else."""
        ...

    async def expire_approvals(self, limit: int) -> list[Expired]:
        """Decides what nobody has decided in time."""
        ...

    async def next_expiry_us(self) -> int | None:
        """When the next pending approval expires, also in the past; None where none does."""
        ...

    async def take_archive_turn(self, term_us: int) -> Turn | None:
        """The right to archive for a term; None where another journal has it."""
        ...

    async def extend_archive_turn(self, turn: int, term_us: int) -> None:
        """Another term from now, or the end of it (0). LEASE_LOST where another journal has taken it."""
        ...

    async def archivable(self, before_us: int, after: tuple[int, str], limit: int) -> list[Candidate]:
        """Runs that ended before a moment and are not archived, after a place (end, run id), in that order."""
        ...

    async def begin_archive_file(self, turn: int, name: str) -> None:
        """Notes a file before its first byte is written. LEASE_LOST."""
        ...

    async def forget_archive_file(self, turn: int, name: str) -> None:
        """A file that no run is in is no more. LEASE_LOST."""
        ...

    async def let_go(self, turn: int, name: str, archived: Sequence[ArchivedRun]) -> int:
        """Takes a file into use and deletes what is in it; how many runs are in it then. LEASE_LOST."""
        ...

    async def blobs_of(self, run_id: str) -> list[KeptBlob]:
        """The payloads of a run that are kept apart."""
        ...

    async def feed_unread_since(self, before_us: int) -> int:
        """The moment before which no named consumer of the feed has anything to read, at most the given one."""
        ...

    async def drop_partitions(self, before_us: int) -> list[str]:
        """Drops the partitions of weeks that ended before a moment, moving the few runs that are still in them."""
        ...

    # The doctor.

    async def list_run_ids(self, after: str, limit: int) -> list[str]:
        """Runs after one (empty: from the first), by id, also those of which there are only events or a lock."""
        ...

    async def read_run(self, run_id: str, after_seq: int) -> tuple[list[Event], RunFacts | None]:
        """The next page of a run's events, and with the last page what else is kept of it, all of one moment."""
        ...

    async def rebuild_run(self, run_id: str) -> dict[str, tuple[object, object]]:
        """Sets right what does not follow from a run's events: by column what was and what is. Done twice is done."""
        ...

    async def read_database(self, limits: Limits) -> DatabaseFacts:
        """How the database itself is; may take long, and holds nobody up."""
        ...

    async def read_feed_rows(self, cursor: Cursor) -> tuple[list[tuple[int, bytes]], Cursor]:
        """The rows of the feed after a cursor, id and packed entries, and where they end: a round, or a page of it."""
        ...


class ArchiveWriter(Protocol):
    """A file in the making: nobody sees it before it is published."""

    @property
    def size(self) -> int:
        """Its bytes so far."""
        ...

    async def begin_run(self) -> None:
        """The lines from here on are a run's."""
        ...

    async def add(self, lines: Sequence[bytes]) -> None:
        """Its next lines."""
        ...

    async def end_run(self) -> tuple[int, int]:
        """The run is whole: where it begins in the file, and how many bytes it is long."""
        ...

    async def drop_run(self) -> None:
        """The run was none: the file ends before it again."""
        ...

    async def publish(self) -> None:
        """Everything is on the disk, then the file has its name."""
        ...

    async def abandon(self) -> None:
        """Nothing of it stays."""
        ...


class ArchiveFiles(Protocol):
    """Where archive files are kept."""

    async def create(self, name: str, header: bytes) -> ArchiveWriter:
        """A new file."""
        ...

    async def check(self, name: str, run: ArchivedRun) -> CheckedRun:
        """Reads a run of a published file again, from the disk's bytes."""
        ...

    async def remove(self, name: str) -> None:
        """Removes a file, published or not; harmless where there is none."""
        ...
