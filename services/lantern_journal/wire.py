"""Between the protos and the journal's own values. Requests come in validated, but for appends, judged as values."""

from collections.abc import Iterable

from google.protobuf import timestamp_pb2

from lantern.api.error.v1 import error_pb2
from lantern.api.journal.v1 import approval_service_pb2 as approval_pb
from lantern.api.journal.v1 import doctor_service_pb2 as doctor_pb
from lantern.api.journal.v1 import feed_service_pb2 as feed_pb
from lantern.api.journal.v1 import journal_service_pb2 as journal_pb
from lantern.api.journal.v1 import recovery_service_pb2 as recovery_pb
from lantern.api.journal.v1 import run_pb2
from lantern.api.journal.v1 import worker_service_pb2 as worker_pb
from lantern_journal.application.doctor import Changes, Report
from lantern_journal.application.runs import StartRequest
from lantern_journal.domain import feed_cursor
from lantern_journal.domain.appends import Append
from lantern_journal.domain.approvals import Approval, ApprovalState, Decision, Delegation
from lantern_journal.domain.archives import Archive
from lantern_journal.domain.diagnosis import shown
from lantern_journal.domain.family import Parent
from lantern_journal.domain.feed import FeedPage
from lantern_journal.domain.findings import Finding, Severity
from lantern_journal.domain.leases import AgentOffer
from lantern_journal.domain.records import (
    Agent,
    Attach,
    Claim,
    InboxEntry,
    LeaseTarget,
    OpenedRun,
    Orphan,
    ReleaseCause,
    Run,
    SentEntry,
    Settlement,
    SideEffect,
    SideEffectState,
    StartedRun,
    StartSignal,
    Worker,
    WorkflowIdPolicy,
)
from lantern_journal.domain.run_state import RunState
from lantern_kernel.blobs import BlobRef
from lantern_kernel.event import Event, NewEvent
from lantern_kernel.payloads import RunErrorFacts

DEFAULT_TENANT = "default"

_POLICIES = {
    journal_pb.CreateRunRequest.WORKFLOW_ID_POLICY_UNSPECIFIED: WorkflowIdPolicy.ALLOW_AFTER_CLOSE,
    journal_pb.CreateRunRequest.WORKFLOW_ID_POLICY_REJECT: WorkflowIdPolicy.REJECT,
    journal_pb.CreateRunRequest.WORKFLOW_ID_POLICY_USE_EXISTING: WorkflowIdPolicy.USE_EXISTING,
    journal_pb.CreateRunRequest.WORKFLOW_ID_POLICY_ALLOW_AFTER_CLOSE: WorkflowIdPolicy.ALLOW_AFTER_CLOSE,
    journal_pb.CreateRunRequest.WORKFLOW_ID_POLICY_TERMINATE_EXISTING: WorkflowIdPolicy.TERMINATE_EXISTING,
}
_STATES = {
    RunState.QUEUED: run_pb2.Run.STATE_QUEUED,
    RunState.RUNNING: run_pb2.Run.STATE_RUNNING,
    RunState.WAITING: run_pb2.Run.STATE_WAITING,
    RunState.SUCCEEDED: run_pb2.Run.STATE_SUCCEEDED,
    RunState.FAILED: run_pb2.Run.STATE_FAILED,
    RunState.CANCELLED: run_pb2.Run.STATE_CANCELLED,
}
_STATES_BACK = {number: state for state, number in _STATES.items()}
_RELEASE_CAUSES = {
    worker_pb.ReleaseLeaseRequest.CAUSE_UNSPECIFIED: ReleaseCause.DRAIN,
    worker_pb.ReleaseLeaseRequest.CAUSE_DRAIN: ReleaseCause.DRAIN,
    worker_pb.ReleaseLeaseRequest.CAUSE_FAULT: ReleaseCause.FAULT,
    worker_pb.ReleaseLeaseRequest.CAUSE_REFUSED: ReleaseCause.REFUSED,
}
_SIDE_EFFECT_STATES = {
    SideEffectState.CLAIMED: worker_pb.SideEffect.STATE_CLAIMED,
    SideEffectState.DELIVERED: worker_pb.SideEffect.STATE_DELIVERED,
    SideEffectState.REFUSED: worker_pb.SideEffect.STATE_REFUSED,
}
_SIDE_EFFECT_STATES_BACK = {number: state for state, number in _SIDE_EFFECT_STATES.items()}


def tenant(text: str) -> str:
    """The tenant; empty is `default`."""
    return text or DEFAULT_TENANT


def blob_ref(message: run_pb2.Blob) -> BlobRef:
    """The name of a blob."""
    return BlobRef(sha256=message.sha256.hex(), size=message.size)


def blob(ref: BlobRef) -> run_pb2.Blob:
    """The name of a blob."""
    return run_pb2.Blob(sha256=bytes.fromhex(ref.sha256), size=ref.size)


def _blob(ref: BlobRef | None) -> run_pb2.Blob | None:
    return None if ref is None else blob(ref)


def content(inline: bytes, held: run_pb2.Blob | None) -> tuple[bytes, BlobRef | None]:
    """User data where it stands (empty is `null`), or the blob that holds it."""
    return (inline or b"null", None) if held is None else (b"", blob_ref(held))


def start_request(request: journal_pb.CreateRunRequest) -> StartRequest:
    """What to start."""
    given, held = content(request.input, request.input_blob if request.HasField("input_blob") else None)
    return StartRequest(
        request_id=request.request_id,
        tenant_id=tenant(request.tenant_id),
        agent_name=request.agent_name,
        input=given,
        input_blob=held,
        workflow_id=request.workflow_id,
        policy=_POLICIES[request.workflow_id_policy],
        traceparent=request.traceparent,
        target=lease_target(request.lease_target) if request.HasField("lease_target") else None,
        signal=start_signal(request.signal) if request.HasField("signal") else None,
        durability=request.durability or "sync",
        parent=parent(request.parent) if request.HasField("parent") else None,
    )


def parent(message: journal_pb.Parent) -> Parent:
    """Whose child a run is to be."""
    return Parent(run_id=message.run_id, step_id=message.step_id, epoch=message.epoch, abandon=message.abandon)


def start_signal(signal: journal_pb.StartSignal) -> StartSignal:
    """The signal that goes with a start."""
    return StartSignal(name=signal.name, payload=signal.payload or b"null")


def lease_target(target: journal_pb.LeaseTarget) -> LeaseTarget:
    """A worker's session."""
    return LeaseTarget(worker_id=target.worker_id, session_number=target.session_number)


def states(numbers: Iterable[run_pb2.Run.State]) -> tuple[RunState, ...]:
    """States of a filter."""
    return tuple(_STATES_BACK[number] for number in numbers)


def append(request: worker_pb.Append) -> Append:
    """An append."""
    return Append(
        run_id=request.run_id,
        epoch=request.epoch,
        first_seq=request.first_seq,
        previous_digest=request.previous_digest,
        events=tuple(
            NewEvent(event.kind, event.salt, event.step_id, event.attempt, event.payload) for event in request.events
        ),
        consumed_inbox_number=request.consumed_inbox_number,
        append_id=request.append_id,
    )


def attach(request: worker_pb.Attach) -> Attach:
    """A worker that makes itself known."""
    return Attach(
        worker_id=request.worker_id,
        address=request.address,
        capacity=request.capacity,
        offers=tuple(
            AgentOffer(name=offer.name, digest=offer.digest, program_kind=offer.program_kind)
            for offer in request.agents
        ),
        tenant_id=tenant(request.tenant_id),
        draining=request.draining,
        event_level=request.event_level or 1,
    )


def release_cause(number: worker_pb.ReleaseLeaseRequest.Cause) -> ReleaseCause:
    """Why a run is handed back."""
    return _RELEASE_CAUSES[number]


def claim(request: worker_pb.ClaimSideEffectRequest) -> Claim:
    """A claim on a delivery."""
    return Claim(
        key=request.key,
        run_id=request.run_id,
        step_id=request.step_id,
        epoch=request.epoch,
        sink=request.sink,
        worker_id=request.worker_id,
        nonce=request.nonce,
    )


def settlement(request: worker_pb.SettleSideEffectRequest) -> Settlement:
    """How a delivery ended."""
    result, held = content(request.result, request.result_blob if request.HasField("result_blob") else None)
    return Settlement(
        key=request.key,
        state=_SIDE_EFFECT_STATES_BACK[request.state],
        result=result,
        result_blob=held,
        run_id=request.run_id,
        worker_id=request.worker_id,
    )


def side_effect(known: SideEffect) -> worker_pb.SideEffect:
    """What is known of a delivery."""
    return worker_pb.SideEffect(
        key=known.key,
        state=_SIDE_EFFECT_STATES[known.state],
        result=known.result,
        result_blob=_blob(known.result_blob),
    )


def timestamp(us: int) -> timestamp_pb2.Timestamp:
    """Microseconds as a Timestamp."""
    return timestamp_pb2.Timestamp(seconds=us // 1_000_000, nanos=us % 1_000_000 * 1000)


def error(facts: RunErrorFacts) -> error_pb2.RunError:
    """Why a run ended badly or waits."""
    return error_pb2.RunError(
        code=facts.code, message=facts.message, step_id=facts.step_id, details=dict(facts.details or {})
    )


def run(record: Run) -> run_pb2.Run:
    """A run."""
    message = run_pb2.Run(
        run_id=record.run_id,
        tenant_id=record.tenant_id,
        workflow_id=record.workflow_id,
        agent_name=record.agent_name,
        agent_version=record.agent_version,
        agent_digest=record.agent_digest,
        state=_STATES[record.state],
        waiting_on=record.waiting_on,
        create_time=timestamp(record.created_us),
        update_time=timestamp(record.updated_us),
        input=record.input or b"",
        result=record.result or b"",
        traceparent=record.traceparent,
        last_inbox_number=record.inbox_number,
        epoch=record.epoch,
        archived=record.archived,
        input_blob=_blob(record.input_blob),
        result_blob=_blob(record.result_blob),
        durability=record.durability,
        parent_run_id=record.parent_run_id,
        parent_step_id=record.parent_step_id,
        continued_as=record.continued_as,
        continued_from=record.continued_from,
    )
    if record.archive is not None:
        message.archive.CopyFrom(archive(record.archive))
    if record.due_us is not None:
        message.due_time.CopyFrom(timestamp(record.due_us))
    if record.ended_us is not None:
        message.end_time.CopyFrom(timestamp(record.ended_us))
    if record.error is not None:
        message.error.CopyFrom(error(record.error))
    return message


def archive(record: Archive) -> run_pb2.RunArchive:
    """Where an archived run is."""
    return run_pb2.RunArchive(
        file=record.file,
        archive_time=timestamp(record.archived_us),
        event_count=record.event_count,
        head_hash=record.head_hash,
    )


def event(record: Event) -> run_pb2.Event:
    """A journal row."""
    return run_pb2.Event(
        seq=record.seq,
        kind=record.kind,
        step_id=record.step_id,
        attempt=record.attempt,
        epoch=record.epoch,
        time_us=record.time_us,
        payload=record.payload,
        salt=record.salt,
        digest=record.digest,
        hash=record.hash,
    )


def inbox_entry(record: InboxEntry) -> run_pb2.InboxEntry:
    """An inbox entry."""
    return run_pb2.InboxEntry(
        number=record.number,
        kind=record.kind,
        name=record.name,
        payload=record.payload,
        create_time=timestamp(record.created_us),
        payload_blob=_blob(record.payload_blob),
    )


def started(record: StartedRun) -> journal_pb.CreateRunResponse:
    """What became of a start."""
    return journal_pb.CreateRunResponse(
        run=run(record.run), created=record.created, epoch=record.epoch, events=map(event, record.events)
    )


def sent(record: SentEntry) -> journal_pb.SendToRunResponse:
    """What became of an inbox entry."""
    return journal_pb.SendToRunResponse(
        number=record.number,
        repeated_request=record.repeated,
        run_state=_STATES[record.state],
        already_ended=record.already_ended,
    )


def opened(record: OpenedRun, now_us: int) -> worker_pb.OpenRunResponse:
    """What a driver needs to begin."""
    return worker_pb.OpenRunResponse(
        run=run(record.run),
        events=map(event, record.events),
        head_seq=record.head_seq,
        inbox=map(inbox_entry, record.inbox),
        now_us=now_us,
    )


def agent(record: Agent) -> journal_pb.Agent:
    """A version of an agent."""
    return journal_pb.Agent(
        name=record.name,
        version=record.version,
        digest=record.digest,
        program_kind=record.program_kind,
        current=record.is_current,
    )


def orphan(record: Orphan) -> recovery_pb.Orphan:
    """A run that needs a driver."""
    return recovery_pb.Orphan(
        run_id=record.run_id,
        tenant_id=record.tenant_id,
        agent_name=record.agent_name,
        agent_version=record.agent_version,
        agent_digest=record.agent_digest,
        reason=record.reason,
        failed_digest=record.failed_digest,
        event_level=record.event_level,
        program_kind=record.program_kind,
    )


def worker(record: Worker) -> recovery_pb.Worker:
    """A worker with a live session."""
    return recovery_pb.Worker(
        worker_id=record.worker_id,
        session_number=record.session_number,
        address=record.address,
        capacity=record.capacity,
        lease_count=record.lease_count,
        tenant_id=record.tenant_id,
        agents=[
            recovery_pb.WorkerAgent(name=offer.name, digest=offer.digest, program_kind=offer.program_kind)
            for offer in record.offers
        ],
        event_level=record.event_level,
    )


def feed_page(page: FeedPage) -> feed_pb.FollowAllResponse:
    """Events of many runs."""
    return feed_pb.FollowAllResponse(
        entries=[
            feed_pb.FeedEntry(
                run_id=entry.run_id,
                tenant_id=entry.tenant_id,
                events=map(event, entry.events),
                first_seq=entry.first_seq,
                written_count=entry.written,
            )
            for entry in page.entries
        ],
        cursor=feed_cursor.to_token(page.cursor),
    )


_APPROVAL_STATES = {
    ApprovalState.PENDING: approval_pb.Approval.STATE_PENDING,
    ApprovalState.APPROVED: approval_pb.Approval.STATE_APPROVED,
    ApprovalState.DENIED: approval_pb.Approval.STATE_DENIED,
    ApprovalState.EXPIRED: approval_pb.Approval.STATE_EXPIRED,
    ApprovalState.WITHDRAWN: approval_pb.Approval.STATE_WITHDRAWN,
}
_APPROVAL_STATES_BACK = {number: state for state, number in _APPROVAL_STATES.items()}


def approval_states(numbers: Iterable[approval_pb.Approval.State]) -> tuple[ApprovalState, ...]:
    """States of a filter."""
    return tuple(_APPROVAL_STATES_BACK[number] for number in numbers)


def approval(record: Approval) -> approval_pb.Approval:
    """An approval."""
    message = approval_pb.Approval(
        run_id=record.run_id,
        approval_id=record.approval_id,
        tenant_id=record.tenant_id,
        agent_name=record.agent_name,
        workflow_id=record.workflow_id,
        step_id=record.step_id,
        state=_APPROVAL_STATES[record.state],
        assignee=record.assignee,
        title=record.title,
        request_time=timestamp(record.requested_us),
        decided_by=record.decided_by,
        comment=record.comment or b"",
        requested_seq=record.requested_seq,
    )
    if record.expires_us is not None:
        message.expire_time.CopyFrom(timestamp(record.expires_us))
    if record.decided_us is not None:
        message.decide_time.CopyFrom(timestamp(record.decided_us))
    return message


def decision(request: approval_pb.DecideApprovalRequest) -> Decision:
    """A decision."""
    return Decision(
        request_id=request.request_id,
        run_id=request.run_id,
        approval_id=request.approval_id,
        state=_APPROVAL_STATES_BACK[request.decision],
        by=request.decided_by,
        comment=request.comment or None,
    )


def delegation(request: approval_pb.DelegateApprovalRequest) -> Delegation:
    """A delegation."""
    return Delegation(
        request_id=request.request_id,
        run_id=request.run_id,
        approval_id=request.approval_id,
        assignee=request.assignee,
        by=request.delegated_by,
    )


_SEVERITIES = {
    Severity.NOTE: doctor_pb.Finding.SEVERITY_NOTE,
    Severity.FAULT: doctor_pb.Finding.SEVERITY_FAULT,
}


def finding(record: Finding) -> doctor_pb.Finding:
    """A finding of the doctor's."""
    return doctor_pb.Finding(
        severity=_SEVERITIES[record.severity],
        check=record.check.value,
        subject=record.subject,
        message=record.message,
        run_id=record.run_id,
        mendable=record.mendable,
    )


def report(record: Report) -> doctor_pb.CheckInvariantsResponse:
    """What was found."""
    return doctor_pb.CheckInvariantsResponse(
        findings=map(finding, record.findings),
        run_count=record.runs,
        event_count=record.events,
        last_run_id=record.last_run_id,
        complete=record.is_complete,
    )


def projection_changes(record: Changes) -> doctor_pb.RebuildProjectionsResponse:
    """What was set right."""
    return doctor_pb.RebuildProjectionsResponse(
        changes=[
            doctor_pb.ProjectionChange(
                run_id=change.run_id, column=change.column, before=shown(change.before), after=shown(change.after)
            )
            for change in record.changes
        ],
        run_count=record.runs,
        last_run_id=record.last_run_id,
        complete=record.is_complete,
    )
