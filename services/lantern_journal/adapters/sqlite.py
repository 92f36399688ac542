"""The Store on SQLite: one process per file, a writer and a reader thread; the event loop never waits for disk."""

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy import exc

from lantern_journal.adapters import migrate as migrations
from lantern_journal.adapters import sql_sessions, sqlite_files
from lantern_journal.adapters.clock import CarriedClock
from lantern_journal.adapters.engines import FileLock, sqlite_engine
from lantern_journal.adapters.schema import journal_marks
from lantern_journal.adapters.sql_events import SQLITE_FEED, SQLITE_INSERT, Transaction, feed_values
from lantern_journal.adapters.sql_store import SqlStore, disk_full
from lantern_journal.domain.appends import Row, Top
from lantern_journal.domain.blobs import NamedBlobs
from lantern_journal.domain.family import NOTHING, Aftermath
from lantern_journal.domain.leases import Limits
from lantern_journal.domain.records import Tended, Tending
from lantern_journal.domain.run_state import RunChange
from lantern_journal.ports import Collision, Disconnected
from lantern_kernel.errors import InvalidField

log = logging.getLogger(__name__)

T = TypeVar("T")

BEGIN_WRITING = "BEGIN IMMEDIATE"

TIME_MARK = "time_us"
"""The journal's time never falls behind what it once was, also when the machine's clock was set back meanwhile."""


class SqliteStore(SqlStore):
    """See `lantern_journal.ports.Store`; open one with `open`."""

    is_shared: bool = False

    def __init__(self, path: Path, clock: CarriedClock) -> None:
        sqlite_files.check_file_system(path)
        self._lock = FileLock(path)
        self._clock = clock
        self._write_engine = sqlite_engine(path, begin=BEGIN_WRITING)
        self._read_engine = sqlite_engine(path, begin="BEGIN")
        self._writing = ThreadPoolExecutor(1, "sqlite-writer")
        self._reading = ThreadPoolExecutor(1, "sqlite-reader")
        self._writer: sa.Connection | None = None
        self._reader: sa.Connection | None = None

    @classmethod
    async def open(cls, path: Path, clock: CarriedClock, *, migrate: bool = True) -> "SqliteStore":
        """Opens the file, makes it or brings it up to date, and sets the clock."""
        store = cls(path, clock)
        try:
            await store._run(store._writing, sqlite_files.settle_log, path)
            change = migrations.migrate if migrate else migrations.check
            await store._run(store._writing, change, store._write_engine)
            await store._run(store._writing, store._connect)
        except exc.DatabaseError as error:
            await store.close()
            raise InvalidField("LANTERN_DATABASE", f"{path} cannot be used: {error.orig}") from None
        except OSError as error:
            await store.close()
            raise InvalidField("LANTERN_DATABASE", f"{path} cannot be used: {error.strerror}") from None
        except BaseException:
            await store.close()
            raise
        return store

    def _connect(self) -> None:
        self._writer = self._write_engine.connect()
        with self._writer.begin():
            mark = self._writer.execute(
                sa.select(journal_marks.c.value).where(journal_marks.c.name == TIME_MARK)
            ).scalar()
        self._clock.not_before(mark or 0)

    async def close(self) -> None:
        """Ends the threads and lets another process in."""
        for thread, connection in ((self._writing, self._writer), (self._reading, self._reader)):
            if connection is not None:
                await self._run(thread, connection.close)
            thread.shutdown(wait=False)
        self._write_engine.dispose()
        self._read_engine.dispose()
        self._lock.release()

    async def publish(self, cause: str) -> None:
        """See Store; there is nobody to tell."""

    async def announcements(self) -> AsyncIterator[str]:
        """See Store; there is nobody to hear."""
        for _ in ():
            yield ""

    async def ping(self) -> int:
        """See Store."""
        await self._look(lambda connection: connection.execute(sa.select(1)).scalar())
        return self._clock.now_us()

    @staticmethod
    async def _run(thread: ThreadPoolExecutor, function: Callable[..., T], *args: object) -> T:
        # Shielded: a caller that goes away must not leave a half-used connection to the next.
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(thread, function, *args))

    async def _transact(self, function: Callable[[Transaction], T]) -> T:
        return await self._run(self._writing, lambda: self._write_in_thread(function))

    def _write_in_thread(self, function: Callable[[Transaction], T]) -> T:
        writer = self._writer
        assert writer is not None, "the store is open"
        try:
            with writer.begin():
                return function(Transaction(connection=writer, now_us=self._clock.now_us()))
        except exc.IntegrityError as error:
            raise Collision(str(error.orig)) from None
        except (exc.OperationalError, sqlite3.OperationalError) as error:
            raise _failure(error) from None

    async def insert_group(
        self,
        rows: Sequence[Row],
        changes: Sequence[RunChange],
        *,
        blobs: Sequence[NamedBlobs] = (),
        tops: Sequence[Top] = (),
    ) -> Aftermath:
        """See Store; a group of events alone goes to the driver directly, without SQLAlchemy's share of the work."""
        if changes or blobs:
            return await super().insert_group(rows, changes, blobs=blobs, tops=tops)
        await self._run(self._writing, self._insert_in_thread, rows)
        return NOTHING

    def _insert_in_thread(self, rows: Sequence[Row]) -> None:
        assert self._writer is not None, "the store is open"
        driver = self._writer.connection.driver_connection
        assert isinstance(driver, sqlite3.Connection), "the engine is SQLite's"
        try:
            driver.execute(BEGIN_WRITING)
            try:
                driver.executemany(SQLITE_INSERT, rows)
                driver.execute(SQLITE_FEED, feed_values(rows))
                driver.execute("COMMIT")
            finally:
                if driver.in_transaction:
                    driver.execute("ROLLBACK")
        except sqlite3.IntegrityError as error:
            raise Collision(str(error)) from None
        except sqlite3.OperationalError as error:
            raise _failure(error) from None

    async def _look(self, function: Callable[[sa.Connection], T]) -> T:
        return await self._run(self._reading, lambda: self._read_in_thread(function))

    async def _survey(self, function: Callable[[Transaction], T]) -> T:
        # The reader's: however many runs there are to look through, no append waits for it.
        return await self._look(
            lambda connection: function(Transaction(connection=connection, now_us=self._clock.now_us()))
        )

    async def _snapshot(self, function: Callable[[Transaction], T]) -> T:
        return await self._survey(function)

    async def _apart(self, function: Callable[[Transaction], T]) -> T:
        def in_thread() -> T:
            with self._read_engine.connect() as connection:
                return function(Transaction(connection=connection, now_us=self._clock.now_us()))

        try:
            return await asyncio.to_thread(in_thread)
        except exc.OperationalError as error:
            raise Disconnected(str(error.orig)) from None

    def _read_in_thread(self, function: Callable[[sa.Connection], T]) -> T:
        try:
            if self._reader is None:
                self._reader = self._read_engine.connect()
            with self._reader.begin():
                return function(self._reader)
        except exc.OperationalError as error:
            if _is_refused(error):
                raise
            _log_io_error(error)
            raise Disconnected(str(error)) from None

    async def tend_sessions(self, tending: Tending, limits: Limits) -> Tended:
        """See Store; with the time mark, where there is something to write anyway."""

        def tend(tx: Transaction) -> Tended:
            tended = sql_sessions.tend_sessions(tx, tending, limits)
            if tending.seen:
                tx.connection.execute(_MARK, {"name": TIME_MARK, "value": tx.now_us})
            return tended

        return await self._once(tend)


def _cause(error: exc.OperationalError | sqlite3.OperationalError) -> sqlite3.Error | None:
    cause = error.orig if isinstance(error, exc.OperationalError) else error
    return cause if isinstance(cause, sqlite3.Error) else None


def _primary_code(error: exc.OperationalError | sqlite3.OperationalError) -> int:
    """SQLite's result code without its extension; 0 where the driver itself failed."""
    return getattr(_cause(error), "sqlite_errorcode", 0) & 0xFF


def _failure(error: exc.OperationalError | sqlite3.OperationalError) -> Exception:
    """What a failed write is raised as."""
    if _is_refused(error):
        return error
    if _primary_code(error) == sqlite3.SQLITE_FULL:
        log.error("the database's disk is full", extra={"action": "disk_full"})
        return disk_full()
    # Busy, an I/O error: whether the commit went in is for the content to say.
    _log_io_error(error)
    return Disconnected(str(error))


def _is_refused(error: exc.OperationalError | sqlite3.OperationalError) -> bool:
    """Whether the statement itself was refused (SQLITE_ERROR): sent again, it would be refused again."""
    return getattr(_cause(error), "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR


def _log_io_error(error: exc.OperationalError | sqlite3.OperationalError) -> None:
    """An operator must know of a disk that fails, though the transaction is tried again."""
    if _primary_code(error) == sqlite3.SQLITE_IOERR:
        name = getattr(_cause(error), "sqlite_errorname", "")
        log.error("the database's disk failed", extra={"action": "disk_failed", "cause": name})


_MARK = sa.text(
    "INSERT INTO journal_marks (name, value) VALUES (:name, :value)"
    " ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE excluded.value > journal_marks.value"
)
