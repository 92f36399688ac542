"""JournalWorkerService: see its proto for what each RPC promises."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from google.protobuf import duration_pb2

from lantern.api.journal.v1 import worker_service_pb2 as pb
from lantern.api.journal.v1 import worker_service_pb2_grpc
from lantern_journal import validate, wire
from lantern_journal.application.committer import GroupCommitter
from lantern_journal.application.leases import Leases
from lantern_journal.application.runs import Runs
from lantern_journal.application.sessions import Listener, LocalSession, Sessions
from lantern_journal.domain.records import StartedRun
from lantern_journal.ports import Clock, Store
from lantern_journal.servicer.outbox import Outbox
from lantern_journal.servicer.streams import OpenStreams, number_of, page_token
from lantern_journal.validate import starts
from lantern_kernel import reasons
from lantern_kernel.bounds import PAGE_BYTES_MAX
from lantern_kernel.errors import LanternError
from lantern_serving import status


class WorkerServicer(worker_service_pb2_grpc.JournalWorkerServiceServicer):
    """For executors."""

    def __init__(
        self,
        runs: Runs,
        sessions: Sessions,
        committer: GroupCommitter,
        leases: Leases,
        store: Store,
        clock: Clock,
        streams: OpenStreams,
    ) -> None:
        self._runs, self._sessions, self._committer, self._leases = runs, sessions, committer, leases
        self._store, self._clock, self._streams = store, clock, streams

    async def Session(
        self, request_iterator: AsyncIterator[pb.SessionRequest], context: Any
    ) -> AsyncIterator[pb.SessionResponse]:
        """A worker's standing connection. One task reads; this one alone writes."""
        outbox = Outbox()
        session: LocalSession | None = None
        reader: asyncio.Task[None] | None = None
        with self._streams.registered(leaves_by_itself=True):
            try:
                first = await anext(aiter(request_iterator), None)
                if first is None:
                    return
                session = await self._attach(first, outbox, context)
                yield self._attached(session)
                reader = asyncio.create_task(self._read(request_iterator, session, outbox, first))
                while (message := await outbox.next()) is not None:
                    yield message
            finally:
                if reader is not None:
                    reader.cancel()

    async def _attach(self, first: pb.SessionRequest, outbox: Outbox, context: Any) -> LocalSession:
        validate.session_message(first, is_first=True)
        validate.attach(first.attach)
        listener = Listener(inbox=outbox.add_inbox, end=outbox.end_session, move=outbox.add_move)
        session = await self._sessions.attach(wire.attach(first.attach), listener)

        # Not in a `finally`: a handler whose message is being sent when the worker dies is not resumed.
        def on_done(_: Any) -> None:
            self._sessions.stream_closed(session)

        context.add_done_callback(on_done)
        return session

    def _attached(self, session: LocalSession) -> pb.SessionResponse:
        silence = duration_pb2.Duration()
        silence.FromMicroseconds(self._sessions.limits.silence_us)
        return pb.SessionResponse(
            attached=pb.Attached(session_number=session.number, silence=silence, takes_starts=True)
        )

    async def _read(
        self,
        requests: AsyncIterator[pb.SessionRequest],
        session: LocalSession,
        outbox: Outbox,
        first: pb.SessionRequest,
    ) -> None:
        try:
            self._take(first, session, outbox)
            async for request in requests:
                validate.session_message(request, is_first=False)
                self._take(request, session, outbox)
                await outbox.room()
            await outbox.answered()
            outbox.finish(None)
        except LanternError as error:
            outbox.finish(error)
        except Exception as error:
            # The stream broke: the call is over, and its done callback tells.
            outbox.finish(error)

    def _take(self, request: pb.SessionRequest, session: LocalSession, outbox: Outbox) -> None:
        self._sessions.heard(session)
        if request.ping:
            outbox.add_pong(request.ping)
        for index, raw in enumerate(request.appends):
            append = wire.append(raw)
            try:
                validate.append(f"appends[{index}]", append)
            except LanternError as error:
                outbox.refuse(append.append_id, error)
                continue
            outbox.sent(append)
            self._committer.submit(append, outbox.add_result)
        for start in request.starts:
            self._start(start, outbox)

    def _start(self, start: pb.Start, outbox: Outbox) -> None:
        """Makes a run; whatever is wrong with it is told in its own answer, in the words of CreateRun."""
        size = start.ByteSize()
        outbox.start_taken(size)

        def done(answer: "asyncio.Future[StartedRun]") -> None:
            result = pb.StartResult(start_id=start.start_id)
            try:
                result.created.CopyFrom(wire.started(answer.result()))
            except LanternError as error:
                result.error.CopyFrom(status.to_status(error))
            except asyncio.CancelledError:
                result.error.CopyFrom(status.to_status(LanternError(reasons.UNAVAILABLE, "the journal is stopping")))
            outbox.add_started(result, size)

        try:
            starts.create_run(start.request)
            answer = self._runs.begin_start(wire.start_request(start.request))
        except LanternError as error:
            outbox.add_started(pb.StartResult(start_id=start.start_id, error=status.to_status(error)), size)
        else:
            answer.add_done_callback(done)

    async def KeepSession(
        self, request_iterator: AsyncIterator[pb.KeepSessionRequest], context: Any
    ) -> AsyncIterator[pb.KeepSessionResponse]:
        """A worker's helper process keeps its session known."""
        with self._streams.registered():
            async for request in request_iterator:
                validate.keep_session(request)
                current = await self._sessions.keep(request.worker_id, request.session_number)
                yield pb.KeepSessionResponse(pong=request.ping, session_number=request.session_number, current=current)

    async def AppendEvents(self, request: pb.AppendEventsRequest, context: Any) -> pb.AppendEventsResponse:
        """Appends to one run outside a session."""
        append = wire.append(request.append)
        validate.append("append", append)
        return pb.AppendEventsResponse(last_seq=await self._committer.append(append))

    async def OpenRun(self, request: pb.OpenRunRequest, context: Any) -> pb.OpenRunResponse:
        """Takes up a run whose lease was granted to this worker."""
        validate.open_run(request)
        opened = await self._leases.open(request.run_id, request.epoch, wire.lease_target(request.lease_target))
        return wire.opened(opened, self._clock.now_us())

    async def ListInbox(self, request: pb.ListInboxRequest, context: Any) -> pb.ListInboxResponse:
        """Returns inbox entries by pages."""
        size = validate.list_inbox(request)
        after = number_of(request.page_token, request.after_number)
        entries, has_more = await self._store.list_inbox(request.run_id, after, size, PAGE_BYTES_MAX)
        token = page_token(entries[-1].number) if has_more else ""
        return pb.ListInboxResponse(entries=map(wire.inbox_entry, entries), next_page_token=token)

    async def ReleaseLease(self, request: pb.ReleaseLeaseRequest, context: Any) -> pb.ReleaseLeaseResponse:
        """Hands a run back."""
        validate.release_lease(request)
        cause = wire.release_cause(request.cause)
        await self._leases.release(request.run_id, request.epoch, request.worker_id, cause)
        return pb.ReleaseLeaseResponse()

    async def ClaimSideEffect(self, request: pb.ClaimSideEffectRequest, context: Any) -> pb.ClaimSideEffectResponse:
        """Claims one delivery."""
        validate.claim(request)
        claimed, known = await self._leases.claim(wire.claim(request))
        return pb.ClaimSideEffectResponse(claimed=claimed, side_effect=wire.side_effect(known))

    async def SettleSideEffect(self, request: pb.SettleSideEffectRequest, context: Any) -> pb.SettleSideEffectResponse:
        """Records how a claimed delivery ended."""
        validate.settle(request)
        known = await self._leases.settle(wire.settlement(request))
        return pb.SettleSideEffectResponse(side_effect=wire.side_effect(known))
