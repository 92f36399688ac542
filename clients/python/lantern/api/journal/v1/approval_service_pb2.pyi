import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Approval(_message.Message):
    __slots__ = ("run_id", "approval_id", "tenant_id", "agent_name", "workflow_id", "step_id", "state", "assignee", "title", "request_time", "expire_time", "decide_time", "decided_by", "comment", "requested_seq")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATE_UNSPECIFIED: _ClassVar[Approval.State]
        STATE_PENDING: _ClassVar[Approval.State]
        STATE_APPROVED: _ClassVar[Approval.State]
        STATE_DENIED: _ClassVar[Approval.State]
        STATE_EXPIRED: _ClassVar[Approval.State]
        STATE_WITHDRAWN: _ClassVar[Approval.State]
    STATE_UNSPECIFIED: Approval.State
    STATE_PENDING: Approval.State
    STATE_APPROVED: Approval.State
    STATE_DENIED: Approval.State
    STATE_EXPIRED: Approval.State
    STATE_WITHDRAWN: Approval.State
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    APPROVAL_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_NAME_FIELD_NUMBER: _ClassVar[int]
    WORKFLOW_ID_FIELD_NUMBER: _ClassVar[int]
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ASSIGNEE_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_TIME_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
    DECIDE_TIME_FIELD_NUMBER: _ClassVar[int]
    DECIDED_BY_FIELD_NUMBER: _ClassVar[int]
    COMMENT_FIELD_NUMBER: _ClassVar[int]
    REQUESTED_SEQ_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    approval_id: str
    tenant_id: str
    agent_name: str
    workflow_id: str
    step_id: str
    state: Approval.State
    assignee: str
    title: str
    request_time: _timestamp_pb2.Timestamp
    expire_time: _timestamp_pb2.Timestamp
    decide_time: _timestamp_pb2.Timestamp
    decided_by: str
    comment: bytes
    requested_seq: int
    def __init__(self, run_id: _Optional[str] = ..., approval_id: _Optional[str] = ..., tenant_id: _Optional[str] = ..., agent_name: _Optional[str] = ..., workflow_id: _Optional[str] = ..., step_id: _Optional[str] = ..., state: _Optional[_Union[Approval.State, str]] = ..., assignee: _Optional[str] = ..., title: _Optional[str] = ..., request_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., expire_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., decide_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., decided_by: _Optional[str] = ..., comment: _Optional[bytes] = ..., requested_seq: _Optional[int] = ...) -> None: ...

class ListApprovalsRequest(_message.Message):
    __slots__ = ("page_size", "page_token", "tenant_id", "states", "assignee", "run_id")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    ASSIGNEE_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    tenant_id: str
    states: _containers.RepeatedScalarFieldContainer[Approval.State]
    assignee: str
    run_id: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., tenant_id: _Optional[str] = ..., states: _Optional[_Iterable[_Union[Approval.State, str]]] = ..., assignee: _Optional[str] = ..., run_id: _Optional[str] = ...) -> None: ...

class ListApprovalsResponse(_message.Message):
    __slots__ = ("approvals", "next_page_token")
    APPROVALS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    approvals: _containers.RepeatedCompositeFieldContainer[Approval]
    next_page_token: str
    def __init__(self, approvals: _Optional[_Iterable[_Union[Approval, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class DecideApprovalRequest(_message.Message):
    __slots__ = ("request_id", "run_id", "approval_id", "decision", "decided_by", "comment")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    APPROVAL_ID_FIELD_NUMBER: _ClassVar[int]
    DECISION_FIELD_NUMBER: _ClassVar[int]
    DECIDED_BY_FIELD_NUMBER: _ClassVar[int]
    COMMENT_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    run_id: str
    approval_id: str
    decision: Approval.State
    decided_by: str
    comment: bytes
    def __init__(self, request_id: _Optional[str] = ..., run_id: _Optional[str] = ..., approval_id: _Optional[str] = ..., decision: _Optional[_Union[Approval.State, str]] = ..., decided_by: _Optional[str] = ..., comment: _Optional[bytes] = ...) -> None: ...

class DecideApprovalResponse(_message.Message):
    __slots__ = ("approval", "already_decided")
    APPROVAL_FIELD_NUMBER: _ClassVar[int]
    ALREADY_DECIDED_FIELD_NUMBER: _ClassVar[int]
    approval: Approval
    already_decided: bool
    def __init__(self, approval: _Optional[_Union[Approval, _Mapping]] = ..., already_decided: _Optional[bool] = ...) -> None: ...

class DelegateApprovalRequest(_message.Message):
    __slots__ = ("request_id", "run_id", "approval_id", "assignee", "delegated_by")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    APPROVAL_ID_FIELD_NUMBER: _ClassVar[int]
    ASSIGNEE_FIELD_NUMBER: _ClassVar[int]
    DELEGATED_BY_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    run_id: str
    approval_id: str
    assignee: str
    delegated_by: str
    def __init__(self, request_id: _Optional[str] = ..., run_id: _Optional[str] = ..., approval_id: _Optional[str] = ..., assignee: _Optional[str] = ..., delegated_by: _Optional[str] = ...) -> None: ...

class DelegateApprovalResponse(_message.Message):
    __slots__ = ("approval",)
    APPROVAL_FIELD_NUMBER: _ClassVar[int]
    approval: Approval
    def __init__(self, approval: _Optional[_Union[Approval, _Mapping]] = ...) -> None: ...
