"""The tables, one set for both databases. `migrations/` must lead to exactly this; a contract test compares them."""

import sqlalchemy as sa

REVISION = 7
"""The number of the newest revision in `migrations/` that this code knows."""

metadata = sa.MetaData()

# Run ids are ordered by their bytes: faster than by a language's rules, and what the partitions' bounds go by.
_id = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")

journal_events = sa.Table(
    "journal_events",
    metadata,
    sa.Column("run_id", _id, primary_key=True),
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("step_id", sa.Text, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("time_us", sa.BigInteger, nullable=False),
    sa.Column("payload", sa.LargeBinary, nullable=False),
    sa.Column("salt", sa.LargeBinary, nullable=False),
    sa.Column("digest", sa.LargeBinary, nullable=False),
    sa.Column("hash", sa.LargeBinary, nullable=False),
    # One partition a week, by the time in the run id; see `partitions`. SQLite keeps one table.
    postgresql_partition_by="RANGE (run_id)",
)

runs = sa.Table(
    "runs",
    metadata,
    sa.Column("run_id", _id, primary_key=True),
    sa.Column("tenant_id", sa.Text, nullable=False),
    sa.Column("request_id", sa.Text, nullable=False),
    sa.Column("request_digest", sa.LargeBinary, nullable=False),
    sa.Column("workflow_id", sa.Text, nullable=False),
    sa.Column("agent_name", sa.Text, nullable=False),
    sa.Column("agent_version", sa.Integer, nullable=False),
    sa.Column("agent_digest", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("waiting_on", sa.Text, nullable=False),
    sa.Column("due_us", sa.BigInteger),
    sa.Column("error", sa.LargeBinary),
    # Why it needs a driver, should it need one now; `crash` where one held it.
    sa.Column("wake_reason", sa.Text, nullable=False),
    # Not offered to the sweep before this.
    sa.Column("recover_after_us", sa.BigInteger, nullable=False),
    sa.Column("created_us", sa.BigInteger, nullable=False),
    sa.Column("updated_us", sa.BigInteger, nullable=False),
    sa.Column("ended_us", sa.BigInteger),
    sa.Column("end_seq", sa.BigInteger),
    sa.Column("traceparent", sa.Text, nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("inbox_number", sa.BigInteger, nullable=False),
    sa.Column("consumed_inbox", sa.BigInteger, nullable=False),
    # Where its cancel_requested stands.
    sa.Column("cancel_seq", sa.BigInteger),
    # The digests of the code whose replay of this run failed, the last one first, with spaces between them.
    sa.Column("failed_digests", sa.Text, nullable=False),
    # Drives in a row that failed by a fault of their own, and left nothing in the journal.
    sa.Column("drive_faults", sa.Integer, nullable=False),
    # While it is parked: the signals that it named as those that wake it, with spaces between them.
    sa.Column("awaited_signals", sa.Text, nullable=False),
    # While nobody drives it: whether a cancel may end it as it stands, as its last run_parked says.
    sa.Column("nothing_to_compensate", sa.Boolean, nullable=False),
    # Its events are in an archive file: see run_archives.
    sa.Column("archived", sa.Boolean, nullable=False),
    # The highest event level (`kinds.LEVEL`) of a session that it was granted to: its history may hold such kinds.
    sa.Column("event_level", sa.Integer, nullable=False, server_default=sa.text("1")),
    # When its events are committed: sync, async or exit.
    sa.Column("durability", sa.Text, nullable=False, server_default=sa.text("'sync'")),
    # Whose child it is, and which step of that one; empty for nobody's.
    sa.Column("parent_run_id", _id, nullable=False, server_default=sa.text("''")),
    sa.Column("parent_step_id", sa.Text, nullable=False, server_default=sa.text("''")),
    # One more than its parent's.
    sa.Column("depth", sa.Integer, nullable=False, server_default=sa.text("0")),
    # It goes on when its parent has ended.
    sa.Column("abandoned", sa.Boolean, nullable=False, server_default=sa.false()),
    # It has started children: its end has to look for those that are open.
    sa.Column("has_children", sa.Boolean, nullable=False, server_default=sa.false()),
    # The run that goes on in its place, and the one in whose place it goes on.
    sa.Column("continued_as", _id, nullable=False, server_default=sa.text("''")),
    sa.Column("continued_from", _id, nullable=False, server_default=sa.text("''")),
)
sa.Index(
    "runs_parent",
    runs.c.parent_run_id,
    runs.c.run_id,
    postgresql_where=sa.text("parent_run_id <> ''"),
    sqlite_where=sa.text("parent_run_id <> ''"),
)
sa.Index("runs_request", runs.c.tenant_id, runs.c.request_id, unique=True)
sa.Index("runs_newest", runs.c.tenant_id, runs.c.run_id)
sa.Index("runs_workflow", runs.c.tenant_id, runs.c.workflow_id)
sa.Index(
    "runs_open_workflow",
    runs.c.tenant_id,
    runs.c.workflow_id,
    unique=True,
    postgresql_where=sa.text("ended_us IS NULL AND workflow_id <> ''"),
    sqlite_where=sa.text("ended_us IS NULL AND workflow_id <> ''"),
)
sa.Index(
    "runs_open",
    runs.c.state,
    runs.c.recover_after_us,
    runs.c.created_us,
    runs.c.run_id,
    runs.c.tenant_id,
    # Always NULL here; SQLite reads the row when it does not find it in the index.
    runs.c.ended_us,
    postgresql_where=sa.text("ended_us IS NULL"),
    sqlite_where=sa.text("ended_us IS NULL"),
)
sa.Index(
    "runs_due",
    runs.c.due_us,
    postgresql_where=sa.text("due_us IS NOT NULL"),
    sqlite_where=sa.text("due_us IS NOT NULL"),
)
sa.Index(
    "runs_waiting_for_code",
    runs.c.tenant_id,
    runs.c.agent_name,
    postgresql_where=sa.text("waiting_on IN ('capacity', 'code_fix') AND ended_us IS NULL"),
    sqlite_where=sa.text("waiting_on IN ('capacity', 'code_fix') AND ended_us IS NULL"),
)
sa.Index(
    "runs_unconsumed",
    runs.c.run_id,
    postgresql_where=sa.text("inbox_number > consumed_inbox AND ended_us IS NULL"),
    sqlite_where=sa.text("inbox_number > consumed_inbox AND ended_us IS NULL"),
)
sa.Index(
    "runs_set_aside",
    runs.c.recover_after_us,
    postgresql_where=sa.text("recover_after_us > 0"),
    sqlite_where=sa.text("recover_after_us > 0"),
)
sa.Index(
    "runs_to_archive",
    runs.c.ended_us,
    runs.c.run_id,
    postgresql_where=sa.text("ended_us IS NOT NULL AND NOT archived"),
    sqlite_where=sa.text("ended_us IS NOT NULL AND NOT archived"),
)

run_locks = sa.Table(
    "run_locks",
    metadata,
    sa.Column("run_id", _id, primary_key=True),
    # Empty: released.
    sa.Column("worker_id", sa.Text, nullable=False),
    sa.Column("session_number", sa.BigInteger, nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("acquired_us", sa.BigInteger, nullable=False),
    sa.Column("expires_us", sa.BigInteger, nullable=False),
    sa.Column("opened", sa.Boolean, nullable=False),
)
sa.Index(
    "run_locks_worker",
    run_locks.c.worker_id,
    postgresql_where=sa.text("worker_id <> ''"),
    sqlite_where=sa.text("worker_id <> ''"),
)
sa.Index(
    "run_locks_held",
    run_locks.c.run_id,
    run_locks.c.expires_us,
    run_locks.c.worker_id,
    run_locks.c.opened,
    postgresql_where=sa.text("worker_id <> ''"),
    sqlite_where=sa.text("worker_id <> ''"),
)
sa.Index(
    "run_locks_unopened",
    run_locks.c.expires_us,
    postgresql_where=sa.text("NOT opened AND worker_id <> ''"),
    sqlite_where=sa.text("NOT opened AND worker_id <> ''"),
)

worker_sessions = sa.Table(
    "worker_sessions",
    metadata,
    sa.Column("worker_id", sa.Text, primary_key=True),
    sa.Column("session_number", sa.BigInteger, nullable=False),
    sa.Column("seen_us", sa.BigInteger, nullable=False),
    sa.Column("closed", sa.Boolean, nullable=False),
    sa.Column("draining", sa.Boolean, nullable=False),
    sa.Column("address", sa.Text, nullable=False),
    sa.Column("capacity", sa.Integer, nullable=False),
    sa.Column("tenant_id", sa.Text, nullable=False),
    # JSON: [[name, digest, program kind], ...]
    sa.Column("agents", sa.Text, nullable=False),
    # The event level (`kinds.LEVEL`) that the worker knows.
    sa.Column("event_level", sa.Integer, nullable=False, server_default=sa.text("1")),
)
sa.Index(
    "worker_sessions_open",
    worker_sessions.c.seen_us,
    postgresql_where=sa.text("NOT closed"),
    sqlite_where=sa.text("NOT closed"),
)
sa.Index(
    "worker_sessions_closed",
    worker_sessions.c.seen_us,
    postgresql_where=sa.text("closed"),
    sqlite_where=sa.text("closed"),
)

run_inbox = sa.Table(
    "run_inbox",
    metadata,
    sa.Column("run_id", _id, primary_key=True),
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("request_id", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("payload", sa.LargeBinary, nullable=False),
    sa.Column("created_us", sa.BigInteger, nullable=False),
    # The blob that holds the payload, `SHA-256:size`, `payload` being empty then.
    sa.Column("payload_blob", sa.Text),
)
sa.Index("run_inbox_request", run_inbox.c.run_id, run_inbox.c.request_id, unique=True)

# Starts that led to a run of another request: what `runs` says of those that made one.
start_requests = sa.Table(
    "start_requests",
    metadata,
    sa.Column("tenant_id", sa.Text, primary_key=True),
    sa.Column("request_id", sa.Text, primary_key=True),
    sa.Column("request_digest", sa.LargeBinary, nullable=False),
    sa.Column("run_id", _id, nullable=False),
)
sa.Index("start_requests_run", start_requests.c.run_id)

approvals = sa.Table(
    "approvals",
    metadata,
    sa.Column("run_id", _id, primary_key=True),
    sa.Column("approval_id", sa.Text, primary_key=True),
    sa.Column("tenant_id", sa.Text, nullable=False),
    sa.Column("agent_name", sa.Text, nullable=False),
    sa.Column("workflow_id", sa.Text, nullable=False),
    sa.Column("step_id", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("assignee", sa.Text, nullable=False),
    sa.Column("title", sa.Text, nullable=False),
    sa.Column("requested_us", sa.BigInteger, nullable=False),
    # Where its approval_requested stands.
    sa.Column("requested_seq", sa.BigInteger, nullable=False),
    sa.Column("expires_us", sa.BigInteger),
    sa.Column("decided_us", sa.BigInteger),
    sa.Column("decided_by", sa.Text, nullable=False),
    # Of the decision: a repeat of the very same call gets the first answer.
    sa.Column("request_id", sa.Text, nullable=False),
    sa.Column("comment", sa.LargeBinary),
)
sa.Index("approvals_listed", approvals.c.tenant_id, approvals.c.requested_us, approvals.c.run_id)
sa.Index(
    "approvals_pending",
    approvals.c.run_id,
    postgresql_where=sa.text("state = 'PENDING'"),
    sqlite_where=sa.text("state = 'PENDING'"),
)
sa.Index(
    "approvals_expiring",
    approvals.c.expires_us,
    postgresql_where=sa.text("state = 'PENDING' AND expires_us IS NOT NULL"),
    sqlite_where=sa.text("state = 'PENDING' AND expires_us IS NOT NULL"),
)
sa.Index(
    "approvals_inbox",
    approvals.c.tenant_id,
    approvals.c.requested_us,
    approvals.c.run_id,
    postgresql_where=sa.text("state = 'PENDING'"),
    sqlite_where=sa.text("state = 'PENDING'"),
)

side_effect_receipts = sa.Table(
    "side_effect_receipts",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("run_id", _id, nullable=False),
    sa.Column("step_id", sa.Text, nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("sink", sa.Text, nullable=False),
    sa.Column("worker_id", sa.Text, nullable=False),
    sa.Column("nonce", sa.LargeBinary, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("result", sa.LargeBinary, nullable=False),
    sa.Column("claimed_us", sa.BigInteger, nullable=False),
    sa.Column("settled_us", sa.BigInteger),
    sa.Column("settled_by", sa.Text, nullable=False),
    # The blob that holds the result, `SHA-256:size`, `result` being empty then.
    sa.Column("result_blob", sa.Text),
)

agents = sa.Table(
    "agents",
    metadata,
    sa.Column("tenant_id", sa.Text, primary_key=True),
    # Listed in its order, which is that of its bytes whatever the database's language.
    sa.Column("name", _id, primary_key=True),
    sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("program_kind", sa.Text, nullable=False),
    sa.Column("created_us", sa.BigInteger, nullable=False),
    # When it last became the current version by being published; 0 for what executors offer.
    sa.Column("published_us", sa.BigInteger, nullable=False, server_default=sa.text("0")),
)
sa.Index("agents_digest", agents.c.tenant_id, agents.c.name, agents.c.digest, unique=True)

agent_definitions = sa.Table(
    "agent_definitions",
    metadata,
    sa.Column("tenant_id", sa.Text, primary_key=True),
    # Of the content, in hexadecimal digits.
    sa.Column("digest", sa.Text, primary_key=True),
    sa.Column("content", sa.LargeBinary, nullable=False),
    sa.Column("created_us", sa.BigInteger, nullable=False),
)

# Requests that published something: a repeat of one gets its answer.
agent_publications = sa.Table(
    "agent_publications",
    metadata,
    sa.Column("tenant_id", sa.Text, primary_key=True),
    sa.Column("request_id", sa.Text, primary_key=True),
    sa.Column("request_digest", sa.LargeBinary, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("created", sa.Boolean, nullable=False),
)

journal_blobs = sa.Table(
    "journal_blobs",
    metadata,
    sa.Column("tenant_id", sa.Text, primary_key=True),
    # Of the content, in hexadecimal digits.
    sa.Column("sha256", sa.Text, primary_key=True),
    # The upload that brought it, under which its chunks are kept.
    sa.Column("upload_id", sa.Text, nullable=False),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("created_us", sa.BigInteger, nullable=False),
    # When it was last uploaded or asked for: not collected for some time after.
    sa.Column("touched_us", sa.BigInteger, nullable=False),
)

journal_blob_chunks = sa.Table(
    "journal_blob_chunks",
    metadata,
    sa.Column("upload_id", sa.Text, primary_key=True),
    # From 0; each but the last holds 256 KiB.
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("data", sa.LargeBinary, nullable=False),
)

# Uploads that are not finished.
journal_blob_uploads = sa.Table(
    "journal_blob_uploads",
    metadata,
    sa.Column("upload_id", sa.Text, primary_key=True),
    sa.Column("tenant_id", sa.Text, nullable=False),
    sa.Column("touched_us", sa.BigInteger, nullable=False),
)

# Which runs name a blob, in events, entries or claims: as long as one does, it stays.
journal_blob_refs = sa.Table(
    "journal_blob_refs",
    metadata,
    sa.Column("tenant_id", sa.Text, primary_key=True),
    sa.Column("sha256", sa.Text, primary_key=True),
    sa.Column("run_id", _id, primary_key=True),
)
sa.Index("journal_blob_refs_run", journal_blob_refs.c.run_id)

journal_marks = sa.Table(
    "journal_marks",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("value", sa.BigInteger, nullable=False),
)

# One row for each transaction that writes events: what the followers of all runs read.
journal_feed = sa.Table(
    "journal_feed",
    metadata,
    # Taken after everything that the transaction builds on was committed; never given twice.
    sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
    # The transaction's id on PostgreSQL, by which a reader's snapshot tells whether it was there; 0 on SQLite.
    sa.Column("xid", sa.BigInteger, nullable=False),
    # The time of the youngest event.
    sa.Column("time_us", sa.BigInteger, nullable=False),
    # See domain/feed.py.
    sa.Column("entries", sa.LargeBinary, nullable=False),
    sqlite_autoincrement=True,
)
sa.Index("journal_feed_xid", journal_feed.c.xid, journal_feed.c.id)

# How far the services that read the feed have come, by name.
feed_consumers = sa.Table(
    "feed_consumers",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("cursor", sa.Text, nullable=False),
    sa.Column("updated_us", sa.BigInteger, nullable=False),
)

run_archives = sa.Table(
    "run_archives",
    metadata,
    sa.Column("run_id", _id, primary_key=True),
    sa.Column("file", sa.Text, nullable=False),
    sa.Column("byte_offset", sa.BigInteger, nullable=False),
    sa.Column("byte_length", sa.BigInteger, nullable=False),
    sa.Column("event_count", sa.BigInteger, nullable=False),
    sa.Column("head_hash", sa.LargeBinary, nullable=False),
    sa.Column("archived_us", sa.BigInteger, nullable=False),
)

archive_files = sa.Table(
    "archive_files",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    # The turn in which it was begun; one that is over and left it unfinished left it behind.
    sa.Column("turn", sa.BigInteger, nullable=False),
    sa.Column("begun_us", sa.BigInteger, nullable=False),
    # Since when runs are in it.
    sa.Column("finished_us", sa.BigInteger),
)

# Who may archive: one row.
archive_turns = sa.Table(
    "archive_turns",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Column("until_us", sa.BigInteger, nullable=False),
)

EVENT_COLUMNS = tuple(column.name for column in journal_events.columns)
