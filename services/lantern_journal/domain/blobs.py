"""Blobs as the journal keeps them: taken in by uploads, named by runs, collected when nothing names them (SPEC J4)."""

from collections.abc import Sequence
from dataclasses import dataclass

from lantern_kernel import reasons
from lantern_kernel.blobs import BlobRef
from lantern_kernel.bounds import BLOB_CHUNK_BYTES_MAX
from lantern_kernel.errors import LanternError

CHUNK_BYTES = BLOB_CHUNK_BYTES_MAX
"""Of a stored chunk, but for the last one of a blob: where an offset lies can be computed."""

UPLOAD_KEPT_US = 3_600_000_000
"""An upload that nobody has gone on with for so long is given up."""

COLLECT_LOOKED_AT_MAX = 1_000
COLLECT_DELETED_MAX = 100
COLLECT_BYTES_MAX = 64 * 1024 * 1024
COLLECT_UPLOADS_MAX = 20
"""Of one transaction of the collection."""

Place = tuple[str, str]
"""Where a walk over the blobs stands: tenant and SHA-256; empty texts at the start."""

START: Place = ("", "")


@dataclass(frozen=True, kw_only=True, slots=True)
class Upload:
    """One attempt to bring a blob in."""

    # Random; its chunks are kept under it, so that two uploads of one content cannot mix.
    upload_id: str
    # Whose blob.
    tenant_id: str
    # What was declared.
    blob: BlobRef


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredBlob:
    """A blob that is there."""

    # Under which its chunks are kept.
    upload_id: str
    # Bytes.
    size: int


@dataclass(frozen=True, kw_only=True, slots=True)
class NamedBlobs:
    """The blobs that one append names."""

    # The run.
    run_id: str
    # The place of the append's last event; with the run it tells which append.
    last_seq: int
    # What its payloads name.
    blobs: tuple[BlobRef, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Collected:
    """What one transaction of the collection did."""

    # Blobs deleted.
    blobs: int
    # Bytes of their content.
    size: int
    # Uploads given up.
    uploads: int
    # Where the walk goes on; START at its end.
    after: Place


def absent(blob: BlobRef, *, field: str = "", run_id: str = "") -> LanternError:
    """What was named is not there; in which field, or in an append to which run, where that helps."""
    where = {name: value for name, value in (("field", field), ("run_id", run_id)) if value}
    return LanternError(
        reasons.BLOB_NOT_FOUND,
        f"there is no blob {blob.sha256} of {blob.size} bytes in this tenant; upload it, then name it",
        retry_after_s=None,
        sha256=blob.sha256,
        size=blob.size,
        **where,
    )


def mismatch(blob: BlobRef, why: str) -> LanternError:
    """What came is not what was declared."""
    return LanternError(reasons.BLOB_MISMATCH, f"blob {blob.sha256}: {why}", sha256=blob.sha256, size=blob.size)


def cut_to_budget(sizes: Sequence[int]) -> int:
    """How many of these blobs one transaction deletes: at least one, where there is one."""
    total = 0
    for index, size in enumerate(sizes[:COLLECT_DELETED_MAX]):
        total += size
        if index and total > COLLECT_BYTES_MAX:
            return index
    return min(len(sizes), COLLECT_DELETED_MAX)
