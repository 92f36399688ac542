from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CheckInvariantsRequest(_message.Message):
    __slots__ = ("run_id", "after_run_id")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    after_run_id: str
    def __init__(self, run_id: _Optional[str] = ..., after_run_id: _Optional[str] = ...) -> None: ...

class CheckInvariantsResponse(_message.Message):
    __slots__ = ("findings", "run_count", "event_count", "last_run_id", "complete")
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    RUN_COUNT_FIELD_NUMBER: _ClassVar[int]
    EVENT_COUNT_FIELD_NUMBER: _ClassVar[int]
    LAST_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    findings: _containers.RepeatedCompositeFieldContainer[Finding]
    run_count: int
    event_count: int
    last_run_id: str
    complete: bool
    def __init__(self, findings: _Optional[_Iterable[_Union[Finding, _Mapping]]] = ..., run_count: _Optional[int] = ..., event_count: _Optional[int] = ..., last_run_id: _Optional[str] = ..., complete: _Optional[bool] = ...) -> None: ...

class Finding(_message.Message):
    __slots__ = ("severity", "check", "subject", "message", "run_id", "mendable")
    class Severity(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        SEVERITY_UNSPECIFIED: _ClassVar[Finding.Severity]
        SEVERITY_NOTE: _ClassVar[Finding.Severity]
        SEVERITY_FAULT: _ClassVar[Finding.Severity]
    SEVERITY_UNSPECIFIED: Finding.Severity
    SEVERITY_NOTE: Finding.Severity
    SEVERITY_FAULT: Finding.Severity
    SEVERITY_FIELD_NUMBER: _ClassVar[int]
    CHECK_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    MENDABLE_FIELD_NUMBER: _ClassVar[int]
    severity: Finding.Severity
    check: str
    subject: str
    message: str
    run_id: str
    mendable: bool
    def __init__(self, severity: _Optional[_Union[Finding.Severity, str]] = ..., check: _Optional[str] = ..., subject: _Optional[str] = ..., message: _Optional[str] = ..., run_id: _Optional[str] = ..., mendable: _Optional[bool] = ...) -> None: ...

class RebuildProjectionsRequest(_message.Message):
    __slots__ = ("run_id", "after_run_id")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    after_run_id: str
    def __init__(self, run_id: _Optional[str] = ..., after_run_id: _Optional[str] = ...) -> None: ...

class RebuildProjectionsResponse(_message.Message):
    __slots__ = ("changes", "run_count", "last_run_id", "complete")
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    RUN_COUNT_FIELD_NUMBER: _ClassVar[int]
    LAST_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    changes: _containers.RepeatedCompositeFieldContainer[ProjectionChange]
    run_count: int
    last_run_id: str
    complete: bool
    def __init__(self, changes: _Optional[_Iterable[_Union[ProjectionChange, _Mapping]]] = ..., run_count: _Optional[int] = ..., last_run_id: _Optional[str] = ..., complete: _Optional[bool] = ...) -> None: ...

class ProjectionChange(_message.Message):
    __slots__ = ("run_id", "column", "before", "after")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    COLUMN_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    column: str
    before: str
    after: str
    def __init__(self, run_id: _Optional[str] = ..., column: _Optional[str] = ..., before: _Optional[str] = ..., after: _Optional[str] = ...) -> None: ...
