"""The journal as a session's streams see it: queues that take every append they are sent, and fault where told."""

import asyncio
from typing import Any

import pytest

from lantern.api.journal.v1 import journal_service_pb2 as journal_pb
from lantern.api.journal.v1 import run_pb2
from lantern.api.journal.v1 import worker_service_pb2 as pb
from lantern_executor.adapters import session as session_module
from lantern_kernel.errors import InvalidField
from lantern_serving import status


class QueueStream:
    """One stream, seen from the worker."""

    def __init__(self, far: "FarSide", address: str) -> None:
        self.far, self.address = far, address
        self.answers: asyncio.Queue[pb.SessionResponse] = asyncio.Queue()

    async def write(self, message: pb.SessionRequest) -> None:
        if message.HasField("attach"):
            self.far.attaches += 1
            self.far.attached_at.append(self.address)
            self.far.stream = self
            attached = pb.Attached(session_number=self.far.attaches, takes_starts=self.far.takes_starts)
            self.answers.put_nowait(pb.SessionResponse(attached=attached))
            return
        if self.far.write_faults and message.appends:
            raise self.far.write_faults.pop(0)
        if self.address in self.far.stands_still:
            return
        self.far.run_ids += [append.run_id for append in message.appends]
        results = [pb.AppendResult(append_id=append.append_id) for append in message.appends]
        started = [
            self.far.answer(start) for start in message.starts if start.request.agent_name != self.far.unanswered
        ]
        self.answers.put_nowait(pb.SessionResponse(results=results, pong=message.ping, started=started))

    async def read(self) -> pb.SessionResponse:
        return await self.answers.get()

    def cancel(self) -> bool:
        return True


class FarSide:
    """The journal, and the channels to it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.attaches = 0
        # Where each attach arrived.
        self.attached_at: list[str] = []
        # The stream that was attached last.
        self.stream: QueueStream | None = None
        # Where nobody answers any more.
        self.stands_still: set[str] = set()
        # Where no connection is taken.
        self.absent: set[str] = set()
        self.run_ids: list[str] = []
        self.connect_faults: list[Exception] = []
        self.close_faults: list[Exception] = []
        self.write_faults: list[Exception] = []
        # Whether it takes starts, those that came, and the agent whose starts it never answers.
        self.takes_starts = False
        self.starts: list[pb.Start] = []
        self.unanswered = "nobody"
        # Whoever makes a session without saying how it connects gets this.
        defaults = session_module.Session.__init__.__kwdefaults__
        assert defaults is not None
        monkeypatch.setitem(defaults, "connect", self.connect)

    def connect(self, address: str) -> Any:
        if self.connect_faults:
            raise self.connect_faults.pop(0)
        if address in self.absent:
            raise ConnectionRefusedError(address)
        return QueueChannel(self, address)

    def answer(self, start: pb.Start) -> pb.StartResult:
        """To a start: refused where its request names no agent."""
        self.starts.append(start)
        if not start.request.agent_name:
            error = status.to_status(InvalidField("agent_name", "is empty"))
            return pb.StartResult(start_id=start.start_id, error=error)
        run = run_pb2.Run(run_id=f"run of {start.request.request_id}")
        return pb.StartResult(start_id=start.start_id, created=journal_pb.CreateRunResponse(run=run, created=True))

    def say(self, message: pb.SessionResponse) -> None:
        """To the worker, over its present stream."""
        assert self.stream is not None, "it has attached"
        self.stream.answers.put_nowait(message)


class QueueChannel:
    """A channel to the far side that knows one method."""

    def __init__(self, far: FarSide, address: str) -> None:
        self.far, self.address = far, address

    def unary_unary(self, *args: Any, **kwargs: Any) -> None:
        return

    def stream_stream(self, *args: Any, **kwargs: Any) -> Any:
        return lambda: QueueStream(self.far, self.address)

    async def close(self) -> None:
        if self.far.close_faults:
            raise self.far.close_faults.pop(0)
