from lantern.api.journal.v1 import run_pb2 as _run_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FollowAllRequest(_message.Message):
    __slots__ = ("cursor", "tenant_id", "terminal_only", "start")
    class Start(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        START_UNSPECIFIED: _ClassVar[FollowAllRequest.Start]
        START_BEGINNING: _ClassVar[FollowAllRequest.Start]
        START_NOW: _ClassVar[FollowAllRequest.Start]
    START_UNSPECIFIED: FollowAllRequest.Start
    START_BEGINNING: FollowAllRequest.Start
    START_NOW: FollowAllRequest.Start
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    TERMINAL_ONLY_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    cursor: str
    tenant_id: str
    terminal_only: bool
    start: FollowAllRequest.Start
    def __init__(self, cursor: _Optional[str] = ..., tenant_id: _Optional[str] = ..., terminal_only: _Optional[bool] = ..., start: _Optional[_Union[FollowAllRequest.Start, str]] = ...) -> None: ...

class FollowAllResponse(_message.Message):
    __slots__ = ("entries", "cursor")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[FeedEntry]
    cursor: str
    def __init__(self, entries: _Optional[_Iterable[_Union[FeedEntry, _Mapping]]] = ..., cursor: _Optional[str] = ...) -> None: ...

class FeedEntry(_message.Message):
    __slots__ = ("run_id", "tenant_id", "events", "first_seq", "written_count")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQ_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    tenant_id: str
    events: _containers.RepeatedCompositeFieldContainer[_run_pb2.Event]
    first_seq: int
    written_count: int
    def __init__(self, run_id: _Optional[str] = ..., tenant_id: _Optional[str] = ..., events: _Optional[_Iterable[_Union[_run_pb2.Event, _Mapping]]] = ..., first_seq: _Optional[int] = ..., written_count: _Optional[int] = ...) -> None: ...

class GetFeedConsumerRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class GetFeedConsumerResponse(_message.Message):
    __slots__ = ("cursor",)
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    cursor: str
    def __init__(self, cursor: _Optional[str] = ...) -> None: ...

class CommitFeedConsumerRequest(_message.Message):
    __slots__ = ("name", "expected_cursor", "cursor")
    NAME_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_CURSOR_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    name: str
    expected_cursor: str
    cursor: str
    def __init__(self, name: _Optional[str] = ..., expected_cursor: _Optional[str] = ..., cursor: _Optional[str] = ...) -> None: ...

class CommitFeedConsumerResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
