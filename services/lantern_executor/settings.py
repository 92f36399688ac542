"""The executor's settings, read once from `LANTERN_*`."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lantern_kernel.errors import InvalidField
from lantern_serving import settings

CAPACITY_DEFAULT = 1_000
CAPACITY_MAX = 100_000
DRAIN_S_DEFAULT = 10.0
STALL_LIMIT_S_DEFAULT = 60.0
JOURNALS_MAX = 8
HOST_LENGTH_MAX = 253

OF_OTHERS = frozenset(
    {
        "LANTERN_DATABASE",
        "LANTERN_MIGRATE",
        "LANTERN_BLOB_KEEP",
        "LANTERN_CHECK_DIGESTS",
        "LANTERN_LEASE_TTL",
        "LANTERN_GRANT_TTL",
        "LANTERN_SESSION_GRACE",
        "LANTERN_SESSION_SILENCE",
        "LANTERN_RECOVERY_INTERVAL",
    }
)
"""Settings of other services: a shared environment is no mistake."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """What an executor process is told."""

    # LANTERN_JOURNAL: where the journal's processes listen, `host:port`, separated by commas; at least one.
    journal: tuple[str, ...]
    # LANTERN_LISTEN: where to listen; port 0 picks one.
    listen: str
    # LANTERN_ADVERTISE: the address that others are told; empty is the one listened on.
    advertise: str
    # LANTERN_MODULES: modules with workflows, dotted names or paths of .py files, separated by commas; required.
    modules: tuple[str, ...]
    # LANTERN_EXECUTOR_CAPACITY: how many runs are driven at once.
    capacity: int
    # LANTERN_DRAIN: how long steps in flight may go on after SIGTERM.
    drain_s: float
    # LANTERN_STALL_LIMIT: how long the event loop may stand still before the process ends itself.
    stall_limit_s: float
    # LANTERN_LOG_LEVEL.
    log_level: str
    # LANTERN_OPENAI_BASE_URL, LANTERN_ANTHROPIC_BASE_URL: where ai-steps ask; empty is the provider's own address.
    openai_base_url: str
    anthropic_base_url: str
    # LANTERN_OPENAI_API_KEY, LANTERN_ANTHROPIC_API_KEY; empty is what the provider's SDK finds by itself. Never shown.
    openai_api_key: str = field(repr=False)
    anthropic_api_key: str = field(repr=False)

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> "Settings":
        """The settings of an environment; raises InvalidField that names the variable at fault."""
        modules = settings.text(environment, "LANTERN_MODULES", "")
        found = cls(
            journal=_parts(settings.text(environment, "LANTERN_JOURNAL", "")),
            listen=settings.text(environment, "LANTERN_LISTEN", "127.0.0.1:0"),
            advertise=settings.text(environment, "LANTERN_ADVERTISE", ""),
            modules=_parts(modules),
            capacity=settings.integer(environment, "LANTERN_EXECUTOR_CAPACITY", CAPACITY_DEFAULT),
            drain_s=settings.duration_s(environment, "LANTERN_DRAIN", DRAIN_S_DEFAULT),
            stall_limit_s=settings.duration_s(environment, "LANTERN_STALL_LIMIT", STALL_LIMIT_S_DEFAULT),
            log_level=settings.text(environment, "LANTERN_LOG_LEVEL", "INFO").upper(),
            openai_base_url=settings.text(environment, "LANTERN_OPENAI_BASE_URL", ""),
            anthropic_base_url=settings.text(environment, "LANTERN_ANTHROPIC_BASE_URL", ""),
            openai_api_key=settings.text(environment, "LANTERN_OPENAI_API_KEY", ""),
            anthropic_api_key=settings.text(environment, "LANTERN_ANTHROPIC_API_KEY", ""),
        )
        found._check()
        return found

    def _check(self) -> None:
        if not self.journal:
            raise InvalidField("LANTERN_JOURNAL", "the address of the journal, host:port, is required")
        if len(self.journal) > JOURNALS_MAX:
            raise InvalidField("LANTERN_JOURNAL", f"{len(self.journal)} addresses are more than {JOURNALS_MAX}")
        for name, address in (
            *(("LANTERN_JOURNAL", address) for address in self.journal),
            ("LANTERN_LISTEN", self.listen),
            ("LANTERN_ADVERTISE", self.advertise),
        ):
            if address and not _is_address(address):
                raise InvalidField(name, f"{address!r} is no host:port")
        if not self.modules:
            raise InvalidField("LANTERN_MODULES", "at least one module with workflows is required")
        if not 1 <= self.capacity <= CAPACITY_MAX:
            raise InvalidField("LANTERN_EXECUTOR_CAPACITY", f"{self.capacity} is not within 1 and {CAPACITY_MAX}")
        if self.drain_s < 0:
            raise InvalidField("LANTERN_DRAIN", f"{self.drain_s} s is less than nothing")
        if self.stall_limit_s < 1:
            raise InvalidField("LANTERN_STALL_LIMIT", f"{self.stall_limit_s} s is less than one")
        for name, url in (
            ("LANTERN_OPENAI_BASE_URL", self.openai_base_url),
            ("LANTERN_ANTHROPIC_BASE_URL", self.anthropic_base_url),
        ):
            if url and not url.startswith(("http://", "https://")):
                raise InvalidField(name, f"{url!r} is no http or https URL")
        if self.log_level not in {"DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"}:
            raise InvalidField("LANTERN_LOG_LEVEL", f"{self.log_level!r} is no level such as INFO or WARNING")


KNOWN = frozenset(
    {
        "LANTERN_JOURNAL",
        "LANTERN_LISTEN",
        "LANTERN_ADVERTISE",
        "LANTERN_MODULES",
        "LANTERN_EXECUTOR_CAPACITY",
        "LANTERN_DRAIN",
        "LANTERN_STALL_LIMIT",
        "LANTERN_OPENAI_BASE_URL",
        "LANTERN_OPENAI_API_KEY",
        "LANTERN_ANTHROPIC_BASE_URL",
        "LANTERN_ANTHROPIC_API_KEY",
        "LANTERN_LOG_LEVEL",
        "LANTERN_EXIT_WITH_PARENT",
    }
)
"""Every setting that this service reads."""


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return 0 < len(host) <= HOST_LENGTH_MAX and port.isdigit() and int(port) <= 65_535
