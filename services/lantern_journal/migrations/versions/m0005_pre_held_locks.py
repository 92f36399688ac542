"""What the search for orphans asks of runs stands in indexes: it reads neither those that ended nor those driven."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None


_OPEN = sa.text("ended_us IS NULL")


def upgrade() -> None:
    # In place of the narrower one of this name, which it serves as well.
    op.drop_index("runs_open", "runs")
    op.create_index(
        "runs_open",
        "runs",
        ["state", "recover_after_us", "created_us", "run_id", "tenant_id", "ended_us"],
        unique=False,
        sqlite_where=_OPEN,
        postgresql_where=_OPEN,
    )
    op.create_index(
        "run_locks_held",
        "run_locks",
        ["run_id", "expires_us", "worker_id", "opened"],
        unique=False,
        sqlite_where=sa.text("worker_id <> ''"),
        postgresql_where=sa.text("worker_id <> ''"),
    )


def downgrade() -> None:
    op.drop_index("run_locks_held", "run_locks")
    op.drop_index("runs_open", "runs")
    op.create_index(
        "runs_open",
        "runs",
        ["state", "created_us"],
        unique=False,
        sqlite_where=_OPEN,
        postgresql_where=_OPEN,
    )
