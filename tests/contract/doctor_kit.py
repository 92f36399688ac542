"""The doctor over a store under contract."""

from journal_kit import LIMITS

from lantern_journal.adapters.clock import CarriedClock
from lantern_journal.application.announcements import Hub
from lantern_journal.application.committer import GroupCommitter
from lantern_journal.application.doctor import Change, Doctor
from lantern_journal.domain.findings import Finding, Severity
from lantern_journal.ports import Store


def doctor_of(store: Store) -> Doctor:
    hub = Hub()
    return Doctor(store, hub, GroupCommitter(store, CarriedClock(), hub), LIMITS)


RUNS_LOOKED_AT = 20
"""After each test: the few that make many runs make them alike."""


async def findings_of_runs(store: Store) -> list[Finding]:
    """Of some runs and nothing else: quickly."""
    run_ids = await store.list_run_ids("", RUNS_LOOKED_AT)
    return [finding for run_id in run_ids for finding in await findings(store, run_id)]


async def findings(store: Store, run_id: str = "") -> list[Finding]:
    return [finding async for report in doctor_of(store).check(run_id, "") for finding in report.findings]


async def faults(store: Store, run_id: str = "") -> list[str]:
    """What must not be, each as `check.subject`."""
    found = await findings(store, run_id)
    return sorted(f"{f.check}.{f.subject}" for f in found if f.severity is Severity.FAULT)


async def rebuild(store: Store, run_id: str = "") -> list[Change]:
    return [change async for page in doctor_of(store).rebuild(run_id, "") for change in page.changes]
