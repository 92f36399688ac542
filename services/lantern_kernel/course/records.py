"""The payloads by which a driver records what it begins."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from lantern_kernel import failures, payloads
from lantern_kernel.blobs import Content
from lantern_kernel.commands import CompleteUpdate, RequestApproval
from lantern_kernel.payloads import ApprovalFacts, RunErrorFacts
from lantern_kernel.retry import Failure, RetryLater
from lantern_kernel.work import ChildWork, StepWork


def step_started(work: StepWork, digest: str) -> bytes:
    """Of an attempt; `digest` is that of the code which makes it."""
    command = work.command
    facts = {
        "name": command.name,
        "type": command.type,
        "of": command.retry.max_attempts,
        "keyAttempt": work.key_attempt,
        "key": work.key,
        "inputHash": sha256(command.input).hexdigest(),
        "source": command.source,
        "code": digest,
    }
    return payloads.pack(facts)


def step_retrying(work: StepWork, failure: Failure, decision: RetryLater) -> bytes:
    """Of an attempt that failed and is to be made again."""
    error = failures.printable_error(RunErrorFacts(code=failure.code, message=failure.message))
    facts: Mapping[str, Any] = {
        "of": work.command.retry.max_attempts,
        "error": {"code": error.code, "message": error.message},
        "delayMs": decision.delay_ms,
        "keyAttempt": decision.key_attempt,
        "outcome": failure.outcome,
    }
    return payloads.pack(facts)


def approval_requested(command: RequestApproval, now_us: int, data: Content | None) -> bytes:
    """Of an approval."""
    facts = ApprovalFacts(
        approval_id=command.step_id,
        assignee=command.assignee,
        title=command.title,
        expires_us=None if command.timeout_us is None else now_us + command.timeout_us,
        name=command.name,
        source=command.source,
    )
    return facts.pack(data)


def child_started(work: ChildWork) -> bytes:
    """Of a child."""
    command = work.command
    facts: Mapping[str, Any] = {
        "name": command.name,
        "agent": command.agent_name,
        "workflowId": command.workflow_id,
        "requestId": work.request_id,
        "inputHash": sha256(command.input).hexdigest(),
        "source": command.source,
        "abandon": command.abandon,
    }
    return payloads.pack(facts)


def update_completed(command: CompleteUpdate, data: Content | None) -> bytes:
    """Of the answer to an update."""
    facts: dict[str, Any] = {"source": command.source}
    if command.error is not None:
        facts["error"] = failures.printable_error(command.error).to_facts()
    return payloads.pack(facts, data)
