"""Durations as Go writes them: `45s`, `1m30s`, `250ms` (Go's time.ParseDuration), for settings."""

import re

_UNITS_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
_WHOLE = re.compile(rf"[+-]?(?:{_PART.pattern})+")


def parse_duration_s(text: str) -> float:
    """Seconds of a Go duration; raises ValueError where it is none. `0` alone needs no unit."""
    text = text.strip()
    if text in {"0", "+0", "-0"}:
        return 0.0
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"{text!r} is no duration such as 45s, 1m30s or 250ms")
    seconds = sum(float(number) * _UNITS_S[unit] for number, unit in _PART.findall(text))
    return -seconds if text.startswith("-") else seconds
