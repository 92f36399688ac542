import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from lantern.api.error.v1 import error_pb2 as _error_pb2
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Blob(_message.Message):
    __slots__ = ("sha256", "size")
    SHA256_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    sha256: bytes
    size: int
    def __init__(self, sha256: _Optional[bytes] = ..., size: _Optional[int] = ...) -> None: ...

class Run(_message.Message):
    __slots__ = ("run_id", "tenant_id", "workflow_id", "agent_name", "agent_version", "agent_digest", "state", "waiting_on", "due_time", "create_time", "update_time", "end_time", "input", "result", "error", "traceparent", "last_inbox_number", "epoch", "input_blob", "result_blob", "archived", "archive", "durability", "parent_run_id", "parent_step_id", "continued_as", "continued_from")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATE_UNSPECIFIED: _ClassVar[Run.State]
        STATE_QUEUED: _ClassVar[Run.State]
        STATE_RUNNING: _ClassVar[Run.State]
        STATE_WAITING: _ClassVar[Run.State]
        STATE_SUCCEEDED: _ClassVar[Run.State]
        STATE_FAILED: _ClassVar[Run.State]
        STATE_CANCELLED: _ClassVar[Run.State]
    STATE_UNSPECIFIED: Run.State
    STATE_QUEUED: Run.State
    STATE_RUNNING: Run.State
    STATE_WAITING: Run.State
    STATE_SUCCEEDED: Run.State
    STATE_FAILED: Run.State
    STATE_CANCELLED: Run.State
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    WORKFLOW_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_NAME_FIELD_NUMBER: _ClassVar[int]
    AGENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    AGENT_DIGEST_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    WAITING_ON_FIELD_NUMBER: _ClassVar[int]
    DUE_TIME_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    UPDATE_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    LAST_INBOX_NUMBER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    INPUT_BLOB_FIELD_NUMBER: _ClassVar[int]
    RESULT_BLOB_FIELD_NUMBER: _ClassVar[int]
    ARCHIVED_FIELD_NUMBER: _ClassVar[int]
    ARCHIVE_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    PARENT_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    PARENT_STEP_ID_FIELD_NUMBER: _ClassVar[int]
    CONTINUED_AS_FIELD_NUMBER: _ClassVar[int]
    CONTINUED_FROM_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    tenant_id: str
    workflow_id: str
    agent_name: str
    agent_version: int
    agent_digest: str
    state: Run.State
    waiting_on: str
    due_time: _timestamp_pb2.Timestamp
    create_time: _timestamp_pb2.Timestamp
    update_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    input: bytes
    result: bytes
    error: _error_pb2.RunError
    traceparent: str
    last_inbox_number: int
    epoch: int
    input_blob: Blob
    result_blob: Blob
    archived: bool
    archive: RunArchive
    durability: str
    parent_run_id: str
    parent_step_id: str
    continued_as: str
    continued_from: str
    def __init__(self, run_id: _Optional[str] = ..., tenant_id: _Optional[str] = ..., workflow_id: _Optional[str] = ..., agent_name: _Optional[str] = ..., agent_version: _Optional[int] = ..., agent_digest: _Optional[str] = ..., state: _Optional[_Union[Run.State, str]] = ..., waiting_on: _Optional[str] = ..., due_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., update_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., input: _Optional[bytes] = ..., result: _Optional[bytes] = ..., error: _Optional[_Union[_error_pb2.RunError, _Mapping]] = ..., traceparent: _Optional[str] = ..., last_inbox_number: _Optional[int] = ..., epoch: _Optional[int] = ..., input_blob: _Optional[_Union[Blob, _Mapping]] = ..., result_blob: _Optional[_Union[Blob, _Mapping]] = ..., archived: _Optional[bool] = ..., archive: _Optional[_Union[RunArchive, _Mapping]] = ..., durability: _Optional[str] = ..., parent_run_id: _Optional[str] = ..., parent_step_id: _Optional[str] = ..., continued_as: _Optional[str] = ..., continued_from: _Optional[str] = ...) -> None: ...

class RunArchive(_message.Message):
    __slots__ = ("file", "archive_time", "event_count", "head_hash")
    FILE_FIELD_NUMBER: _ClassVar[int]
    ARCHIVE_TIME_FIELD_NUMBER: _ClassVar[int]
    EVENT_COUNT_FIELD_NUMBER: _ClassVar[int]
    HEAD_HASH_FIELD_NUMBER: _ClassVar[int]
    file: str
    archive_time: _timestamp_pb2.Timestamp
    event_count: int
    head_hash: bytes
    def __init__(self, file: _Optional[str] = ..., archive_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., event_count: _Optional[int] = ..., head_hash: _Optional[bytes] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("seq", "kind", "step_id", "attempt", "epoch", "time_us", "payload", "salt", "digest", "hash")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    TIME_US_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    SALT_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    seq: int
    kind: str
    step_id: str
    attempt: int
    epoch: int
    time_us: int
    payload: bytes
    salt: bytes
    digest: bytes
    hash: bytes
    def __init__(self, seq: _Optional[int] = ..., kind: _Optional[str] = ..., step_id: _Optional[str] = ..., attempt: _Optional[int] = ..., epoch: _Optional[int] = ..., time_us: _Optional[int] = ..., payload: _Optional[bytes] = ..., salt: _Optional[bytes] = ..., digest: _Optional[bytes] = ..., hash: _Optional[bytes] = ...) -> None: ...

class InboxEntry(_message.Message):
    __slots__ = ("number", "kind", "name", "payload", "create_time", "payload_blob")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_BLOB_FIELD_NUMBER: _ClassVar[int]
    number: int
    kind: str
    name: str
    payload: bytes
    create_time: _timestamp_pb2.Timestamp
    payload_blob: Blob
    def __init__(self, number: _Optional[int] = ..., kind: _Optional[str] = ..., name: _Optional[str] = ..., payload: _Optional[bytes] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., payload_blob: _Optional[_Union[Blob, _Mapping]] = ...) -> None: ...
