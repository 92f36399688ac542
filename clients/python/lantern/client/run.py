"""A run as a client sees it, and how it is read from the wire."""

import json
from dataclasses import dataclass
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from lantern.api.journal.v1 import journal_service_pb2 as journal_pb
from lantern.api.journal.v1 import run_pb2 as pb
from lantern.client.blobs import blob_from_wire
from lantern_kernel.blobs import BlobRef
from lantern_kernel.errors import InvalidField
from lantern_kernel.event import Event
from lantern_kernel.payloads import RunErrorFacts

STATES = ("QUEUED", "RUNNING", "WAITING", "SUCCEEDED", "FAILED", "CANCELLED")
TERMINAL_STATES = frozenset({"SUCCEEDED", "FAILED", "CANCELLED"})

_STATE_PREFIX = "STATE_"


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One execution of an agent version on one input. Times are microseconds since the Unix epoch."""

    # UUIDv7, made by the journal.
    run_id: str
    # The tenant that owns it.
    tenant_id: str
    # The user's own name for this work; may be empty.
    workflow_id: str
    # The agent that it executes.
    agent_name: str
    # Its version, from 1.
    agent_version: int
    # SHA-256 (hex) of the pinned definition.
    agent_digest: str
    # One of STATES.
    state: str
    # For WAITING: on what. Else empty.
    waiting_on: str
    # When a WAITING run goes on by itself; None where nothing but an entry can wake it.
    due_us: int | None
    # When it was created.
    create_us: int
    # When its state last changed.
    update_us: int
    # When it ended; None while it has not.
    end_us: int | None
    # The input (JSON); empty in lists.
    input: bytes
    # For SUCCEEDED: the result (JSON); empty in lists.
    result: bytes
    # Why it failed, was cancelled or waits; None where there is no error.
    error: RunErrorFacts | None
    # W3C trace context.
    traceparent: str
    # Leases granted so far: 1 + resumes.
    epoch: int
    # The blob that holds the input, where it is above 256 KiB.
    input_blob: BlobRef | None = None
    # The blob that holds the result, where it is above 256 KiB.
    result_blob: BlobRef | None = None

    @property
    def is_terminal(self) -> bool:
        """Whether it has ended."""
        return self.state in TERMINAL_STATES

    @property
    def result_value(self) -> Any:
        """The result as a Python value; None where there is none."""
        return json.loads(self.result) if self.result else None


@dataclass(frozen=True, kw_only=True, slots=True)
class RunPage:
    """A page of runs."""

    # Newest first; without input and result.
    runs: tuple[Run, ...]
    # For the next page; empty at the end.
    next_page_token: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Taken:
    """What became of something that was said to a run."""

    # The number of its entry in the run's inbox; 0 where `already_ended`.
    number: int
    # Where the run stands after it: one of STATES.
    state: str
    # For a cancel: the run had ended before, as `state` says.
    already_ended: bool


class RunFailed(Exception):
    """A run ended without a result: FAILED or CANCELLED.

    Args:
        run: The run, whose `error` says why.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.code = run.error.code if run.error else run.state
        self.message = run.error.message if run.error else ""
        self.step_id = run.error.step_id if run.error else ""
        where = f" (step {self.step_id})" if self.step_id else ""
        super().__init__(f"run {run.run_id} {run.state}: {self.code}: {self.message}{where}")


class UpdateFailed(Exception):
    """A workflow refused an update, or failed over it.

    Args:
        name: The update.
        error: Why.
    """

    def __init__(self, name: str, error: RunErrorFacts) -> None:
        self.code = error.code
        self.message = error.message
        self.details = dict(error.details or {})
        super().__init__(f"update {name}: {error.code}: {error.message}")


def run_from_wire(message: pb.Run) -> Run:
    """A run from its message."""
    return Run(
        run_id=message.run_id,
        tenant_id=message.tenant_id,
        workflow_id=message.workflow_id,
        agent_name=message.agent_name,
        agent_version=message.agent_version,
        agent_digest=message.agent_digest,
        state=pb.Run.State.Name(message.state).removeprefix(_STATE_PREFIX),
        waiting_on=message.waiting_on,
        due_us=_time_us(message.due_time) if message.HasField("due_time") else None,
        create_us=_time_us(message.create_time),
        update_us=_time_us(message.update_time),
        end_us=_time_us(message.end_time) if message.HasField("end_time") else None,
        input=message.input,
        result=message.result,
        error=_error_from_wire(message) if message.HasField("error") else None,
        traceparent=message.traceparent,
        epoch=message.epoch,
        input_blob=blob_from_wire(message.input_blob) if message.HasField("input_blob") else None,
        result_blob=blob_from_wire(message.result_blob) if message.HasField("result_blob") else None,
    )


def taken_from_wire(message: journal_pb.SendToRunResponse) -> Taken:
    """What became of an entry, from its message."""
    return Taken(
        number=message.number,
        state=pb.Run.State.Name(message.run_state).removeprefix(_STATE_PREFIX),
        already_ended=message.already_ended,
    )


def state_to_wire(state: str) -> str:
    """The enum value's name of a state (one of STATES); raises InvalidField where there is no such state."""
    if state not in STATES:
        raise InvalidField("states", f"{state!r} must be one of {', '.join(STATES)}")
    return _STATE_PREFIX + state


def event_from_wire(message: pb.Event) -> Event:
    """An event from its message."""
    return Event(
        seq=message.seq,
        kind=message.kind,
        step_id=message.step_id,
        attempt=message.attempt,
        epoch=message.epoch,
        time_us=message.time_us,
        payload=message.payload,
        salt=message.salt,
        digest=message.digest,
        hash=message.hash,
    )


def _error_from_wire(message: pb.Run) -> RunErrorFacts:
    error = message.error
    return RunErrorFacts(
        code=error.code, message=error.message, step_id=error.step_id, details=dict(error.details) or None
    )


def _time_us(time: Timestamp) -> int:
    return time.ToMicroseconds()
