import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from lantern.api.error.v1 import error_pb2 as _error_pb2
from lantern.api.journal.v1 import journal_service_pb2 as _journal_service_pb2
from lantern.api.journal.v1 import run_pb2 as _run_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StartRunRequest(_message.Message):
    __slots__ = ("request_id", "tenant_id", "agent_name", "input", "workflow_id", "workflow_id_policy", "traceparent", "input_blob", "signal", "durability", "wait")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_NAME_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    WORKFLOW_ID_FIELD_NUMBER: _ClassVar[int]
    WORKFLOW_ID_POLICY_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    INPUT_BLOB_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    tenant_id: str
    agent_name: str
    input: bytes
    workflow_id: str
    workflow_id_policy: _journal_service_pb2.CreateRunRequest.WorkflowIdPolicy
    traceparent: str
    input_blob: _run_pb2.Blob
    signal: _journal_service_pb2.StartSignal
    durability: str
    wait: _duration_pb2.Duration
    def __init__(self, request_id: _Optional[str] = ..., tenant_id: _Optional[str] = ..., agent_name: _Optional[str] = ..., input: _Optional[bytes] = ..., workflow_id: _Optional[str] = ..., workflow_id_policy: _Optional[_Union[_journal_service_pb2.CreateRunRequest.WorkflowIdPolicy, str]] = ..., traceparent: _Optional[str] = ..., input_blob: _Optional[_Union[_run_pb2.Blob, _Mapping]] = ..., signal: _Optional[_Union[_journal_service_pb2.StartSignal, _Mapping]] = ..., durability: _Optional[str] = ..., wait: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class StartRunResponse(_message.Message):
    __slots__ = ("run", "created", "end")
    RUN_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    run: _run_pb2.Run
    created: bool
    end: RunEnd
    def __init__(self, run: _Optional[_Union[_run_pb2.Run, _Mapping]] = ..., created: _Optional[bool] = ..., end: _Optional[_Union[RunEnd, _Mapping]] = ...) -> None: ...

class RunEnd(_message.Message):
    __slots__ = ("state", "result", "result_blob", "error")
    STATE_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    RESULT_BLOB_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    state: _run_pb2.Run.State
    result: bytes
    result_blob: _run_pb2.Blob
    error: _error_pb2.RunError
    def __init__(self, state: _Optional[_Union[_run_pb2.Run.State, str]] = ..., result: _Optional[bytes] = ..., result_blob: _Optional[_Union[_run_pb2.Blob, _Mapping]] = ..., error: _Optional[_Union[_error_pb2.RunError, _Mapping]] = ...) -> None: ...

class DriveRequest(_message.Message):
    __slots__ = ("run_id", "epoch", "worker_id", "agent_name")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_NAME_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    epoch: int
    worker_id: str
    agent_name: str
    def __init__(self, run_id: _Optional[str] = ..., epoch: _Optional[int] = ..., worker_id: _Optional[str] = ..., agent_name: _Optional[str] = ...) -> None: ...

class DriveResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class QueryRunRequest(_message.Message):
    __slots__ = ("run_id", "name", "payload")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    name: str
    payload: bytes
    def __init__(self, run_id: _Optional[str] = ..., name: _Optional[str] = ..., payload: _Optional[bytes] = ...) -> None: ...

class QueryRunResponse(_message.Message):
    __slots__ = ("result",)
    RESULT_FIELD_NUMBER: _ClassVar[int]
    result: bytes
    def __init__(self, result: _Optional[bytes] = ...) -> None: ...
