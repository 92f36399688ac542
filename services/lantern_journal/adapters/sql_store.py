"""The Store over SQL: every use written once; the two databases differ in how a function gets its connection."""

import abc
import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Concatenate, ParamSpec, TypeVar

import sqlalchemy as sa

from lantern_journal.adapters import (
    sql_agents,
    sql_approvals,
    sql_archives,
    sql_blobs,
    sql_doctor,
    sql_effects,
    sql_events,
    sql_feed,
    sql_inbox,
    sql_leases,
    sql_parks,
    sql_resets,
    sql_runs,
    sql_sessions,
    sql_starts,
)
from lantern_journal.adapters.sql_events import Transaction
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
from lantern_journal.ports import Collision, Disconnected, GroupRefused
from lantern_kernel import kinds, reasons
from lantern_kernel.blobs import BlobRef
from lantern_kernel.errors import LanternError
from lantern_kernel.event import Event

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

TRIES = 8
"""Of a transaction that collided or lost its connection; it is asked again by content each time."""

BACKOFF_MS_FIRST = 10
BACKOFF_MS_MAX = 500


class Contended(Exception):
    """The database chose this transaction to give way (40001, 40P01, 55P03); nothing of it went in."""


def disk_full() -> LanternError:
    """The answer to whoever writes while the database's disk is full: it goes on by itself once there is room."""
    return LanternError(
        reasons.UNAVAILABLE,
        "the database's disk is full; repeat the same request, it goes in once there is room again",
        retry_after_s=1.0,
        cause="disk_full",
    )


class SqlStore(abc.ABC):
    """See `lantern_journal.ports.Store`."""

    generation: int = 1
    _feed_database: tuple[int, int | None] = (0, None)
    # Whether a group goes in only where the database still holds what it is put on top of.
    checks_digests: bool = False

    @abc.abstractmethod
    async def _transact(self, function: Callable[[Transaction], T]) -> T:
        """Runs a function in a transaction; raises Collision, Contended or Disconnected."""

    @abc.abstractmethod
    async def _look(self, function: Callable[[sa.Connection], T]) -> T:
        """Runs a function that only reads; raises Disconnected."""

    @abc.abstractmethod
    async def _survey(self, function: Callable[[Transaction], T]) -> T:
        """Runs a function that only reads, and judges by the time; raises Disconnected."""

    async def _write(self, function: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._insist(lambda: self._transact(lambda tx: function(tx, *args, **kwargs)))

    async def _read(self, function: Callable[Concatenate[sa.Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._insist(lambda: self._look(lambda connection: function(connection, *args, **kwargs)))

    async def _insist(self, attempt: Callable[[], Awaitable[T]]) -> T:
        backoff_ms = BACKOFF_MS_FIRST
        for tries in range(1, TRIES + 1):
            try:
                return await attempt()
            except (Collision, Contended, Disconnected) as error:
                if tries == TRIES:
                    reason = reasons.UNKNOWN_OUTCOME if isinstance(error, Disconnected) else reasons.UNAVAILABLE
                    raise LanternError(
                        reason, "the database does not answer; repeat the same request", retry_after_s=1.0
                    ) from error
                log.warning(
                    "transaction is tried again",
                    extra={"action": "transaction_retry", "cause": type(error).__name__, "tries": tries},
                )
            await asyncio.sleep((backoff_ms + secrets.randbelow(backoff_ms)) / 1000)
            backoff_ms = min(backoff_ms * 2, BACKOFF_MS_MAX)
        raise AssertionError("the last try returns or raises")

    async def heads(self, run_ids: Sequence[str]) -> dict[str, Head]:
        """See Store."""
        return await self._look(lambda connection: sql_events.heads_of(connection, run_ids))

    async def head(self, run_id: str) -> Head:
        """See Store."""
        return await self._read(sql_events.head_of, run_id)

    async def insert_group(
        self,
        rows: Sequence[Row],
        changes: Sequence[RunChange],
        *,
        blobs: Sequence[NamedBlobs] = (),
        tops: Sequence[Top] = (),
    ) -> Aftermath:
        """See Store."""

        def write(tx: Transaction) -> Aftermath:
            sql_parks.lock(tx, changes)
            checked = sql_runs.check_changes(tx.connection, changes) if changes else sql_runs.Checked()
            if blobs and (absent := sql_blobs.name_blobs(tx, blobs)):
                raise GroupRefused({}, absent)
            if self.checks_digests:
                sql_events.check_tops(tx.connection, tops)
            sql_events.insert_rows(tx.connection, rows)
            if changes:
                sql_runs.apply_changes(tx.connection, changes, checked.asking)
            late = Aftermath(queued=sql_parks.wake_late(tx, changes))
            ends = [change for change in changes if change.ends_with in kinds.TERMINAL]
            return late + sql_inbox.settle_ends(tx, ends, checked.relations) if ends else late

        try:
            return await self._transact(write)
        except Contended as error:
            raise Collision(str(error)) from error

    async def start_runs(self, starts: Sequence[NewRun], limits: Limits) -> list[StartedRun | LanternError]:
        """See Store."""
        return await self._write(sql_starts.start_runs, starts, limits)

    async def get_run(self, run_id: str) -> Run:
        """See Store."""
        return await self._read(sql_runs.get_run, run_id)

    async def list_runs(self, wanted: RunFilter, before: str, limit: int, bytes_max: int) -> tuple[list[Run], bool]:
        """See Store."""
        return await self._read(sql_runs.list_runs, wanted, before, limit, bytes_max)

    async def list_events(self, run_id: str, after_seq: int, limit: int, bytes_max: int) -> tuple[list[Event], bool]:
        """See Store."""
        return await self._read(sql_events.list_events, run_id, after_seq, limit, bytes_max)

    async def list_inbox(self, run_id: str, after: int, limit: int, bytes_max: int) -> tuple[list[InboxEntry], bool]:
        """See Store."""
        return await self._read(sql_inbox.list_inbox, run_id, after, limit, bytes_max)

    async def list_agents(self, tenant_id: str, after: tuple[str, int], limit: int) -> list[Agent]:
        """See Store."""
        return await self._read(sql_agents.list_agents, tenant_id, after, limit)

    async def find_definition(self, wanted: Wanted) -> Definition:
        """See Store."""
        return await self._read(sql_agents.find_definition, wanted)

    async def publish_agent(self, publication: Publication) -> Published:
        """See Store."""
        return await self._write(sql_agents.publish, publication)

    async def send(self, entry: NewEntry, limits: Limits) -> SentEntry:
        """See Store."""
        return await self._write(sql_inbox.send, entry, limits)

    async def reset_run(self, reset: Reset) -> tuple[Run, bool]:
        """See Store."""
        return await self._write(sql_resets.reset, reset)

    async def open_run(self, run_id: str, epoch: int, target: LeaseTarget, limits: Limits) -> OpenedRun:
        """See Store."""
        return await self._write(sql_leases.open_run, run_id, epoch, target, limits)

    async def acquire_lease(self, grant: Grant, limits: Limits) -> int:
        """See Store."""
        return await self._write(sql_leases.acquire_lease, grant, limits)

    async def release_lease(
        self, run_id: str, epoch: int, worker_id: str, cause: ReleaseCause = ReleaseCause.DRAIN
    ) -> int:
        """See Store."""
        return await self._write(sql_leases.release_lease, run_id, epoch, worker_id, cause)

    async def defer_run(self, run_id: str, delay_us: int | None, salt: bytes, limits: Limits) -> None:
        """See Store."""
        await self._write(sql_leases.defer_run, run_id, delay_us, salt, limits)

    async def attach(self, attach: Attach) -> Attached:
        """See Store."""
        return await self._write(sql_sessions.attach, attach)

    async def close_session(self, worker_id: str, number: int) -> int | None:
        """See Store."""
        return await self._write(sql_sessions.close_session, worker_id, number)

    async def tend_sessions(self, tending: Tending, limits: Limits) -> Tended:
        """See Store. Tried once: after an outage it would reap sessions that nobody could hear."""
        return await self._once(lambda tx: sql_sessions.tend_sessions(tx, tending, limits))

    async def _once(self, function: Callable[[Transaction], T]) -> T:
        try:
            return await self._transact(function)
        except (Collision, Contended, Disconnected) as error:
            raise LanternError(reasons.UNAVAILABLE, "the database does not answer", retry_after_s=1.0) from error

    async def is_open_session(self, worker_id: str, number: int) -> bool:
        """See Store."""
        return await self._read(sql_sessions.is_open, worker_id, number)

    async def adopt_sessions(self) -> None:
        """See Store."""
        await self._write(sql_sessions.adopt_sessions)

    async def find_orphans(self, limit: int, limits: Limits) -> list[Orphan]:
        """See Store."""
        return await self._insist(lambda: self._survey(lambda tx: sql_leases.find_orphans(tx, limit, limits)))

    async def find_workers(self, limits: Limits) -> list[Worker]:
        """See Store."""
        return await self._insist(lambda: self._survey(lambda tx: sql_sessions.find_workers(tx, limits)))

    async def next_due_us(self, after_us: int) -> int | None:
        """See Store."""
        return await self._read(sql_leases.next_due_us, after_us)

    async def claim_side_effect(self, claim: Claim) -> tuple[bool, SideEffect]:
        """See Store."""
        return await self._write(sql_effects.claim, claim)

    async def settle_side_effect(self, settlement: Settlement) -> tuple[SideEffect, bool]:
        """See Store."""
        return await self._write(sql_effects.settle, settlement)

    # Housekeeping.

    async def make_partitions(self, ahead: int) -> list[str]:
        """See Store; here there are none."""
        del ahead
        return []

    async def begin_feed(self, *, at_beginning: bool) -> Cursor:
        """See Store."""
        of_database = await self._database_id()
        return await self._read(
            lambda connection: sql_feed.begin_feed(connection, of_database, at_beginning=at_beginning)
        )

    async def read_feed(self, cursor: Cursor, wanted: FeedFilter, until: Snapshot | None = None) -> FeedPage:
        """See Store."""
        return await self._read(sql_feed.read_feed, await self._database_id(), cursor, wanted, until)

    async def _database_id(self) -> int:
        generation, known = self._feed_database
        if known is None or generation != self.generation:
            # After an outage it may be another one.
            generation = self.generation
            known = await self._read(sql_feed.database_id)
            self._feed_database = generation, known
        return known

    async def trim_feed(self, before_us: int, most: int) -> int:
        """See Store."""
        return await self._write(sql_feed.trim_feed, before_us, most)

    async def feed_consumer(self, name: str) -> str:
        """See Store."""
        return await self._read(sql_feed.feed_consumer, name)

    async def commit_feed_consumer(self, name: str, before: str, after: str) -> None:
        """See Store."""
        await self._write(sql_feed.commit_feed_consumer, name, before, after)

    # Blobs.

    async def begin_upload(self, upload: Upload) -> bool:
        """See Store."""
        return await self._write(sql_blobs.begin_upload, upload)

    async def write_chunks(self, upload_id: str, first: int, data: Sequence[bytes]) -> None:
        """See Store."""
        await self._write(sql_blobs.write_chunks, upload_id, first, data)

    async def finish_upload(self, upload: Upload) -> bool:
        """See Store."""
        return await self._write(sql_blobs.finish_upload, upload)

    async def abandon_upload(self, upload_id: str) -> None:
        """See Store."""
        await self._write(sql_blobs.abandon_upload, upload_id)

    async def has_blobs(self, tenant_id: str, wanted: Sequence[BlobRef]) -> set[BlobRef]:
        """See Store."""
        return await self._write(sql_blobs.has_blobs, tenant_id, wanted)

    async def find_blob(self, tenant_id: str, blob: BlobRef) -> StoredBlob | None:
        """See Store."""
        return await self._read(sql_blobs.find_blob, tenant_id, blob)

    async def read_chunk(self, upload_id: str, number: int) -> bytes | None:
        """See Store."""
        return await self._read(sql_blobs.read_chunk, upload_id, number)

    async def collect_blobs(self, after: Place, kept_us: int) -> Collected:
        """See Store. Tried once: the next pass comes to what this one does not."""
        return await self._once(lambda tx: sql_blobs.collect(tx, after, kept_us))

    # Approvals.

    async def list_approvals(self, wanted: ApprovalFilter, after: tuple[int, str, str], limit: int) -> list[Approval]:
        """See Store."""
        return await self._read(sql_approvals.list_approvals, wanted, after, limit)

    async def decide_approval(self, decision: Decision) -> Decided:
        """See Store."""
        return await self._write(sql_approvals.decide, decision)

    async def delegate_approval(self, delegation: Delegation) -> Decided:
        """See Store."""
        return await self._write(sql_approvals.delegate, delegation)

    async def expire_approvals(self, limit: int) -> list[Expired]:
        """See Store."""
        return await self._write(sql_approvals.expire, limit)

    async def next_expiry_us(self) -> int | None:
        """See Store."""
        return await self._read(sql_approvals.next_expiry_us)

    # Archives.

    async def take_archive_turn(self, term_us: int) -> Turn | None:
        """See Store. Tried once: asked again after a lost connection, it would find itself in its own way."""
        return await self._once(lambda tx: sql_archives.take_turn(tx, term_us))

    async def extend_archive_turn(self, turn: int, term_us: int) -> None:
        """See Store."""
        await self._write(sql_archives.extend_turn, turn, term_us)

    async def archivable(self, before_us: int, after: tuple[int, str], limit: int) -> list[Candidate]:
        """See Store."""
        return await self._read(sql_archives.archivable, before_us, after, limit)

    async def begin_archive_file(self, turn: int, name: str) -> None:
        """See Store."""
        await self._write(sql_archives.begin_file, turn, name)

    async def forget_archive_file(self, turn: int, name: str) -> None:
        """See Store."""
        await self._write(sql_archives.forget_file, turn, name)

    async def let_go(self, turn: int, name: str, archived: Sequence[ArchivedRun]) -> int:
        """See Store."""
        return await self._write(sql_archives.let_go, turn, name, archived)

    async def drop_partitions(self, before_us: int) -> list[str]:
        """See Store; here there are none."""
        del before_us
        return []

    async def feed_unread_since(self, before_us: int) -> int:
        """See Store."""
        return await self._read(sql_archives.unread_since, before_us)

    async def blobs_of(self, run_id: str) -> list[KeptBlob]:
        """See Store."""
        return await self._read(sql_archives.blobs_of, run_id)

    @abc.abstractmethod
    async def _snapshot(self, function: Callable[[Transaction], T]) -> T:
        """Runs a function that only reads, and whose statements all see one moment; raises Disconnected."""

    @abc.abstractmethod
    async def _apart(self, function: Callable[[Transaction], T]) -> T:
        """Runs a function that only reads and may take long, on a connection and a thread of its own."""

    async def list_run_ids(self, after: str, limit: int) -> list[str]:
        """See Store."""
        return await self._read(sql_doctor.list_run_ids, after, limit)

    async def read_run(self, run_id: str, after_seq: int) -> tuple[list[Event], RunFacts | None]:
        """See Store."""
        return await self._insist(lambda: self._snapshot(lambda tx: sql_doctor.read_run(tx, run_id, after_seq)))

    async def rebuild_run(self, run_id: str) -> dict[str, tuple[object, object]]:
        """See Store."""
        return await self._write(sql_doctor.rebuild_run, run_id)

    async def read_database(self, limits: Limits) -> DatabaseFacts:
        """See Store."""
        return await self._insist(lambda: self._apart(lambda tx: sql_doctor.read_database(tx, limits)))

    async def read_feed_rows(self, cursor: Cursor) -> tuple[list[tuple[int, bytes]], Cursor]:
        """See Store."""
        return await self._read(sql_feed.read_rows, await self._database_id(), cursor)
