"""The partitions of journal_events on PostgreSQL: one a week, made ahead of time. SQLite has none.

Every function is a transaction of its own, with a short lock_timeout: appends never wait longer than that for any of
them. Several journals may do the same at once; one does it, the others find it done.
"""

import sqlalchemy as sa

from lantern_journal.adapters.sql_events import Transaction
from lantern_journal.domain import partitions
from lantern_journal.domain.partitions import Week

HOUSEKEEPING_LOCK = 7_002
"""pg_try_advisory_xact_lock of whoever changes partitions; of no one else: it may be held for minutes."""

LOCK_TIMEOUT_MS = 200
"""Whoever waits for a table's lock makes everybody behind it wait: no longer than this."""

STATEMENT_TIMEOUT_MS = 2_000
VALIDATE_TIMEOUT_MS = 600_000
"""Looking through a default partition for rows of a week hinders nobody: it may take its time."""

SCANNED_BYTES_MAX = 16 * 1024 * 1024
"""A default partition up to this size is looked through under the lock that attaching takes (a few milliseconds)."""


def existing(connection: sa.Connection) -> list[str]:
    """The names of the partitions that are attached, the default one among them."""
    found = connection.exec_driver_sql(
        "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid "
        f"WHERE i.inhparent = '{partitions.TABLE}'::regclass ORDER BY c.relname"
    )
    return list(found.scalars())


def weeks_missing(tx: Transaction, ahead: int) -> list[Week]:
    """The weeks from now on that have no partition yet and are not in the default one already.

    A week some of whose events lie in the default partition stays there, whole. So does one that has begun where that
    partition is large: to look through it, every append would have to be locked out. Empty while another journal is
    at it.
    """
    if not _begin(tx):
        return []
    wanted = partitions.missing(partitions.weeks_ahead(tx.now_us, ahead), existing(tx.connection))
    is_small = default_bytes(tx.connection) <= SCANNED_BYTES_MAX
    return [
        week for week in wanted if (is_small or week.start_us > tx.now_us) and not _is_in_default(tx.connection, week)
    ]


def default_bytes(connection: sa.Connection) -> int:
    """How large the default partition is, without what is stored beside its rows."""
    return connection.exec_driver_sql(f"SELECT pg_relation_size('{partitions.DEFAULT}')").scalar_one()


def must_be_vouched_for(tx: Transaction, week: Week) -> bool:
    """Whether the default partition is too large to be looked through under a lock."""
    return default_bytes(tx.connection) > SCANNED_BYTES_MAX and week.start_us > tx.now_us


def vouch(tx: Transaction, week: Week) -> None:
    """Has the default partition refuse rows of a week that has not begun, so that attaching need not look for them."""
    if not _begin(tx) or _vouching(week) in _constraints(tx.connection):
        return
    tx.connection.exec_driver_sql(
        f"ALTER TABLE {partitions.DEFAULT} ADD CONSTRAINT {_vouching(week)} "
        f"CHECK (run_id < '{week.lower}' OR run_id >= '{week.upper}') NOT VALID"
    )


def validate(tx: Transaction, week: Week) -> None:
    """Looks through the default partition while appends go on."""
    if not _begin(tx, VALIDATE_TIMEOUT_MS) or _vouching(week) not in _constraints(tx.connection):
        return
    tx.connection.exec_driver_sql(f"ALTER TABLE {partitions.DEFAULT} VALIDATE CONSTRAINT {_vouching(week)}")


def make_partition(tx: Transaction, week: Week) -> bool:
    """Makes a week's partition; whether this call did.

    Attached and not made in place: CREATE TABLE ... PARTITION OF would lock out every append.
    """
    if not _begin(tx) or week.table in existing(tx.connection):
        return False
    name, table, default = week.table, partitions.TABLE, partitions.DEFAULT
    tx.connection.exec_driver_sql(f"CREATE TABLE {name} (LIKE {table} INCLUDING ALL)")
    tx.connection.exec_driver_sql(
        f"ALTER TABLE {table} ATTACH PARTITION {name} FOR VALUES FROM ('{week.lower}') TO ('{week.upper}')"
    )
    tx.connection.exec_driver_sql(f"ALTER TABLE {default} DROP CONSTRAINT IF EXISTS {_vouching(week)}")
    return True


def withdraw(tx: Transaction, week: Week) -> None:
    """The default partition takes rows of that week after all."""
    tx.connection.exec_driver_sql(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}")
    tx.connection.exec_driver_sql(f"ALTER TABLE {partitions.DEFAULT} DROP CONSTRAINT IF EXISTS {_vouching(week)}")


def _begin(tx: Transaction, statement_ms: int = STATEMENT_TIMEOUT_MS) -> bool:
    """Sets the bounds of a change; False where another journal is at one."""
    tx.connection.exec_driver_sql(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}")
    tx.connection.exec_driver_sql(f"SET LOCAL statement_timeout = {statement_ms}")
    return bool(tx.connection.execute(sa.select(sa.func.pg_try_advisory_xact_lock(HOUSEKEEPING_LOCK))).scalar_one())


def _is_in_default(connection: sa.Connection, week: Week) -> bool:
    query = sa.text(f"SELECT 1 FROM {partitions.DEFAULT} WHERE run_id >= :lower AND run_id < :upper LIMIT 1")
    return connection.execute(query, {"lower": week.lower, "upper": week.upper}).first() is not None


def _vouching(week: Week) -> str:
    return f"{week.table}_is_elsewhere"


def _constraints(connection: sa.Connection) -> list[str]:
    query = f"SELECT conname FROM pg_constraint WHERE conrelid = '{partitions.DEFAULT}'::regclass"
    return list(connection.exec_driver_sql(query).scalars())


MOVED_ROWS_MAX = 2_000
MOVED_BYTES_MAX = 8 * 1024 * 1024
"""What of a week may still be there when its partition is dropped: it is moved while all appends wait, which takes some
tens of milliseconds. A week with more of it stays."""


def weeks_over(tx: Transaction, before_us: int) -> list[Week]:
    """The weeks with a partition that ended before a moment."""
    weeks = (partitions.week_named(name) for name in existing(tx.connection))
    return [week for week in weeks if week is not None and week.end_us <= before_us]


def drop_partition(tx: Transaction, week: Week) -> bool:
    """Drops a week's partition where little or nothing is left in it; that goes to the default partition first.

    In one transaction: whoever appends to a run that is moved waits, and then finds it where it is now.
    """
    if not _begin(tx) or week.table not in existing(tx.connection) or not _is_nearly_empty(tx.connection, week):
        return False
    table = partitions.TABLE
    tx.connection.exec_driver_sql(f"ALTER TABLE {table} DETACH PARTITION {week.table}")
    tx.connection.exec_driver_sql(f"INSERT INTO {table} SELECT * FROM {week.table}")
    tx.connection.exec_driver_sql(f"DROP TABLE {week.table}")
    return True


def _is_nearly_empty(connection: sa.Connection, week: Week) -> bool:
    query = (
        "SELECT count(*) AS rows, coalesce(sum(octet_length(payload)), 0) AS bytes"
        f" FROM (SELECT payload FROM {week.table} LIMIT {MOVED_ROWS_MAX + 1}) AS left_over"
    )
    rows, size = connection.exec_driver_sql(query).one()
    return rows <= MOVED_ROWS_MAX and size <= MOVED_BYTES_MAX
