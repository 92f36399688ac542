"""Blobs: uploads that are verified as they stream, reading, and the collection of what nothing names."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from hashlib import sha256

from lantern_journal.application.announcements import Hub
from lantern_journal.domain import blobs as domain
from lantern_journal.domain.blobs import CHUNK_BYTES, Collected, Upload
from lantern_journal.ports import Clock, Sources, Store
from lantern_kernel import reasons
from lantern_kernel.blobs import BlobRef
from lantern_kernel.errors import LanternError

log = logging.getLogger(__name__)

UPLOADS_AT_ONCE = 16
"""More of them wait for their turn; each holds WRITE_BYTES at most."""

WRITE_CHUNKS = 4
WRITE_BYTES = WRITE_CHUNKS * CHUNK_BYTES
"""Of an upload in one transaction."""

COLLECT_INTERVAL_S = 600.0
COLLECT_S_MAX = 5.0
"""One pass goes on for so long, and the next from where it stopped."""

ABANDON_S = 5.0

PART_S_MAX = 30.0
"""An upload of which nothing comes for so long gives its turn to the next one."""


class Blobs:
    """Use cases of JournalBlobService.

    Args:
        store: Where they are kept.
        clock: For the length of a pass.
        sources: Names uploads.
        hub: Sees what was begun through to its end.
        kept_us: How long a blob is spared that nothing names, microseconds.
    """

    def __init__(self, store: Store, clock: Clock, sources: Sources, hub: Hub, *, kept_us: int) -> None:
        self._store, self._clock, self._sources, self._hub = store, clock, sources, hub
        self._kept_us = kept_us
        self._room = asyncio.Semaphore(UPLOADS_AT_ONCE)
        self._collecting = asyncio.Lock()
        self._after = domain.START

    async def put(self, tenant_id: str, blob: BlobRef, parts: AsyncIterator[bytes]) -> bool:
        """Takes a blob in; whether it was not there before.

        Raises:
            LanternError: BLOB_MISMATCH; UNAVAILABLE where it has to be sent again.
        """
        upload = Upload(upload_id=self._sources.salt().hex(), tenant_id=tenant_id, blob=blob)
        async with self._room:
            if not await self._store.begin_upload(upload):
                return False
            try:
                await self._receive(upload, parts)
                return await self._hub.see_through(self._store.finish_upload(upload))
            except BaseException:
                # Also where the caller is cut off: what it sent is of no use to anybody.
                self._hub.begin(self._abandon(upload.upload_id))
                raise

    async def _receive(self, upload: Upload, parts: AsyncIterator[bytes]) -> None:
        blob, digest, size, number = upload.blob, sha256(), 0, 0
        waiting = bytearray()
        async for part in _in_time(parts):
            size += len(part)
            if size > blob.size:
                raise domain.mismatch(blob, f"more came than the {blob.size} bytes that were declared")
            digest.update(part)
            waiting += part
            while len(waiting) >= WRITE_BYTES:
                number = await self._write(upload, number, waiting, WRITE_BYTES)
        if size != blob.size:
            raise domain.mismatch(blob, f"{size} bytes came, {blob.size} were declared")
        if digest.hexdigest() != blob.sha256:
            raise domain.mismatch(blob, f"what came has the SHA-256 {digest.hexdigest()}")
        if waiting:
            await self._write(upload, number, waiting, len(waiting))

    async def _write(self, upload: Upload, number: int, waiting: bytearray, size: int) -> int:
        """Writes the first bytes that wait, and returns the number of the next chunk."""
        chunks = [bytes(waiting[at : min(at + CHUNK_BYTES, size)]) for at in range(0, size, CHUNK_BYTES)]
        await self._store.write_chunks(upload.upload_id, number, chunks)
        del waiting[:size]
        return number + len(chunks)

    async def _abandon(self, upload_id: str) -> None:
        try:
            async with asyncio.timeout(ABANDON_S):
                await self._store.abandon_upload(upload_id)
        except (LanternError, TimeoutError):
            # The collection comes to it.
            log.warning("upload not deleted", extra={"action": "abandon_failed", "upload_id": upload_id})

    async def get(self, tenant_id: str, blob: BlobRef, offset: int) -> AsyncGenerator[bytes]:
        """The content from an offset on, a chunk at a time; BLOB_NOT_FOUND."""
        found = await self._store.find_blob(tenant_id, blob)
        if found is None:
            raise domain.absent(blob)
        while offset < found.size:
            number, begin = divmod(offset, CHUNK_BYTES)
            chunk = await self._store.read_chunk(found.upload_id, number)
            if not chunk or begin >= len(chunk):
                raise domain.absent(blob)  # collected while it was read
            yield chunk[begin:] if begin else chunk
            offset += len(chunk) - begin

    async def has(self, tenant_id: str, wanted: Sequence[BlobRef]) -> list[BlobRef]:
        """Those of these that are there, in their order."""
        there = await self._store.has_blobs(tenant_id, wanted)
        return [blob for blob in wanted if blob in there]

    async def collect(self) -> tuple[Collected, bool]:
        """A pass of the collection: what it did, and whether there is more to look at."""
        async with self._collecting:
            until_s = self._clock.monotonic_s() + COLLECT_S_MAX
            blobs = size = uploads = 0
            while True:
                done = await self._store.collect_blobs(self._after, self._kept_us)
                self._after = done.after
                blobs, size, uploads = blobs + done.blobs, size + done.size, uploads + done.uploads
                has_more = self._after != domain.START or done.uploads >= domain.COLLECT_UPLOADS_MAX
                if not has_more or self._clock.monotonic_s() >= until_s:
                    break
        if blobs or uploads:
            extra = {"action": "blobs_collected", "blobs": blobs, "bytes": size, "uploads": uploads}
            log.info("blobs collected", extra=extra)
        return Collected(blobs=blobs, size=size, uploads=uploads, after=self._after), has_more

    async def run(self) -> None:
        """Collects for the life of the process."""
        while True:
            await asyncio.sleep(COLLECT_INTERVAL_S)
            try:
                await self.collect()
            except LanternError as error:
                log.warning("blobs not collected", extra={"action": "collect_failed", "reason": error.reason})
            except Exception:
                log.exception("blobs not collected", extra={"action": "collect_failed"})


async def _in_time(parts: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    """The parts as they come; UNAVAILABLE where the next one does not."""
    while True:
        try:
            async with asyncio.timeout(PART_S_MAX):
                part = await anext(parts)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise LanternError(
                reasons.UNAVAILABLE, f"nothing of the upload came for {PART_S_MAX:g} s; send it again"
            ) from None
        yield part
