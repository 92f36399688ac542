"""User data above 256 KiB on its way to the journal and back, a message of at most 256 KiB at a time."""

import asyncio
from collections.abc import AsyncGenerator
from hashlib import sha256
from typing import Any

import grpc

from lantern.api.journal.v1 import blob_service_pb2 as pb
from lantern.api.journal.v1 import run_pb2
from lantern.client.errors import to_error
from lantern_kernel import reasons
from lantern_kernel.blobs import BlobRef
from lantern_kernel.bounds import BLOB_CHUNK_BYTES_MAX, PAYLOAD_INLINE_BYTES_MAX
from lantern_kernel.errors import LanternError

TRANSFER_DEADLINE_S = 120.0
"""Of one try to send or to fetch a blob."""


def blob_to_wire(blob: BlobRef) -> run_pb2.Blob:
    """The name of a blob."""
    return run_pb2.Blob(sha256=bytes.fromhex(blob.sha256), size=blob.size)


def blob_from_wire(message: run_pb2.Blob) -> BlobRef:
    """The name of a blob."""
    return BlobRef(sha256=message.sha256.hex(), size=message.size)


async def name_of(content: bytes) -> BlobRef:
    """The name of content, computed beside the loop."""
    return await asyncio.to_thread(BlobRef.of, content)


async def send(stub: Any, tenant_id: str, blob: BlobRef, content: bytes) -> None:
    """Uploads content, unless it is there; repeating it is harmless. Raises AioRpcError."""
    await stub.PutBlob(_parts(tenant_id, blob, content), timeout=TRANSFER_DEADLINE_S)


async def _parts(tenant_id: str, blob: BlobRef, content: bytes) -> AsyncGenerator[pb.PutBlobRequest]:
    # The declaration alone: where the blob is there already, nothing of it is sent.
    yield pb.PutBlobRequest(declaration=pb.BlobDeclaration(tenant_id=tenant_id, blob=blob_to_wire(blob)))
    for at in range(0, len(content), BLOB_CHUNK_BYTES_MAX):
        yield pb.PutBlobRequest(data=content[at : at + BLOB_CHUNK_BYTES_MAX])


async def fetch(stub: Any, tenant_id: str, blob: BlobRef, content: bytearray) -> bytes:
    """Downloads what is missing in `content`; called again after a broken connection, it goes on behind that.

    Raises:
        LanternError: BLOB_MISMATCH, what came is not what its name says.
    """
    request = pb.GetBlobRequest(tenant_id=tenant_id, blob=blob_to_wire(blob), offset=len(content))
    async for message in stub.GetBlob(request, timeout=TRANSFER_DEADLINE_S):
        content += message.data
    whole = bytes(content)
    if await asyncio.to_thread(lambda: sha256(whole).hexdigest()) != blob.sha256:
        raise LanternError(reasons.BLOB_MISMATCH, f"what came is not blob {blob.sha256}", sha256=blob.sha256)
    return whole


async def as_field(stub: Any, address: str, tenant_id: str, field: str, body: bytes) -> dict[str, Any]:
    """A request's field for user data; what is too large for it is uploaded to `address`, and named instead."""
    if len(body) <= PAYLOAD_INLINE_BYTES_MAX:
        return {field: body}
    blob = await name_of(body)
    try:
        await send(stub, tenant_id, blob, body)
    except grpc.aio.AioRpcError as error:
        raise to_error(error, address) from None
    return {f"{field}_blob": blob_to_wire(blob)}


async def whole(stub: Any, address: str, tenant_id: str, blob: BlobRef) -> bytes:
    """The content of a blob, by one call to `address`."""
    try:
        return await fetch(stub, tenant_id, blob, bytearray())
    except grpc.aio.AioRpcError as error:
        raise to_error(error, address) from None
