"""Which event kinds a worker knows and a run may hold, as a level. Code that does not know of levels is of level 1."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0002"
branch_labels = None


def upgrade() -> None:
    # The defaults are for code that does not name the columns; they stay, as level 1 is what such code knows.
    for table in ("runs", "worker_sessions"):
        op.add_column(table, sa.Column("event_level", sa.Integer(), nullable=False, server_default=sa.text("1")))


def downgrade() -> None:
    for table in ("worker_sessions", "runs"):
        op.drop_column(table, "event_level")
