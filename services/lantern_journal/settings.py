"""The journal's settings."""

from collections.abc import Mapping
from dataclasses import dataclass

from lantern_journal.domain.leases import Limits
from lantern_kernel.errors import InvalidField
from lantern_serving import settings

KNOWN = (
    "LANTERN_DATABASE",
    "LANTERN_LISTEN",
    "LANTERN_LEASE_TTL",
    "LANTERN_GRANT_TTL",
    "LANTERN_SESSION_GRACE",
    "LANTERN_SESSION_SILENCE",
    "LANTERN_FEED_RETENTION",
    "LANTERN_RETENTION",
    "LANTERN_ARCHIVE_DIR",
    "LANTERN_MIGRATE",
    "LANTERN_BLOB_KEEP",
    "LANTERN_CHECK_DIGESTS",
    "LANTERN_LOG_LEVEL",
    "LANTERN_EXIT_WITH_PARENT",
)


CHECK_IN_MEMORY, CHECK_IN_SQL = "memory", "sql"
BLOB_KEEP_S_MAX = 365 * 86_400


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """As read from the environment."""

    # sqlite:PATH or postgresql://...
    database: str
    # host:port; port 0 picks one.
    listen: str
    # How long a lease lasts unless renewed.
    lease_ttl_s: float
    # How long a granted lease waits for its worker to open the run.
    grant_ttl_s: float
    # How long a closed stream has to come back.
    session_grace_s: float
    # Silence after which a session is dead.
    session_silence_s: float
    # How long followers of all runs may be away.
    feed_retention_s: float
    # Runs that ended longer ago than this are archived; None: none ever is.
    retention_s: float | None
    # The folder of the archive files; empty where there are none.
    archive_dir: str
    # Bring the database up to date at start; else refuse one that is not.
    migrate: bool
    # How long a blob is kept that nothing names.
    blob_keep_s: float
    # Whether a group of appends goes in only where the database holds what it is put on top of.
    check_digests: bool
    # Of the logs.
    log_level: str

    @property
    def limits(self) -> Limits:
        """The durations in microseconds."""
        return Limits(
            lease_us=int(self.lease_ttl_s * 1e6),
            grant_us=int(self.grant_ttl_s * 1e6),
            silence_us=int(self.session_silence_s * 1e6),
        )


def read(environment: Mapping[str, str]) -> Settings:
    """Reads and cross-checks; raises InvalidField naming the variable."""
    found = Settings(
        database=settings.text(environment, "LANTERN_DATABASE", ""),
        listen=settings.text(environment, "LANTERN_LISTEN", "127.0.0.1:0"),
        lease_ttl_s=settings.duration_s(environment, "LANTERN_LEASE_TTL", 600.0),
        grant_ttl_s=settings.duration_s(environment, "LANTERN_GRANT_TTL", 5.0),
        session_grace_s=settings.duration_s(environment, "LANTERN_SESSION_GRACE", 0.25),
        session_silence_s=settings.duration_s(environment, "LANTERN_SESSION_SILENCE", 10.0),
        feed_retention_s=settings.duration_s(environment, "LANTERN_FEED_RETENTION", 72 * 3600.0),
        retention_s=_retention_s(environment),
        archive_dir=settings.text(environment, "LANTERN_ARCHIVE_DIR", ""),
        migrate=settings.flag({"LANTERN_MIGRATE": "1", **environment}, "LANTERN_MIGRATE"),
        blob_keep_s=settings.duration_s(environment, "LANTERN_BLOB_KEEP", 86_400.0),
        check_digests=settings.text(environment, "LANTERN_CHECK_DIGESTS", CHECK_IN_MEMORY) == CHECK_IN_SQL,
        log_level=settings.text(environment, "LANTERN_LOG_LEVEL", "INFO"),
    )
    check = environment.get("LANTERN_CHECK_DIGESTS") or CHECK_IN_MEMORY
    if check not in (CHECK_IN_MEMORY, CHECK_IN_SQL):
        raise InvalidField("LANTERN_CHECK_DIGESTS", f"{check!r} is neither {CHECK_IN_MEMORY} nor {CHECK_IN_SQL}")
    if not 0 <= found.blob_keep_s <= BLOB_KEEP_S_MAX:
        raise InvalidField("LANTERN_BLOB_KEEP", f"{found.blob_keep_s} s is not between 0s and {BLOB_KEEP_S_MAX} s")
    if not found.database:
        raise InvalidField("LANTERN_DATABASE", "is not set; sqlite:PATH or postgresql://user@host:port/name")
    if found.retention_s is not None and not found.archive_dir:
        raise InvalidField("LANTERN_ARCHIVE_DIR", "is not set; runs that are archived need a folder to go to")
    for name, value in (
        ("LANTERN_LEASE_TTL", found.lease_ttl_s),
        ("LANTERN_GRANT_TTL", found.grant_ttl_s),
        ("LANTERN_SESSION_SILENCE", found.session_silence_s),
    ):
        if not 0.001 <= value <= 86_400:
            raise InvalidField(name, f"{value} s is not between 1ms and 24h")
    if not 60 <= found.feed_retention_s <= 366 * 86_400:
        raise InvalidField("LANTERN_FEED_RETENTION", f"{found.feed_retention_s} s is not between 1m and 366 days")
    if not 0 <= found.session_grace_s <= found.session_silence_s:
        raise InvalidField("LANTERN_SESSION_GRACE", "is longer than LANTERN_SESSION_SILENCE")
    if found.grant_ttl_s > found.lease_ttl_s:
        raise InvalidField("LANTERN_GRANT_TTL", "is longer than LANTERN_LEASE_TTL")
    return found


def _retention_s(environment: Mapping[str, str]) -> float | None:
    name = "LANTERN_RETENTION"
    if environment.get(name, "").strip().lower() in ("", "off", "none"):
        return None
    retention_s = settings.duration_s(environment, name, 0.0)
    if retention_s <= 0:
        raise InvalidField(name, "is not a time after which runs are archived; `off` keeps them for ever")
    return retention_s
