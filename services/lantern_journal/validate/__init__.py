"""Every field of every request: what is not acceptable is refused with the path of the field."""

import re
from collections.abc import Mapping
from typing import cast

from google.protobuf import duration_pb2

from lantern.api.journal.v1 import approval_service_pb2 as approval_pb
from lantern.api.journal.v1 import blob_service_pb2 as blob_pb
from lantern.api.journal.v1 import doctor_service_pb2 as doctor_pb
from lantern.api.journal.v1 import feed_service_pb2 as feed_pb
from lantern.api.journal.v1 import journal_service_pb2 as journal_pb
from lantern.api.journal.v1 import recovery_service_pb2 as recovery_pb
from lantern.api.journal.v1 import run_pb2
from lantern.api.journal.v1 import worker_service_pb2 as worker_pb
from lantern_journal.domain import run_state
from lantern_journal.domain.appends import Append
from lantern_journal.validate import fields
from lantern_journal.validate.agents import PUBLISHED_KINDS
from lantern_kernel import json_bytes, kinds, names, payloads, reasons
from lantern_kernel.bounds import (
    AGENTS_PER_SESSION_MAX,
    APPROVAL_TITLE_CHARACTERS_MAX,
    AWAITED_SIGNALS_MAX,
    BLOB_CHUNK_BYTES_MAX,
    BLOBS_PER_QUESTION_MAX,
    EVENT_PAYLOAD_BYTES_MAX,
    EVENTS_PER_APPEND_MAX,
    INBOX_ENTRIES_MAX,
    PAGE_ROWS_DEFAULT,
    PAGE_ROWS_MAX,
    PAYLOAD_INLINE_BYTES_MAX,
    SEQ_MAX,
)
from lantern_kernel.chain import DIGEST_BYTES, SALT_BYTES
from lantern_kernel.errors import InvalidField, LanternError
from lantern_kernel.event import NewEvent

ORPHANS_DEFAULT = 20
CAPACITY_MAX = 1_000_000
EVENT_LEVEL_MAX = 1_000_000
ADDRESS_LENGTH_MAX = 300
APPENDS_PER_MESSAGE_MAX = 10_000
DEFER_S_MAX = 86_400
NONCE_BYTES = 16
PROGRAM_KINDS = ("code", "graph", "llm")
GRANT_REASONS = ("start", "crash", "timer", "signal", "approval", "upgrade")
INBOX_KINDS = (run_state.SIGNAL, run_state.UPDATE, run_state.CANCEL, run_state.PAUSE, run_state.RESUME)
"""What anybody may send; the other kinds are the journal's own."""


_DIGEST_HEX = re.compile(r"[0-9a-f]{64}")
_ADDRESS = re.compile(r"[!-~]+:[0-9]{1,5}")


def list_runs(request: journal_pb.ListRunsRequest) -> int:
    """ListRuns; the page size."""
    fields.tenant(request.tenant_id)
    for index, state in enumerate(request.states):
        if state == run_pb2.Run.STATE_UNSPECIFIED or state not in run_pb2.Run.State.values():
            raise InvalidField(f"states[{index}]", f"{state} is no state")
    if request.workflow_id:
        names.check_user_id("workflow_id", request.workflow_id)
    if request.agent_name:
        names.check_user_id("agent_name", request.agent_name)
    return fields.page_size(request.page_size, PAGE_ROWS_DEFAULT)


def list_events(request: journal_pb.ListEventsRequest) -> int:
    """ListEvents; the page size."""
    names.check_run_id("run_id", request.run_id)
    fields.between("after_seq", request.after_seq, 0, SEQ_MAX)
    return fields.page_size(request.page_size, PAGE_ROWS_MAX)


def follow_events(request: journal_pb.FollowEventsRequest) -> None:
    """FollowEvents."""
    names.check_run_id("run_id", request.run_id)
    fields.between("after_seq", request.after_seq, 0, SEQ_MAX)


def send_to_run(request: journal_pb.SendToRunRequest) -> None:
    """SendToRun."""
    names.check_user_id("request_id", request.request_id)
    names.check_run_id("run_id", request.run_id)
    fields.one_of("kind", request.kind, INBOX_KINDS)
    if request.kind in (run_state.SIGNAL, run_state.UPDATE):
        names.check_user_id("name", request.name)
    elif request.name:
        raise InvalidField("name", f"a {request.kind} has no name")
    fields.content("payload", request.payload, request.payload_blob if request.HasField("payload_blob") else None)


def list_approvals(request: approval_pb.ListApprovalsRequest) -> int:
    """ListApprovals; the page size."""
    fields.tenant(request.tenant_id)
    for index, state in enumerate(request.states):
        if state == approval_pb.Approval.STATE_UNSPECIFIED or state not in approval_pb.Approval.State.values():
            raise InvalidField(f"states[{index}]", f"{state} is no state")
    if request.assignee:
        names.check_user_id("assignee", request.assignee)
    if request.run_id:
        names.check_run_id("run_id", request.run_id)
    return fields.page_size(request.page_size, PAGE_ROWS_DEFAULT)


def decide_approval(request: approval_pb.DecideApprovalRequest) -> None:
    """DecideApproval."""
    names.check_user_id("request_id", request.request_id)
    names.check_run_id("run_id", request.run_id)
    names.check_engine_id("approval_id", request.approval_id)
    if request.decision not in (approval_pb.Approval.STATE_APPROVED, approval_pb.Approval.STATE_DENIED):
        raise InvalidField("decision", "is neither APPROVED nor DENIED")
    names.check_user_id("decided_by", request.decided_by)
    fields.content("comment", request.comment, None)


def delegate_approval(request: approval_pb.DelegateApprovalRequest) -> None:
    """DelegateApproval."""
    names.check_user_id("request_id", request.request_id)
    names.check_run_id("run_id", request.run_id)
    names.check_engine_id("approval_id", request.approval_id)
    names.check_user_id("assignee", request.assignee)
    names.check_user_id("delegated_by", request.delegated_by)


def list_agents(request: journal_pb.ListAgentsRequest) -> int:
    """ListAgents; the page size."""
    fields.tenant(request.tenant_id)
    return fields.page_size(request.page_size, PAGE_ROWS_DEFAULT)


def follow_all(request: feed_pb.FollowAllRequest) -> None:
    """FollowAll."""
    fields.tenant(request.tenant_id)
    if request.start not in feed_pb.FollowAllRequest.Start.values():
        raise InvalidField("start", f"{request.start} is no start")
    if request.cursor and request.start:
        raise InvalidField("start", "a cursor says where to begin")


def doctor(request: doctor_pb.CheckInvariantsRequest | doctor_pb.RebuildProjectionsRequest) -> None:
    """CheckInvariants, RebuildProjections."""
    for field in ("run_id", "after_run_id"):
        if getattr(request, field):
            names.check_run_id(field, getattr(request, field))
    if request.run_id and request.after_run_id:
        raise InvalidField("after_run_id", "one run is asked for")


def consumer_name(name: str) -> None:
    """GetFeedConsumer, CommitFeedConsumer."""
    names.check_user_id("name", name)


def attach(request: worker_pb.Attach) -> None:
    """The first message of a session."""
    names.check_user_id("attach.worker_id", request.worker_id)
    if len(request.address) > ADDRESS_LENGTH_MAX or not _ADDRESS.fullmatch(request.address):
        raise InvalidField("attach.address", "no host:port")
    fields.between("attach.capacity", request.capacity, 1, CAPACITY_MAX)
    fields.between("attach.event_level", request.event_level, 0, EVENT_LEVEL_MAX)
    if len(request.agents) > AGENTS_PER_SESSION_MAX:
        raise InvalidField("attach.agents", f"{len(request.agents)} are more than {AGENTS_PER_SESSION_MAX}")
    if request.tenant_id:
        names.check_user_id("attach.tenant_id", request.tenant_id)
    seen: set[tuple[str, str]] = set()
    for index, offer in enumerate(request.agents):
        path = f"attach.agents[{index}]"
        if offer.name != names.ANY_AGENT:
            names.check_user_id(f"{path}.name", offer.name)
        elif offer.program_kind not in PUBLISHED_KINDS:
            raise InvalidField(
                f"{path}.name", f"is {offer.name!r}, for agents of {' and '.join(PUBLISHED_KINDS)} alone"
            )
        if not _DIGEST_HEX.fullmatch(offer.digest):
            raise InvalidField(f"{path}.digest", "no SHA-256 in 64 lower-case hexadecimal digits")
        fields.one_of(f"{path}.program_kind", offer.program_kind, PROGRAM_KINDS)
        if (offer.name, offer.digest) in seen:
            raise InvalidField(path, "is offered twice")
        seen.add((offer.name, offer.digest))


def session_message(request: worker_pb.SessionRequest, *, is_first: bool) -> None:
    """What a session's message may hold; each append is judged by `append`, and refused alone."""
    if is_first and not request.HasField("attach"):
        raise LanternError(reasons.SESSION_NOT_ATTACHED, "the first message of a session attaches", field="attach")
    if not is_first and request.HasField("attach"):
        raise InvalidField("attach", "stands only in the first message; open another stream to attach again")
    if len(request.appends) > APPENDS_PER_MESSAGE_MAX:
        raise InvalidField("appends", f"{len(request.appends)} are more than {APPENDS_PER_MESSAGE_MAX}")


def keep_session(request: worker_pb.KeepSessionRequest) -> None:
    """KeepSession."""
    names.check_user_id("worker_id", request.worker_id)
    if request.session_number < 1:
        raise InvalidField("session_number", "sessions are numbered from 1")
    if request.ping < 1:
        raise InvalidField("ping", "pings are numbered from 1")


def append(path: str, append: Append) -> None:
    """An append, at that path."""
    try:
        _append(append)
    except InvalidField as error:
        raise error.below(path) from None


def _append(append: Append) -> None:
    names.check_run_id("run_id", append.run_id)
    fields.between("epoch", append.epoch, 1, SEQ_MAX)
    fields.between("first_seq", append.first_seq, 1, SEQ_MAX)
    if len(append.previous_digest) != DIGEST_BYTES:
        raise InvalidField("previous_digest", f"{len(append.previous_digest)} bytes, not {DIGEST_BYTES}")
    count = len(append.events)
    if not 1 <= count <= EVENTS_PER_APPEND_MAX:
        raise InvalidField("events", f"{count} events are not 1 to {EVENTS_PER_APPEND_MAX}")
    if append.first_seq > SEQ_MAX - count:
        raise InvalidField("first_seq", f"{append.first_seq} leaves no room for {count} events")
    fields.between("consumed_inbox_number", append.consumed_inbox_number, 0, SEQ_MAX)
    index = 0
    try:
        for index, event in enumerate(append.events):
            _event(event, is_last=index == count - 1)
            if append.blobs and (named := payloads.named_blob(event.payload)) is not None:
                fields.blob_size("payload.blob", named.size)
    except InvalidField as error:
        raise error.below(f"events[{index}]") from None


def _event(event: NewEvent, *, is_last: bool) -> None:
    kind = event.kind
    if kind not in kinds.KNOWN and not names.EVENT_KIND.fullmatch(kind):
        raise InvalidField("kind", f"{kind[:64]!r} is no kind of event")
    if kind in kinds.JOURNAL_OWN:
        raise InvalidField("kind", f"only the journal writes {kind}")
    if kind in kinds.ENDS_DRIVE and not is_last:
        raise InvalidField("kind", f"nothing may follow {kind}")
    if event.step_id:
        names.check_engine_id("step_id", event.step_id)
    if event.attempt < 0:
        raise InvalidField("attempt", f"{event.attempt} is negative")
    fields.size("payload", event.payload, EVENT_PAYLOAD_BYTES_MAX)
    if len(event.salt) != SALT_BYTES:
        raise InvalidField("salt", f"{len(event.salt)} bytes, not {SALT_BYTES}")
    if kind in kinds.READ_BY_JOURNAL:
        _read_by_journal("payload", kind, event.payload)


def _read_by_journal(path: str, kind: str, payload: bytes) -> None:
    """The few payloads that are not opaque to the journal."""
    try:
        content = payloads.unpack(payload)
    except (LanternError, RecursionError):
        raise InvalidField(path, f"is not readable as the payload of {kind}") from None
    facts = content.facts
    json_bytes.check_value(dict(facts), path)
    if kind == kinds.RUN_PARKED:
        _park(path, facts)
    elif kind == kinds.APPROVAL_REQUESTED:
        _approval(path, facts)
    elif kind == kinds.RUN_SUCCEEDED:
        if content.content is None:
            raise InvalidField(path, "run_succeeded has no data, which is the result")
        if content.data is not None:
            json_bytes.check(content.data, f"{path}.data", bytes_max=PAYLOAD_INLINE_BYTES_MAX)
        _carry(f"{path}.carry", facts.get("carry", []))
    elif kind == kinds.RUN_FAILED and not isinstance(facts.get("code"), str):
        raise InvalidField(path, "run_failed names no code")
    elif kind in kinds.FROM_INBOX:
        number = facts.get("number")
        if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= SEQ_MAX:
            raise InvalidField(f"{path}.number", "is no number of an inbox entry")


def _carry(path: str, places: object) -> None:
    """The signals that a run takes along which goes on as a new one."""
    if not isinstance(places, list) or len(cast("list[object]", places)) > INBOX_ENTRIES_MAX:
        raise InvalidField(path, f"is no list of at most {INBOX_ENTRIES_MAX} places")
    for index, place in enumerate(cast("list[object]", places)):
        if not isinstance(place, int) or isinstance(place, bool) or not 1 <= place <= SEQ_MAX:
            raise InvalidField(f"{path}[{index}]", "is no place of an event")


def _park(path: str, facts: Mapping[str, object]) -> None:
    on, due_us = facts.get("on"), facts.get("dueUs")
    if not isinstance(on, str) or on not in payloads.WAITING_ON:
        raise InvalidField(f"{path}.on", f"is none of {', '.join(sorted(payloads.WAITING_ON))}")
    _time(f"{path}.dueUs", due_us)
    if on == "timer" and due_us is None:
        raise InvalidField(f"{path}.dueUs", "a run that waits for a timer says when it is due")
    error = facts.get("error")
    if error is not None and not isinstance(error, dict):
        raise InvalidField(f"{path}.error", "is no object")
    signals = facts.get("signals", [])
    if not isinstance(signals, list) or len(cast("list[object]", signals)) > AWAITED_SIGNALS_MAX:
        raise InvalidField(f"{path}.signals", f"is no list of at most {AWAITED_SIGNALS_MAX} names")
    for index, name in enumerate(cast("list[object]", signals)):
        names.check_user_id(f"{path}.signals[{index}]", name if isinstance(name, str) else "")
    if not isinstance(facts.get("nothingToCompensate", False), bool):
        raise InvalidField(f"{path}.nothingToCompensate", "is neither true nor false")
    if "before" in facts:
        raise InvalidField(f"{path}.before", "only the journal says what a run waited on before")


def _approval(path: str, facts: Mapping[str, object]) -> None:
    approval_id, assignee, title = (facts.get(name, "") for name in ("approvalId", "assignee", "title"))
    names.check_engine_id(f"{path}.approvalId", approval_id if isinstance(approval_id, str) else "")
    if assignee != "":
        names.check_user_id(f"{path}.assignee", assignee if isinstance(assignee, str) else "")
    if not isinstance(title, str) or len(title) > APPROVAL_TITLE_CHARACTERS_MAX or "\x00" in title:
        raise InvalidField(f"{path}.title", f"is no text of at most {APPROVAL_TITLE_CHARACTERS_MAX} characters")
    _time(f"{path}.expiresUs", facts.get("expiresUs"))


def _time(path: str, value: object) -> None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= SEQ_MAX):
        raise InvalidField(path, "is no time in microseconds")


def open_run(request: worker_pb.OpenRunRequest) -> None:
    """OpenRun."""
    names.check_run_id("run_id", request.run_id)
    fields.between("epoch", request.epoch, 1, SEQ_MAX)
    fields.lease_target("lease_target", request.lease_target)


def list_inbox(request: worker_pb.ListInboxRequest) -> int:
    """ListInbox; the page size."""
    names.check_run_id("run_id", request.run_id)
    fields.between("after_number", request.after_number, 0, SEQ_MAX)
    return fields.page_size(request.page_size, PAGE_ROWS_MAX)


def release_lease(request: worker_pb.ReleaseLeaseRequest) -> None:
    """ReleaseLease."""
    names.check_run_id("run_id", request.run_id)
    fields.between("epoch", request.epoch, 1, SEQ_MAX)
    names.check_user_id("worker_id", request.worker_id)
    if request.cause not in worker_pb.ReleaseLeaseRequest.Cause.values():
        raise InvalidField("cause", f"{request.cause} is no cause")


def claim(request: worker_pb.ClaimSideEffectRequest) -> None:
    """ClaimSideEffect."""
    names.check_user_id("key", request.key)
    names.check_run_id("run_id", request.run_id)
    names.check_engine_id("step_id", request.step_id)
    fields.between("epoch", request.epoch, 1, SEQ_MAX)
    names.check_user_id("sink", request.sink)
    names.check_user_id("worker_id", request.worker_id)
    if len(request.nonce) != NONCE_BYTES:
        raise InvalidField("nonce", f"{len(request.nonce)} bytes, not {NONCE_BYTES}")


def settle(request: worker_pb.SettleSideEffectRequest) -> None:
    """SettleSideEffect."""
    names.check_user_id("key", request.key)
    if request.state not in (worker_pb.SideEffect.STATE_DELIVERED, worker_pb.SideEffect.STATE_REFUSED):
        raise InvalidField("state", "is neither DELIVERED nor REFUSED")
    fields.content("result", request.result, request.result_blob if request.HasField("result_blob") else None)
    names.check_run_id("run_id", request.run_id)
    names.check_user_id("worker_id", request.worker_id)


def find_orphans(request: recovery_pb.FindOrphansRequest) -> int:
    """FindOrphans; how many."""
    return fields.page_size(request.page_size, ORPHANS_DEFAULT)


def acquire_lease(request: recovery_pb.AcquireLeaseRequest) -> None:
    """AcquireLease."""
    names.check_run_id("run_id", request.run_id)
    fields.lease_target("lease_target", request.lease_target)
    fields.one_of("reason", request.reason, GRANT_REASONS)


def defer_run(request: recovery_pb.DeferRunRequest) -> int | None:
    """DeferRun; the delay in microseconds."""
    names.check_run_id("run_id", request.run_id)
    if not request.HasField("delay"):
        return None
    delay: duration_pb2.Duration = request.delay
    if not 0 <= delay.nanos < 1_000_000_000 or not 0 <= delay.seconds <= DEFER_S_MAX:
        raise InvalidField("delay", f"is not between 0 and {DEFER_S_MAX} s")
    return delay.seconds * 1_000_000 + delay.nanos // 1000


def put_blob(request: blob_pb.PutBlobRequest, *, is_first: bool) -> None:
    """A message of an upload."""
    if is_first:
        if not request.HasField("declaration"):
            raise InvalidField("declaration", "the first message declares what will follow")
        fields.tenant(request.declaration.tenant_id)
        fields.blob("declaration.blob", request.declaration.blob)
    elif request.HasField("declaration"):
        raise InvalidField("declaration", "stands only in the first message")
    fields.size("data", request.data, BLOB_CHUNK_BYTES_MAX)


def get_blob(request: blob_pb.GetBlobRequest) -> None:
    """GetBlob."""
    fields.tenant(request.tenant_id)
    fields.blob("blob", request.blob)
    fields.between("offset", request.offset, 0, request.blob.size)


def has_blobs(request: blob_pb.HasBlobsRequest) -> None:
    """HasBlobs."""
    fields.tenant(request.tenant_id)
    if len(request.blobs) > BLOBS_PER_QUESTION_MAX:
        raise InvalidField("blobs", f"{len(request.blobs)} are more than {BLOBS_PER_QUESTION_MAX}")
    for index, named in enumerate(request.blobs):
        fields.blob(f"blobs[{index}]", named)
