from lantern.api.journal.v1 import journal_service_pb2 as _journal_service_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CheckAgentRequest(_message.Message):
    __slots__ = ("program_kind", "definition")
    PROGRAM_KIND_FIELD_NUMBER: _ClassVar[int]
    DEFINITION_FIELD_NUMBER: _ClassVar[int]
    program_kind: str
    definition: bytes
    def __init__(self, program_kind: _Optional[str] = ..., definition: _Optional[bytes] = ...) -> None: ...

class DefinitionFault(_message.Message):
    __slots__ = ("path", "code", "message")
    PATH_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    path: str
    code: str
    message: str
    def __init__(self, path: _Optional[str] = ..., code: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class CheckAgentResponse(_message.Message):
    __slots__ = ("faults", "digest")
    FAULTS_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    faults: _containers.RepeatedCompositeFieldContainer[DefinitionFault]
    digest: str
    def __init__(self, faults: _Optional[_Iterable[_Union[DefinitionFault, _Mapping]]] = ..., digest: _Optional[str] = ...) -> None: ...

class PublishAgentRequest(_message.Message):
    __slots__ = ("request_id", "tenant_id", "name", "program_kind", "definition")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_KIND_FIELD_NUMBER: _ClassVar[int]
    DEFINITION_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    tenant_id: str
    name: str
    program_kind: str
    definition: bytes
    def __init__(self, request_id: _Optional[str] = ..., tenant_id: _Optional[str] = ..., name: _Optional[str] = ..., program_kind: _Optional[str] = ..., definition: _Optional[bytes] = ...) -> None: ...

class PublishAgentResponse(_message.Message):
    __slots__ = ("agent", "created")
    AGENT_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    agent: _journal_service_pb2.Agent
    created: bool
    def __init__(self, agent: _Optional[_Union[_journal_service_pb2.Agent, _Mapping]] = ..., created: _Optional[bool] = ...) -> None: ...

class GetAgentDefinitionRequest(_message.Message):
    __slots__ = ("tenant_id", "name", "version", "digest")
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    tenant_id: str
    name: str
    version: int
    digest: str
    def __init__(self, tenant_id: _Optional[str] = ..., name: _Optional[str] = ..., version: _Optional[int] = ..., digest: _Optional[str] = ...) -> None: ...

class GetAgentDefinitionResponse(_message.Message):
    __slots__ = ("agent", "definition")
    AGENT_FIELD_NUMBER: _ClassVar[int]
    DEFINITION_FIELD_NUMBER: _ClassVar[int]
    agent: _journal_service_pb2.Agent
    definition: bytes
    def __init__(self, agent: _Optional[_Union[_journal_service_pb2.Agent, _Mapping]] = ..., definition: _Optional[bytes] = ...) -> None: ...
