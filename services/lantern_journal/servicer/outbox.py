"""What a session has to tell its worker: all that is there goes in one message."""

import asyncio
from collections import deque

from lantern.api.journal.v1 import worker_service_pb2 as pb
from lantern_journal.domain.appends import Append
from lantern_kernel import reasons
from lantern_kernel.errors import LanternError
from lantern_serving import status

UNANSWERED_APPENDS_MAX = 10_000
UNANSWERED_BYTES_MAX = 32 * 1024 * 1024
"""A worker with more than this under way is not read from until some are answered and sent."""

RESULTS_PER_MESSAGE_MAX = 1_000
"""A refusal takes a kilobyte at most, so that a message stays below 3 MiB with the starts it carries."""

STARTS_BYTES_PER_MESSAGE_MAX = 1024 * 1024
"""Or one, however large: a run that was started comes back with its input, twice."""

INBOX_RUNS_PER_MESSAGE_MAX = 10_000


class Outbox:
    """Filled by whoever has something to say, emptied by the one task that writes to the stream."""

    def __init__(self) -> None:
        self._results: list[pb.AppendResult] = []
        self._started: deque[pb.StartResult] = deque()
        self._inbox: dict[str, None] = {}
        self._pong = 0
        self._move = False
        self._error: BaseException | None = None
        self._is_finished = False
        self._ready = asyncio.Event()
        self._drained = asyncio.Event()
        self._unanswered = 0
        self._unanswered_bytes = 0

    def sent(self, append: Append) -> None:
        """An append of this worker is under way."""
        self._unanswered += 1
        self._unanswered_bytes += append.size

    def add_result(self, append: Append, outcome: int | LanternError) -> None:
        """What became of it."""
        self._unanswered -= 1
        self._unanswered_bytes -= append.size
        if isinstance(outcome, LanternError):
            self.refuse(append.append_id, outcome)
        else:
            self._results.append(pb.AppendResult(append_id=append.append_id, last_seq=outcome))
            self._ready.set()

    def refuse(self, append_id: int, error: LanternError) -> None:
        """An append did not go in."""
        self._results.append(pb.AppendResult(append_id=append_id, error=status.to_status(error)))
        self._ready.set()

    def start_taken(self, size_bytes: int) -> None:
        """A start of this worker is under way."""
        self._unanswered += 1
        self._unanswered_bytes += size_bytes

    def add_started(self, result: pb.StartResult, size_bytes: int) -> None:
        """What became of it."""
        self._unanswered -= 1
        self._unanswered_bytes -= size_bytes
        self._started.append(result)
        self._ready.set()

    def add_pong(self, ping: int) -> None:
        """Answers a ping; a later one answers those before."""
        self._pong = ping
        self._ready.set()

    def add_inbox(self, run_ids: list[str]) -> None:
        """These runs have new inbox entries."""
        if len(self._inbox) < INBOX_RUNS_PER_MESSAGE_MAX:
            self._inbox.update(dict.fromkeys(run_ids))
        self._ready.set()

    def add_move(self) -> None:
        """The process is about to stop."""
        self._move = True
        self._ready.set()

    def end_session(self) -> None:
        """The session was closed for silence: the worker attaches anew."""
        self.finish(LanternError(reasons.SESSION_NOT_ATTACHED, "the session was silent for too long; attach again"))

    def finish(self, error: BaseException | None) -> None:
        """Nothing more will come; an error ends the call with its status."""
        self._is_finished, self._error = True, self._error or error
        self._ready.set()
        self._drained.set()

    async def next(self) -> pb.SessionResponse | None:
        """The next message; None at the end."""
        await self._ready.wait()
        message = pb.SessionResponse(
            results=self._results[:RESULTS_PER_MESSAGE_MAX],
            pong=self._pong,
            inbox_run_ids=list(self._inbox),
            move=self._move,
            started=self._cut_started(),
        )
        del self._results[:RESULTS_PER_MESSAGE_MAX]
        is_empty = not (message.results or self._pong or self._inbox or self._move or message.started)
        self._pong, self._move = 0, False
        self._inbox.clear()
        self._drained.set()
        if not self._results and not self._started and not self._is_finished:
            self._ready.clear()
        if is_empty and self._is_finished:
            if self._error is not None:
                raise self._error
            return None
        return message

    def _cut_started(self) -> list[pb.StartResult]:
        cut: list[pb.StartResult] = []
        size = 0
        while self._started:
            size += self._started[0].ByteSize()
            if cut and size > STARTS_BYTES_PER_MESSAGE_MAX:
                break
            cut.append(self._started.popleft())
        return cut

    async def room(self) -> None:
        """Returns once there is room for more appends of this worker."""
        while (
            self._unanswered + len(self._results) + len(self._started) > UNANSWERED_APPENDS_MAX
            or self._unanswered_bytes > UNANSWERED_BYTES_MAX
        ) and not self._is_finished:
            self._drained.clear()
            await self._drained.wait()

    async def answered(self) -> None:
        """Returns once every append of this worker is answered."""
        while self._unanswered and not self._is_finished:
            self._drained.clear()
            await self._drained.wait()
