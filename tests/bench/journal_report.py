"""What bench_journal says in the end: medians with their spread, ratios to the yardstick, and which bounds hold."""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

STEPS_TO_REFERENCE_MIN = 0.7
P50_ALONE_TO_REFERENCE_MAX = 1.3
P99_MS_AT_512_MAX = 80.0
FALL_MAX = 0.1


@dataclass(kw_only=True, slots=True)
class Rounds:
    """All rounds of one configuration."""

    # As the load prints them.
    found: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def median(self, key: str) -> float:
        """Of one figure."""
        return statistics.median(each[key] for each in self.found)

    def summary(self) -> dict[str, Any]:
        """Every figure's median; of steps/s the spread, too."""
        steps = [each["steps_s"] for each in self.found]
        parts = self.found[0]["cpu_us"]
        return {
            "rounds": len(self.found),
            "steps_s": round(self.median("steps_s")),
            "steps_s_min": round(min(steps)),
            "steps_s_max": round(max(steps)),
            "p50_ms": round(self.median("p50_ms"), 3),
            "p99_ms": round(self.median("p99_ms"), 3),
            "cpu_us": {
                part: round(statistics.median(each["cpu_us"][part] for each in self.found), 1) for part in parts
            },
        }


# By database, events before (None: the yardstick) and runs in flight.
Found = dict[tuple[str, int | None, int], Rounds]


def summaries(found: Found) -> Iterable[dict[str, Any]]:
    """One line for each configuration."""
    for (database, events, runs), rounds in found.items():
        line: dict[str, Any] = {"measure": "summary", "database": database, "runs": runs}
        line |= {"of": "reference"} if events is None else {"of": "journal", "events_before": events}
        line |= rounds.summary()
        reference = found.get((database, None, runs))
        if events is not None and reference is not None:
            line["steps_to_reference"] = _ratio(rounds, reference, "steps_s")
            line["p50_to_reference"] = _ratio(rounds, reference, "p50_ms")
        yield line


def bounds(found: Found) -> Iterable[dict[str, Any]]:
    """What must hold, as far as it was measured."""
    for (database, events, runs), rounds in found.items():
        if events is None:
            continue
        where = {"measure": "bound", "database": database, "events_before": events, "runs": runs}
        reference = found.get((database, None, runs))
        if reference is not None and runs > 1:
            value = _ratio(rounds, reference, "steps_s")
            yield {**where, "what": "steps_to_reference", "value": value, "holds": value >= STEPS_TO_REFERENCE_MIN}
        if reference is not None and runs == 1:
            value = _ratio(rounds, reference, "p50_ms")
            yield {**where, "what": "p50_to_reference", "value": value, "holds": value <= P50_ALONE_TO_REFERENCE_MAX}
        fewer = found.get((database, events, 64))
        if runs == 512:
            p99_ms = round(rounds.median("p99_ms"), 1)
            yield {**where, "what": "p99_ms", "value": p99_ms, "holds": p99_ms < P99_MS_AT_512_MAX}
            if fewer is not None:
                value = _ratio(rounds, fewer, "steps_s")
                yield {**where, "what": "steps_to_those_at_64", "value": value, "holds": value >= 1.0}
        least = min(size for name, size, _ in found if name == database and size is not None)
        if events > least:
            value = _ratio(rounds, found[database, least, runs], "steps_s")
            yield {**where, "what": f"steps_to_those_at_{least}_events", "value": value, "holds": value >= 1 - FALL_MAX}


def _ratio(ours: Rounds, others: Rounds, key: str) -> float:
    return round(ours.median(key) / others.median(key), 3)
