"""How often the sweep runs (SPEC L5): a rule that nothing in the environment can switch off."""

from dataclasses import dataclass

from lantern_kernel.durations import parse_duration_s

DEFAULT_S = 30.0


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepInterval:
    """The interval, and what was wrong with the setting where the default stands in for it."""

    # Above zero.
    seconds: float
    # For the log; empty where the setting was taken as it is, or was not set.
    fault: str = ""


def sweep_interval(setting: str | None) -> SweepInterval:
    """The interval that a Go duration (`45s`, `1m30s`) sets.

    Whatever is no duration, or not above zero, falls back to 30 s: a sweep that is off would strand runs.
    """
    if setting is None or not setting.strip():
        return SweepInterval(seconds=DEFAULT_S)
    try:
        seconds = parse_duration_s(setting)
    except ValueError as error:
        return SweepInterval(seconds=DEFAULT_S, fault=str(error))
    if not seconds > 0.0:
        return SweepInterval(seconds=DEFAULT_S, fault=f"{setting.strip()!r} is not above zero")
    return SweepInterval(seconds=seconds)
