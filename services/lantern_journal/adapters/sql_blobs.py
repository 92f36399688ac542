"""Blobs in SQL: uploads, reading, the naming of blobs by runs, and the collection of what nothing names.

A blob's row is locked after everything else that its transaction locks, by those who name it against being deleted
(FOR KEY SHARE). The collection waits for nobody: it skips what is locked, and looks for names once more in a statement
of its own when it has the lock. So what a committed transaction names is there.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa

from lantern_journal.adapters.schema import (
    journal_blob_chunks,
    journal_blob_refs,
    journal_blob_uploads,
    journal_blobs,
    runs,
)
from lantern_journal.adapters.sql_events import Transaction
from lantern_journal.domain import blobs as domain
from lantern_journal.domain.blobs import Collected, NamedBlobs, Place, StoredBlob, Upload
from lantern_kernel import reasons
from lantern_kernel.blobs import BlobRef
from lantern_kernel.errors import LanternError

blobs, chunks, refs, uploads = journal_blobs, journal_blob_chunks, journal_blob_refs, journal_blob_uploads

_KEY = sa.tuple_(blobs.c.tenant_id, blobs.c.sha256)
_WRITE_CHUNK = sa.text(
    "INSERT INTO journal_blob_chunks (upload_id, number, data) VALUES (:upload_id, :number, :data)"
    " ON CONFLICT (upload_id, number) DO NOTHING"
)
_KEEP = sa.text(
    "INSERT INTO journal_blobs (tenant_id, sha256, upload_id, size, created_us, touched_us)"
    " VALUES (:tenant_id, :sha256, :upload_id, :size, :now, :now)"
    " ON CONFLICT (tenant_id, sha256) DO UPDATE SET touched_us = excluded.touched_us"
    " RETURNING upload_id"
)
_NAME = sa.text(
    "INSERT INTO journal_blob_refs (tenant_id, sha256, run_id) VALUES (:tenant_id, :sha256, :run_id)"
    " ON CONFLICT (tenant_id, sha256, run_id) DO NOTHING"
)


def begin_upload(tx: Transaction, upload: Upload) -> bool:
    """Whether there is something to upload; a blob that is there already is spared for another while."""
    if has_blobs(tx, upload.tenant_id, [upload.blob]):
        return False
    known = tx.connection.execute(
        sa.select(uploads.c.upload_id).where(uploads.c.upload_id == upload.upload_id)
    ).one_or_none()
    if known is None:
        tx.connection.execute(
            uploads.insert().values(upload_id=upload.upload_id, tenant_id=upload.tenant_id, touched_us=tx.now_us)
        )
    return True


def write_chunks(tx: Transaction, upload_id: str, first: int, data: Sequence[bytes]) -> None:
    """Keeps the next chunks of an upload; a repeat finds them there."""
    touched = tx.connection.execute(
        uploads.update().where(uploads.c.upload_id == upload_id).values(touched_us=tx.now_us)
    ).rowcount
    if not touched:
        raise _given_up()
    tx.connection.execute(
        _WRITE_CHUNK,
        [{"upload_id": upload_id, "number": first + index, "data": chunk} for index, chunk in enumerate(data)],
    )


def finish_upload(tx: Transaction, upload: Upload) -> bool:
    """Makes an upload the blob, unless another one was first; whether this one is it."""
    mine = tx.connection.execute(
        sa.select(uploads.c.upload_id).where(uploads.c.upload_id == upload.upload_id).with_for_update()
    ).one_or_none()
    if mine is None:
        found = find_blob(tx.connection, upload.tenant_id, upload.blob)
        if found is None:
            raise _given_up()
        # This very call finished it before its connection was lost.
        return found.upload_id == upload.upload_id
    kept = tx.connection.execute(
        _KEEP,
        {
            "tenant_id": upload.tenant_id,
            "sha256": upload.blob.sha256,
            "upload_id": upload.upload_id,
            "size": upload.blob.size,
            "now": tx.now_us,
        },
    ).scalar_one()
    tx.connection.execute(uploads.delete().where(uploads.c.upload_id == upload.upload_id))
    if kept != upload.upload_id:
        _delete_chunks(tx, [upload.upload_id])
    return kept == upload.upload_id


def abandon_upload(tx: Transaction, upload_id: str) -> None:
    """Deletes an upload that is not finished."""
    if tx.connection.execute(uploads.delete().where(uploads.c.upload_id == upload_id)).rowcount:
        _delete_chunks(tx, [upload_id])


def _given_up() -> LanternError:
    return LanternError(reasons.UNAVAILABLE, "the upload took too long and was given up; send it again")


def has_blobs(tx: Transaction, tenant_id: str, wanted: Sequence[BlobRef]) -> set[BlobRef]:
    """Which of these are there; each is spared for another while."""
    keys = [(tenant_id, blob.sha256) for blob in wanted]
    found = tx.connection.execute(
        sa.select(blobs.c.sha256, blobs.c.size)
        .where(_KEY.in_(keys))
        .order_by(blobs.c.sha256)
        .with_for_update(key_share=True)
    ).all()
    there = {BlobRef(sha256=sha256, size=size) for sha256, size in found} & set(wanted)
    if there:
        touch = [(tenant_id, blob.sha256) for blob in sorted(there)]
        tx.connection.execute(blobs.update().where(_KEY.in_(touch)).values(touched_us=tx.now_us))
    return there


def find_blob(connection: sa.Connection, tenant_id: str, blob: BlobRef) -> StoredBlob | None:
    """Where the content of a blob is; None where there is none."""
    row = connection.execute(
        sa.select(blobs.c.upload_id, blobs.c.size).where(
            blobs.c.tenant_id == tenant_id, blobs.c.sha256 == blob.sha256, blobs.c.size == blob.size
        )
    ).one_or_none()
    return None if row is None else StoredBlob(upload_id=row.upload_id, size=row.size)


def read_chunk(connection: sa.Connection, upload_id: str, number: int) -> bytes | None:
    """A chunk; None where it is gone."""
    return connection.execute(
        sa.select(chunks.c.data).where(chunks.c.upload_id == upload_id, chunks.c.number == number)
    ).scalar()


def name_blobs(tx: Transaction, named: Sequence[NamedBlobs]) -> dict[int, LanternError]:
    """Writes down which runs name which blobs, or nothing: then why, for each of `named` (its index) that cannot."""
    query = sa.select(runs.c.run_id, runs.c.tenant_id).where(runs.c.run_id.in_(sorted({n.run_id for n in named})))
    tenants: dict[str, str] = {row.run_id: row.tenant_id for row in tx.connection.execute(query)}
    there = hold(tx, [(tenants.get(n.run_id, ""), blob) for n in named for blob in n.blobs])
    errors: dict[int, LanternError] = {}
    naming: list[tuple[str, BlobRef, str]] = []
    for index, one in enumerate(named):
        tenant_id = tenants.get(one.run_id, "")
        missing = next((blob for blob in one.blobs if (tenant_id, blob) not in there), None)
        if missing is not None:
            errors[index] = domain.absent(missing, run_id=one.run_id)
            continue
        naming += [(tenant_id, blob, one.run_id) for blob in one.blobs]
    if not errors:
        write_names(tx, naming)
    return errors


def hold(tx: Transaction, wanted: Iterable[tuple[str, BlobRef]]) -> set[tuple[str, BlobRef]]:
    """Which of these (tenant, blob) are there; those stay until the transaction ends."""
    keys = sorted({(tenant_id, blob.sha256) for tenant_id, blob in wanted})
    if not keys:
        return set()
    found = tx.connection.execute(
        sa.select(blobs.c.tenant_id, blobs.c.sha256, blobs.c.size)
        .where(_KEY.in_(keys))
        .order_by(blobs.c.tenant_id, blobs.c.sha256)
        .with_for_update(read=True, key_share=True)
    )
    return {(row.tenant_id, BlobRef(sha256=row.sha256, size=row.size)) for row in found}


def write_names(tx: Transaction, naming: Iterable[tuple[str, BlobRef, str]]) -> None:
    """Writes down that runs name blobs that are held: (tenant, blob, run)."""
    values = [
        {"tenant_id": tenant_id, "sha256": blob.sha256, "run_id": run_id}
        for tenant_id, blob, run_id in sorted(set(naming))
    ]
    if values:
        tx.connection.execute(_NAME, values)


def name_one(tx: Transaction, tenant_id: str, blob: BlobRef | None, run_id: str, field: str) -> None:
    """Writes down that a run names a blob, where it names one; raises BLOB_NOT_FOUND naming the field."""
    if blob is None:
        return
    if not hold(tx, [(tenant_id, blob)]):
        raise domain.absent(blob, field=field)
    write_names(tx, [(tenant_id, blob, run_id)])


def collect(tx: Transaction, after: Place, kept_us: int) -> Collected:
    """Deletes some blobs that nothing names and that nobody has touched for so long, and some dead uploads."""
    page = tx.connection.execute(
        sa.select(blobs.c.tenant_id, blobs.c.sha256, blobs.c.size, blobs.c.touched_us)
        .where(after < _KEY)
        .order_by(blobs.c.tenant_id, blobs.c.sha256)
        .limit(domain.COLLECT_LOOKED_AT_MAX)
    ).all()
    until_us = tx.now_us - kept_us
    named = _named(tx, [(row.tenant_id, row.sha256) for row in page if row.touched_us <= until_us])
    garbage = [row for row in page if row.touched_us <= until_us and (row.tenant_id, row.sha256) not in named]
    taken = garbage[: domain.cut_to_budget([row.size for row in garbage])]
    last = taken[-1] if len(taken) < len(garbage) else (page[-1] if page else None)
    is_end = len(page) < domain.COLLECT_LOOKED_AT_MAX and len(taken) == len(garbage)
    deleted = _delete(tx, [(row.tenant_id, row.sha256) for row in taken], until_us)
    return Collected(
        blobs=len(deleted),
        size=sum(deleted),
        uploads=_give_up_uploads(tx),
        after=domain.START if is_end or last is None else (last.tenant_id, last.sha256),
    )


def _named(tx: Transaction, keys: Sequence[Place]) -> set[Place]:
    if not keys:
        return set()
    query = sa.select(refs.c.tenant_id, refs.c.sha256).where(sa.tuple_(refs.c.tenant_id, refs.c.sha256).in_(keys))
    return {(tenant_id, sha256) for tenant_id, sha256 in tx.connection.execute(query.distinct())}


def _delete(tx: Transaction, keys: Sequence[Place], until_us: int) -> list[int]:
    """Deletes those of these blobs that still nothing names; their sizes."""
    if not keys:
        return []
    lock = (
        sa.select(blobs.c.tenant_id, blobs.c.sha256)
        .where(_KEY.in_(keys), blobs.c.touched_us <= until_us)
        .order_by(blobs.c.tenant_id, blobs.c.sha256)
        .with_for_update(skip_locked=True)
    )
    locked = [(tenant_id, sha256) for tenant_id, sha256 in tx.connection.execute(lock)]
    # A statement of its own: who named one of them before it was locked is committed by now, and seen only from now on.
    named = _named(tx, locked)
    unnamed = [key for key in locked if key not in named]
    if not unnamed:
        return []
    deleted: Sequence[Any] = tx.connection.execute(
        blobs.delete().where(_KEY.in_(unnamed)).returning(blobs.c.upload_id, blobs.c.size)
    ).all()
    _delete_chunks(tx, [row.upload_id for row in deleted])
    return [row.size for row in deleted]


def _give_up_uploads(tx: Transaction) -> int:
    dead = list(
        tx.connection.execute(
            sa.select(uploads.c.upload_id)
            .where(uploads.c.touched_us <= tx.now_us - domain.UPLOAD_KEPT_US)
            .order_by(uploads.c.upload_id)
            .limit(domain.COLLECT_UPLOADS_MAX)
            .with_for_update(skip_locked=True)
        ).scalars()
    )
    if dead:
        tx.connection.execute(uploads.delete().where(uploads.c.upload_id.in_(dead)))
        _delete_chunks(tx, dead)
    return len(dead)


def _delete_chunks(tx: Transaction, upload_ids: Sequence[str]) -> None:
    tx.connection.execute(chunks.delete().where(chunks.c.upload_id.in_(upload_ids)))


def ref_text(blob: BlobRef | None) -> str | None:
    """A blob's name as a column keeps it."""
    return None if blob is None else str(blob)


def ref_of(text: str | None) -> BlobRef | None:
    """The blob that a column names."""
    return None if text is None else BlobRef.parse(text)
