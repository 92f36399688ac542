"""Runs that belong to others: children, and those that go on in another's place; and how a run is committed."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None

_EMPTY = sa.text("''")


def _id() -> sa.types.TypeEngine[str]:
    return sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def _columns() -> list[sa.Column[object]]:
    # The defaults are for code that does not name the columns: what it starts is nobody's child, and committed at once.
    return [
        sa.Column("durability", sa.Text(), nullable=False, server_default=sa.text("'sync'")),
        sa.Column("parent_run_id", _id(), nullable=False, server_default=_EMPTY),
        sa.Column("parent_step_id", sa.Text(), nullable=False, server_default=_EMPTY),
        sa.Column("depth", sa.Integer(), nullable=False, server_default=sa.text("0")),
        sa.Column("abandoned", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("has_children", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("continued_as", _id(), nullable=False, server_default=_EMPTY),
        sa.Column("continued_from", _id(), nullable=False, server_default=_EMPTY),
    ]


def upgrade() -> None:
    for column in _columns():
        op.add_column("runs", column)
    of_a_child = sa.text("parent_run_id <> ''")
    op.create_index(
        "runs_parent",
        "runs",
        ["parent_run_id", "run_id"],
        unique=False,
        sqlite_where=of_a_child,
        postgresql_where=of_a_child,
    )


def downgrade() -> None:
    op.drop_index("runs_parent", "runs")
    for column in reversed(_columns()):
        op.drop_column("runs", column.name)
