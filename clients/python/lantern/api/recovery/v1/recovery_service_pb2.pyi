from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class RunPassRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RunPassResponse(_message.Message):
    __slots__ = ("found", "placed", "lost", "deferred")
    FOUND_FIELD_NUMBER: _ClassVar[int]
    PLACED_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    DEFERRED_FIELD_NUMBER: _ClassVar[int]
    found: int
    placed: int
    lost: int
    deferred: int
    def __init__(self, found: _Optional[int] = ..., placed: _Optional[int] = ..., lost: _Optional[int] = ..., deferred: _Optional[int] = ...) -> None: ...
