"""Goal: the statement that ends drives on PostgreSQL does what the common path does, and only that.

Method: whole runs' rows after either path, compared; what is out of the ordinary must find its way to the common path.
"""

from collections.abc import Sequence
from typing import Any

import pytest
import sqlalchemy as sa
from journal_kit import LIMITS, driven, entry, event, head, park, succeeded, write

from lantern_journal.adapters.engines import postgres_sync_engine
from lantern_journal.adapters.schema import run_locks, runs
from lantern_journal.adapters.sql_store import SqlStore
from lantern_journal.domain.run_state import RunChange, RunState
from lantern_journal.ports import GroupRefused, Store
from lantern_kernel import payloads, reasons
from lantern_kernel.errors import LanternError
from lantern_kernel.event import NewEvent
from lantern_kernel.payloads import ParkFacts, RunErrorFacts

pytestmark = pytest.mark.parametrize("store", ["postgres"], indirect=True)

OWN = frozenset(
    {"run_id", "request_id", "created_us", "updated_us", "ended_us", "traceparent", "acquired_us", "session_number"}
)
"""What differs between two runs that went the same way."""

WAIT = ParkFacts(waiting_on="timer", due_us=77, signals=("paid", "sent"), nothing_to_compensate=True)
FAILURE = RunErrorFacts(code="STEP_FAILED", message="no money", step_id="pay", details={"balance": "0"})
ENDS: dict[str, NewEvent] = {
    "success": succeeded(),
    "failure": event("run_failed", payloads.pack(FAILURE.to_facts()), "", 0),
    "cancel without a cause": event("run_cancelled", payloads.pack({}), "", 0),
    "park with a due time": event("run_parked", WAIT.pack(), "", 0),
    "park for anything": event("run_parked", ParkFacts(waiting_on="signal").pack(), "", 0),
}


def rows_of(url: str, run_id: str) -> dict[str, Any]:
    with postgres_sync_engine(url).connect() as connection:
        found: dict[str, Any] = {}
        for table in (runs, run_locks):
            row = connection.execute(sa.select(table).where(table.c.run_id == run_id)).mappings().one()
            found |= {f"{table.name}.{name}": value for name, value in row.items() if name not in OWN}
        return found


def nothing_is_plain(changes: Sequence[RunChange]) -> bool:
    del changes
    return False


@pytest.mark.parametrize("way", ENDS)
async def test_both_paths_leave_the_same_rows(
    store: Store, postgres_url: str, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    quick, _ = await driven(store, "quick")
    common, _ = await driven(store, "common")
    for started in (quick, common):
        await store.send(entry(started.run.run_id), LIMITS)
        taken = event("signal_received", payloads.pack({"number": 1, "name": "paid"}, b"1"), "", 0)
        await write(store, started.run.run_id, taken)
    with monkeypatch.context() as patch:
        patch.setattr(SqlStore, "insert_group", None)
        await write(store, quick.run.run_id, ENDS[way], consumed=1)
    with monkeypatch.context() as patch:
        patch.setattr("lantern_journal.adapters.postgres_groups.are_plain", nothing_is_plain)
        await write(store, common.run.run_id, ENDS[way], consumed=1)
    assert rows_of(postgres_url, quick.run.run_id) == rows_of(postgres_url, common.run.run_id)
    assert (await store.get_run(quick.run.run_id)).updated_us == (await head(store, quick.run.run_id)).time_us


async def test_nothing_goes_in_where_an_entry_was_not_consumed(store: Store) -> None:
    started, _ = await driven(store)
    top = await head(store, started.run.run_id)
    await store.send(entry(started.run.run_id), LIMITS)
    with pytest.raises(GroupRefused) as refused:
        await write(store, started.run.run_id, succeeded())
    (error,) = refused.value.errors.values()
    assert isinstance(error, LanternError)
    assert error.reason == reasons.INBOX_AHEAD
    assert await head(store, started.run.run_id) == top
    assert (await store.get_run(started.run.run_id)).state is RunState.RUNNING


@pytest.mark.parametrize("on", ["code_fix", "operator"])
async def test_what_may_have_come_before_goes_the_common_way(
    store: Store, monkeypatch: pytest.MonkeyPatch, on: str
) -> None:
    started, _ = await driven(store)
    monkeypatch.setattr("lantern_journal.adapters.postgres._CHANGING_INSERT", b"SELECT 1/0")
    await park(store, started.run.run_id, on, failed="a" * 64)
    assert (await store.get_run(started.run.run_id)).state in (RunState.WAITING, RunState.QUEUED)
