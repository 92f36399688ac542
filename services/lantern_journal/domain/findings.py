"""What the doctor has to say."""

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How bad it is."""

    # Worth knowing, and in order: an orphan that recovery will take, say.
    NOTE = "note"
    # Something that must not be.
    FAULT = "fault"


class Check(StrEnum):
    """What was looked at."""

    CHAIN = "chain"
    PROJECTION = "projection"
    WAKE_SOURCE = "wake_source"
    LEASE = "lease"
    SESSION = "session"
    APPROVAL = "approval"
    BLOB = "blob"
    ARCHIVE = "archive"
    FEED = "feed"
    DATABASE = "database"


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One thing that is not as it should be, or that is worth knowing."""

    # What was looked at.
    check: Check
    # What of it: a column, `digest`, `lease` ...
    subject: str
    # For people: what is there and what should be.
    message: str
    # How bad it is.
    severity: Severity = Severity.FAULT
    # The run; empty where it is not about one.
    run_id: str = ""
    # Whether rebuilding the run's projections mends it.
    mendable: bool = False
