"""Rows of the feed that a dump brought from another PostgreSQL server, and whose transactions' ids mean nothing here.

Ids that this server has not given yet would hide those rows from all who follow until it has. They become 0: before all
others, so that whoever begins at the beginning reads them. Whatever a statement sees has ended, so that an id above its
snapshot's is never one of this server's own.
"""

import sqlalchemy as sa

from lantern_journal.adapters.sql_feed import FLOOR_XID

ROWS_PER_BATCH = 5_000

_NEXT = "pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
_COUNT = sa.text(
    f"SELECT (SELECT count(*) FROM (SELECT 1 FROM journal_feed WHERE xid >= {_NEXT} LIMIT {ROWS_PER_BATCH}) AS found)"
    f" + (SELECT count(*) FROM journal_marks WHERE name = '{FLOOR_XID}' AND value >= {_NEXT} + 1)"
)
_SET_FLOOR = sa.text(f"UPDATE journal_marks SET value = 0 WHERE name = '{FLOOR_XID}'")
_SET_ROWS = sa.text(
    f"UPDATE journal_feed SET xid = 0 WHERE id IN (SELECT id FROM journal_feed WHERE xid >= {_NEXT}"
    f" LIMIT {ROWS_PER_BATCH} FOR UPDATE SKIP LOCKED)"
)


def count(connection: sa.Connection) -> int:
    """How many rows, and marks, are of transactions that this server has not begun; of many, that there are many."""
    return connection.execute(_COUNT).scalar_one()


def settle(engine: sa.Engine) -> int:
    """Lets everybody who begins at the beginning see such rows; how many there were.

    In transactions of bounded size. Rows that another journal has in hand are left to it.
    """
    total = 0
    try:
        while True:
            with engine.begin() as connection:
                if not count(connection):
                    return total
                connection.execute(_SET_FLOOR)
                done = connection.execute(_SET_ROWS).rowcount
                total += done
            if not done:
                return total
    finally:
        engine.dispose()
