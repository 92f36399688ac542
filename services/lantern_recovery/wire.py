"""Proto messages to domain values and back."""

from lantern.api.executor.v1 import executor_service_pb2 as executor_pb
from lantern.api.journal.v1 import journal_service_pb2 as journal_pb
from lantern.api.journal.v1 import recovery_service_pb2 as journal_recovery_pb
from lantern.api.journal.v1 import worker_service_pb2 as journal_worker_pb
from lantern.api.recovery.v1 import recovery_service_pb2 as recovery_pb
from lantern_kernel.names import ANY_AGENT
from lantern_recovery.application.sweep import PassReport
from lantern_recovery.domain.orphan import Orphan
from lantern_recovery.domain.worker import Worker


def orphan(message: journal_recovery_pb.Orphan) -> Orphan:
    """A run that needs a driver."""
    return Orphan(
        run_id=message.run_id,
        tenant_id=message.tenant_id,
        agent_name=message.agent_name,
        agent_digest=message.agent_digest,
        reason=message.reason,
        failed_digest=message.failed_digest,
        # 0 is a journal that does not know of levels.
        event_level=message.event_level or 1,
        # Empty is a journal that does not know of published agents.
        program_kind=message.program_kind or "code",
    )


def worker(message: journal_recovery_pb.Worker) -> Worker:
    """A worker with a live session."""
    return Worker(
        worker_id=message.worker_id,
        session_number=message.session_number,
        address=message.address,
        capacity=message.capacity,
        lease_count=message.lease_count,
        tenant_id=message.tenant_id,
        agents=frozenset((a.name, a.digest) for a in message.agents if a.name != ANY_AGENT),
        event_level=message.event_level or 1,
        every=frozenset((a.program_kind, a.digest) for a in message.agents if a.name == ANY_AGENT),
    )


def acquire_request(orphan: Orphan, worker: Worker) -> journal_recovery_pb.AcquireLeaseRequest:
    """Asks for the run's lease on the worker's behalf."""
    return journal_recovery_pb.AcquireLeaseRequest(
        run_id=orphan.run_id,
        lease_target=journal_pb.LeaseTarget(worker_id=worker.worker_id, session_number=worker.session_number),
        reason=orphan.reason,
    )


def release_request(orphan: Orphan, worker: Worker, epoch: int) -> journal_worker_pb.ReleaseLeaseRequest:
    """Gives back a lease that its worker refused."""
    return journal_worker_pb.ReleaseLeaseRequest(
        run_id=orphan.run_id,
        epoch=epoch,
        worker_id=worker.worker_id,
        cause=journal_worker_pb.ReleaseLeaseRequest.CAUSE_REFUSED,
    )


def defer_request(run_id: str, delay_s: float | None) -> journal_recovery_pb.DeferRunRequest:
    """Sets a run aside."""
    request = journal_recovery_pb.DeferRunRequest(run_id=run_id)
    if delay_s is not None:
        request.delay.FromMicroseconds(round(delay_s * 1e6))
    return request


def drive_request(orphan: Orphan, worker: Worker, epoch: int) -> executor_pb.DriveRequest:
    """Asks an executor to take a run up."""
    return executor_pb.DriveRequest(
        run_id=orphan.run_id, epoch=epoch, worker_id=worker.worker_id, agent_name=orphan.agent_name
    )


def pass_response(report: PassReport) -> recovery_pb.RunPassResponse:
    """What a pass did."""
    return recovery_pb.RunPassResponse(
        found=report.found, placed=report.placed, lost=report.lost, deferred=report.deferred
    )
