"""The tables of the journal, before the first release."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = ("pre",)

_ID = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    _agents()
    _feed()
    _approvals()
    _journal_events()
    _journal_blobs()
    _journal_marks()
    _run_inbox()
    _run_locks()
    _runs()
    _runs_indexes()
    _side_effect_receipts()
    _start_requests()
    _worker_sessions()


def downgrade() -> None:
    op.drop_table("worker_sessions")
    op.drop_table("start_requests")
    op.drop_table("side_effect_receipts")
    op.drop_table("runs")
    op.drop_table("run_locks")
    op.drop_table("run_inbox")
    op.drop_table("journal_marks")
    op.drop_table("journal_blobs")
    op.drop_table("journal_blob_uploads")
    op.drop_table("journal_blob_refs")
    op.drop_table("journal_blob_chunks")
    op.drop_table("journal_feed")
    op.drop_table("journal_events")
    op.drop_table("feed_consumers")
    op.drop_table("approvals")
    op.drop_table("agents")


def _agents() -> None:
    op.create_table(
        "agents",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("name", _ID, nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("program_kind", sa.Text(), nullable=False),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "name", "version"),
    )
    op.create_index("agents_digest", "agents", ["tenant_id", "name", "digest"], unique=True)


def _feed() -> None:
    op.create_table(
        "journal_feed",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("xid", sa.BigInteger(), nullable=False),
        sa.Column("time_us", sa.BigInteger(), nullable=False),
        sa.Column("entries", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index("journal_feed_xid", "journal_feed", ["xid", "id"], unique=False)
    op.create_table(
        "feed_consumers",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("cursor", sa.Text(), nullable=False),
        sa.Column("updated_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )


def _approvals() -> None:
    op.create_table(
        "approvals",
        sa.Column("run_id", _ID, nullable=False),
        sa.Column("approval_id", sa.Text(), nullable=False),
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("agent_name", sa.Text(), nullable=False),
        sa.Column("workflow_id", sa.Text(), nullable=False),
        sa.Column("step_id", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("assignee", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("requested_us", sa.BigInteger(), nullable=False),
        sa.Column("requested_seq", sa.BigInteger(), nullable=False),
        sa.Column("expires_us", sa.BigInteger(), nullable=True),
        sa.Column("decided_us", sa.BigInteger(), nullable=True),
        sa.Column("decided_by", sa.Text(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("comment", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("run_id", "approval_id"),
    )
    op.create_index("approvals_listed", "approvals", ["tenant_id", "requested_us", "run_id"], unique=False)
    for name, columns, condition in (
        ("approvals_pending", ["run_id"], "state = 'PENDING'"),
        ("approvals_expiring", ["expires_us"], "state = 'PENDING' AND expires_us IS NOT NULL"),
        ("approvals_inbox", ["tenant_id", "requested_us", "run_id"], "state = 'PENDING'"),
    ):
        where = sa.text(condition)
        op.create_index(name, "approvals", columns, unique=False, sqlite_where=where, postgresql_where=where)


def _start_requests() -> None:
    op.create_table(
        "start_requests",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("request_digest", sa.LargeBinary(), nullable=False),
        sa.Column("run_id", _ID, nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "request_id"),
    )
    op.create_index("start_requests_run", "start_requests", ["run_id"], unique=False)


def _journal_events() -> None:
    op.create_table(
        "journal_events",
        sa.Column("run_id", _ID, nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("step_id", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("time_us", sa.BigInteger(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.Column("salt", sa.LargeBinary(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "seq"),
        postgresql_partition_by="RANGE (run_id)",
    )
    if op.get_bind().dialect.name == "postgresql":
        _journal_events_storage()


def _journal_events_storage() -> None:
    # PostgreSQL's own compression costs ten times the CPU at 100 KiB; lz4 costs nearly nothing, where it is built in.
    has_lz4 = sa.text("SELECT 'lz4' = ANY (enumvals) FROM pg_settings WHERE name = 'default_toast_compression'")
    if op.get_bind().execute(has_lz4).scalar():
        op.execute("ALTER TABLE journal_events ALTER COLUMN payload SET COMPRESSION lz4")
    else:
        op.execute("ALTER TABLE journal_events ALTER COLUMN payload SET STORAGE EXTERNAL")
    # Catches what no week's partition covers. The weeks' are made by the journal's housekeeping, ahead of time.
    op.execute("CREATE TABLE journal_events_default PARTITION OF journal_events DEFAULT")


def _journal_blobs() -> None:
    op.create_table(
        "journal_blobs",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("upload_id", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.Column("touched_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "sha256"),
    )
    op.create_table(
        "journal_blob_chunks",
        sa.Column("upload_id", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("upload_id", "number"),
    )
    if op.get_bind().dialect.name == "postgresql":
        op.execute("ALTER TABLE journal_blob_chunks ALTER COLUMN data SET STORAGE EXTERNAL")
    op.create_table(
        "journal_blob_uploads",
        sa.Column("upload_id", sa.Text(), nullable=False),
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("touched_us", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("upload_id"),
    )
    op.create_table(
        "journal_blob_refs",
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("run_id", _ID, nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "sha256", "run_id"),
    )
    op.create_index("journal_blob_refs_run", "journal_blob_refs", ["run_id"], unique=False)


def _journal_marks() -> None:
    op.create_table(
        "journal_marks",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )


def _run_inbox() -> None:
    op.create_table(
        "run_inbox",
        sa.Column("run_id", _ID, nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.Column("payload_blob", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("run_id", "number"),
    )
    op.create_index("run_inbox_request", "run_inbox", ["run_id", "request_id"], unique=True)


def _run_locks() -> None:
    op.create_table(
        "run_locks",
        sa.Column("run_id", _ID, nullable=False),
        sa.Column("worker_id", sa.Text(), nullable=False),
        sa.Column("session_number", sa.BigInteger(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("acquired_us", sa.BigInteger(), nullable=False),
        sa.Column("expires_us", sa.BigInteger(), nullable=False),
        sa.Column("opened", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("run_id"),
    )
    op.create_index(
        "run_locks_unopened",
        "run_locks",
        ["expires_us"],
        unique=False,
        sqlite_where=sa.text("NOT opened AND worker_id <> ''"),
        postgresql_where=sa.text("NOT opened AND worker_id <> ''"),
    )
    op.create_index(
        "run_locks_worker",
        "run_locks",
        ["worker_id"],
        unique=False,
        sqlite_where=sa.text("worker_id <> ''"),
        postgresql_where=sa.text("worker_id <> ''"),
    )


def _runs() -> None:
    op.create_table(
        "runs",
        sa.Column("run_id", _ID, nullable=False),
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("request_digest", sa.LargeBinary(), nullable=False),
        sa.Column("workflow_id", sa.Text(), nullable=False),
        sa.Column("agent_name", sa.Text(), nullable=False),
        sa.Column("agent_version", sa.Integer(), nullable=False),
        sa.Column("agent_digest", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("waiting_on", sa.Text(), nullable=False),
        sa.Column("due_us", sa.BigInteger(), nullable=True),
        sa.Column("error", sa.LargeBinary(), nullable=True),
        sa.Column("wake_reason", sa.Text(), nullable=False),
        sa.Column("recover_after_us", sa.BigInteger(), nullable=False),
        sa.Column("created_us", sa.BigInteger(), nullable=False),
        sa.Column("updated_us", sa.BigInteger(), nullable=False),
        sa.Column("ended_us", sa.BigInteger(), nullable=True),
        sa.Column("end_seq", sa.BigInteger(), nullable=True),
        sa.Column("traceparent", sa.Text(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("inbox_number", sa.BigInteger(), nullable=False),
        sa.Column("consumed_inbox", sa.BigInteger(), nullable=False),
        sa.Column("cancel_seq", sa.BigInteger(), nullable=True),
        sa.Column("failed_digests", sa.Text(), nullable=False),
        sa.Column("drive_faults", sa.Integer(), nullable=False),
        sa.Column("awaited_signals", sa.Text(), nullable=False),
        sa.Column("nothing_to_compensate", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("run_id"),
    )


def _runs_indexes() -> None:
    op.create_index(
        "runs_due",
        "runs",
        ["due_us"],
        unique=False,
        sqlite_where=sa.text("due_us IS NOT NULL"),
        postgresql_where=sa.text("due_us IS NOT NULL"),
    )
    op.create_index("runs_newest", "runs", ["tenant_id", "run_id"], unique=False)
    op.create_index(
        "runs_open",
        "runs",
        ["state", "created_us"],
        unique=False,
        sqlite_where=sa.text("ended_us IS NULL"),
        postgresql_where=sa.text("ended_us IS NULL"),
    )
    op.create_index(
        "runs_open_workflow",
        "runs",
        ["tenant_id", "workflow_id"],
        unique=True,
        sqlite_where=sa.text("ended_us IS NULL AND workflow_id <> ''"),
        postgresql_where=sa.text("ended_us IS NULL AND workflow_id <> ''"),
    )
    op.create_index("runs_request", "runs", ["tenant_id", "request_id"], unique=True)
    op.create_index(
        "runs_set_aside",
        "runs",
        ["recover_after_us"],
        unique=False,
        sqlite_where=sa.text("recover_after_us > 0"),
        postgresql_where=sa.text("recover_after_us > 0"),
    )
    op.create_index(
        "runs_unconsumed",
        "runs",
        ["run_id"],
        unique=False,
        sqlite_where=sa.text("inbox_number > consumed_inbox AND ended_us IS NULL"),
        postgresql_where=sa.text("inbox_number > consumed_inbox AND ended_us IS NULL"),
    )
    op.create_index(
        "runs_waiting_for_code",
        "runs",
        ["tenant_id", "agent_name"],
        unique=False,
        sqlite_where=sa.text("waiting_on IN ('capacity', 'code_fix') AND ended_us IS NULL"),
        postgresql_where=sa.text("waiting_on IN ('capacity', 'code_fix') AND ended_us IS NULL"),
    )
    op.create_index("runs_workflow", "runs", ["tenant_id", "workflow_id"], unique=False)


def _side_effect_receipts() -> None:
    op.create_table(
        "side_effect_receipts",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("run_id", _ID, nullable=False),
        sa.Column("step_id", sa.Text(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("sink", sa.Text(), nullable=False),
        sa.Column("worker_id", sa.Text(), nullable=False),
        sa.Column("nonce", sa.LargeBinary(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("result", sa.LargeBinary(), nullable=False),
        sa.Column("claimed_us", sa.BigInteger(), nullable=False),
        sa.Column("settled_us", sa.BigInteger(), nullable=True),
        sa.Column("settled_by", sa.Text(), nullable=False),
        sa.Column("result_blob", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("key"),
    )


def _worker_sessions() -> None:
    op.create_table(
        "worker_sessions",
        sa.Column("worker_id", sa.Text(), nullable=False),
        sa.Column("session_number", sa.BigInteger(), nullable=False),
        sa.Column("seen_us", sa.BigInteger(), nullable=False),
        sa.Column("closed", sa.Boolean(), nullable=False),
        sa.Column("draining", sa.Boolean(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("capacity", sa.Integer(), nullable=False),
        sa.Column("tenant_id", sa.Text(), nullable=False),
        sa.Column("agents", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("worker_id"),
    )
    op.create_index(
        "worker_sessions_closed",
        "worker_sessions",
        ["seen_us"],
        unique=False,
        sqlite_where=sa.text("closed"),
        postgresql_where=sa.text("closed"),
    )
    op.create_index(
        "worker_sessions_open",
        "worker_sessions",
        ["seen_us"],
        unique=False,
        sqlite_where=sa.text("NOT closed"),
        postgresql_where=sa.text("NOT closed"),
    )
