"""The Store on PostgreSQL: a pool for transactions, and one connection of its own for groups of appends."""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, TypeVar

import psycopg
import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.ext.asyncio import AsyncEngine

from lantern_journal.adapters import migrate as migrations
from lantern_journal.adapters import postgres_groups, postgres_restored, postgres_starts, sql_partitions
from lantern_journal.adapters.engines import (
    GROUP_CONNECT,
    POOLED_BEGIN,
    POOLED_CONNECT,
    POSTGRES_CONNECT,
    is_pooled,
    postgres_engine,
    postgres_sync_engine,
    postgres_url,
)
from lantern_journal.adapters.sql_events import (
    POSTGRES_CHECKED_INSERT,
    POSTGRES_HEADS,
    POSTGRES_INSERT,
    Transaction,
    insert_parameters,
    top_parameters,
)
from lantern_journal.adapters.sql_store import Contended, SqlStore, disk_full
from lantern_journal.domain.appends import Head, Row, Top
from lantern_journal.domain.blobs import NamedBlobs
from lantern_journal.domain.family import NOTHING, Aftermath
from lantern_journal.domain.leases import Limits
from lantern_journal.domain.records import Attach, Attached, NewRun, StartedRun
from lantern_journal.domain.run_state import RunChange
from lantern_journal.ports import Collision, Disconnected
from lantern_kernel import reasons
from lantern_kernel.errors import LanternError

log = logging.getLogger(__name__)

T = TypeVar("T")

CHANNEL = "lantern_orphans"

POOLED_HINT_S = 2.0
"""Behind a pooler, a watcher of orphans looks this often for what other journals have left."""

POOLED_HINT = "queued"

NOW_SQL = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
_GIVE_WAY = frozenset({"40001", "40P01", "55P03"})
"""serialization_failure, deadlock_detected, lock_not_available."""

_INSERT = POSTGRES_INSERT.encode()
_CHECKED_INSERT = POSTGRES_CHECKED_INSERT.encode()
_CHANGING_INSERT = postgres_groups.GROUP_SQL.encode()
_HEADS = POSTGRES_HEADS.encode()
_CANCELED = "57014"
_DISK_FULL = "53100"
_NO_RESOURCES = "53"
"""query_canceled (the statement took too long), disk_full, and the class of all that the server has run out of."""

_SHUT_DOWN = ("08", "57P0")
"""Connection exceptions and the shutdowns of the server, by the beginning of their codes."""


def _is_lost(error: BaseException | None, *, is_closed: bool) -> bool:
    """Whether an error means that the connection is gone, so that the outcome is not known.

    Not every OperationalError does: a statement that the server refuses would be sent again and again.
    """
    return is_closed or (isinstance(error, psycopg.Error) and (error.sqlstate or "").startswith(_SHUT_DOWN))


def _refusal(error: BaseException | None) -> LanternError | None:
    """The answer to an error of the server's that may pass by itself."""
    sqlstate = error.sqlstate or "" if isinstance(error, psycopg.Error) else ""
    if sqlstate == _DISK_FULL:
        log.error("the database's disk is full", extra={"action": "disk_full", "cause": str(error).splitlines()[0]})
        return disk_full()
    if sqlstate == _CANCELED or sqlstate.startswith(_NO_RESOURCES):
        return LanternError(reasons.UNAVAILABLE, "the database is overloaded; try again", retry_after_s=1.0)
    return None


class PostgresStore(SqlStore):
    """See `lantern_journal.ports.Store`; open one with `open`."""

    is_shared: bool = True

    def __init__(self, url: str, now_sql: str = NOW_SQL, *, check_digests: bool = False, pooled: bool = False) -> None:
        self._now_sql = now_sql
        self._pooled = pooled
        self._connect: dict[str, Any] = POOLED_CONNECT if pooled else GROUP_CONNECT
        # Behind a pooler, when the server was last seen to have started.
        self._server_start = ""
        self.checks_digests = check_digests
        self._conninfo = postgres_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
        self._url = url
        self._engine = postgres_engine(url, pooled=pooled)
        self._group: psycopg.AsyncConnection[Any] | None = None
        self._group_lock = asyncio.Lock()
        self._pins = postgres_starts.Pins()
        # The generation that they are of.
        self._pins_of = self.generation
        # By it we know our own notices.
        self._token = secrets.token_hex(8)

    @classmethod
    async def open(
        cls, url: str, *, migrate: bool = True, now_sql: str = NOW_SQL, check_digests: bool = False
    ) -> "PostgresStore":
        """Brings the database up to date; the connections are made when they are needed.

        Args:
            url: Of the database.
            migrate: Bring it up to date; else refuse one that is not.
            now_sql: Asks the database for its time, microseconds; a test lets the time stand still.
            check_digests: A group of appends goes in only where the database holds what it is put on top of. For
                databases whose failover may lose commits that were acknowledged; elsewhere it only costs time.
        """
        try:
            pooled = await asyncio.to_thread(is_pooled, url)
            engine = postgres_sync_engine(url, pooled=pooled)
            await asyncio.to_thread(migrations.migrate if migrate else migrations.check, engine)
            restored = await asyncio.to_thread(postgres_restored.settle, engine)
        except (exc.OperationalError, psycopg.OperationalError) as error:
            cause = error.orig if isinstance(error, exc.OperationalError) else error
            raise LanternError(reasons.UNAVAILABLE, f"the database cannot be used: {cause}") from None
        if restored:
            log.warning(
                "rows of the feed came from another server: followers read them from the beginning",
                extra={"action": "feed_restored", "rows": restored},
            )
        if pooled:
            log.warning(
                "a pooler stands before the database: announcements of other journals are not heard but asked for",
                extra={"action": "pooler_found", "every_s": POOLED_HINT_S},
            )
        return cls(url, now_sql, check_digests=check_digests, pooled=pooled)

    async def close(self) -> None:
        """See Store."""
        if self._group is not None:
            await self._group.close()
        await self._engine.dispose()

    async def ping(self) -> int:
        """See Store."""

        async def ask(connection: psycopg.AsyncConnection[Any]) -> int:
            row = await (await connection.execute(self._now_sql.encode())).fetchone()
            assert row is not None, "a SELECT of one value returns one row"
            if self._pooled:
                await self._look_for_restart(connection)
            return row[0]

        return await self._direct(ask)

    async def _look_for_restart(self, connection: psycopg.AsyncConnection[Any]) -> None:
        """A pooler keeps our connection while the server behind it goes: what is cached of it is then worth nothing."""
        row = await (await connection.execute("SELECT pg_postmaster_start_time()::text")).fetchone()
        start = str(row[0]) if row else ""
        if self._server_start not in ("", start):
            self.generation += 1
        self._server_start = start

    async def publish(self, cause: str) -> None:
        """See Store; by NOTIFY."""
        payload = f"{self._token}:{cause}"

        async def notify(connection: psycopg.AsyncConnection[Any]) -> None:
            await connection.execute("SELECT pg_notify(%b, %b)", [CHANNEL, payload])

        await self._direct(notify)

    async def announcements(self) -> AsyncIterator[str]:
        """See Store; by LISTEN, on a connection of its own. Behind a pooler nothing is heard: time speaks instead."""
        while self._pooled:
            await asyncio.sleep(POOLED_HINT_S)
            yield POOLED_HINT
        async with await psycopg.AsyncConnection.connect(
            self._conninfo, autocommit=True, **POSTGRES_CONNECT
        ) as connection:
            await connection.execute(f"LISTEN {CHANNEL}".encode())
            async for notice in connection.notifies():
                token, _, cause = notice.payload.partition(":")
                if token != self._token:
                    yield cause

    async def heads(self, run_ids: Sequence[str]) -> dict[str, Head]:
        """See Store; one statement for all."""

        async def ask(connection: psycopg.AsyncConnection[Any]) -> dict[str, Head]:
            found = await connection.execute(_HEADS, [list(run_ids)], binary=True)
            return {row[0]: Head(*row[1:]) for row in await found.fetchall()}

        return await self._direct(ask)

    async def insert_group(
        self,
        rows: Sequence[Row],
        changes: Sequence[RunChange],
        *,
        blobs: Sequence[NamedBlobs] = (),
        tops: Sequence[Top] = (),
    ) -> Aftermath:
        """See Store; a group that names no blob and at most ends drives as usual is one autocommit statement."""
        if blobs or (changes and (self.checks_digests or self._pooled or not postgres_groups.are_plain(changes))):
            return await super().insert_group(rows, changes, blobs=blobs, tops=tops)
        if changes:
            return await self._change_group(rows, changes, tops)

        async def write(connection: psycopg.AsyncConnection[Any]) -> None:
            if not self.checks_digests:
                await connection.execute(_INSERT, insert_parameters(rows))
                return
            parameters = top_parameters(tops) + insert_parameters(rows)
            if not (await connection.execute(_CHECKED_INSERT, parameters)).rowcount:
                raise Collision("an event that was named as the last of a run does not stand in the database")

        await self._direct(write)
        return NOTHING

    async def attach(self, attach: Attach) -> Attached:
        """See Store."""
        attached = await super().attach(attach)
        self._pins.attached(attach, attached.number)
        return attached

    async def start_runs(self, starts: Sequence[NewRun], limits: Limits) -> list[StartedRun | LanternError]:
        """See Store; where nothing is out of the ordinary, one autocommit statement."""
        if self._pins_of != self.generation:
            self._pins_of = self.generation
            self._pins.forget_versions()
        pins = [pin for new in starts if (pin := self._pins.of(new)) is not None]
        if len(pins) == len(starts) and not self._pooled:
            statement = postgres_starts.statement(starts, pins, limits, self._now_sql)

            async def write(connection: psycopg.AsyncConnection[Any]) -> bool:
                return bool((await connection.execute(statement.sql, statement.parameters)).rowcount)

            with contextlib.suppress(Collision, Disconnected):  # the common way finds out what came of it
                if await self._direct(write):
                    return statement.outcomes
        outcomes = await super().start_runs(starts, limits)
        for new, outcome in zip(starts, outcomes, strict=True):
            self._pins.learn(new, outcome)
        return outcomes

    async def _change_group(self, rows: Sequence[Row], changes: Sequence[RunChange], tops: Sequence[Top]) -> Aftermath:
        async def write(connection: psycopg.AsyncConnection[Any]) -> bool:
            done = await connection.execute(_CHANGING_INSERT, postgres_groups.parameters(rows, changes))
            return bool(done.rowcount)

        if await self._direct(write):
            return NOTHING
        return await super().insert_group(rows, changes, tops=tops)

    async def make_partitions(self, ahead: int) -> list[str]:
        """See Store. In steps, each a transaction with short locks; a step that does not get its lock is for later."""
        made: list[str] = []
        for week in await self._once(lambda tx: sql_partitions.weeks_missing(tx, ahead)):
            if await self._once(lambda tx, week=week: sql_partitions.must_be_vouched_for(tx, week)):
                await self._once(lambda tx, week=week: sql_partitions.vouch(tx, week))
                try:
                    await self._transact(lambda tx, week=week: sql_partitions.validate(tx, week))
                except Collision:
                    # Rows of that week came while nobody vouched for it yet.
                    await self._once(lambda tx, week=week: sql_partitions.withdraw(tx, week))
                    continue
            if await self._once(lambda tx, week=week: sql_partitions.make_partition(tx, week)):
                made.append(week.table)
        return made

    async def drop_partitions(self, before_us: int) -> list[str]:
        """See Store. A week that does not get its lock, or is not looked through in time, is for later."""
        dropped: list[str] = []
        for week in await self._once(lambda tx: sql_partitions.weeks_over(tx, before_us)):
            try:
                if await self._transact(lambda tx, week=week: sql_partitions.drop_partition(tx, week)):
                    dropped.append(week.table)
            except Contended:
                continue
            except LanternError as error:
                if error.reason != reasons.UNAVAILABLE:
                    raise
                # What is deleted from it and not yet vacuumed still has to be read; the other weeks need not wait.
                log.warning(
                    "a partition is dropped later",
                    extra={"action": "partition_kept", "table": week.table, "hint": error.message},
                )
        return dropped

    async def _direct(self, use: Callable[[psycopg.AsyncConnection[Any]], Awaitable[T]]) -> T:
        """Uses the connection of the groups: autocommit, prepared at once."""
        async with self._group_lock:
            try:
                if self._group is None or self._group.closed:
                    self._group = await psycopg.AsyncConnection.connect(
                        self._conninfo, autocommit=True, **self._connect
                    )
                if not self._pooled:
                    return await use(self._group)
                async with self._group.transaction():
                    await self._group.execute(POOLED_BEGIN.encode())
                    return await use(self._group)
            except psycopg.errors.UniqueViolation as error:
                raise Collision(str(error)) from None
            except psycopg.Error as error:
                if error.sqlstate in _GIVE_WAY:
                    raise Collision(str(error)) from None
                if _is_lost(error, is_closed=self._group is None or self._group.closed):
                    await self._lost(error)
                    raise Disconnected(str(error)) from None
                raise _refusal(error) or error from None
            except asyncio.CancelledError:
                # Cancelled half-way: what the connection is in the middle of is nobody's any more.
                await self._drop_group()
                raise

    async def _lost(self, error: Exception) -> None:
        self.generation += 1
        log.warning("database connection lost", extra={"action": "database_lost", "cause": type(error).__name__})
        await self._drop_group()

    async def _drop_group(self) -> None:
        group, self._group = self._group, None
        if group is not None:
            await group.close()

    async def _transact(self, function: Callable[[Transaction], T]) -> T:
        def with_time(connection: sa.Connection) -> T:
            now_us: int = connection.exec_driver_sql(self._now_sql).scalar_one()
            return function(Transaction(connection=connection, now_us=now_us))

        return await self._use(with_time)

    async def _survey(self, function: Callable[[Transaction], T]) -> T:
        return await self._transact(function)

    async def _look(self, function: Callable[[sa.Connection], T]) -> T:
        return await self._use(function)

    async def _snapshot(self, function: Callable[[Transaction], T]) -> T:
        def in_snapshot(connection: sa.Connection) -> T:
            now_us: int = connection.exec_driver_sql(self._now_sql).scalar_one()
            return function(Transaction(connection=connection, now_us=now_us))

        # Said with the BEGIN: behind a pooler a statement precedes ours, and then it would come too late.
        engine = self._engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        return await self._use(in_snapshot, engine)

    async def _apart(self, function: Callable[[Transaction], T]) -> T:
        def in_thread() -> T:
            engine = postgres_sync_engine(self._url, pooled=self._pooled)
            with engine.connect() as connection:
                now_us: int = connection.exec_driver_sql(self._now_sql).scalar_one()
                return function(Transaction(connection=connection, now_us=now_us))

        try:
            return await asyncio.to_thread(in_thread)
        except exc.OperationalError as error:
            raise Disconnected(str(error.orig)) from None

    async def _use(self, function: Callable[[sa.Connection], T], engine: AsyncEngine | None = None) -> T:
        is_connected = False
        try:
            async with (engine or self._engine).begin() as connection:
                is_connected = True
                return await connection.run_sync(function)
        except exc.IntegrityError as error:
            raise Collision(str(error.orig)) from None
        except exc.TimeoutError as error:
            raise Contended(str(error)) from None
        except exc.DBAPIError as error:
            cause = error.orig
            if isinstance(cause, psycopg.Error) and cause.sqlstate in _GIVE_WAY:
                raise Contended(str(cause)) from None
            if _is_lost(cause, is_closed=error.connection_invalidated or not is_connected):
                await self._pool_lost(cause)
                raise Disconnected(str(cause)) from None
            raise _refusal(cause) or error from None
        except psycopg.Error as error:
            # Not of a statement: the driver's own, about a connection that cannot be used any more.
            await self._pool_lost(error)
            raise Disconnected(str(error)) from None

    async def _pool_lost(self, error: BaseException | None) -> None:
        self.generation += 1
        log.warning("database connection lost", extra={"action": "database_lost", "cause": type(error).__name__})
