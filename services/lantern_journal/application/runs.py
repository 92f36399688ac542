"""Starting, reading and addressing runs."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from hashlib import sha256

from lantern_journal.application import announcements
from lantern_journal.application.announcements import Follower, Hub
from lantern_journal.application.committer import GroupCommitter
from lantern_journal.application.sessions import Sessions
from lantern_journal.application.starts import Starter
from lantern_journal.domain.appends import Head, not_found
from lantern_journal.domain.family import Aftermath, Parent, Reset
from lantern_journal.domain.leases import Limits
from lantern_journal.domain.records import (
    LeaseTarget,
    NewEntry,
    NewRun,
    Run,
    SentEntry,
    StartedRun,
    StartSignal,
    WorkflowIdPolicy,
)
from lantern_journal.domain.run_state import RunState
from lantern_journal.ports import Clock, Sources, Store
from lantern_kernel import kinds
from lantern_kernel.blobs import BlobRef
from lantern_kernel.bounds import PAGE_BYTES_MAX, PAGE_ROWS_MAX
from lantern_kernel.event import Event

FOLLOW_LOOK_S = 1.0
"""A follower reads again after this long where other journal processes may commit to its run."""

FOLLOW_LOOK_ALONE_S = 5.0
"""Where none may: a word that was lost costs no more than this."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StartRequest:
    """What a caller asks to start; fields as in NewRun."""

    # Unique per logical request within the tenant.
    request_id: str
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
    # The caller's W3C trace context; empty makes a new one.
    traceparent: str
    # Whose lease it is created with; None queues it.
    target: LeaseTarget | None
    # The blob that holds the input; `input` is empty then.
    input_blob: BlobRef | None = None
    # Sent to the run, whether it is new or not; None for none.
    signal: StartSignal | None = None
    # See NewRun.
    durability: str = "sync"
    # See NewRun.
    parent: Parent | None = None

    def digest(self) -> bytes:
        """Of the content that a repeated request id must repeat.

        Agent, input, workflow id, policy, signal; the parent's run and step (not its epoch: another driver repeats the
        request), and the durability.
        """
        content = sha256()
        given = self.input if self.input_blob is None else str(self.input_blob).encode()
        parts = [self.agent_name.encode(), given, self.workflow_id.encode(), self.policy.encode()]
        if self.signal is not None:
            parts += [self.signal.name.encode(), self.signal.payload]
        if self.parent is not None:
            of = self.parent
            parts += [b"parent", of.run_id.encode(), of.step_id.encode(), b"abandon" if of.abandon else b""]
        if self.durability != "sync":
            parts += [b"durability", self.durability.encode()]
        for part in parts:
            content.update(len(part).to_bytes(8, "big"))
            content.update(part)
        return content.digest()


class Runs:
    """Use cases of JournalService."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        sources: Sources,
        hub: Hub,
        sessions: Sessions,
        committer: GroupCommitter,
        limits: Limits,
    ) -> None:
        self._store, self._clock, self._sources, self._hub = store, clock, sources, hub
        self._sessions, self._committer, self._limits = sessions, committer, limits
        self._starter = Starter(store, limits, self._started)

    async def start(self, request: StartRequest) -> StartedRun:
        """Starts a run, or returns the one that was started before."""
        return await self.begin_start(request)

    def begin_start(self, request: StartRequest) -> "asyncio.Future[StartedRun]":
        """The same, without waiting; a refusal is the future's LanternError. It goes on if nobody waits any more."""
        now_us = self._clock.now_us()
        new = NewRun(
            run_id=self._sources.run_id(now_us),
            request_id=request.request_id,
            request_digest=request.digest(),
            tenant_id=request.tenant_id,
            agent_name=request.agent_name,
            input=request.input,
            workflow_id=request.workflow_id,
            policy=request.policy,
            traceparent=request.traceparent or self._sources.traceparent(),
            target=request.target,
            salts=(self._sources.salt(), self._sources.salt()),
            input_blob=request.input_blob,
            end_salt=self._sources.salt(),
            signal=request.signal,
            asked_us=now_us,
            durability=request.durability,
            parent=request.parent,
        )
        return self._starter.start(new)

    def _started(self, started: StartedRun) -> None:
        self._hub.fed()
        if started.events:
            last = started.events[-1]
            head = Head(last.seq, last.digest, last.hash, last.epoch, last.time_us, last.kind)
            self._committer.keep(started.run.run_id, head)
            # A grant under which nothing is appended ends by itself.
            self._hub.due_at(self._clock.now_us() + self._limits.grant_us)
        elif started.run.state is RunState.QUEUED:
            # Also for a repeat: the process that made the run may have ended before it could tell.
            self._hub.announce(announcements.QUEUED)
        if started.sent is not None:
            self._tell(started.run.run_id, started.sent)
        if started.terminated is not None:
            self._committer.forget(started.terminated.run_id)
            self._hub.moved(started.terminated.run_id)
            self._tell_others(started.aftermath)
            if started.terminated.driver:
                # It finds no entry, asks for its lease, and hears that it has lost it.
                self._sessions.push_inbox(started.terminated.driver, started.terminated.run_id, 0)

    async def finish(self) -> None:
        """Waits until all starts that were taken are answered."""
        await self._starter.finish()

    async def send(
        self, request_id: str, run_id: str, kind: str, name: str, payload: bytes, payload_blob: BlobRef | None = None
    ) -> SentEntry:
        """Puts an entry into a run's inbox and wakes whoever must see it."""
        entry = NewEntry(
            request_id=request_id,
            run_id=run_id,
            kind=kind,
            name=name,
            payload=payload,
            salts=(self._sources.salt(), self._sources.salt()),
            payload_blob=payload_blob,
        )
        return await self._hub.see_through(self._send(entry))

    async def _send(self, entry: NewEntry) -> SentEntry:
        sent = await self._store.send(entry, self._limits)
        self._tell(entry.run_id, sent)
        return sent

    async def reset(self, request_id: str, run_id: str, to_seq: int) -> Run:
        """Sets a run that waits on code_fix back to an event, and has it driven again."""
        wanted = Reset(request_id=request_id, run_id=run_id, to_seq=to_seq, salt=self._sources.salt())
        return await self._hub.see_through(self._reset(wanted))

    async def _reset(self, wanted: Reset) -> Run:
        run, _ = await self._store.reset_run(wanted)
        # A repeat does not know whether whoever did it could tell.
        self._committer.forget(run.run_id)
        self._hub.moved(run.run_id)
        self._hub.announce(announcements.WOKEN)
        return run

    def _tell_others(self, aftermath: Aftermath) -> None:
        for run_id in aftermath.moved:
            self._committer.forget(run_id)
        self._hub.tell(aftermath)

    def _tell(self, run_id: str, sent: SentEntry) -> None:
        """Whoever must hear of an entry that was taken in."""
        # A repeat does not say what the first time did, and whoever did it may have ended before it could tell.
        if sent.ended or sent.moved or sent.repeated:
            self._committer.forget(run_id)
            self._hub.moved(run_id)
        if sent.woken or sent.repeated:
            self._hub.announce(announcements.WOKEN)
        if sent.due_us is not None:
            self._hub.due_at(sent.due_us)
        if sent.driver:
            self._sessions.push_inbox(sent.driver, run_id, sent.number)
        self._tell_others(sent.aftermath)

    async def follow(self, run_id: str, after_seq: int) -> AsyncGenerator[list[Event]]:
        """Pages of a run's events as they are committed, ending after the terminal one.

        Each page is read when the one before was taken: a slow reader lags, and costs one page of memory.
        """
        wait_s = FOLLOW_LOOK_S if self._store.is_shared else FOLLOW_LOOK_ALONE_S
        with self._hub.follow(run_id, after_seq) as follower:
            # Nearly always the run was started or appended to here just now. Should it have gone on elsewhere since,
            # the look after the first wait tells.
            head = self._committer.known_head(run_id) or await self._store.head(run_id)
            while True:
                if not head.seq:
                    # Says where its events are, should it be archived.
                    await self._store.list_events(run_id, 0, 1, PAGE_BYTES_MAX)
                    raise not_found(run_id)
                while follower.after_seq < head.seq:
                    events, _ = await self._store.list_events(run_id, follower.after_seq, PAGE_ROWS_MAX, PAGE_BYTES_MAX)
                    follower.after_seq = events[-1].seq
                    yield events
                    if events[-1].kind in kinds.TERMINAL:
                        return
                if head.kind in kinds.TERMINAL:
                    return
                with contextlib.suppress(TimeoutError):
                    while events := await _within(wait_s, follower):
                        follower.after_seq = events[-1].seq
                        yield events
                        if events[-1].kind in kinds.TERMINAL:
                            return
                head = await self._store.head(run_id)


async def _within(wait_s: float, follower: Follower) -> list[Event]:
    """What a follower takes; TimeoutError after so long. The generator that asks may not itself be under a timeout."""
    async with asyncio.timeout(wait_s):
        return await follower.take()
