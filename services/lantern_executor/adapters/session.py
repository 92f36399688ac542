"""A worker's session stream to the journal: attaches, coalesces the appends of all runs, pings, and comes back.

One task owns the stream and writes to it (a second writer would hang it). What is ready goes out at once while fewer
than two messages await answers, else in the next message; a ping never waits for an answer. When the stream breaks, the
worker attaches again under the same id, to the next journal process where there are several, and sends every append
again that has no answer: the journal recognises repeats. Beside the stream's own pings, a helper process (`keeper`)
speaks for the session while the event loop stands still; what it was answered counts as well.
"""

import asyncio
import contextlib
import itertools
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

import grpc

from lantern.api.journal.v1 import journal_service_pb2 as journal_pb
from lantern.api.journal.v1 import worker_service_pb2 as pb
from lantern.api.journal.v1 import worker_service_pb2_grpc as pb_grpc
from lantern_executor import wire
from lantern_executor.adapters.addresses import JournalAddresses
from lantern_executor.adapters.keeper_pipe import Report
from lantern_executor.adapters.keeper_process import KeeperProcess
from lantern_executor.adapters.stream import Starting, Stream, Waiting
from lantern_executor.domain.run import Offer
from lantern_executor.domain.tail import Append
from lantern_executor.domain.trust import Trust
from lantern_kernel import kinds, reasons
from lantern_kernel.errors import LanternError
from lantern_serving import channels, status

log = logging.getLogger(__name__)

MESSAGE_BYTES_MAX = 1024 * 1024
WINDOW_MESSAGES = 2
"""Messages whose answers are outstanding; more only moves the queue into the journal."""

GATHER_TURNS = 16
"""Turns of the loop that a message waits at most for what is likely to go along."""

GATHER_PARTS = 3
"""One part of what is under way with each message: one is made ready, one travels, one is committed."""

PING_INTERVAL_S = 1.0
PINGS_PER_SILENCE = 10
"""At least; a journal with a shorter patience than usual is pinged more often."""

ATTACH_TIMEOUT_S = 5.0
BACKOFF_S_MIN = 0.02
BACKOFF_S_MAX = 1.0
STABLE_S = 1.0
"""A stream that lived longer was no failed attempt: the next back-off begins anew."""

REPEAT_DELAY_S = 0.2
"""Before an append goes out again that the journal could neither take nor refuse."""

REPEATABLE = frozenset({reasons.UNAVAILABLE, reasons.UNKNOWN_OUTCOME, reasons.DEADLINE_EXCEEDED})
"""Answers that leave open whether the journal did what it was asked, or say that it could not just then."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerIdentity:
    """Who attaches."""

    # Unique per process start.
    worker_id: str
    # How many runs it drives at once.
    capacity: int
    # What it can drive.
    offers: Sequence[Offer]


class Session:
    """The session of this worker process, for its life."""

    def __init__(
        self,
        addresses: JournalAddresses,
        identity: WorkerIdentity,
        keeper: KeeperProcess | None = None,
        *,
        connect: Callable[[str], grpc.aio.Channel] = channels.connect,
        clock_s: Callable[[], float] = monotonic,
    ) -> None:
        """See the module.

        Args:
            addresses: Where the journal is.
            identity: Who attaches.
            keeper: The helper process, started and closed here; without one the stream's own pings do.
            connect: Makes the channel of one stream.
            clock_s: The system's monotonic clock, seconds.
        """
        self.identity = identity
        self.addresses = addresses
        self.number = 0
        self.inbox_listener: Callable[[Sequence[str]], None] = lambda run_ids: None
        self.return_listener: Callable[[], None] = lambda: None
        self._keeper = keeper
        self._connect = connect
        self._clock_s = clock_s
        self._address = ""
        self._draining = False
        self._is_broken = False  # since it first stood
        self._ready: deque[Waiting] = deque()
        self._ready_starts: deque[Starting] = deque()
        self._coming = 0  # appends that were answered, and whose runs have not come back with their next one
        self._ids = itertools.count(1)
        self._pings = itertools.count(1)
        self._stream: Stream | None = None
        self._work = asyncio.Event()
        self._trust = asyncio.Event()
        self._attached = asyncio.Event()
        self._reattach = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self, address: str) -> "asyncio.Task[None]":
        """Begins to attach, and to attach again whenever the stream breaks. ExecutorService listens at `address`.

        The task that does so ends only by `close`.
        """
        self._address = address
        if self._keeper is not None:
            self._keeper.listener = self._reported
            self._keeper.start()
        self._task = asyncio.create_task(self._stay_attached(), name="session")
        return self._task

    async def close(self) -> None:
        """Ends the session; appends without an answer never get one."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        if self._keeper is not None:
            self._keeper.close()

    async def wait_attached(self) -> None:
        """Returns once the journal has answered an attach."""
        await self._attached.wait()

    async def set_draining(self) -> None:
        """Attaches anew as draining; returns once that stands."""
        self._draining = True
        self._attached.clear()
        self._reattach.set()
        await self._attached.wait()

    def trusted(self) -> bool:
        """SPEC L3: the stream is attached and the last answered ping was sent lately.

        After a stall of the event loop, the answers to the helper process lie in its pipe, and may be of either kind.
        """
        if self._keeper is not None:
            self._keeper.look()
        return self._stream is not None and self._stream.trust.holds(self._clock_s())

    async def wait_trusted(self) -> None:
        """Returns as soon as `trusted` holds."""
        while not self.trusted():
            self._trust.clear()
            await self._trust.wait()

    async def append(self, append: Append) -> None:
        """Returns once the events are committed; raises what the journal refused them for."""
        waiting = Waiting(append_id=next(self._ids), append=append, answer=asyncio.get_running_loop().create_future())
        self._ready.append(waiting)
        self._work.set()
        await waiting.answer

    @property
    def takes_starts(self) -> bool:
        """Whether `create_run` can be used now."""
        return self._stream is not None and self._stream.takes_starts

    async def create_run(self, request: journal_pb.CreateRunRequest) -> journal_pb.CreateRunResponse:
        """Makes a run through the stream, for a moment at which it takes starts.

        Raises:
            LanternError: A refusal, as of CreateRun; UNAVAILABLE where the stream broke before the answer came,
                DEADLINE_EXCEEDED where none came in the time that any call has.
        """
        starting = Starting(request=request, answer=asyncio.get_running_loop().create_future())
        self._ready_starts.append(starting)
        self._work.set()
        try:
            async with asyncio.timeout(channels.RPC_DEADLINE_S):
                return await starting.answer
        except TimeoutError:
            raise LanternError(reasons.DEADLINE_EXCEEDED, "the journal did not answer the start in time") from None

    async def _stay_attached(self) -> None:
        backoff_s = BACKOFF_S_MIN
        while True:
            self._reattach.clear()
            began_s = self._clock_s()
            try:
                await self._serve_one_stream()
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                self._note_broken("the call was cancelled")  # by grpc.aio, which tells a lost connection so at times
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError, TimeoutError, LanternError) as error:
                self._note_broken(error.code().name if isinstance(error, grpc.aio.AioRpcError) else str(error))
            except Exception:
                # A fault of ours, or of the library's: a session that gave up would strand every run of this process.
                log.exception(
                    "session failed", extra={"action": "session_failed", "worker_id": self.identity.worker_id}
                )
                self._note_broken("see session_failed")
            if self._clock_s() - began_s > STABLE_S:
                backoff_s = BACKOFF_S_MIN
            await asyncio.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, BACKOFF_S_MAX)

    async def _serve_one_stream(self) -> None:
        channel = self._connect(self.addresses.present)
        try:
            async with self._attach(channel) as stream:
                await self._serve(stream)
        finally:
            await channel.close()

    def _note_broken(self, cause: str) -> None:
        self._is_broken = self._attached.is_set()
        address = self.addresses.present
        self.addresses.go_on()
        log.warning(
            "session broken",
            extra={
                "action": "session_broken",
                "worker_id": self.identity.worker_id,
                "session_number": self.number,
                "address": address,
                "cause": cause,
            },
        )

    @contextlib.asynccontextmanager
    async def _attach(self, channel: grpc.aio.Channel) -> AsyncGenerator[Stream]:
        """An attached stream; when it is left, what it has not answered waits to be sent again."""
        identity = self.identity
        call = pb_grpc.JournalWorkerServiceStub(channel).Session()
        stream = Stream(call=call, trust=Trust(self._clock_s()))  # pyright: ignore[reportArgumentType] - types-grpcio says less
        try:
            async with asyncio.timeout(ATTACH_TIMEOUT_S):
                attach = pb.Attach(
                    worker_id=identity.worker_id,
                    address=self._address,
                    capacity=identity.capacity,
                    agents=wire.from_offers(identity.offers),
                    draining=self._draining,
                    event_level=kinds.LEVEL,
                )
                await call.write(pb.SessionRequest(attach=attach))
                first = await call.read()
            if not isinstance(first, pb.SessionResponse) or not first.HasField("attached"):
                raise LanternError(reasons.SESSION_NOT_ATTACHED, "the journal ended the stream without attaching it")
            self.number = first.attached.session_number
            stream.trust.silence_s = first.attached.silence.ToNanoseconds() / 1e9 or stream.trust.silence_s
            stream.takes_starts = first.attached.takes_starts
            self._stream = stream
            if self._keeper is not None:
                self._keeper.tell(self.number, stream.trust.silence_s)
            self._attached.set()
            self._trust.set()
            log.info(
                "session attached",
                extra={
                    "action": "session_attached",
                    "worker_id": identity.worker_id,
                    "session_number": self.number,
                    "address": self.addresses.present,
                },
            )
            if self._is_broken:
                self._is_broken = False
                self.return_listener()
            yield stream
        finally:
            self._stream = None
            call.cancel()
            unanswered = sorted((waiting for waiting, _ in stream.sent.values()), key=lambda each: each.append_id)
            self._ready.extendleft(reversed(unanswered))
            self._give_up_starts(stream)

    def _give_up_starts(self, stream: Stream) -> None:
        """Whoever wants them asks again, under the same request ids and perhaps another session number."""
        for starting in (*stream.starts.values(), *self._ready_starts):
            if not starting.answer.done():
                starting.answer.set_exception(LanternError(reasons.UNAVAILABLE, "the session's stream broke"))
        self._ready_starts.clear()

    async def _serve(self, stream: Stream) -> None:
        """Works on one stream until it breaks or a new one is wanted."""
        self._work.set()
        tasks: list[asyncio.Task[Any]] = [
            asyncio.create_task(self._send(stream), name="session send"),
            asyncio.create_task(self._receive(stream), name="session receive"),
            asyncio.create_task(self._ping(stream), name="session ping"),
            asyncio.create_task(self._reattach.wait(), name="session reattach"),
            asyncio.create_task(self._until_unknown(stream), name="session unknown"),
        ]
        try:
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _send(self, stream: Stream) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            await self._gather(stream)
            while stream.ping_due or self._ready_starts or (self._ready and stream.messages < WINDOW_MESSAGES):
                message = self._take(stream) if stream.messages < WINDOW_MESSAGES else pb.SessionRequest()
                self._take_starts(stream, message)
                message.ping, stream.ping_due = stream.ping_due, 0
                if message.appends or message.starts or message.ping:
                    await stream.call.write(message)

    async def _gather(self, stream: Stream) -> None:
        """Gives the loop turns until a fair part of the runs that are on their way stands ready.

        Those that were just answered mostly come back at once with their next append. A message costs both sides as
        much as a handful of appends, so it waits for them, but never while nothing runs: a turn of an idle loop takes a
        few microseconds. What has not come back by then (a step that takes its time) is not waited for again.
        """
        await asyncio.sleep(0)
        for _ in range(GATHER_TURNS):
            ready, coming = len(self._ready), self._coming
            if ready >= coming or ready * GATHER_PARTS >= coming + len(stream.sent):
                self._coming = max(0, coming - ready)
                return
            await asyncio.sleep(0)
        self._coming = 0

    def _take(self, stream: Stream) -> pb.SessionRequest:
        """The next message: all that is ready, up to its bound. What nobody awaits any more is left out."""
        message, size, due = pb.SessionRequest(), 0, [0]
        while self._ready:
            waiting = self._ready[0]
            if waiting.answer.done():
                self._ready.popleft()
                continue
            size += waiting.append.size_bytes
            if due[0] and size > MESSAGE_BYTES_MAX:
                break
            try:
                wire.add_append(message, waiting.append_id, waiting.append)
            except Exception as error:
                # Only this one cannot be said, and never will be: the others go on.
                del message.appends[due[0] :]
                self._ready.popleft()
                waiting.answer.set_exception(LanternError(reasons.INTERNAL, f"an append cannot be encoded: {error!r}"))
                continue
            self._ready.popleft()
            stream.sent[waiting.append_id] = (waiting, due)
            due[0] += 1
        stream.messages += bool(due[0])
        return message

    def _take_starts(self, stream: Stream, message: pb.SessionRequest) -> None:
        """All that are ready, up to the message's bound; they are few, and no append waits for them."""
        size = 0
        while self._ready_starts and size < MESSAGE_BYTES_MAX:
            starting = self._ready_starts.popleft()
            if not starting.answer.done():
                start_id = next(self._ids)
                stream.starts[start_id] = starting
                size += starting.request.ByteSize()
                message.starts.add(start_id=start_id, request=starting.request)

    async def _receive(self, stream: Stream) -> None:
        while True:
            message = await stream.call.read()
            if not isinstance(message, pb.SessionResponse):
                raise LanternError(reasons.UNAVAILABLE, "the journal ended the stream")
            self._coming += len(message.results)
            for result in message.results:
                self._settle(stream, result)
            for started in message.started:
                starting = stream.starts.pop(started.start_id, None)
                if starting is None or starting.answer.done():
                    continue
                if started.HasField("error"):
                    starting.answer.set_exception(status.from_status(started.error))
                else:
                    starting.answer.set_result(started.created)
            if message.pong:
                if self._keeper is not None:
                    self._keeper.look()  # what it was answered before comes first
                stream.trust.pong(message.pong, self._clock_s())
                self._note_trust(stream)
            if message.inbox_run_ids:
                self.inbox_listener(message.inbox_run_ids)
            if message.move:
                self.addresses.go_on()
                self._reattach.set()
            if self._ready:
                self._work.set()

    def _note_trust(self, stream: Stream) -> None:
        self._trust.set()
        if stream.trust.take_return(self._clock_s()):
            self.return_listener()  # a silence as long as that may have cost leases, too

    def _reported(self, report: Report) -> None:
        """What the helper process was answered."""
        stream = self._stream
        if stream is None or report.session_number != self.number:
            return
        if report.current:
            stream.trust.answered(report.sent_s, report.answered_s)
            self._note_trust(stream)
        else:
            stream.trust.revoke()
            stream.unknown.set()

    @staticmethod
    async def _until_unknown(stream: Stream) -> None:
        await stream.unknown.wait()
        raise LanternError(reasons.SESSION_NOT_ATTACHED, "the journal has closed the session")

    def _settle(self, stream: Stream, result: pb.AppendResult) -> None:
        error = status.from_status(result.error) if result.HasField("error") else None  # before anything is changed
        waiting, due = stream.sent.pop(result.append_id, (None, [0]))
        if waiting is None:
            return
        due[0] -= 1
        if not due[0]:
            stream.messages -= 1
        if waiting.answer.done():
            return
        if error is None:
            waiting.answer.set_result(None)
        elif error.reason in REPEATABLE:
            asyncio.get_running_loop().call_later(REPEAT_DELAY_S, self._repeat, waiting)
        else:
            waiting.answer.set_exception(error)

    def _repeat(self, waiting: Waiting) -> None:
        self._ready.append(waiting)
        self._work.set()

    async def _ping(self, stream: Stream) -> None:
        """A ping a second; ends the stream where none was answered for as long as the journal bears silence.

        Half as long where there is another journal process to go to.
        """
        interval_s = min(PING_INTERVAL_S, stream.trust.silence_s / PINGS_PER_SILENCE)
        patience_s = stream.trust.silence_s / (2 if len(self.addresses) > 1 else 1)
        while True:
            if stream.trust.unanswered_count * interval_s >= patience_s:
                raise LanternError(reasons.UNAVAILABLE, "the journal does not answer pings")
            number = next(self._pings)
            stream.trust.ping(number, self._clock_s())
            stream.ping_due = number
            self._work.set()
            await asyncio.sleep(interval_s)
