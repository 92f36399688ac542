"""Every bound of the platform, with its unit (SPEC 14). Exceeding one is an error that names it, never a silent cut."""

PAYLOAD_BYTES_MAX = 64 * 1024 * 1024
"""User data: an input, a result, a marker's value, a signal's content."""

PAYLOAD_INLINE_BYTES_MAX = 256 * 1024
"""User data that stands in its event; what is larger is a blob, and what is not is none."""

BLOB_CHUNK_BYTES_MAX = 256 * 1024
"""Of a message that carries a part of a blob."""

BLOBS_PER_QUESTION_MAX = 1_000

EVENT_PAYLOAD_BYTES_MAX = PAYLOAD_INLINE_BYTES_MAX + 16 * 1024
"""An event's payload: user data of the largest size with the engine's facts beside them."""

JSON_DEPTH_MAX = 64
"""Nesting of arrays and objects in user data."""

EVENTS_PER_RUN_MAX = 100_000
EVENTS_PER_APPEND_MAX = 1_000

PAGE_ROWS_MAX = 1_000
PAGE_ROWS_DEFAULT = 100
PAGE_BYTES_MAX = 1024 * 1024
"""A page ends before it would exceed this, but always holds at least one row."""

INBOX_ENTRIES_MAX = 10_000
INBOX_RESERVE = 1_000
"""Entries that a full inbox still takes of those who are not to be kept out by signals: cancels, pauses, decisions."""

AWAITED_SIGNALS_MAX = 100
"""Names that a parked run can wait for."""

APPROVAL_TITLE_CHARACTERS_MAX = 1_000
RETRY_ATTEMPTS_MAX = 100

CHILD_DEPTH_MAX = 5
"""How deep runs may start runs: one that nobody's run has started is at depth 0."""

ID_LENGTH_MAX = 200
AGENTS_PER_SESSION_MAX = 1_000

DEFINITION_BYTES_MAX = 1024 * 1024
"""Of a published agent: it stands in one message."""

SEQ_MAX = 2**63 - 1
"""Sequence numbers, epochs and times are signed 64-bit integers in both databases."""

ATTEMPT_MAX = 2**31 - 1

MESSAGE_SEND_BYTES_MAX = 3 * 1024 * 1024
"""No message of ours comes near gRPC's default limit of 4 MiB."""

MESSAGE_RECEIVE_BYTES_MAX = 128 * 1024 * 1024
"""What a server reads before it refuses: far above what is allowed, so that the refusal is ours and says why."""

GRAPH_NODES_MAX = 1_000
"""Of one graph."""
