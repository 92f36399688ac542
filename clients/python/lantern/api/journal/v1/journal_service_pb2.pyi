from lantern.api.journal.v1 import run_pb2 as _run_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CreateRunRequest(_message.Message):
    __slots__ = ("request_id", "tenant_id", "agent_name", "input", "workflow_id", "workflow_id_policy", "traceparent", "lease_target", "signal", "input_blob", "durability", "parent")
    class WorkflowIdPolicy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        WORKFLOW_ID_POLICY_UNSPECIFIED: _ClassVar[CreateRunRequest.WorkflowIdPolicy]
        WORKFLOW_ID_POLICY_REJECT: _ClassVar[CreateRunRequest.WorkflowIdPolicy]
        WORKFLOW_ID_POLICY_USE_EXISTING: _ClassVar[CreateRunRequest.WorkflowIdPolicy]
        WORKFLOW_ID_POLICY_ALLOW_AFTER_CLOSE: _ClassVar[CreateRunRequest.WorkflowIdPolicy]
        WORKFLOW_ID_POLICY_TERMINATE_EXISTING: _ClassVar[CreateRunRequest.WorkflowIdPolicy]
    WORKFLOW_ID_POLICY_UNSPECIFIED: CreateRunRequest.WorkflowIdPolicy
    WORKFLOW_ID_POLICY_REJECT: CreateRunRequest.WorkflowIdPolicy
    WORKFLOW_ID_POLICY_USE_EXISTING: CreateRunRequest.WorkflowIdPolicy
    WORKFLOW_ID_POLICY_ALLOW_AFTER_CLOSE: CreateRunRequest.WorkflowIdPolicy
    WORKFLOW_ID_POLICY_TERMINATE_EXISTING: CreateRunRequest.WorkflowIdPolicy
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_NAME_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    WORKFLOW_ID_FIELD_NUMBER: _ClassVar[int]
    WORKFLOW_ID_POLICY_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    LEASE_TARGET_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    INPUT_BLOB_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    tenant_id: str
    agent_name: str
    input: bytes
    workflow_id: str
    workflow_id_policy: CreateRunRequest.WorkflowIdPolicy
    traceparent: str
    lease_target: LeaseTarget
    signal: StartSignal
    input_blob: _run_pb2.Blob
    durability: str
    parent: Parent
    def __init__(self, request_id: _Optional[str] = ..., tenant_id: _Optional[str] = ..., agent_name: _Optional[str] = ..., input: _Optional[bytes] = ..., workflow_id: _Optional[str] = ..., workflow_id_policy: _Optional[_Union[CreateRunRequest.WorkflowIdPolicy, str]] = ..., traceparent: _Optional[str] = ..., lease_target: _Optional[_Union[LeaseTarget, _Mapping]] = ..., signal: _Optional[_Union[StartSignal, _Mapping]] = ..., input_blob: _Optional[_Union[_run_pb2.Blob, _Mapping]] = ..., durability: _Optional[str] = ..., parent: _Optional[_Union[Parent, _Mapping]] = ...) -> None: ...

class Parent(_message.Message):
    __slots__ = ("run_id", "step_id", "epoch", "abandon")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ABANDON_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    step_id: str
    epoch: int
    abandon: bool
    def __init__(self, run_id: _Optional[str] = ..., step_id: _Optional[str] = ..., epoch: _Optional[int] = ..., abandon: _Optional[bool] = ...) -> None: ...

class StartSignal(_message.Message):
    __slots__ = ("name", "payload")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    name: str
    payload: bytes
    def __init__(self, name: _Optional[str] = ..., payload: _Optional[bytes] = ...) -> None: ...

class LeaseTarget(_message.Message):
    __slots__ = ("worker_id", "session_number")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_NUMBER_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    session_number: int
    def __init__(self, worker_id: _Optional[str] = ..., session_number: _Optional[int] = ...) -> None: ...

class CreateRunResponse(_message.Message):
    __slots__ = ("run", "created", "epoch", "events")
    RUN_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    run: _run_pb2.Run
    created: bool
    epoch: int
    events: _containers.RepeatedCompositeFieldContainer[_run_pb2.Event]
    def __init__(self, run: _Optional[_Union[_run_pb2.Run, _Mapping]] = ..., created: _Optional[bool] = ..., epoch: _Optional[int] = ..., events: _Optional[_Iterable[_Union[_run_pb2.Event, _Mapping]]] = ...) -> None: ...

class GetRunRequest(_message.Message):
    __slots__ = ("run_id",)
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    def __init__(self, run_id: _Optional[str] = ...) -> None: ...

class GetRunResponse(_message.Message):
    __slots__ = ("run",)
    RUN_FIELD_NUMBER: _ClassVar[int]
    run: _run_pb2.Run
    def __init__(self, run: _Optional[_Union[_run_pb2.Run, _Mapping]] = ...) -> None: ...

class ListRunsRequest(_message.Message):
    __slots__ = ("page_size", "page_token", "tenant_id", "states", "workflow_id", "agent_name")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    WORKFLOW_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_NAME_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    tenant_id: str
    states: _containers.RepeatedScalarFieldContainer[_run_pb2.Run.State]
    workflow_id: str
    agent_name: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., tenant_id: _Optional[str] = ..., states: _Optional[_Iterable[_Union[_run_pb2.Run.State, str]]] = ..., workflow_id: _Optional[str] = ..., agent_name: _Optional[str] = ...) -> None: ...

class ListRunsResponse(_message.Message):
    __slots__ = ("runs", "next_page_token")
    RUNS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    runs: _containers.RepeatedCompositeFieldContainer[_run_pb2.Run]
    next_page_token: str
    def __init__(self, runs: _Optional[_Iterable[_Union[_run_pb2.Run, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ListEventsRequest(_message.Message):
    __slots__ = ("page_size", "page_token", "run_id", "after_seq")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_SEQ_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    run_id: str
    after_seq: int
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., run_id: _Optional[str] = ..., after_seq: _Optional[int] = ...) -> None: ...

class ListEventsResponse(_message.Message):
    __slots__ = ("events", "next_page_token")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[_run_pb2.Event]
    next_page_token: str
    def __init__(self, events: _Optional[_Iterable[_Union[_run_pb2.Event, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class FollowEventsRequest(_message.Message):
    __slots__ = ("run_id", "after_seq")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_SEQ_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    after_seq: int
    def __init__(self, run_id: _Optional[str] = ..., after_seq: _Optional[int] = ...) -> None: ...

class FollowEventsResponse(_message.Message):
    __slots__ = ("events",)
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[_run_pb2.Event]
    def __init__(self, events: _Optional[_Iterable[_Union[_run_pb2.Event, _Mapping]]] = ...) -> None: ...

class SendToRunRequest(_message.Message):
    __slots__ = ("request_id", "run_id", "kind", "name", "payload", "payload_blob")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_BLOB_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    run_id: str
    kind: str
    name: str
    payload: bytes
    payload_blob: _run_pb2.Blob
    def __init__(self, request_id: _Optional[str] = ..., run_id: _Optional[str] = ..., kind: _Optional[str] = ..., name: _Optional[str] = ..., payload: _Optional[bytes] = ..., payload_blob: _Optional[_Union[_run_pb2.Blob, _Mapping]] = ...) -> None: ...

class SendToRunResponse(_message.Message):
    __slots__ = ("number", "repeated_request", "run_state", "already_ended")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    REPEATED_REQUEST_FIELD_NUMBER: _ClassVar[int]
    RUN_STATE_FIELD_NUMBER: _ClassVar[int]
    ALREADY_ENDED_FIELD_NUMBER: _ClassVar[int]
    number: int
    repeated_request: bool
    run_state: _run_pb2.Run.State
    already_ended: bool
    def __init__(self, number: _Optional[int] = ..., repeated_request: _Optional[bool] = ..., run_state: _Optional[_Union[_run_pb2.Run.State, str]] = ..., already_ended: _Optional[bool] = ...) -> None: ...

class ListAgentsRequest(_message.Message):
    __slots__ = ("page_size", "page_token", "tenant_id")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    tenant_id: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., tenant_id: _Optional[str] = ...) -> None: ...

class Agent(_message.Message):
    __slots__ = ("name", "version", "digest", "program_kind", "current")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_KIND_FIELD_NUMBER: _ClassVar[int]
    CURRENT_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: int
    digest: str
    program_kind: str
    current: bool
    def __init__(self, name: _Optional[str] = ..., version: _Optional[int] = ..., digest: _Optional[str] = ..., program_kind: _Optional[str] = ..., current: _Optional[bool] = ...) -> None: ...

class ListAgentsResponse(_message.Message):
    __slots__ = ("agents", "next_page_token")
    AGENTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    agents: _containers.RepeatedCompositeFieldContainer[Agent]
    next_page_token: str
    def __init__(self, agents: _Optional[_Iterable[_Union[Agent, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ResetRunRequest(_message.Message):
    __slots__ = ("request_id", "run_id", "to_seq")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    TO_SEQ_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    run_id: str
    to_seq: int
    def __init__(self, request_id: _Optional[str] = ..., run_id: _Optional[str] = ..., to_seq: _Optional[int] = ...) -> None: ...

class ResetRunResponse(_message.Message):
    __slots__ = ("run",)
    RUN_FIELD_NUMBER: _ClassVar[int]
    run: _run_pb2.Run
    def __init__(self, run: _Optional[_Union[_run_pb2.Run, _Mapping]] = ...) -> None: ...
