"""Every field of the requests that make runs, or set them back."""

import re

from lantern.api.journal.v1 import journal_service_pb2 as pb
from lantern_journal.validate import fields
from lantern_kernel import names
from lantern_kernel.bounds import SEQ_MAX
from lantern_kernel.errors import InvalidField
from lantern_kernel.payloads import DURABILITIES

_TRACEPARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def create_run(request: pb.CreateRunRequest) -> None:
    """CreateRun."""
    names.check_user_id("request_id", request.request_id)
    fields.tenant(request.tenant_id)
    names.check_user_id("agent_name", request.agent_name)
    fields.content("input", request.input, request.input_blob if request.HasField("input_blob") else None)
    if request.workflow_id:
        names.check_user_id("workflow_id", request.workflow_id)
    if request.workflow_id_policy not in pb.CreateRunRequest.WorkflowIdPolicy.values():
        raise InvalidField("workflow_id_policy", f"{request.workflow_id_policy} is no policy")
    if request.traceparent and not _TRACEPARENT.fullmatch(request.traceparent):
        raise InvalidField("traceparent", "no W3C trace context of version 00: 00-<32 hex>-<16 hex>-<2 hex>")
    if request.HasField("lease_target"):
        fields.lease_target("lease_target", request.lease_target)
    if request.HasField("signal"):
        names.check_user_id("signal.name", request.signal.name)
        fields.content("signal.payload", request.signal.payload, None)
    if request.durability:
        fields.one_of("durability", request.durability, DURABILITIES)
    if request.HasField("parent"):
        _parent(request)


def _parent(request: pb.CreateRunRequest) -> None:
    names.check_run_id("parent.run_id", request.parent.run_id)
    names.check_engine_id("parent.step_id", request.parent.step_id)
    fields.between("parent.epoch", request.parent.epoch, 1, SEQ_MAX)
    if request.workflow_id_policy == pb.CreateRunRequest.WORKFLOW_ID_POLICY_USE_EXISTING:
        raise InvalidField("workflow_id_policy", "a run that is found is nobody's child")


def reset_run(request: pb.ResetRunRequest) -> None:
    """ResetRun."""
    names.check_user_id("request_id", request.request_id)
    names.check_run_id("run_id", request.run_id)
    fields.between("to_seq", request.to_seq, 1, SEQ_MAX)
