"""Three stores that are asked the same: SQLite, PostgreSQL and the oracle, on one time that is set by hand."""

import asyncio
import json
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from lantern_journal.adapters.clock import CarriedClock
from lantern_journal.adapters.engines import postgres_sync_engine, sqlite_engine
from lantern_journal.adapters.postgres import PostgresStore
from lantern_journal.adapters.schema import metadata
from lantern_journal.adapters.sqlite import SqliteStore
from lantern_journal.domain.records import Tended
from lantern_journal.ports import Collision, GroupRefused
from lantern_kernel.errors import LanternError
from oracle.memory_store import Database, MemoryStore
from oracle.tables import (
    AgentRow,
    DefinitionRow,
    EntryRow,
    LockRow,
    PublicationRow,
    ReceiptRow,
    RunRow,
    SessionRow,
    StartRequestRow,
    Tables,
)

START_US = 1_700_000_000_000_000

COLUMNS = {
    "journal_events": ["run_id", "seq", "kind", "step_id", "attempt", "epoch", "time_us", "payload", "salt", "digest"],
    **{
        table: [column.name for column in fields(row)]
        for table, row in (
            ("runs", RunRow),
            ("run_locks", LockRow),
            ("worker_sessions", SessionRow),
            ("run_inbox", EntryRow),
            ("side_effect_receipts", ReceiptRow),
            ("start_requests", StartRequestRow),
            ("agents", AgentRow),
            ("agent_publications", PublicationRow),
            ("agent_definitions", DefinitionRow),
        )
    },
}
COLUMNS["journal_events"].append("hash")

CLOCK = "set_clock"
NOW_SQL = f"SELECT now_us FROM {CLOCK}"


class SetClock(CarriedClock):
    """Tells the time that it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.us = START_US

    def now_us(self) -> int:
        return self.us


@dataclass(frozen=True)
class Refused:
    """An error as an answer: what programs act on, without the words."""

    reason: str
    details: str = ""


class Trio:
    """Asks all three and insists on one answer and one content."""

    def __init__(self, folder: Path, postgres_url: str) -> None:
        self.loop = asyncio.new_event_loop()
        self.clock = SetClock()
        self.asked = 0
        # What was answered how often: a machine that only ever hears refusals shows nothing.
        self.heard: Counter[str] = Counter()
        self._postgres = postgres_sync_engine(postgres_url).connect()
        with self._postgres.begin():
            self._postgres.exec_driver_sql(f"CREATE TABLE IF NOT EXISTS {CLOCK} (now_us bigint NOT NULL)")
            self._postgres.exec_driver_sql(f"INSERT INTO {CLOCK} VALUES ({START_US})")
        path = folder / "journal.db"
        # Typed loosely: the oracle need not have what no operation asks for.
        self.stores: dict[str, Any] = {
            "postgres": self.run(PostgresStore.open(postgres_url, now_sql=NOW_SQL)),
            "sqlite": self.run(SqliteStore.open(path, self.clock)),
        }
        self._sqlite = sqlite_engine(path, begin="BEGIN").connect()
        self._sqlite_writer = sqlite_engine(path, begin="BEGIN IMMEDIATE").connect()
        self.clear()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    def close(self) -> None:
        for store in self.stores.values():
            self.run(store.close())
        for connection in (self._postgres, self._sqlite, self._sqlite_writer):
            connection.close()
        self.loop.close()

    def clear(self) -> None:
        """Empties all three and sets the time back."""
        for connection in (self._postgres, self._sqlite_writer):
            with connection.begin():
                for table in metadata.tables.values():
                    connection.execute(sa.delete(table))
        self.tables = Tables()
        self.memory = MemoryStore(Database(now_us=self.clock.now_us, tables=self.tables))
        self.stores["memory"] = self.memory
        self.set_time(START_US)

    def set_time(self, us: int) -> None:
        self.clock.us = us
        with self._postgres.begin():
            self._postgres.exec_driver_sql(f"UPDATE {CLOCK} SET now_us = {us}")

    def ask(self, method: str, *args: Any) -> Any:
        """The answer of all three to one call, an error included; fails where they differ."""
        self.asked += 1
        answers = {name: self.run(_answer(store, method, args)) for name, store in self.stores.items()}
        assert answers["sqlite"] == answers["memory"], f"{method}{args}: SQLite says {answers['sqlite']}"
        assert answers["postgres"] == answers["memory"], f"{method}{args}: PostgreSQL says {answers['postgres']}"
        self.heard[f"{method} {_kind(answers['memory'])}"] += 1
        return answers["memory"]

    def compare(self) -> None:
        """Fails where their contents differ."""
        expected = {table: sorted(map(repr, rows)) for table, rows in _plain(self.tables).items()}
        for name, connection in (("sqlite", self._sqlite), ("postgres", self._postgres)):
            with connection.begin():
                for table, columns in COLUMNS.items():
                    rows = connection.exec_driver_sql(f"SELECT {', '.join(columns)} FROM {table}")
                    found = sorted(repr(_row(columns, tuple(row))) for row in rows)
                    assert found == expected[table], f"{table} of {name} differs from the oracle's"


def _kind(answer: Any) -> str:
    """An answer in a word."""
    if isinstance(answer, dict) and answer and all(isinstance(each, Refused) for each in answer.values()):
        return next(iter(answer.values())).reason
    if isinstance(answer, list):
        return next((each.reason for each in answer if isinstance(each, Refused)), "some" if answer else "none")
    return answer.reason if isinstance(answer, Refused) else "some" if answer else "none"


def _plain(tables: Tables) -> dict[str, list[dict[str, Any]]]:
    return {
        table: [_row(COLUMNS[table], tuple(row[column] for column in COLUMNS[table])) for row in rows]
        for table, rows in tables.snapshot().items()
    }


def _row(columns: list[str], values: tuple[Any, ...]) -> dict[str, Any]:
    row = dict(zip(columns, values, strict=True))
    for flag in ("opened", "closed", "draining", "nothing_to_compensate", "created", "abandoned", "has_children"):
        if flag in row:
            row[flag] = bool(row[flag])
    if isinstance(row.get("agents"), str):
        row["agents"] = json.loads(row["agents"])
    return row


async def _answer(store: Any, method: str, args: tuple[Any, ...]) -> Any:
    try:
        return _ordered(method, await getattr(store, method)(*args))
    except LanternError as error:
        return _refused(error)
    except GroupRefused as error:
        return {index: _refused(each) for index, each in error.errors.items()}
    except Collision:
        return Refused("collision")


def _refused(error: Exception) -> Refused:
    assert isinstance(error, LanternError)
    return Refused(error.reason, json.dumps(dict(error.details), sort_keys=True))


def _ordered(method: str, answer: Any) -> Any:
    """Where the port promises no order there is none to compare."""
    if method == "find_workers":
        return sorted(answer, key=lambda worker: worker.worker_id)
    if method == "start_runs":
        return [_refused(each) if isinstance(each, LanternError) else each for each in answer]
    if method == "insert_group":
        return set(answer.queued), set(answer.moved), set(answer.entries)
    if isinstance(answer, Tended):
        return sorted(answer.closed), sorted(answer.gone), sorted(answer.inbox), answer.now_us
    return answer
