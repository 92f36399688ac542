"""Proto messages to domain values and back."""

from collections.abc import Iterable
from typing import Any

from lantern.api.error.v1 import error_pb2
from lantern.api.executor.v1 import executor_service_pb2 as executor_pb
from lantern.api.journal.v1 import journal_service_pb2 as journal_pb
from lantern.api.journal.v1 import run_pb2
from lantern.api.journal.v1 import worker_service_pb2 as worker_pb
from lantern.client.blobs import blob_from_wire, blob_to_wire
from lantern_executor.domain.run import CreatedRun, HandBack, Offer, OpenedRun, Run, RunEnd, StartRequest, StartSignal
from lantern_executor.domain.step import SideEffect
from lantern_executor.domain.tail import Append
from lantern_kernel.blobs import BlobRef
from lantern_kernel.event import Event
from lantern_kernel.inbox import InboxEntry
from lantern_kernel.payloads import RunErrorFacts

_STATE = "STATE_"


def from_blob(blob: BlobRef | None) -> run_pb2.Blob | None:
    """The name of a blob, where there is one."""
    return None if blob is None else blob_to_wire(blob)


def _blob(message: Any, field: str) -> BlobRef | None:
    return blob_from_wire(getattr(message, field)) if message.HasField(field) else None


def to_event(message: run_pb2.Event) -> Event:
    """An event."""
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


def to_events(messages: Iterable[run_pb2.Event]) -> tuple[Event, ...]:
    """Events."""
    return tuple(to_event(message) for message in messages)


def to_entry(message: run_pb2.InboxEntry) -> InboxEntry:
    """An inbox entry."""
    return InboxEntry(
        number=message.number,
        kind=message.kind,
        name=message.name,
        payload=message.payload,
        payload_blob=_blob(message, "payload_blob"),
    )


def to_run(message: run_pb2.Run) -> Run:
    """A run."""
    error = message.error if message.HasField("error") else None
    return Run(
        run_id=message.run_id,
        tenant_id=message.tenant_id,
        workflow_id=message.workflow_id,
        agent_name=message.agent_name,
        agent_version=message.agent_version,
        agent_digest=message.agent_digest,
        state=run_pb2.Run.State.Name(message.state).removeprefix(_STATE),
        waiting_on=message.waiting_on,
        due_us=message.due_time.ToMicroseconds() if message.HasField("due_time") else None,
        created_us=message.create_time.ToMicroseconds(),
        updated_us=message.update_time.ToMicroseconds(),
        ended_us=message.end_time.ToMicroseconds() if message.HasField("end_time") else None,
        input=message.input,
        result=message.result,
        error=None
        if error is None
        else RunErrorFacts(
            code=error.code, message=error.message, step_id=error.step_id, details=dict(error.details) or None
        ),
        traceparent=message.traceparent,
        last_inbox_number=message.last_inbox_number,
        epoch=message.epoch,
        input_blob=_blob(message, "input_blob"),
        result_blob=_blob(message, "result_blob"),
    )


def from_run(run: Run) -> run_pb2.Run:
    """A run."""
    message = run_pb2.Run(
        run_id=run.run_id,
        tenant_id=run.tenant_id,
        workflow_id=run.workflow_id,
        agent_name=run.agent_name,
        agent_version=run.agent_version,
        agent_digest=run.agent_digest,
        state=_STATE + run.state,
        waiting_on=run.waiting_on,
        input=run.input,
        result=run.result,
        traceparent=run.traceparent,
        last_inbox_number=run.last_inbox_number,
        epoch=run.epoch,
        input_blob=from_blob(run.input_blob),
        result_blob=from_blob(run.result_blob),
    )
    message.create_time.FromMicroseconds(run.created_us)
    message.update_time.FromMicroseconds(run.updated_us)
    if run.due_us is not None:
        message.due_time.FromMicroseconds(run.due_us)
    if run.ended_us is not None:
        message.end_time.FromMicroseconds(run.ended_us)
    if run.error is not None:
        message.error.CopyFrom(_from_error(run.error))
    return message


def _from_error(error: RunErrorFacts) -> error_pb2.RunError:
    return error_pb2.RunError(
        code=error.code, message=error.message, step_id=error.step_id, details=dict(error.details or {})
    )


def from_end(end: RunEnd | None) -> executor_pb.RunEnd | None:
    """How a run ended, where it has."""
    if end is None:
        return None
    return executor_pb.RunEnd(
        state=_STATE + end.state,
        result=end.result,
        result_blob=from_blob(end.result_blob),
        error=None if end.error is None else _from_error(end.error),
    )


def to_start(message: executor_pb.StartRunRequest) -> StartRequest:
    """What is to be started, with the documented defaults filled in."""
    blob = _blob(message, "input_blob")
    return StartRequest(
        request_id=message.request_id,
        tenant_id=message.tenant_id or "default",
        agent_name=message.agent_name,
        input=b"" if blob is not None else message.input or b"null",
        input_blob=blob,
        workflow_id=message.workflow_id,
        workflow_id_policy=message.workflow_id_policy,
        traceparent=message.traceparent,
        signal=StartSignal(name=message.signal.name, payload=message.signal.payload)
        if message.HasField("signal")
        else None,
        durability=message.durability,
    )


def from_start(request: StartRequest, lease_target: journal_pb.LeaseTarget | None) -> journal_pb.CreateRunRequest:
    """The journal's form of a start."""
    return journal_pb.CreateRunRequest(
        request_id=request.request_id,
        tenant_id=request.tenant_id,
        agent_name=request.agent_name,
        input=request.input,
        input_blob=from_blob(request.input_blob),
        workflow_id=request.workflow_id,
        workflow_id_policy=journal_pb.CreateRunRequest.WorkflowIdPolicy.Name(request.workflow_id_policy),
        traceparent=request.traceparent,
        lease_target=lease_target,
        signal=None
        if request.signal is None
        else journal_pb.StartSignal(name=request.signal.name, payload=request.signal.payload),
        parent=None
        if request.parent is None
        else journal_pb.Parent(
            run_id=request.parent.run_id,
            step_id=request.parent.step_id,
            epoch=request.parent.epoch,
            abandon=request.parent.abandon,
        ),
        durability=request.durability,
    )


def to_created(message: journal_pb.CreateRunResponse) -> CreatedRun:
    """What the journal answered to a start."""
    return CreatedRun(
        run=to_run(message.run), created=message.created, epoch=message.epoch, events=to_events(message.events)
    )


def to_opened(message: worker_pb.OpenRunResponse) -> OpenedRun:
    """What a drive begins with."""
    return OpenedRun(
        run=to_run(message.run),
        events=to_events(message.events),
        head_seq=message.head_seq,
        inbox=tuple(to_entry(entry) for entry in message.inbox),
        now_us=message.now_us,
    )


def add_append(message: worker_pb.SessionRequest, append_id: int, append: Append) -> None:
    """Adds an append to a message. Where that fails, a part of it may stand there."""
    added = message.appends.add(
        append_id=append_id,
        run_id=append.run_id,
        epoch=append.epoch,
        first_seq=append.first_seq,
        previous_digest=append.previous_digest,
        consumed_inbox_number=append.consumed_inbox_number,
    )
    for kind, salt, step_id, attempt, payload in append.events:
        added.events.add(kind=kind, step_id=step_id, attempt=attempt, payload=payload, salt=salt)


def from_hand_back(cause: HandBack) -> worker_pb.ReleaseLeaseRequest.Cause:
    """Why a run is handed back."""
    match cause:
        case HandBack.DRAIN:
            return worker_pb.ReleaseLeaseRequest.CAUSE_DRAIN
        case HandBack.FAULT:
            return worker_pb.ReleaseLeaseRequest.CAUSE_FAULT


def from_offers(offers: Iterable[Offer]) -> list[worker_pb.AgentOffer]:
    """What a worker offers."""
    return [
        worker_pb.AgentOffer(name=offer.name, digest=offer.digest, program_kind=offer.program_kind) for offer in offers
    ]


def to_side_effect(message: worker_pb.ClaimSideEffectResponse) -> SideEffect:
    """What is known of a claimed delivery."""
    state = worker_pb.SideEffect.State.Name(message.side_effect.state).removeprefix(_STATE).lower()
    return SideEffect(
        claimed=message.claimed,
        state=state,
        result=message.side_effect.result,
        result_blob=_blob(message.side_effect, "result_blob"),
    )
