"""The journal over gRPC: appends and starts go through the session stream, everything else through unary calls.

Unary calls are all safe to repeat, so one that found no journal, or whose answer was lost, is made again with a growing
delay until it is answered or its bound is reached.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import grpc

from lantern.api.journal.v1 import agent_service_pb2 as agent_pb
from lantern.api.journal.v1 import agent_service_pb2_grpc as agent_grpc
from lantern.api.journal.v1 import blob_service_pb2_grpc as blob_grpc
from lantern.api.journal.v1 import journal_service_pb2 as journal_pb
from lantern.api.journal.v1 import journal_service_pb2_grpc as journal_grpc
from lantern.api.journal.v1 import worker_service_pb2 as worker_pb
from lantern.api.journal.v1 import worker_service_pb2_grpc as worker_grpc
from lantern.client import blobs
from lantern_executor import wire
from lantern_executor.adapters.addresses import JournalAddresses
from lantern_executor.adapters.session import REPEATABLE, Session
from lantern_executor.domain.run import CreatedRun, HandBack, OpenedRun, Run, StartRequest
from lantern_executor.domain.step import SideEffect, StepContext
from lantern_executor.domain.tail import Append
from lantern_kernel import reasons
from lantern_kernel.blobs import BlobRef, Content
from lantern_kernel.errors import LanternError
from lantern_kernel.event import Event
from lantern_kernel.inbox import InboxEntry
from lantern_serving import status

T = TypeVar("T")

DRIVE_BOUND_S = 600.0
"""How long a drive waits for an unreachable journal. As long as that nothing is lost by waiting: its appends wait too,
and once the journal is back it says whether the lease still stands."""

RELEASE_BOUND_S = 5.0
"""The same for handing a run back, which is tried again by whoever asks for it."""

CREATE_BOUND_S = 8.0
"""The same for a start, whose caller waits and can repeat it himself."""

OPENS_AT_ONCE = 32

BACKOFF_S_MIN = 0.05
BACKOFF_S_MAX = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Stubs:
    """The unary calls of one journal process."""

    # What they go over.
    channel: grpc.aio.Channel
    # Of JournalService.
    runs: "journal_grpc.JournalServiceAsyncStub"
    # Of JournalWorkerService.
    worker: "worker_grpc.JournalWorkerServiceAsyncStub"
    # Of JournalBlobService.
    blobs: "blob_grpc.JournalBlobServiceAsyncStub"
    # Of JournalAgentService.
    agents: "agent_grpc.JournalAgentServiceAsyncStub"

    @classmethod
    def over(cls, channel: grpc.aio.Channel) -> "Stubs":
        """The stubs of a channel."""
        runs, worker = journal_grpc.JournalServiceStub(channel), worker_grpc.JournalWorkerServiceStub(channel)
        return cls(
            channel=channel,
            runs=runs,
            worker=worker,
            blobs=blob_grpc.JournalBlobServiceStub(channel),
            agents=agent_grpc.JournalAgentServiceStub(channel),
        )


class JournalProcesses:
    """Stubs of each journal process that was spoken to; calls go to the one that the session speaks to now."""

    def __init__(self, addresses: JournalAddresses, connect: Callable[[str], grpc.aio.Channel]) -> None:
        self._addresses, self._connect = addresses, connect
        self._stubs: dict[str, Stubs] = {}

    @property
    def present(self) -> Stubs:
        """Of the one to speak to."""
        address = self._addresses.present
        stubs = self._stubs.get(address)
        if stubs is None:
            stubs = self._stubs[address] = Stubs.over(self._connect(address))
        return stubs

    async def close(self) -> None:
        """Ends all calls."""
        for stubs in self._stubs.values():
            await stubs.channel.close()


class PublishedDefinitions:
    """The definitions of published agents, asked of the journal."""

    def __init__(self, processes: JournalProcesses) -> None:
        self._processes = processes

    async def get_definition(self, tenant_id: str, name: str, digest: str) -> bytes:
        """A version of a published agent, by the digest of its definition; AGENT_NOT_FOUND."""
        request = agent_pb.GetAgentDefinitionRequest(tenant_id=tenant_id, name=name, digest=digest)
        return (await _answered(lambda: self._processes.present.agents.GetAgentDefinition(request))).definition


class GrpcJournal:
    """JournalPort over one session, and the processes that its unary calls go to."""

    def __init__(self, processes: JournalProcesses, session: Session) -> None:
        self._session, self._processes = session, processes
        self._opening = asyncio.Semaphore(OPENS_AT_ONCE)

    @property
    def worker_id(self) -> str:
        """Unique per process start."""
        return self._session.identity.worker_id

    def trusted(self) -> bool:
        """See JournalPort."""
        return self._session.trusted()

    async def wait_trusted(self) -> None:
        """See JournalPort."""
        await self._session.wait_trusted()

    def on_inbox(self, listener: Callable[[Sequence[str]], None]) -> None:
        """See JournalPort."""
        self._session.inbox_listener = listener

    def on_return(self, listener: Callable[[], None]) -> None:
        """See JournalPort."""
        self._session.return_listener = listener

    async def set_draining(self) -> None:
        """See JournalPort."""
        await self._session.set_draining()

    async def append(self, append: Append) -> None:
        """See JournalPort."""
        await self._session.append(append)

    async def create_run(self, request: StartRequest, *, with_lease: bool) -> CreatedRun:
        """See JournalPort. Where the session is not attached just now, the run is only queued."""
        if with_lease:
            try:
                return await self._create(wire.from_start(request, self._lease_target()))
            except LanternError as error:
                if error.reason != reasons.SESSION_NOT_ATTACHED:
                    raise
        return await self._create(wire.from_start(request, None))

    async def _create(self, request: journal_pb.CreateRunRequest) -> CreatedRun:
        """Through the session's stream where it stands, which costs both sides a fraction of a call."""

        def call() -> Awaitable[journal_pb.CreateRunResponse]:
            if self._session.takes_starts:
                return self._session.create_run(request)
            return self._processes.present.runs.CreateRun(request)

        return wire.to_created(await _answered(call, CREATE_BOUND_S))

    async def get_run(self, run_id: str) -> Run:
        """See JournalPort."""
        request = journal_pb.GetRunRequest(run_id=run_id)
        return wire.to_run((await _answered(lambda: self._processes.present.runs.GetRun(request), CREATE_BOUND_S)).run)

    async def cancel_run(self, run_id: str, request_id: str) -> None:
        """See JournalPort."""
        request = journal_pb.SendToRunRequest(request_id=request_id, run_id=run_id, kind="cancel")
        await _answered(lambda: self._processes.present.runs.SendToRun(request))

    async def open_run(self, run_id: str, epoch: int) -> OpenedRun:
        """See JournalPort. After an outage all drives ask at once: a few at a time are let through."""

        def call() -> Awaitable[worker_pb.OpenRunResponse]:
            return self._processes.present.worker.OpenRun(
                worker_pb.OpenRunRequest(run_id=run_id, epoch=epoch, lease_target=self._lease_target())
            )

        # Between two streams of our session there is none; the next one is only moments away.
        async with self._opening:
            return wire.to_opened(await _answered(call, repeatable=REPEATABLE | {reasons.SESSION_NOT_ATTACHED}))

    async def list_events(self, run_id: str, after_seq: int) -> Sequence[Event]:
        """See JournalPort."""
        request = journal_pb.ListEventsRequest(run_id=run_id, after_seq=after_seq)
        return wire.to_events((await _answered(lambda: self._processes.present.runs.ListEvents(request))).events)

    async def list_inbox(self, run_id: str, after_number: int) -> Sequence[InboxEntry]:
        """See JournalPort."""
        entries: list[InboxEntry] = []
        request = worker_pb.ListInboxRequest(run_id=run_id, after_number=after_number)
        while True:
            page = await _answered(lambda: self._processes.present.worker.ListInbox(request))
            entries += map(wire.to_entry, page.entries)
            if not page.next_page_token:
                return entries
            request.page_token = page.next_page_token

    async def release_lease(self, run_id: str, epoch: int, cause: HandBack) -> None:
        """See JournalPort."""
        request = worker_pb.ReleaseLeaseRequest(
            run_id=run_id, epoch=epoch, worker_id=self.worker_id, cause=wire.from_hand_back(cause)
        )
        await _answered(lambda: self._processes.present.worker.ReleaseLease(request), RELEASE_BOUND_S)

    async def claim_side_effect(self, context: StepContext, sink: str, nonce: bytes) -> SideEffect:
        """See JournalPort."""
        request = worker_pb.ClaimSideEffectRequest(
            key=context.key,
            run_id=context.run_id,
            step_id=context.step_id,
            epoch=context.epoch,
            sink=sink,
            worker_id=self.worker_id,
            nonce=nonce,
        )
        return wire.to_side_effect(await _answered(lambda: self._processes.present.worker.ClaimSideEffect(request)))

    async def put_blob(self, tenant_id: str, content: bytes) -> BlobRef:
        """See JournalPort."""
        blob = await blobs.name_of(content)
        await _answered(lambda: blobs.send(self._processes.present.blobs, tenant_id, blob, content))
        return blob

    async def get_blob(self, tenant_id: str, blob: BlobRef) -> bytes:
        """See JournalPort. A broken connection is taken up where it broke."""
        content = bytearray()
        return await _answered(lambda: blobs.fetch(self._processes.present.blobs, tenant_id, blob, content))

    async def settle_side_effect(self, context: StepContext, *, delivered: bool, result: Content) -> None:
        """See JournalPort."""
        state = worker_pb.SideEffect.STATE_DELIVERED if delivered else worker_pb.SideEffect.STATE_REFUSED
        request = worker_pb.SettleSideEffectRequest(
            key=context.key,
            state=state,
            result=result if isinstance(result, bytes) else b"",
            result_blob=wire.from_blob(result if isinstance(result, BlobRef) else None),
            run_id=context.run_id,
            worker_id=self.worker_id,
        )
        await _answered(lambda: self._processes.present.worker.SettleSideEffect(request))

    def _lease_target(self) -> journal_pb.LeaseTarget:
        return journal_pb.LeaseTarget(worker_id=self.worker_id, session_number=self._session.number)


async def _answered(
    call: Callable[[], Awaitable[T]], bound_s: float = DRIVE_BOUND_S, repeatable: frozenset[str] = REPEATABLE
) -> T:
    """What a call returns, made again where the journal could not be reached or its answer was lost."""
    now_s = asyncio.get_running_loop().time
    until_s, backoff_s = now_s() + bound_s, BACKOFF_S_MIN
    while True:
        try:
            return await call()
        except (grpc.aio.AioRpcError, LanternError) as problem:
            error = problem if isinstance(problem, LanternError) else status.to_error(problem)
            if error.reason not in repeatable or now_s() + backoff_s > until_s:
                raise error from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # By grpc.aio, which tells a lost connection so at times: nobody wants us to end.
            if now_s() + backoff_s > until_s:
                raise LanternError(reasons.UNAVAILABLE, "the call was cancelled") from None
        await asyncio.sleep(backoff_s)
        backoff_s = min(backoff_s * 2, BACKOFF_S_MAX)
