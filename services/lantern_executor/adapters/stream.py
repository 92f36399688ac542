"""What a worker's session keeps of one stream to the journal, and of what is on its way there."""

import asyncio
from dataclasses import dataclass, field

import grpc

from lantern.api.journal.v1 import journal_service_pb2 as journal_pb
from lantern.api.journal.v1 import worker_service_pb2 as pb
from lantern_executor.domain.tail import Append
from lantern_executor.domain.trust import Trust


@dataclass(eq=False, kw_only=True, slots=True)
class Waiting:
    """An append on its way."""

    # Echoed in the answer; also the order of submission.
    append_id: int
    append: Append
    answer: "asyncio.Future[None]"


@dataclass(eq=False, kw_only=True, slots=True)
class Starting:
    """A start on its way."""

    # What to make.
    request: journal_pb.CreateRunRequest
    answer: "asyncio.Future[journal_pb.CreateRunResponse]"


@dataclass(eq=False, kw_only=True, slots=True)
class Stream:
    """What belongs to one attached stream and ends with it."""

    call: "grpc.aio.StreamStreamCall[pb.SessionRequest, pb.SessionResponse]"
    # Appends that were sent, and for each its message's number of answers that are still due.
    sent: dict[int, tuple[Waiting, list[int]]] = field(default_factory=dict[int, tuple[Waiting, list[int]]])
    # Messages with answers due.
    messages: int = 0
    # Whether the journal takes starts, and those that it has not answered.
    takes_starts: bool = False
    starts: dict[int, Starting] = field(default_factory=dict[int, Starting])
    # The ping that the next message takes along; 0 for none.
    ping_due: int = 0
    # What its pings, and those of the helper process, prove.
    trust: Trust
    # The journal knows the session no more, as the helper process was told.
    unknown: asyncio.Event = field(default_factory=asyncio.Event)
