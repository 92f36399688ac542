"""JournalApprovalService: see its proto for what each RPC promises."""

from typing import Any

from lantern.api.journal.v1 import approval_service_pb2 as pb
from lantern.api.journal.v1 import approval_service_pb2_grpc
from lantern_journal import validate, wire
from lantern_journal.application.approvals import Approvals
from lantern_journal.domain.approvals import ApprovalFilter
from lantern_journal.ports import Store
from lantern_journal.servicer.streams import page_token, position_of
from lantern_kernel.errors import InvalidField

TIME_DIGITS_MAX = 18


class ApprovalServicer(approval_service_pb2_grpc.JournalApprovalServiceServicer):
    """For those who decide."""

    def __init__(self, approvals: Approvals, store: Store) -> None:
        self._approvals, self._store = approvals, store

    async def ListApprovals(self, request: pb.ListApprovalsRequest, context: Any) -> pb.ListApprovalsResponse:
        """Returns approvals by pages."""
        size = validate.list_approvals(request)
        wanted = ApprovalFilter(
            tenant_id=wire.tenant(request.tenant_id),
            states=wire.approval_states(request.states),
            assignee=request.assignee,
            run_id=request.run_id,
        )
        found = await self._store.list_approvals(wanted, _after(request.page_token), size + 1)
        page = found[:size]
        more = len(found) > size
        token = page_token(page[-1].requested_us, page[-1].run_id, page[-1].approval_id) if more else ""
        return pb.ListApprovalsResponse(approvals=map(wire.approval, page), next_page_token=token)

    async def DecideApproval(self, request: pb.DecideApprovalRequest, context: Any) -> pb.DecideApprovalResponse:
        """Approves or denies."""
        validate.decide_approval(request)
        decided = await self._approvals.decide(wire.decision(request))
        return pb.DecideApprovalResponse(
            approval=wire.approval(decided.approval), already_decided=decided.already_decided
        )

    async def DelegateApproval(self, request: pb.DelegateApprovalRequest, context: Any) -> pb.DelegateApprovalResponse:
        """Gives an approval to somebody else."""
        validate.delegate_approval(request)
        decided = await self._approvals.delegate(wire.delegation(request))
        return pb.DelegateApprovalResponse(approval=wire.approval(decided.approval))


def _after(token: str) -> tuple[int, str, str]:
    position = position_of(token, 3)
    if position is None:
        return 0, "", ""
    time_us, run_id, approval_id = position
    if not (time_us.isascii() and time_us.isdigit() and len(time_us) <= TIME_DIGITS_MAX):
        raise InvalidField("page_token", "is none that this service has given")
    return int(time_us), run_id, approval_id
