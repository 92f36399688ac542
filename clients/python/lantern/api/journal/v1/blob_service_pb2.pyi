from lantern.api.journal.v1 import run_pb2 as _run_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PutBlobRequest(_message.Message):
    __slots__ = ("declaration", "data")
    DECLARATION_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    declaration: BlobDeclaration
    data: bytes
    def __init__(self, declaration: _Optional[_Union[BlobDeclaration, _Mapping]] = ..., data: _Optional[bytes] = ...) -> None: ...

class BlobDeclaration(_message.Message):
    __slots__ = ("tenant_id", "blob")
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    BLOB_FIELD_NUMBER: _ClassVar[int]
    tenant_id: str
    blob: _run_pb2.Blob
    def __init__(self, tenant_id: _Optional[str] = ..., blob: _Optional[_Union[_run_pb2.Blob, _Mapping]] = ...) -> None: ...

class PutBlobResponse(_message.Message):
    __slots__ = ("stored",)
    STORED_FIELD_NUMBER: _ClassVar[int]
    stored: bool
    def __init__(self, stored: _Optional[bool] = ...) -> None: ...

class GetBlobRequest(_message.Message):
    __slots__ = ("tenant_id", "blob", "offset")
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    BLOB_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    tenant_id: str
    blob: _run_pb2.Blob
    offset: int
    def __init__(self, tenant_id: _Optional[str] = ..., blob: _Optional[_Union[_run_pb2.Blob, _Mapping]] = ..., offset: _Optional[int] = ...) -> None: ...

class GetBlobResponse(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class HasBlobsRequest(_message.Message):
    __slots__ = ("tenant_id", "blobs")
    TENANT_ID_FIELD_NUMBER: _ClassVar[int]
    BLOBS_FIELD_NUMBER: _ClassVar[int]
    tenant_id: str
    blobs: _containers.RepeatedCompositeFieldContainer[_run_pb2.Blob]
    def __init__(self, tenant_id: _Optional[str] = ..., blobs: _Optional[_Iterable[_Union[_run_pb2.Blob, _Mapping]]] = ...) -> None: ...

class HasBlobsResponse(_message.Message):
    __slots__ = ("blobs",)
    BLOBS_FIELD_NUMBER: _ClassVar[int]
    blobs: _containers.RepeatedCompositeFieldContainer[_run_pb2.Blob]
    def __init__(self, blobs: _Optional[_Iterable[_Union[_run_pb2.Blob, _Mapping]]] = ...) -> None: ...

class CollectBlobsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CollectBlobsResponse(_message.Message):
    __slots__ = ("blobs", "size", "uploads", "has_more")
    BLOBS_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    UPLOADS_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    blobs: int
    size: int
    uploads: int
    has_more: bool
    def __init__(self, blobs: _Optional[int] = ..., size: _Optional[int] = ..., uploads: _Optional[int] = ..., has_more: _Optional[bool] = ...) -> None: ...
