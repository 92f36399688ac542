"""Agents that are data: their definitions, who published them, and which version is current."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None


def upgrade() -> None:
    # The default is for code that does not name the column: what it offers was never published.
    op.add_column("agents", sa.Column("published_us", sa.BigInteger(), nullable=False, server_default=sa.text("0")))
    op.create_table(
        "agent_definitions",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "digest"),
    )
    op.create_table(
        "agent_publications",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("request_digest", sa.LargeBinary(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("created", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "request_id"),
    )


def downgrade() -> None:
    op.drop_table("agent_publications")
    op.drop_table("agent_definitions")
    op.drop_column("agents", "published_us")
