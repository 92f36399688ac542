"""Archived runs: where they are, and who may archive. Code that does not know of them is not shown any yet."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None

_ID = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    # The default is for code that does not name the column; it goes with that code (0003).
    op.add_column("runs", sa.Column("archived", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.create_index(
        "runs_to_archive",
        "runs",
        ["ended_us", "run_id"],
        unique=False,
        sqlite_where=sa.text("ended_us IS NOT NULL AND NOT archived"),
        postgresql_where=sa.text("ended_us IS NOT NULL AND NOT archived"),
    )
    op.create_table(
        "run_archives",
        sa.Column("run_id", _ID, nullable=False),
        sa.Column("file", sa.Text(), nullable=False),
        sa.Column("byte_offset", sa.BigInteger(), nullable=False),
        sa.Column("byte_length", sa.BigInteger(), nullable=False),
        sa.Column("event_count", sa.BigInteger(), nullable=False),
        sa.Column("head_hash", sa.LargeBinary(), nullable=False),
        sa.Column("archived_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("run_id"),
    )
    op.create_table(
        "archive_files",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("turn", sa.BigInteger(), nullable=False),
        sa.Column("begun_us", sa.BigInteger(), nullable=False),
        sa.Column("finished_us", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "archive_turns",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("until_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )


def downgrade() -> None:
    op.drop_table("archive_turns")
    op.drop_table("archive_files")
    op.drop_table("run_archives")
    op.drop_index("runs_to_archive", "runs")
    op.drop_column("runs", "archived")
