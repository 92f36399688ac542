"""Which week's partition holds a run's events: bounds and names, from the time in a run's id (UUIDv7)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

WEEK_US = 7 * 86_400 * 1_000_000
EPOCH_MONDAY_US = 4 * 86_400 * 1_000_000
"""The first Monday after the Unix epoch, 1970-01-05: weeks begin on Mondays, UTC."""

TABLE = "journal_events"
DEFAULT = f"{TABLE}_default"
_PREFIX = f"{TABLE}_w"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True, slots=True)
class Week:
    """A week of runs, by when their ids were made."""

    # Monday 00:00 UTC, microseconds since the Unix epoch.
    start_us: int

    @property
    def end_us(self) -> int:
        """The start of the next one."""
        return self.start_us + WEEK_US

    @property
    def table(self) -> str:
        """The name of its partition, such as journal_events_w20261130."""
        return _PREFIX + (_EPOCH + timedelta(microseconds=self.start_us)).strftime("%Y%m%d")

    @property
    def lower(self) -> str:
        """The first text that a run id of this week can be; compared by bytes."""
        return run_id_floor(self.start_us)

    @property
    def upper(self) -> str:
        """The first text above all run ids of this week."""
        return run_id_floor(self.end_us)


def run_id_floor(time_us: int) -> str:
    """What every run id made at that time or later is at least, and none made before it: its first 48 bits as text."""
    digits = f"{max(time_us, 0) // 1000:012x}"
    return f"{digits[:8]}-{digits[8:]}"


def week_of(time_us: int) -> Week:
    """The week that holds a moment."""
    weeks = (time_us - EPOCH_MONDAY_US) // WEEK_US
    return Week(start_us=EPOCH_MONDAY_US + weeks * WEEK_US)


def weeks_ahead(now_us: int, ahead: int) -> list[Week]:
    """The present week and those that follow."""
    first = week_of(now_us)
    return [Week(start_us=first.start_us + number * WEEK_US) for number in range(ahead + 1)]


def is_partition(table: str) -> bool:
    """Whether a table of that name is a partition of the events."""
    return table == DEFAULT or table.startswith(_PREFIX)


def week_named(table: str) -> Week | None:
    """The week of a partition's name; None where it is no week's."""
    if not table.startswith(_PREFIX):
        return None
    day = datetime.strptime(table.removeprefix(_PREFIX), "%Y%m%d").replace(tzinfo=UTC)
    return week_of((day - _EPOCH) // timedelta(microseconds=1))


def missing(weeks: Sequence[Week], existing: Sequence[str]) -> list[Week]:
    """Those weeks that have no partition yet."""
    return [week for week in weeks if week.table not in existing]
