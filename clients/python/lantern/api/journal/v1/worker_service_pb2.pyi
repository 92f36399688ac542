import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.rpc import status_pb2 as _status_pb2
from lantern.api.journal.v1 import journal_service_pb2 as _journal_service_pb2
from lantern.api.journal.v1 import run_pb2 as _run_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SessionRequest(_message.Message):
    __slots__ = ("attach", "appends", "ping", "starts")
    ATTACH_FIELD_NUMBER: _ClassVar[int]
    APPENDS_FIELD_NUMBER: _ClassVar[int]
    PING_FIELD_NUMBER: _ClassVar[int]
    STARTS_FIELD_NUMBER: _ClassVar[int]
    attach: Attach
    appends: _containers.RepeatedCompositeFieldContainer[Append]
    ping: int
    starts: _containers.RepeatedCompositeFieldContainer[Start]
    def __init__(self, attach: _Optional[_Union[Attach, _Mapping]] = ..., appends: _Optional[_Iterable[_Union[Append, _Mapping]]] = ..., ping: _Optional[int] = ..., starts: _Optional[_Iterable[_Union[Start, _Mapping]]] = ...) -> None: ...

class Start(_message.Message):
    __slots__ = ("start_id", "request")
    START_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    start_id: int
    request: _journal_service_pb2.CreateRunRequest
    def __init__(self, start_id: _Optional[int] = ..., request: _Optional[_Union[_journal_service_pb2.CreateRunRequest, _Mapping]] = ...) -> None: ...

class Attach(_message.Message):
    __slots__ = ("worker_id", "address", "capacity", "agents", "tenant_id", "draining", "event_level")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    AGENTS_FIELD_NUMBER: _ClassVar[int]
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    EVENT_LEVEL_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    address: str
    capacity: int
    agents: _containers.RepeatedCompositeFieldContainer[AgentOffer]
    tenant_id: str
    draining: bool
    event_level: int
    def __init__(self, worker_id: _Optional[str] = ..., address: _Optional[str] = ..., capacity: _Optional[int] = ..., agents: _Optional[_Iterable[_Union[AgentOffer, _Mapping]]] = ..., tenant_id: _Optional[str] = ..., draining: _Optional[bool] = ..., event_level: _Optional[int] = ...) -> None: ...

class AgentOffer(_message.Message):
    __slots__ = ("name", "digest", "program_kind")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_KIND_FIELD_NUMBER: _ClassVar[int]
    name: str
    digest: str
    program_kind: str
    def __init__(self, name: _Optional[str] = ..., digest: _Optional[str] = ..., program_kind: _Optional[str] = ...) -> None: ...

class SessionResponse(_message.Message):
    __slots__ = ("attached", "results", "pong", "inbox_run_ids", "move", "started")
    ATTACHED_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    PONG_FIELD_NUMBER: _ClassVar[int]
    INBOX_RUN_IDS_FIELD_NUMBER: _ClassVar[int]
    MOVE_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    attached: Attached
    results: _containers.RepeatedCompositeFieldContainer[AppendResult]
    pong: int
    inbox_run_ids: _containers.RepeatedScalarFieldContainer[str]
    move: bool
    started: _containers.RepeatedCompositeFieldContainer[StartResult]
    def __init__(self, attached: _Optional[_Union[Attached, _Mapping]] = ..., results: _Optional[_Iterable[_Union[AppendResult, _Mapping]]] = ..., pong: _Optional[int] = ..., inbox_run_ids: _Optional[_Iterable[str]] = ..., move: _Optional[bool] = ..., started: _Optional[_Iterable[_Union[StartResult, _Mapping]]] = ...) -> None: ...

class StartResult(_message.Message):
    __slots__ = ("start_id", "created", "error")
    START_ID_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    start_id: int
    created: _journal_service_pb2.CreateRunResponse
    error: _status_pb2.Status
    def __init__(self, start_id: _Optional[int] = ..., created: _Optional[_Union[_journal_service_pb2.CreateRunResponse, _Mapping]] = ..., error: _Optional[_Union[_status_pb2.Status, _Mapping]] = ...) -> None: ...

class Attached(_message.Message):
    __slots__ = ("session_number", "silence", "takes_starts")
    SESSION_NUMBER_FIELD_NUMBER: _ClassVar[int]
    SILENCE_FIELD_NUMBER: _ClassVar[int]
    TAKES_STARTS_FIELD_NUMBER: _ClassVar[int]
    session_number: int
    silence: _duration_pb2.Duration
    takes_starts: bool
    def __init__(self, session_number: _Optional[int] = ..., silence: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., takes_starts: _Optional[bool] = ...) -> None: ...

class Append(_message.Message):
    __slots__ = ("append_id", "run_id", "epoch", "first_seq", "previous_digest", "events", "consumed_inbox_number")
    APPEND_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQ_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    CONSUMED_INBOX_NUMBER_FIELD_NUMBER: _ClassVar[int]
    append_id: int
    run_id: str
    epoch: int
    first_seq: int
    previous_digest: bytes
    events: _containers.RepeatedCompositeFieldContainer[NewEvent]
    consumed_inbox_number: int
    def __init__(self, append_id: _Optional[int] = ..., run_id: _Optional[str] = ..., epoch: _Optional[int] = ..., first_seq: _Optional[int] = ..., previous_digest: _Optional[bytes] = ..., events: _Optional[_Iterable[_Union[NewEvent, _Mapping]]] = ..., consumed_inbox_number: _Optional[int] = ...) -> None: ...

class NewEvent(_message.Message):
    __slots__ = ("kind", "step_id", "attempt", "payload", "salt")
    KIND_FIELD_NUMBER: _ClassVar[int]
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    SALT_FIELD_NUMBER: _ClassVar[int]
    kind: str
    step_id: str
    attempt: int
    payload: bytes
    salt: bytes
    def __init__(self, kind: _Optional[str] = ..., step_id: _Optional[str] = ..., attempt: _Optional[int] = ..., payload: _Optional[bytes] = ..., salt: _Optional[bytes] = ...) -> None: ...

class AppendResult(_message.Message):
    __slots__ = ("append_id", "last_seq", "error")
    APPEND_ID_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQ_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    append_id: int
    last_seq: int
    error: _status_pb2.Status
    def __init__(self, append_id: _Optional[int] = ..., last_seq: _Optional[int] = ..., error: _Optional[_Union[_status_pb2.Status, _Mapping]] = ...) -> None: ...

class AppendEventsRequest(_message.Message):
    __slots__ = ("append",)
    APPEND_FIELD_NUMBER: _ClassVar[int]
    append: Append
    def __init__(self, append: _Optional[_Union[Append, _Mapping]] = ...) -> None: ...

class AppendEventsResponse(_message.Message):
    __slots__ = ("last_seq",)
    LAST_SEQ_FIELD_NUMBER: _ClassVar[int]
    last_seq: int
    def __init__(self, last_seq: _Optional[int] = ...) -> None: ...

class OpenRunRequest(_message.Message):
    __slots__ = ("run_id", "epoch", "lease_target")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEASE_TARGET_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    epoch: int
    lease_target: _journal_service_pb2.LeaseTarget
    def __init__(self, run_id: _Optional[str] = ..., epoch: _Optional[int] = ..., lease_target: _Optional[_Union[_journal_service_pb2.LeaseTarget, _Mapping]] = ...) -> None: ...

class OpenRunResponse(_message.Message):
    __slots__ = ("run", "events", "head_seq", "inbox", "now_us")
    RUN_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    HEAD_SEQ_FIELD_NUMBER: _ClassVar[int]
    INBOX_FIELD_NUMBER: _ClassVar[int]
    NOW_US_FIELD_NUMBER: _ClassVar[int]
    run: _run_pb2.Run
    events: _containers.RepeatedCompositeFieldContainer[_run_pb2.Event]
    head_seq: int
    inbox: _containers.RepeatedCompositeFieldContainer[_run_pb2.InboxEntry]
    now_us: int
    def __init__(self, run: _Optional[_Union[_run_pb2.Run, _Mapping]] = ..., events: _Optional[_Iterable[_Union[_run_pb2.Event, _Mapping]]] = ..., head_seq: _Optional[int] = ..., inbox: _Optional[_Iterable[_Union[_run_pb2.InboxEntry, _Mapping]]] = ..., now_us: _Optional[int] = ...) -> None: ...

class ListInboxRequest(_message.Message):
    __slots__ = ("page_size", "page_token", "run_id", "after_number")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_NUMBER_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    run_id: str
    after_number: int
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., run_id: _Optional[str] = ..., after_number: _Optional[int] = ...) -> None: ...

class ListInboxResponse(_message.Message):
    __slots__ = ("entries", "next_page_token")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[_run_pb2.InboxEntry]
    next_page_token: str
    def __init__(self, entries: _Optional[_Iterable[_Union[_run_pb2.InboxEntry, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ReleaseLeaseRequest(_message.Message):
    __slots__ = ("run_id", "epoch", "worker_id", "cause")
    class Cause(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        CAUSE_UNSPECIFIED: _ClassVar[ReleaseLeaseRequest.Cause]
        CAUSE_DRAIN: _ClassVar[ReleaseLeaseRequest.Cause]
        CAUSE_FAULT: _ClassVar[ReleaseLeaseRequest.Cause]
        CAUSE_REFUSED: _ClassVar[ReleaseLeaseRequest.Cause]
    CAUSE_UNSPECIFIED: ReleaseLeaseRequest.Cause
    CAUSE_DRAIN: ReleaseLeaseRequest.Cause
    CAUSE_FAULT: ReleaseLeaseRequest.Cause
    CAUSE_REFUSED: ReleaseLeaseRequest.Cause
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    epoch: int
    worker_id: str
    cause: ReleaseLeaseRequest.Cause
    def __init__(self, run_id: _Optional[str] = ..., epoch: _Optional[int] = ..., worker_id: _Optional[str] = ..., cause: _Optional[_Union[ReleaseLeaseRequest.Cause, str]] = ...) -> None: ...

class ReleaseLeaseResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ClaimSideEffectRequest(_message.Message):
    __slots__ = ("key", "run_id", "step_id", "epoch", "sink", "worker_id", "nonce")
    KEY_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SINK_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    key: str
    run_id: str
    step_id: str
    epoch: int
    sink: str
    worker_id: str
    nonce: bytes
    def __init__(self, key: _Optional[str] = ..., run_id: _Optional[str] = ..., step_id: _Optional[str] = ..., epoch: _Optional[int] = ..., sink: _Optional[str] = ..., worker_id: _Optional[str] = ..., nonce: _Optional[bytes] = ...) -> None: ...

class SideEffect(_message.Message):
    __slots__ = ("key", "state", "result", "result_blob")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATE_UNSPECIFIED: _ClassVar[SideEffect.State]
        STATE_CLAIMED: _ClassVar[SideEffect.State]
        STATE_DELIVERED: _ClassVar[SideEffect.State]
        STATE_REFUSED: _ClassVar[SideEffect.State]
    STATE_UNSPECIFIED: SideEffect.State
    STATE_CLAIMED: SideEffect.State
    STATE_DELIVERED: SideEffect.State
    STATE_REFUSED: SideEffect.State
    KEY_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    RESULT_BLOB_FIELD_NUMBER: _ClassVar[int]
    key: str
    state: SideEffect.State
    result: bytes
    result_blob: _run_pb2.Blob
    def __init__(self, key: _Optional[str] = ..., state: _Optional[_Union[SideEffect.State, str]] = ..., result: _Optional[bytes] = ..., result_blob: _Optional[_Union[_run_pb2.Blob, _Mapping]] = ...) -> None: ...

class ClaimSideEffectResponse(_message.Message):
    __slots__ = ("claimed", "side_effect")
    CLAIMED_FIELD_NUMBER: _ClassVar[int]
    SIDE_EFFECT_FIELD_NUMBER: _ClassVar[int]
    claimed: bool
    side_effect: SideEffect
    def __init__(self, claimed: _Optional[bool] = ..., side_effect: _Optional[_Union[SideEffect, _Mapping]] = ...) -> None: ...

class SettleSideEffectRequest(_message.Message):
    __slots__ = ("key", "state", "result", "run_id", "worker_id", "result_blob")
    KEY_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    RESULT_BLOB_FIELD_NUMBER: _ClassVar[int]
    key: str
    state: SideEffect.State
    result: bytes
    run_id: str
    worker_id: str
    result_blob: _run_pb2.Blob
    def __init__(self, key: _Optional[str] = ..., state: _Optional[_Union[SideEffect.State, str]] = ..., result: _Optional[bytes] = ..., run_id: _Optional[str] = ..., worker_id: _Optional[str] = ..., result_blob: _Optional[_Union[_run_pb2.Blob, _Mapping]] = ...) -> None: ...

class SettleSideEffectResponse(_message.Message):
    __slots__ = ("side_effect",)
    SIDE_EFFECT_FIELD_NUMBER: _ClassVar[int]
    side_effect: SideEffect
    def __init__(self, side_effect: _Optional[_Union[SideEffect, _Mapping]] = ...) -> None: ...

class KeepSessionRequest(_message.Message):
    __slots__ = ("worker_id", "session_number", "ping")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_NUMBER_FIELD_NUMBER: _ClassVar[int]
    PING_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    session_number: int
    ping: int
    def __init__(self, worker_id: _Optional[str] = ..., session_number: _Optional[int] = ..., ping: _Optional[int] = ...) -> None: ...

class KeepSessionResponse(_message.Message):
    __slots__ = ("pong", "session_number", "current")
    PONG_FIELD_NUMBER: _ClassVar[int]
    SESSION_NUMBER_FIELD_NUMBER: _ClassVar[int]
    CURRENT_FIELD_NUMBER: _ClassVar[int]
    pong: int
    session_number: int
    current: bool
    def __init__(self, pong: _Optional[int] = ..., session_number: _Optional[int] = ..., current: _Optional[bool] = ...) -> None: ...
