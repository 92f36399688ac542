"""Checking what the journal holds, while it works: a run at a time, in short snapshots, with bounded memory."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from zlib import crc32

from lantern_journal.application.announcements import QUEUED, Hub
from lantern_journal.application.committer import GroupCommitter
from lantern_journal.domain import diagnosis, feed
from lantern_journal.domain.appends import Head, not_found
from lantern_journal.domain.diagnosis import RunFacts
from lantern_journal.domain.feed_cursor import Cursor
from lantern_journal.domain.findings import Check, Finding
from lantern_journal.domain.leases import Limits
from lantern_journal.domain.projection import RunFold
from lantern_journal.ports import Disconnected, Store
from lantern_kernel import reasons
from lantern_kernel.errors import LanternError

RUNS_PER_LOOK = 64
RUNS_PER_REPORT = 256
FINDINGS_PER_REPORT = 100
TRACKED_RUNS_MAX = 200_000
"""Runs whose places in the feed are kept at once; where there are more, the feed is read several times."""

PAUSE_S = 0.0005
"""After each run: callers come first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """What was found since the last report."""

    # In order.
    findings: tuple[Finding, ...]
    # Runs and events read so far.
    runs: int
    # See `runs`.
    events: int
    # The last run that was read.
    last_run_id: str
    # Everything has been looked at.
    is_complete: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """A value that was set right."""

    # The run.
    run_id: str
    # The column, or `lock`.
    column: str
    # What was there.
    before: object
    # What is there now.
    after: object


@dataclass(frozen=True, kw_only=True, slots=True)
class Changes:
    """What was set right since the last of these."""

    # In order.
    changes: tuple[Change, ...]
    # Runs looked at so far.
    runs: int
    # The last of them.
    last_run_id: str
    # All have been looked at.
    is_complete: bool = False


class Doctor:
    """Use cases of JournalDoctorService."""

    def __init__(self, store: Store, hub: Hub, committer: GroupCommitter, limits: Limits) -> None:
        self._store, self._hub, self._committer, self._limits = store, hub, committer, limits

    async def check(self, only: str, after: str) -> AsyncGenerator[Report]:
        """Reports on one run, or on all after one, and on all that is not about one run."""
        runs = events = 0
        found: list[Finding] = []
        async for run_id in self._run_ids(only, after):
            fold, facts = await self._read(run_id)
            _must_be_known(only, fold, facts)
            found += diagnosis.judge(fold, facts)
            runs, events, after = runs + 1, events + fold.seq, run_id
            if runs % RUNS_PER_REPORT == 0 or len(found) >= FINDINGS_PER_REPORT:
                yield Report(findings=tuple(found), runs=runs, events=events, last_run_id=after)
                found = []
            await asyncio.sleep(PAUSE_S)
        if not only:
            database = await self._store.read_database(self._limits)
            # Rows that nobody can follow are a finding of their own; the others are looked at when that is set right.
            found += await self._check_feed() if not database.feed_ahead else []
            found += diagnosis.judge_database(database)
        yield Report(findings=tuple(found), runs=runs, events=events, last_run_id=after, is_complete=True)

    async def rebuild(self, only: str, after: str) -> AsyncGenerator[Changes]:
        """Sets right what the events do not allow, in one run or in all after one."""
        runs = 0
        changes: list[Change] = []
        async for run_id in self._run_ids(only, after):
            fold, facts = await self._read(run_id)
            _must_be_known(only, fold, facts)
            if any(finding.mendable for finding in diagnosis.judge(fold, facts)):
                changes += await self._hub.see_through(self._rebuild(run_id))
            runs, after = runs + 1, run_id
            if runs % RUNS_PER_REPORT == 0 or len(changes) >= FINDINGS_PER_REPORT:
                yield Changes(changes=tuple(changes), runs=runs, last_run_id=after)
                changes = []
            await asyncio.sleep(PAUSE_S)
        yield Changes(changes=tuple(changes), runs=runs, last_run_id=after, is_complete=True)

    async def _rebuild(self, run_id: str) -> list[Change]:
        changed = await self._store.rebuild_run(run_id)
        if changed:
            # Whoever needs a driver now is found by the next sweep; told, it comes at once.
            self._committer.forget(run_id)
            self._hub.announce(QUEUED)
        return [
            Change(run_id=run_id, column=column, before=before, after=after)
            for column, (before, after) in changed.items()
        ]

    async def _run_ids(self, only: str, after: str) -> AsyncGenerator[str]:
        if only:
            yield only
            return
        while page := await self._store.list_run_ids(after, RUNS_PER_LOOK):
            for run_id in page:
                yield run_id
            after = page[-1]

    async def _read(self, run_id: str) -> tuple[RunFold, RunFacts]:
        fold = RunFold(run_id)
        while True:
            events, facts = await self._store.read_run(run_id, fold.seq)
            for event in events:
                fold.add(event)
            if facts is not None:
                return fold, facts

    async def _check_feed(self) -> list[Finding]:
        """Whether each run's events stand in the feed once and in order, as far back as it goes, up to its head."""
        parts = 1
        while True:
            found: list[Finding] = []
            for part in range(parts):
                places = Places(parts=parts, part=part)
                cursor = await self._follow(await self._store.begin_feed(at_beginning=True), places)
                if places.is_full:
                    break
                found += await self._compare(places, cursor)
            else:
                return found
            parts *= 2

    async def _follow(self, cursor: Cursor, places: "Places") -> Cursor:
        """Takes in the feed up to what is there now."""
        while not places.is_full:
            rows, cursor = await self._store.read_feed_rows(cursor)
            for _, packed in rows:
                places.add(packed)
            await asyncio.sleep(PAUSE_S)
            if cursor.target is None:
                break
        return cursor

    async def _compare(self, places: "Places", cursor: Cursor) -> list[Finding]:
        behind: dict[str, int] = {}
        for run_ids in places.pages():
            for run_id, head in (await self._heads(run_ids)).items():
                if head.seq > places.last[run_id]:
                    behind[run_id] = head.seq
        # What was committed between the two looks is in the feed by now.
        await self._follow(cursor, places)
        found = [
            Finding(check=Check.FEED, subject="order", message=message, run_id=run_id)
            for run_id, message in places.faults
        ]
        return found + [
            Finding(
                check=Check.FEED,
                subject="missing",
                message=f"the feed ends at event {places.last[run_id]}, the run at {seq}",
                run_id=run_id,
            )
            for run_id, seq in behind.items()
            if places.last[run_id] < seq
        ]

    async def _heads(self, run_ids: list[str]) -> dict[str, Head]:
        try:
            return await self._store.heads(run_ids)
        except Disconnected:
            raise LanternError(reasons.UNAVAILABLE, "the database does not answer", retry_after_s=1.0) from None


class Places:
    """How far the feed has come in each run of a part of all runs.

    Args:
        parts: Into how many parts the runs are divided.
        part: Which one this is.
    """

    def __init__(self, *, parts: int, part: int) -> None:
        self._parts, self._part = parts, part
        self.last: dict[str, int] = {}
        # Run and what is wrong.
        self.faults: list[tuple[str, str]] = []

    @property
    def is_full(self) -> bool:
        """Whether there are more runs than may be kept at once."""
        return len(self.last) > TRACKED_RUNS_MAX

    def add(self, packed: bytes) -> None:
        """A row of the feed."""
        for run_id, first_seq, events, _ in feed.unpack(packed):
            if self._parts > 1 and crc32(run_id.encode()) % self._parts != self._part:
                continue
            before = self.last.get(run_id)
            if before is not None and first_seq != before + 1 and len(self.faults) < FINDINGS_PER_REPORT:
                self.faults.append((run_id, f"event {first_seq} follows event {before} in the feed"))
            self.last[run_id] = first_seq + events - 1

    def pages(self) -> list[list[str]]:
        """The runs, some at a time."""
        run_ids = list(self.last)
        return [run_ids[i : i + RUNS_PER_LOOK] for i in range(0, len(run_ids), RUNS_PER_LOOK)]


def _must_be_known(only: str, fold: RunFold, facts: RunFacts) -> None:
    """Raises RUN_NOT_FOUND where the one run that was asked for has neither a row nor events: it never was."""
    if only and facts.row is None and not fold.seq:
        raise not_found(only)
