"""Runs, approvals and events as JSON for programs: what `--json` prints. Names as in the API, times RFC 3339 in UTC."""

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any

from lantern.client.approval import Approval
from lantern.client.run import Run, Taken
from lantern_kernel import payloads
from lantern_kernel.blobs import BlobRef
from lantern_kernel.errors import LanternError
from lantern_kernel.event import Event

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def run_value(run: Run) -> dict[str, Any]:
    """A run; what it does not have is left out."""
    value: dict[str, Any] = {
        "runId": run.run_id,
        "tenantId": run.tenant_id,
        "workflowId": run.workflow_id,
        "agentName": run.agent_name,
        "agentVersion": run.agent_version,
        "agentDigest": run.agent_digest,
        "state": run.state,
        "waitingOn": run.waiting_on,
        "createTime": time_text(run.create_us),
        "updateTime": time_text(run.update_us),
        "epoch": run.epoch,
        "traceparent": run.traceparent,
    }
    if run.due_us is not None:
        value["dueTime"] = time_text(run.due_us)
    if run.end_us is not None:
        value["endTime"] = time_text(run.end_us)
    if run.input_blob is not None:
        value["inputBlob"] = _blob(run.input_blob)
    if run.result_blob is not None:
        value["resultBlob"] = _blob(run.result_blob)
    if run.input:
        value["input"] = _data(run.input)
    if run.result:
        value["result"] = _data(run.result)
    if run.error is not None:
        value["error"] = run.error.to_facts()
    return value


def taken_value(run_id: str, taken: Taken) -> dict[str, Any]:
    """What became of something that was said to a run."""
    value: dict[str, Any] = {"runId": run_id, "number": taken.number, "state": taken.state}
    if taken.already_ended:
        value["alreadyEnded"] = True
    return value


def approval_value(approval: Approval) -> dict[str, Any]:
    """An approval; what it does not have is left out."""
    value: dict[str, Any] = {
        "runId": approval.run_id,
        "approvalId": approval.approval_id,
        "tenantId": approval.tenant_id,
        "agentName": approval.agent_name,
        "workflowId": approval.workflow_id,
        "stepId": approval.step_id,
        "state": approval.state,
        "assignee": approval.assignee,
        "title": approval.title,
        "requestTime": time_text(approval.request_us),
    }
    if approval.expire_us is not None:
        value["expireTime"] = time_text(approval.expire_us)
    if approval.decide_us is not None:
        value["decideTime"] = time_text(approval.decide_us)
        value["decidedBy"] = approval.decided_by
    if approval.comment:
        value["comment"] = _data(approval.comment)
    return value


def event_value(event: Event) -> dict[str, Any]:
    """An event: the engine's facts and the user's data apart; a payload that is not readable as base64."""
    value: dict[str, Any] = {
        "seq": event.seq,
        "kind": event.kind,
        "stepId": event.step_id,
        "attempt": event.attempt,
        "epoch": event.epoch,
        "timeUs": event.time_us,
    }
    try:
        unpacked = payloads.unpack(event.payload)
    except LanternError:
        value["payloadBase64"] = base64.b64encode(event.payload).decode()
        return value
    value["facts"] = dict(unpacked.facts)
    if unpacked.data is not None:
        value["data"] = _data(unpacked.data)
    if unpacked.blob is not None:
        value["blob"] = _blob(unpacked.blob)
    return value


def dump(value: object) -> str:
    """On one line; characters as they are, but for what a terminal or a pipe cannot carry."""
    return json.dumps(value, ensure_ascii=False).encode(errors="replace").decode()


def time_text(us: int) -> str:
    """RFC 3339 with microseconds, in UTC."""
    return (_EPOCH + timedelta(microseconds=us)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _blob(blob: BlobRef) -> dict[str, Any]:
    return {"sha256": blob.sha256, "size": blob.size}


def _data(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except ValueError:
        return {"base64": base64.b64encode(raw).decode()}
