"""The settings of the recovery service."""

from collections.abc import Mapping
from dataclasses import dataclass

from lantern_recovery.domain.interval import SweepInterval, sweep_interval
from lantern_serving import settings

KNOWN = (
    "LANTERN_JOURNAL",
    "LANTERN_LISTEN",
    "LANTERN_RECOVERY_INTERVAL",
    "LANTERN_LOG_LEVEL",
    "LANTERN_EXIT_WITH_PARENT",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Read once at start."""

    # Where the journal listens, `host:port`.
    journal: str
    # Where this service listens; port 0 picks one.
    listen: str
    # How often the sweep runs.
    interval: SweepInterval
    # Of the log.
    log_level: str

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> "Settings":
        """From `LANTERN_*`; raises InvalidField naming the variable at fault. A faulty interval is never fatal."""
        return cls(
            journal=settings.text(environment, "LANTERN_JOURNAL", "127.0.0.1:7301"),
            listen=settings.text(environment, "LANTERN_LISTEN", "127.0.0.1:0"),
            interval=sweep_interval(environment.get("LANTERN_RECOVERY_INTERVAL")),
            log_level=settings.text(environment, "LANTERN_LOG_LEVEL", "INFO"),
        )
