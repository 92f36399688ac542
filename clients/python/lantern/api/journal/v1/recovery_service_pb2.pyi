import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from lantern.api.journal.v1 import journal_service_pb2 as _journal_service_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FindOrphansRequest(_message.Message):
    __slots__ = ("page_size",)
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    def __init__(self, page_size: _Optional[int] = ...) -> None: ...

class Orphan(_message.Message):
    __slots__ = ("run_id", "tenant_id", "agent_name", "agent_version", "agent_digest", "reason", "failed_digest", "event_level", "program_kind")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_NAME_FIELD_NUMBER: _ClassVar[int]
    AGENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    AGENT_DIGEST_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    FAILED_DIGEST_FIELD_NUMBER: _ClassVar[int]
    EVENT_LEVEL_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_KIND_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    tenant_id: str
    agent_name: str
    agent_version: int
    agent_digest: str
    reason: str
    failed_digest: str
    event_level: int
    program_kind: str
    def __init__(self, run_id: _Optional[str] = ..., tenant_id: _Optional[str] = ..., agent_name: _Optional[str] = ..., agent_version: _Optional[int] = ..., agent_digest: _Optional[str] = ..., reason: _Optional[str] = ..., failed_digest: _Optional[str] = ..., event_level: _Optional[int] = ..., program_kind: _Optional[str] = ...) -> None: ...

class FindOrphansResponse(_message.Message):
    __slots__ = ("orphans",)
    ORPHANS_FIELD_NUMBER: _ClassVar[int]
    orphans: _containers.RepeatedCompositeFieldContainer[Orphan]
    def __init__(self, orphans: _Optional[_Iterable[_Union[Orphan, _Mapping]]] = ...) -> None: ...

class FindWorkersRequest(_message.Message):
    __slots__ = ("page_token",)
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_token: str
    def __init__(self, page_token: _Optional[str] = ...) -> None: ...

class Worker(_message.Message):
    __slots__ = ("worker_id", "session_number", "address", "capacity", "lease_count", "tenant_id", "agents", "event_level")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_NUMBER_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    LEASE_COUNT_FIELD_NUMBER: _ClassVar[int]
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    AGENTS_FIELD_NUMBER: _ClassVar[int]
    EVENT_LEVEL_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    session_number: int
    address: str
    capacity: int
    lease_count: int
    tenant_id: str
    agents: _containers.RepeatedCompositeFieldContainer[WorkerAgent]
    event_level: int
    def __init__(self, worker_id: _Optional[str] = ..., session_number: _Optional[int] = ..., address: _Optional[str] = ..., capacity: _Optional[int] = ..., lease_count: _Optional[int] = ..., tenant_id: _Optional[str] = ..., agents: _Optional[_Iterable[_Union[WorkerAgent, _Mapping]]] = ..., event_level: _Optional[int] = ...) -> None: ...

class WorkerAgent(_message.Message):
    __slots__ = ("name", "digest", "program_kind")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_KIND_FIELD_NUMBER: _ClassVar[int]
    name: str
    digest: str
    program_kind: str
    def __init__(self, name: _Optional[str] = ..., digest: _Optional[str] = ..., program_kind: _Optional[str] = ...) -> None: ...

class FindWorkersResponse(_message.Message):
    __slots__ = ("workers", "next_page_token")
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    workers: _containers.RepeatedCompositeFieldContainer[Worker]
    next_page_token: str
    def __init__(self, workers: _Optional[_Iterable[_Union[Worker, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class AcquireLeaseRequest(_message.Message):
    __slots__ = ("run_id", "lease_target", "reason")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_TARGET_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    lease_target: _journal_service_pb2.LeaseTarget
    reason: str
    def __init__(self, run_id: _Optional[str] = ..., lease_target: _Optional[_Union[_journal_service_pb2.LeaseTarget, _Mapping]] = ..., reason: _Optional[str] = ...) -> None: ...

class AcquireLeaseResponse(_message.Message):
    __slots__ = ("acquired", "epoch")
    ACQUIRED_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    acquired: bool
    epoch: int
    def __init__(self, acquired: _Optional[bool] = ..., epoch: _Optional[int] = ...) -> None: ...

class DeferRunRequest(_message.Message):
    __slots__ = ("run_id", "delay")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    DELAY_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    delay: _duration_pb2.Duration
    def __init__(self, run_id: _Optional[str] = ..., delay: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class DeferRunResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WatchOrphansRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WatchOrphansResponse(_message.Message):
    __slots__ = ("cause",)
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    cause: str
    def __init__(self, cause: _Optional[str] = ...) -> None: ...
