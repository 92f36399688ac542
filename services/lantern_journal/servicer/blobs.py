"""JournalBlobService: see its proto for what each RPC promises."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from lantern.api.journal.v1 import blob_service_pb2 as pb
from lantern.api.journal.v1 import blob_service_pb2_grpc
from lantern_journal import validate, wire
from lantern_journal.application.blobs import Blobs
from lantern_journal.servicer.streams import OpenStreams
from lantern_kernel.errors import InvalidField


class BlobServicer(blob_service_pb2_grpc.JournalBlobServiceServicer):
    """For whoever has user data above 256 KiB."""

    def __init__(self, blobs: Blobs, streams: OpenStreams) -> None:
        self._blobs, self._streams = blobs, streams

    async def PutBlob(self, request_iterator: AsyncIterator[pb.PutBlobRequest], context: Any) -> pb.PutBlobResponse:
        """Takes a blob in."""
        with self._streams.registered():
            first = await anext(aiter(request_iterator), None)
            if first is None:
                raise InvalidField("declaration", "nothing was sent")
            validate.put_blob(first, is_first=True)
            tenant_id, blob = wire.tenant(first.declaration.tenant_id), wire.blob_ref(first.declaration.blob)
            stored = await self._blobs.put(tenant_id, blob, _parts(first.data, request_iterator))
            return pb.PutBlobResponse(stored=stored)

    async def GetBlob(self, request: pb.GetBlobRequest, context: Any) -> AsyncIterator[pb.GetBlobResponse]:
        """Sends a blob."""
        validate.get_blob(request)
        with self._streams.registered():
            content = self._blobs.get(wire.tenant(request.tenant_id), wire.blob_ref(request.blob), request.offset)
            async with aclosing(content) as chunks:
                async for chunk in chunks:
                    yield pb.GetBlobResponse(data=chunk)

    async def HasBlobs(self, request: pb.HasBlobsRequest, context: Any) -> pb.HasBlobsResponse:
        """Says which blobs are there."""
        validate.has_blobs(request)
        there = await self._blobs.has(wire.tenant(request.tenant_id), list(map(wire.blob_ref, request.blobs)))
        return pb.HasBlobsResponse(blobs=map(wire.blob, there))

    async def CollectBlobs(self, request: pb.CollectBlobsRequest, context: Any) -> pb.CollectBlobsResponse:
        """Deletes what nothing names."""
        done, has_more = await self._blobs.collect()
        return pb.CollectBlobsResponse(blobs=done.blobs, size=done.size, uploads=done.uploads, has_more=has_more)


async def _parts(first: bytes, rest: AsyncIterator[pb.PutBlobRequest]) -> AsyncGenerator[bytes]:
    if first:
        yield first
    async for request in rest:
        validate.put_blob(request, is_first=False)
        yield request.data
