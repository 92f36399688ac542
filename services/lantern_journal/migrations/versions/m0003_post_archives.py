"""Every journal knows of archived runs: the default for those that did not goes. From here on runs are archived."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = None
branch_labels = ("post",)


def upgrade() -> None:
    _set_default(None)


def downgrade() -> None:
    _set_default(sa.false())


def _set_default(default: sa.ColumnElement[bool] | None) -> None:
    # SQLite knows no ALTER COLUMN: alembic copies the table.
    with op.batch_alter_table("runs") as runs:
        runs.alter_column("archived", existing_type=sa.Boolean(), existing_nullable=False, server_default=default)
