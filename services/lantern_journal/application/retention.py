"""Archiving runs that ended long ago (SPEC J9), and letting go of what is empty then.

A file is written, published and read again before the one transaction that takes it into use. Killed anywhere, a run is
either whole in the database or whole in a file that the database names; a file that was begun and never taken into use
is named in the database too, and removed in a later turn.
"""

import asyncio
import base64
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from lantern_journal.domain import archives
from lantern_journal.domain.archives import ArchivedRun, Candidate, PassCounts, Turn
from lantern_journal.domain.records import InboxEntry, Run
from lantern_journal.ports import ArchiveFiles, ArchiveWriter, Clock, Store
from lantern_kernel import archive, reasons
from lantern_kernel.blobs import BlobRef
from lantern_kernel.bounds import PAGE_BYTES_MAX, PAGE_ROWS_MAX
from lantern_kernel.errors import LanternError

log = logging.getLogger(__name__)

TERM_US = 120_000_000
EXTEND_S = 20.0
"""A turn is extended this often; one whose journal is gone is free again after its term."""

FILE_RUNS_MAX = 500
FILE_BYTES_MAX = 64 * 1024 * 1024
"""A file is finished at the first of these."""


class Retention:
    """Passes over the runs that ended before a certain age."""

    def __init__(self, store: Store, files: ArchiveFiles, clock: Clock, *, age_us: int) -> None:
        self._store, self._files, self._clock, self._age_us = store, files, clock, age_us
        self._extended_s = 0.0

    async def run_pass(self) -> PassCounts:
        """Archives all that is old enough and drops the partitions that are empty."""
        turn = await self._store.take_archive_turn(TERM_US)
        if turn is None:
            return PassCounts(is_busy=True)
        self._extended_s = self._clock.monotonic_s()
        before_us = self._clock.now_us() - self._age_us
        counts = PassCounts()
        try:
            await self._clean_up(turn)
            place, number = (0, ""), 0
            while found := await self._store.archivable(before_us, place, FILE_RUNS_MAX):
                taken, counts = await self._fill_file(turn, number, found, counts)
                number += 1
                place = (found[taken - 1].ended_us, found[taken - 1].run_id)
            dropped = await self._store.drop_partitions(before_us)
        finally:
            await self._store.extend_archive_turn(turn.number, 0)
        return _add(counts, partitions=len(dropped))

    async def _clean_up(self, turn: Turn) -> None:
        for name in turn.leftovers:
            await self._files.remove(name)
            await self._store.forget_archive_file(turn.number, name)
            log.info(
                "archive file of a pass that was cut off removed", extra={"action": "archive_removed", "file": name}
            )

    async def _fill_file(
        self, turn: Turn, number: int, found: Sequence[Candidate], counts: PassCounts
    ) -> tuple[int, PassCounts]:
        """One file, of as many of the runs as it takes; how many that were."""
        name = archives.file_name(found[0].run_id, turn.number, number)
        await self._store.begin_archive_file(turn.number, name)
        writer = await self._files.create(name, archive.header_line(self._clock.now_us()))
        written: list[ArchivedRun] = []
        taken = faulty = 0
        try:
            while taken < len(found) and writer.size < FILE_BYTES_MAX:
                try:
                    written.append(await self._write_run(turn, writer, found[taken].run_id))
                except LanternError as error:
                    if error.reason not in (reasons.ARCHIVE_FAULTY, reasons.RUN_ARCHIVED, reasons.RUN_NOT_FOUND):
                        raise
                    await writer.drop_run()
                    faulty += _complain(found[taken].run_id, error.message)
                taken += 1
            await writer.publish()
        except BaseException:
            await asyncio.shield(writer.abandon())
            raise
        good, bad = await self._read_again(turn, name, written)
        in_use = await self._store.let_go(turn.number, name, good)
        if not in_use:
            await self._files.remove(name)
            await self._store.forget_archive_file(turn.number, name)
        events = sum(run.event_count for run in good)
        return taken, _add(counts, runs=in_use, events=events, files=int(in_use > 0), faulty=faulty + bad)

    async def _write_run(self, turn: Turn, writer: ArchiveWriter, run_id: str) -> ArchivedRun:
        """Writes a run page by page; ARCHIVE_FAULTY where the database does not hold it whole."""
        run = await self._store.get_run(run_id)
        head = await self._store.head(run_id)
        await writer.begin_run()
        await writer.add([archive.run_line(run_id, head.seq, head.hash, run_facts(run), None)])
        lines = 1 + await self._write_blobs(turn, writer, run_id)
        after, has_more = 0, True
        while has_more:
            events, has_more = await self._store.list_events(run_id, after, PAGE_ROWS_MAX, PAGE_BYTES_MAX)
            await writer.add([archive.event_line(event) for event in events])
            lines, after = lines + len(events), events[-1].seq if events else after
            await self._extend(turn)
        number, has_more = 0, run.inbox_number > 0
        while has_more:
            entries, has_more = await self._store.list_inbox(run_id, number, PAGE_ROWS_MAX, PAGE_BYTES_MAX)
            await writer.add([_inbox_line(entry) for entry in entries])
            lines, number = lines + len(entries), entries[-1].number if entries else number
        await writer.add([archive.end_line(run_id, lines)])
        offset, length = await writer.end_run()
        return ArchivedRun(run_id=run_id, offset=offset, length=length, event_count=head.seq, head_hash=head.hash)

    async def _write_blobs(self, turn: Turn, writer: ArchiveWriter, run_id: str) -> int:
        """Writes what the run's payloads name; how many lines."""
        lines = 0
        for blob in await self._store.blobs_of(run_id):
            await writer.add([archive.blob_line(blob.sha256, blob.size)])
            size = number = 0
            while size < blob.size:
                data = await self._store.read_chunk(blob.upload_id, number)
                if data is None:
                    raise LanternError(reasons.ARCHIVE_FAULTY, f"blob {blob.sha256} is not there whole")
                await writer.add([archive.chunk_line(blob.sha256, data)])
                size, number = size + len(data), number + 1
                await self._extend(turn)
            lines += 1 + number
        return lines

    async def _read_again(self, turn: Turn, name: str, written: Sequence[ArchivedRun]) -> tuple[list[ArchivedRun], int]:
        """The runs that are whole in the published file, and how many are not."""
        good: list[ArchivedRun] = []
        faulty = 0
        for run in written:
            fault = archives.fault_of(await self._files.check(name, run), run)
            if fault is None:
                good.append(run)
            else:
                faulty += _complain(run.run_id, fault)
            await self._extend(turn)
        return good, faulty

    async def _extend(self, turn: Turn) -> None:
        if self._clock.monotonic_s() - self._extended_s >= EXTEND_S:
            await self._store.extend_archive_turn(turn.number, TERM_US)
            self._extended_s = self._clock.monotonic_s()


def run_facts(run: Run) -> Mapping[str, Any]:
    """A run's record for an archive file: names as in the API, times in microseconds."""
    facts: dict[str, Any] = {
        "runId": run.run_id,
        "tenantId": run.tenant_id,
        "workflowId": run.workflow_id,
        "agentName": run.agent_name,
        "agentVersion": run.agent_version,
        "agentDigest": run.agent_digest,
        "state": run.state.value,
        "createdUs": run.created_us,
        "endedUs": run.ended_us,
        "traceparent": run.traceparent,
        "epoch": run.epoch,
        "lastInboxNumber": run.inbox_number,
        "input": _user_data(run.input, run.input_blob),
        "result": _user_data(run.result, run.result_blob),
    }
    if run.error is not None:
        facts["error"] = {"code": run.error.code, "message": run.error.message, "stepId": run.error.step_id}
    return facts


def _user_data(data: bytes | None, blob: BlobRef | None) -> Any:
    if blob is not None:
        return {"blob": str(blob)}
    return None if data is None else {"base64": base64.b64encode(data).decode()}


def _inbox_line(entry: InboxEntry) -> bytes:
    blob = str(entry.payload_blob) if entry.payload_blob else ""
    return archive.inbox_line(entry.number, entry.kind, entry.name, entry.payload, entry.created_us, blob)


def _complain(run_id: str, fault: str) -> int:
    log.error(
        "a run stays in the database: it is not whole",
        extra={"action": "archive_faulty", "run_id": run_id, "fault": fault},
    )
    return 1


def _add(
    counts: PassCounts, *, runs: int = 0, events: int = 0, files: int = 0, faulty: int = 0, partitions: int = 0
) -> PassCounts:
    return PassCounts(
        runs=counts.runs + runs,
        events=counts.events + events,
        files=counts.files + files,
        faulty=counts.faulty + faulty,
        partitions=counts.partitions + partitions,
    )
