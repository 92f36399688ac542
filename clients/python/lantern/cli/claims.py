"""Deliveries of a run that nobody knows the end of, and which of them an operator means. Pure."""

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from lantern_kernel import kinds, payloads
from lantern_kernel.errors import InvalidField, LanternError
from lantern_kernel.event import Event

_STEP_ENDS = frozenset({kinds.STEP_COMPLETED, kinds.STEP_FAILED, kinds.STEP_RETRYING})


def open_claims(events: Iterable[Event]) -> dict[str, str]:
    """Key -> step id of each delivery that the run still waits to hear of, oldest first."""
    by_step: dict[str, str] = {}
    for event in events:
        if event.kind == kinds.STEP_WAITING:
            try:
                facts = payloads.unpack(event.payload).facts
            except LanternError:
                continue
            if facts.get("on") == "operator" and isinstance(facts.get("key"), str):
                by_step[event.step_id] = facts["key"]
        elif event.kind in kinds.TERMINAL:
            by_step.clear()
        elif event.kind in _STEP_ENDS:
            by_step.pop(event.step_id, None)
    return {key: step_id for step_id, key in by_step.items()}


def chosen_key(claims: Mapping[str, str]) -> str:
    """The key of the only open claim; raises InvalidField where there is none, or more than one."""
    if len(claims) == 1:
        return next(iter(claims))
    if not claims:
        raise InvalidField("key", "the run has no step whose delivery is to be settled")
    shown = ", ".join(f"{key} (step {step_id})" for key, step_id in claims.items())
    raise InvalidField("key", f"the run has more than one open claim, name one: {shown}")


def settle_command(run_id: str, key: str, folder: Path | None) -> str:
    """What to type, all but the outcome."""
    where = ["--dir", str(folder)] if folder is not None else []
    return shlex.join(["lantern", "runs", "settle", run_id, key, *where])
