"""The shop's own database: what it did, what it answered under which key, and every request that reached it.

One SQLite file in WAL mode, one connection, used from one thread: each statement takes well under a millisecond, and
the shop commits before it replies, so what it once answered it will always know.
"""

import json
import sqlite3
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from order.shop.validate import Charge, Parcel, Reservation

ON_HAND_AT_FIRST = 1_000_000
"""Every item is well stocked, but for `unicorn`, of which there is none."""

OUT_OF_STOCK_ITEM = "unicorn"

_SCHEMA = """
CREATE TABLE IF NOT EXISTS stock (item TEXT PRIMARY KEY, on_hand INTEGER NOT NULL CHECK (on_hand >= 0)) STRICT;
CREATE TABLE IF NOT EXISTS reservations (number INTEGER PRIMARY KEY, order_id TEXT NOT NULL, item TEXT NOT NULL,
    quantity INTEGER NOT NULL, time_us INTEGER NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS charges (number INTEGER PRIMARY KEY, order_id TEXT NOT NULL, amount_pence INTEGER NOT NULL,
    time_us INTEGER NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS parcels (number INTEGER PRIMARY KEY, order_id TEXT NOT NULL, reservation_id TEXT NOT NULL,
    option TEXT NOT NULL, time_us INTEGER NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS mails (number INTEGER PRIMARY KEY, order_id TEXT NOT NULL, message_id TEXT NOT NULL,
    recipient TEXT NOT NULL, subject TEXT NOT NULL, time_us INTEGER NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS answers (path TEXT NOT NULL, key TEXT NOT NULL, body_digest BLOB NOT NULL,
    status INTEGER NOT NULL, reply TEXT NOT NULL, PRIMARY KEY (path, key)) STRICT;
CREATE TABLE IF NOT EXISTS requests (number INTEGER PRIMARY KEY, time_us INTEGER NOT NULL, path TEXT NOT NULL,
    key TEXT NOT NULL, order_id TEXT NOT NULL, run_id TEXT NOT NULL, step_id TEXT NOT NULL, attempt TEXT NOT NULL,
    epoch TEXT NOT NULL, outcome TEXT NOT NULL, status INTEGER NOT NULL) STRICT;
CREATE INDEX IF NOT EXISTS requests_order ON requests (order_id);
CREATE INDEX IF NOT EXISTS charges_order ON charges (order_id);
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedAnswer:
    """What was answered under a key before."""

    # SHA-256 of the body that came with it.
    body_digest: bytes
    # The HTTP status.
    status: int
    # The members of the reply.
    reply: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestEntry:
    """One request as it is logged."""

    # Microseconds since the Unix epoch.
    time_us: int
    # Where it went; `/mail` for a mail.
    path: str
    # Its idempotency key, for a mail its Message-ID; empty where it has none.
    key: str
    # The order that it is about; empty where the body does not say.
    order_id: str
    # What the caller says of itself in Lantern-Run-Id; empty where it says nothing.
    run_id: str
    # Lantern-Step-Id.
    step_id: str
    # Lantern-Attempt.
    attempt: str
    # Lantern-Epoch.
    epoch: str
    # acted, deduplicated (the first answer again), refused or invalid.
    outcome: str
    # The HTTP status, or the SMTP code.
    status: int


class Ledger:
    """The database; `path` is a file, or `:memory:`."""

    def __init__(self, path: Path | str) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.row_factory = sqlite3.Row
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.executescript(_SCHEMA)

    def close(self) -> None:
        """Closes the file."""
        self._db.close()

    @contextmanager
    def transaction(self) -> Generator[None]:
        """What is written inside is committed at the end, all of it or nothing."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def find_answer(self, path: str, key: str) -> RecordedAnswer | None:
        """What was answered on this path under this key."""
        row = self._db.execute(
            "SELECT body_digest, status, reply FROM answers WHERE path = ? AND key = ?", (path, key)
        ).fetchone()
        if row is None:
            return None
        return RecordedAnswer(body_digest=row["body_digest"], status=row["status"], reply=json.loads(row["reply"]))

    def keep_answer(self, path: str, key: str, answer: RecordedAnswer) -> None:
        """Remembers an answer for good."""
        self._db.execute(
            "INSERT INTO answers VALUES (?, ?, ?, ?, ?)",
            (path, key, answer.body_digest, answer.status, json.dumps(answer.reply)),
        )

    def reserve(self, wanted: Reservation, time_us: int) -> int | None:
        """Takes goods off the stock; the reservation's number, or None where too few are left."""
        first = 0 if wanted.item == OUT_OF_STOCK_ITEM else ON_HAND_AT_FIRST
        self._db.execute("INSERT OR IGNORE INTO stock VALUES (?, ?)", (wanted.item, first))
        taken = self._db.execute(
            "UPDATE stock SET on_hand = on_hand - ? WHERE item = ? AND on_hand >= ?",
            (wanted.quantity, wanted.item, wanted.quantity),
        ).rowcount
        if not taken:
            return None
        return self._insert("reservations", wanted.order_id, wanted.item, wanted.quantity, time_us)

    def charge(self, wanted: Charge, time_us: int) -> int:
        """Takes the money; the charge's number."""
        return self._insert("charges", wanted.order_id, wanted.amount_pence, time_us)

    def ship(self, wanted: Parcel, time_us: int) -> int:
        """Sends the parcel; its number."""
        return self._insert("parcels", wanted.order_id, wanted.reservation_id, wanted.option, time_us)

    def keep_mail(self, order_id: str, message_id: str, recipient: str, subject: str, time_us: int) -> bool:
        """Puts a mail into the mailbox; False where one with that Message-ID is in it already."""
        if self._db.execute("SELECT 1 FROM mails WHERE message_id = ?", (message_id,)).fetchone():
            return False
        self._insert("mails", order_id, message_id, recipient, subject, time_us)
        return True

    def log_request(self, entry: RequestEntry) -> None:
        """Appends to the request log."""
        values = asdict(entry)
        names, marks = ", ".join(values), ", ".join("?" for _ in values)
        self._db.execute(f"INSERT INTO requests ({names}) VALUES ({marks})", tuple(values.values()))

    def show(self, order_id: str) -> dict[str, Any]:
        """Stock, charges with their total, parcels and mails; of one order, or of all where `order_id` is empty."""
        charges = self._rows("charges", order_id, 0)
        return {
            "stock": {row["item"]: row["on_hand"] for row in self._db.execute("SELECT item, on_hand FROM stock")},
            "reservations": self._rows("reservations", order_id, 0),
            "charges": charges,
            "chargedPence": sum(row["amountPence"] for row in charges),
            "parcels": self._rows("parcels", order_id, 0),
            "mails": self._rows("mails", order_id, 0),
        }

    def list_requests(self, order_id: str, after: int) -> list[dict[str, Any]]:
        """The request log in order, from the entry after number `after`; of one order, or of all."""
        return self._rows("requests", order_id, after)

    def _insert(self, table: str, *values: str | int) -> int:
        marks = ", ".join("?" for _ in values)
        number = self._db.execute(f"INSERT INTO {table} VALUES (NULL, {marks})", values).lastrowid
        assert number is not None, "an insert into a table with an integer key has a row id"
        return number

    def _rows(self, table: str, order_id: str, after: int) -> list[dict[str, Any]]:
        rows = self._db.execute(
            f"SELECT * FROM {table} WHERE number > ? AND (? = '' OR order_id = ?) ORDER BY number",
            (after, order_id, order_id),
        )
        return [{_camel(name): row[name] for name in row.keys()} for row in rows]  # noqa: SIM118 - a Row iterates values


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)
