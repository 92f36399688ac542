"""User data above 256 KiB on its way to the journal and back, a message of at most 256 KiB at a time."""

import asyncio
from collections.abc import AsyncGenerator
from hashlib import sha256
from typing import Any

from lantern.api.journal.v1 import blob_service_pb2 as pb
from lantern.api.journal.v1 import run_pb2
from lantern_kernel import reasons
from lantern_kernel.blobs import BlobRef
from lantern_kernel.bounds import BLOB_CHUNK_BYTES_MAX
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
