"""Where a run stands, what moves it, and what each event of a drive changes in its row.

QUEUED  --lease_granted--> RUNNING          RUNNING --released--------> QUEUED
WAITING --lease_granted--> RUNNING (due)    WAITING --woken-----------> QUEUED
QUEUED, RUNNING --run_parked--> WAITING
any open state --run_succeeded | run_failed | run_cancelled--> final (nothing leaves it)
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from lantern_kernel import kinds, payloads, reasons
from lantern_kernel.bounds import SEQ_MAX
from lantern_kernel.errors import InvalidField, LanternError
from lantern_kernel.event import NewEvent
from lantern_kernel.payloads import ParkFacts, RunErrorFacts


class RunState(StrEnum):
    """The states, as stored."""

    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    WAITING = "WAITING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


WOKEN = "woken"
RELEASED = "released"

TRANSITIONS: dict[tuple[RunState, str], RunState] = {
    (RunState.QUEUED, kinds.LEASE_GRANTED): RunState.RUNNING,
    (RunState.RUNNING, kinds.LEASE_GRANTED): RunState.RUNNING,
    (RunState.WAITING, kinds.LEASE_GRANTED): RunState.RUNNING,
    (RunState.QUEUED, RELEASED): RunState.QUEUED,
    (RunState.RUNNING, RELEASED): RunState.QUEUED,
    (RunState.WAITING, WOKEN): RunState.QUEUED,
    (RunState.QUEUED, kinds.RUN_PARKED): RunState.WAITING,
    (RunState.RUNNING, kinds.RUN_PARKED): RunState.WAITING,
    **{
        (state, kind): final
        for state in (RunState.QUEUED, RunState.RUNNING, RunState.WAITING)
        for kind, final in (
            (kinds.RUN_SUCCEEDED, RunState.SUCCEEDED),
            (kinds.RUN_FAILED, RunState.FAILED),
            (kinds.RUN_CANCELLED, RunState.CANCELLED),
        )
    },
}
"""All that is allowed; whatever is not listed is refused."""

FINAL = frozenset({RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED})

INBOX_CONSUMERS = frozenset({kinds.SIGNAL_RECEIVED, kinds.CANCEL_REQUESTED})
"""Events by which the driver takes an inbox entry in."""

STARTED, CRASHED, TIMER, SIGNALLED, UPGRADED = "start", "crash", "timer", "signal", "upgrade"
"""Why a run needs a driver."""

CANCELLED_ERROR = RunErrorFacts(code=reasons.CANCEL_REQUESTED, message="cancelled on request")


def next_state(state: RunState, cause: str) -> RunState | None:
    """Where `cause` (an event kind, woken or released) leads; None where it is not allowed."""
    return TRANSITIONS.get((state, cause))


@dataclass(frozen=True, kw_only=True, slots=True)
class RunChange:
    """What an append changes in its run's row; the row changes in the transaction of the events, or nothing does."""

    # The run.
    run_id: str
    # The last inbox entry that the driver says it has consumed.
    consumed: int
    # The last inbox entry that an event of this append takes in; 0 where none does.
    taken_in: int
    # The place of a cancel_requested in this append; 0 where there is none.
    cancel_seq: int
    # run_parked or a terminal kind; empty where the drive goes on.
    ends_with: str
    # The place of the append's last event.
    last_seq: int
    # When, microseconds.
    time_us: int
    # For run_parked: what it waits on; else empty.
    waiting_on: str
    # For run_parked: when it is due by itself; None otherwise.
    due_us: int | None
    # For people: the error's facts as JSON; None where there is none.
    error: bytes | None


@dataclass(frozen=True, kw_only=True, slots=True)
class RunGate:
    """What of a run's row an append that ends a drive is judged by, read under the row's lock."""

    # Where it stands.
    state: RunState
    # The number of its last inbox entry.
    inbox_number: int
    # The place of its cancel_requested; None while there is none.
    cancel_seq: int | None


_CHANGES_RUN = kinds.ENDS_DRIVE | INBOX_CONSUMERS


def change_of(run_id: str, first_seq: int, events: Sequence[NewEvent], consumed: int, time_us: int) -> RunChange | None:
    """What these events change in the run's row; None for events that change nothing there (nearly all)."""
    if _CHANGES_RUN.isdisjoint([event.kind for event in events]):
        return None
    ends_with = events[-1].kind if events[-1].kind in kinds.ENDS_DRIVE else ""
    taken_in = cancel_seq = 0
    for offset, event in enumerate(events):
        if event.kind in INBOX_CONSUMERS:
            taken_in = max(taken_in, inbox_number_of(event.payload))
            if event.kind == kinds.CANCEL_REQUESTED:
                cancel_seq = first_seq + offset
    if not (ends_with or taken_in or cancel_seq):
        return None
    waiting_on, due_us, error = "", None, None
    if ends_with == kinds.RUN_PARKED:
        park = ParkFacts.unpack(events[-1].payload)
        waiting_on, due_us, error = park.waiting_on, park.due_us, park.error
    elif ends_with in (kinds.RUN_FAILED, kinds.RUN_CANCELLED):
        facts = RunErrorFacts.from_facts(payloads.unpack(events[-1].payload).facts)
        error = facts if facts.code else None
    return RunChange(
        run_id=run_id,
        consumed=consumed,
        taken_in=taken_in,
        cancel_seq=cancel_seq,
        ends_with=ends_with,
        last_seq=first_seq + len(events) - 1,
        time_us=time_us,
        waiting_on=waiting_on,
        due_us=due_us,
        error=error_bytes(error),
    )


def inbox_number_of(payload: bytes) -> int:
    """The inbox entry that an event took in; 0 where its payload names none."""
    try:
        number = payloads.unpack(payload).facts.get("number")
    except LanternError:
        return 0
    return number if isinstance(number, int) and 0 < number <= SEQ_MAX else 0


def refusal(change: RunChange, gate: RunGate) -> LanternError | None:
    """Why the change may not happen; None where it may (the journal's order has already been judged)."""
    if not change.ends_with:
        return None
    if gate.state in FINAL:
        return closed_error(change.run_id, gate.state)
    if change.consumed > gate.inbox_number:
        last = gate.inbox_number
        return InvalidField("consumed_inbox_number", f"{change.consumed} is above {last}, the number of the last entry")
    if max(change.consumed, change.taken_in) < gate.inbox_number:
        return LanternError(
            reasons.INBOX_AHEAD,
            f"the inbox holds entries up to {gate.inbox_number}, consumed are those up to {change.consumed}",
            last_inbox_number=gate.inbox_number,
        )
    if change.ends_with == kinds.RUN_SUCCEEDED and (gate.cancel_seq is not None or change.cancel_seq):
        return LanternError(reasons.CANCEL_REQUESTED, "a run that is being cancelled cannot succeed", run=change.run_id)
    if next_state(gate.state, change.ends_with) is None:
        return LanternError(reasons.LEASE_LOST, f"a {gate.state} run is driven by nobody", run_id=change.run_id)
    return None


def closed_error(run_id: str, state: str) -> LanternError:
    """The run has ended; the details say how."""
    return LanternError(reasons.RUN_CLOSED, f"the run has ended: {state}", run_id=run_id, state=state)


def error_bytes(error: RunErrorFacts | None) -> bytes | None:
    """An error as it is kept in the run's row."""
    return None if error is None else json.dumps(error.to_facts(), ensure_ascii=False).encode()


def error_facts(raw: bytes | None) -> RunErrorFacts | None:
    """The error that a run's row keeps."""
    return None if raw is None else RunErrorFacts.from_facts(json.loads(raw))


_DIGEST = re.compile(r"[0-9a-f]{64}")


def digest_of(raw: bytes | None) -> str:
    """The code that an error in a run's row names as the one that failed; empty where it names none."""
    facts = error_facts(raw)
    named = (facts.details or {}).get("digest", "") if facts is not None else ""
    return named if _DIGEST.fullmatch(named) else ""


WOKEN_BY_SIGNAL = frozenset({"signal", "approval", "operator"})


def wakes(kind: str, waiting_on: str) -> bool:
    """Whether an inbox entry of that kind wakes a run that waits on that."""
    return kind == "cancel" or waiting_on in WOKEN_BY_SIGNAL


def ends_at_once(state: RunState, waiting_on: str, epoch: int) -> bool:
    """Whether a cancel ends the run in its own transaction.

    So it is where the run was never driven, and has nothing to compensate, or where its code cannot be driven (S1).
    """
    if state is RunState.WAITING and waiting_on == "code_fix":
        return True
    return epoch == 0 and state is not RunState.RUNNING
