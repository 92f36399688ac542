from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class ArchiveRunsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ArchiveRunsResponse(_message.Message):
    __slots__ = ("run_count", "event_count", "file_count", "faulty_run_count", "dropped_partition_count", "busy")
    RUN_COUNT_FIELD_NUMBER: _ClassVar[int]
    EVENT_COUNT_FIELD_NUMBER: _ClassVar[int]
    FILE_COUNT_FIELD_NUMBER: _ClassVar[int]
    FAULTY_RUN_COUNT_FIELD_NUMBER: _ClassVar[int]
    DROPPED_PARTITION_COUNT_FIELD_NUMBER: _ClassVar[int]
    BUSY_FIELD_NUMBER: _ClassVar[int]
    run_count: int
    event_count: int
    file_count: int
    faulty_run_count: int
    dropped_partition_count: int
    busy: bool
    def __init__(self, run_count: _Optional[int] = ..., event_count: _Optional[int] = ..., file_count: _Optional[int] = ..., faulty_run_count: _Optional[int] = ..., dropped_partition_count: _Optional[int] = ..., busy: _Optional[bool] = ...) -> None: ...
