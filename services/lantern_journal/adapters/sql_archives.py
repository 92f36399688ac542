"""Archiving in SQL: whose turn it is, which runs may go, and the one transaction that lets them go."""

from collections.abc import Sequence

import sqlalchemy as sa

from lantern_journal.adapters.schema import (
    approvals,
    archive_files,
    archive_turns,
    feed_consumers,
    journal_blob_refs,
    journal_blobs,
    journal_events,
    journal_feed,
    run_archives,
    run_inbox,
    run_locks,
    runs,
    side_effect_receipts,
)
from lantern_journal.adapters.sql_events import Transaction, head_of
from lantern_journal.domain import feed_cursor, run_state
from lantern_journal.domain.archives import Archive, ArchivedRun, Candidate, KeptBlob, Turn, archived_error
from lantern_kernel import kinds, reasons
from lantern_kernel.errors import LanternError

TURN = "archive"
SHA256_DIGITS = 64
_LINES = sa.text("SELECT count(*) FROM alembic_version")
"""A row for each line of revisions that the database has: pre, and post with 0003, the first of that line. Before it,
journals may run that know of no archived runs, and would call them broken."""

_NOT_ARCHIVED = sa.text("NOT runs.archived")
"""As the index has it: SQLite would not know `archived = 0` for the same."""


def take_turn(tx: Transaction, term_us: int) -> Turn | None:
    """Takes the turn where nobody has it; None where somebody does."""
    if tx.connection.execute(_LINES).scalar_one() < 2:
        raise LanternError(
            reasons.UNAVAILABLE,
            "runs are archived once all journals know of archived runs: apply `lantern-journal migrate --phase post`",
        )
    _lock_turn(tx)
    taken = tx.connection.execute(
        archive_turns.update()
        .where(archive_turns.c.name == TURN, archive_turns.c.until_us <= tx.now_us)
        .values(number=archive_turns.c.number + 1, until_us=tx.now_us + term_us)
        .returning(archive_turns.c.number)
    ).scalar()
    if taken is None:
        return None
    left = sa.select(archive_files.c.name).where(archive_files.c.finished_us.is_(None), archive_files.c.turn < taken)
    return Turn(number=taken, leftovers=tuple(tx.connection.execute(left.order_by(archive_files.c.name)).scalars()))


def _lock_turn(tx: Transaction) -> None:
    """Makes the one row where there is none."""
    values = {"name": TURN, "number": 0, "until_us": 0}
    tx.connection.execute(
        sa.text(
            "INSERT INTO archive_turns (name, number, until_us) VALUES (:name, :number, :until_us)"
            " ON CONFLICT (name) DO NOTHING"
        ),
        values,
    )


def extend_turn(tx: Transaction, turn: int, term_us: int) -> None:
    """Another term, or the end of it (0); LEASE_LOST where it was taken by somebody else."""
    _hold_turn(tx, turn)
    tx.connection.execute(
        archive_turns.update().where(archive_turns.c.name == TURN).values(until_us=tx.now_us + term_us)
    )


def _hold_turn(tx: Transaction, turn: int) -> None:
    query = sa.select(archive_turns.c.number).where(archive_turns.c.name == TURN).with_for_update()
    if tx.connection.execute(query).scalar() != turn:
        raise LanternError(reasons.LEASE_LOST, "another journal archives")


def begin_file(tx: Transaction, turn: int, name: str) -> None:
    """Notes a file before its first byte is written, so that it is found where its writer is killed."""
    _hold_turn(tx, turn)
    tx.connection.execute(archive_files.delete().where(archive_files.c.name == name))
    tx.connection.execute(archive_files.insert().values(name=name, turn=turn, begun_us=tx.now_us))


def forget_file(tx: Transaction, turn: int, name: str) -> None:
    """A file that was never taken into use is no more."""
    _hold_turn(tx, turn)
    tx.connection.execute(
        archive_files.delete().where(archive_files.c.name == name, archive_files.c.finished_us.is_(None))
    )


def archivable(connection: sa.Connection, before_us: int, after: tuple[int, str], limit: int) -> list[Candidate]:
    """Runs that ended before a moment and are not archived, after a place, in the order of their ends."""
    place = sa.or_(runs.c.ended_us > after[0], sa.and_(runs.c.ended_us == after[0], runs.c.run_id > after[1]))
    found = connection.execute(
        sa.select(runs.c.ended_us, runs.c.run_id)
        .where(runs.c.ended_us.is_not(None), _NOT_ARCHIVED, runs.c.ended_us < before_us, place)
        .where(runs.c.ended_us >= after[0])
        .order_by(runs.c.ended_us, runs.c.run_id)
        .limit(limit)
    )
    return [Candidate(ended_us=row.ended_us, run_id=row.run_id) for row in found]


def let_go(tx: Transaction, turn: int, name: str, archived: Sequence[ArchivedRun]) -> int:
    """Takes a finished file into use: the runs' events and what belongs to them go. How many of its runs are in use.

    Asked again, it finds its work done. A run is left alone where the database holds other events than the file.
    """
    _hold_turn(tx, turn)
    wanted = {run.run_id: run for run in archived}
    found = tx.connection.execute(
        sa.select(runs.c.run_id, runs.c.state)
        .where(runs.c.run_id.in_(list(wanted)), _NOT_ARCHIVED)
        .order_by(runs.c.run_id)
        .with_for_update()
    )
    going = [
        wanted[row.run_id]
        for row in found
        if row.state in run_state.FINAL and _is_same(tx.connection, wanted[row.run_id])
    ]
    if going:
        _move(tx, name, going)
    count = sa.select(sa.func.count()).select_from(run_archives).where(run_archives.c.file == name)
    in_use: int = tx.connection.execute(count).scalar_one()
    if in_use:
        tx.connection.execute(archive_files.update().where(archive_files.c.name == name).values(finished_us=tx.now_us))
    return in_use


def _move(tx: Transaction, name: str, going: Sequence[ArchivedRun]) -> None:
    ids = [run.run_id for run in going]
    tx.connection.execute(
        run_archives.insert(),
        [
            {
                "run_id": run.run_id,
                "file": name,
                "byte_offset": run.offset,
                "byte_length": run.length,
                "event_count": run.event_count,
                "head_hash": run.head_hash,
                "archived_us": tx.now_us,
            }
            for run in going
        ],
    )
    tx.connection.execute(runs.update().where(runs.c.run_id.in_(ids)).values(archived=True))
    for table in (run_locks, run_inbox, approvals, journal_events):
        tx.connection.execute(table.delete().where(table.c.run_id.in_(ids)))
    # What a claim on a delivery names stays: claims outlive their runs.
    claimed = sa.select(sa.func.substr(side_effect_receipts.c.result_blob, 1, SHA256_DIGITS)).where(
        side_effect_receipts.c.run_id.in_(ids), side_effect_receipts.c.result_blob.is_not(None)
    )
    tx.connection.execute(
        journal_blob_refs.delete().where(
            journal_blob_refs.c.run_id.in_(ids), journal_blob_refs.c.sha256.not_in(claimed)
        )
    )


def _is_same(connection: sa.Connection, run: ArchivedRun) -> bool:
    head = head_of(connection, run.run_id)
    return (head.seq, head.hash) == (run.event_count, run.head_hash) and head.kind in kinds.TERMINAL


def archive_of(connection: sa.Connection, run_id: str) -> Archive:
    """Where an archived run is."""
    row = connection.execute(sa.select(run_archives).where(run_archives.c.run_id == run_id)).one()
    return Archive(
        file=row.file,
        offset=row.byte_offset,
        length=row.byte_length,
        event_count=row.event_count,
        head_hash=row.head_hash,
        archived_us=row.archived_us,
    )


def refusal(connection: sa.Connection, run_id: str) -> LanternError:
    """The answer to whoever wants the events of an archived run."""
    return archived_error(run_id, archive_of(connection, run_id).file)


def unread_since(connection: sa.Connection, before_us: int) -> int:
    """The moment before which no named consumer of the feed has anything to read, at most the given one."""
    is_postgres = connection.dialect.name == "postgresql"
    for token in connection.execute(sa.select(feed_consumers.c.cursor)).scalars().all():
        begin = feed_cursor.from_token(token).base.begin
        unread = journal_feed.c.xid >= begin if is_postgres else journal_feed.c.id >= begin
        oldest = connection.execute(sa.select(sa.func.min(journal_feed.c.time_us)).where(unread)).scalar()
        before_us = min(before_us, oldest if oldest is not None else before_us)
    return before_us


def blobs_of(connection: sa.Connection, run_id: str) -> list[KeptBlob]:
    """The payloads of a run that are kept apart."""
    names, kept = journal_blob_refs.c, journal_blobs.c
    found = connection.execute(
        sa.select(kept.sha256, kept.size, kept.upload_id)
        .join_from(
            journal_blob_refs,
            journal_blobs,
            sa.and_(kept.tenant_id == names.tenant_id, kept.sha256 == names.sha256),
        )
        .where(names.run_id == run_id)
        .order_by(kept.sha256)
    )
    return [KeptBlob(sha256=row.sha256, size=row.size, upload_id=row.upload_id) for row in found]
