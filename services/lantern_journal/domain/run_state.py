"""Where a run stands, what moves it, and what each event of a drive changes in its row.

QUEUED  --lease_granted--> RUNNING          RUNNING --released--------> QUEUED
WAITING --lease_granted--> RUNNING (due)    WAITING --woken-----------> QUEUED
QUEUED, RUNNING --run_parked--> WAITING      QUEUED, WAITING --paused-------> WAITING(paused)
WAITING(paused) --resumed----> WAITING (on what it waited on before) or, as woken, QUEUED
any open state --run_succeeded | run_failed | run_cancelled--> final (nothing leaves it)

What wakes a WAITING run, so that each has something that still can (SPEC S3):

| waits on | an inbox entry that wakes it                         | else                           |
|----------|------------------------------------------------------|--------------------------------|
| timer    | a signal that it names, decision, child              | its due time                   |
| signal   | a signal that it names (any if none), decision, child | its due time, if any          |
| approval | decision (an expiry is one), a signal that it names, child | its due time, if any     |
| child    | child, a signal that it names, decision              | its due time, if any           |
| operator | resume, a signal that it names, decision, child      | a settlement of its deliveries |
| code_fix | resume                                               | a worker with other code       |
| capacity | none                                                 | a worker that offers its agent |
| budget   | resume                                               | its due time                   |
| paused   | resume                                               | none                           |

An update wakes whatever a decision wakes. A cancel wakes every one of them, or ends it in its own transaction
(`ends_at_once`). Whatever does not wake a run stays in its inbox, and its next driver takes it in. An entry that comes
before the park refuses it (INBOX_AHEAD); one that comes while the run is paused is judged again when it is resumed. So
none is slept through.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, cast

from lantern_journal.domain.approvals import ApprovalRequest, request_of
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
PAUSED = "paused"
RESUMED = "resumed"

TRANSITIONS: dict[tuple[RunState, str], RunState] = {
    (RunState.QUEUED, kinds.LEASE_GRANTED): RunState.RUNNING,
    (RunState.RUNNING, kinds.LEASE_GRANTED): RunState.RUNNING,
    (RunState.WAITING, kinds.LEASE_GRANTED): RunState.RUNNING,
    (RunState.QUEUED, RELEASED): RunState.QUEUED,
    (RunState.RUNNING, RELEASED): RunState.QUEUED,
    (RunState.WAITING, WOKEN): RunState.QUEUED,
    (RunState.QUEUED, PAUSED): RunState.WAITING,
    (RunState.WAITING, PAUSED): RunState.WAITING,
    (RunState.WAITING, RESUMED): RunState.WAITING,
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

SIGNAL, CANCEL, PAUSE, RESUME, DECISION, DELEGATION, CHILD, UPDATE = (
    "signal",
    "cancel",
    "pause",
    "resume",
    "decision",
    "delegation",
    "child",
    "update",
)
"""The kinds of inbox entries."""

STARTED, CRASHED, TIMER, SIGNALLED, APPROVED, UPGRADED = "start", "crash", "timer", "signal", "approval", "upgrade"
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
    # For run_parked: the signals that alone wake it, by name; none where it names none.
    signals: tuple[str, ...]
    # For run_parked: whether a cancel may end it as it stands.
    nothing_to_compensate: bool
    # The approvals that this append asks for.
    approvals: tuple[ApprovalRequest, ...]
    # For people: the error's facts as JSON; None where there is none.
    error: bytes | None
    # For a terminal kind: the payload and the salt of that event; else empty.
    end_payload: bytes = b""
    # See `end_payload`.
    end_salt: bytes = b""
    # For run_succeeded: whether the run goes on as a new one, whose input the event's data are.
    continues: bool = False
    # The places of the signals that the new one gets.
    carry: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class RunGate:
    """What of a run's row an append that ends a drive is judged by, read under the row's lock."""

    # Where it stands.
    state: RunState
    # The number of its last inbox entry.
    inbox_number: int
    # The place of its cancel_requested; None while there is none.
    cancel_seq: int | None


_CHANGES_RUN = kinds.READ_BY_JOURNAL


def change_of(run_id: str, first_seq: int, events: Sequence[NewEvent], consumed: int, time_us: int) -> RunChange | None:
    """What these events change in the run's row; None for events that change nothing there (nearly all)."""
    if _CHANGES_RUN.isdisjoint([event.kind for event in events]):
        return None
    ends_with = events[-1].kind if events[-1].kind in kinds.ENDS_DRIVE else ""
    taken_in = cancel_seq = 0
    requests: list[ApprovalRequest] = []
    for offset, event in enumerate(events):
        if event.kind in kinds.FROM_INBOX:
            taken_in = max(taken_in, inbox_number_of(event.payload))
            if event.kind == kinds.CANCEL_REQUESTED:
                cancel_seq = first_seq + offset
        elif event.kind == kinds.APPROVAL_REQUESTED:
            requests.append(request_of(event, first_seq + offset))
    if not (ends_with or taken_in or requests):
        return None
    park, error = _NOT_PARKED, None
    if ends_with == kinds.RUN_PARKED:
        park = ParkFacts.unpack(events[-1].payload)
        error = park.error
    elif ends_with in (kinds.RUN_FAILED, kinds.RUN_CANCELLED):
        facts = RunErrorFacts.from_facts(payloads.unpack(events[-1].payload).facts)
        error = facts if facts.code else None
    continues, carry = False, ()
    if ends_with == kinds.RUN_SUCCEEDED:
        continues, carry = continued_by(payloads.unpack(events[-1].payload).facts)
    is_end = ends_with in kinds.TERMINAL
    return RunChange(
        run_id=run_id,
        consumed=consumed,
        taken_in=taken_in,
        cancel_seq=cancel_seq,
        ends_with=ends_with,
        last_seq=first_seq + len(events) - 1,
        time_us=time_us,
        waiting_on=park.waiting_on,
        due_us=park.due_us,
        signals=park.signals,
        nothing_to_compensate=park.nothing_to_compensate,
        approvals=tuple(requests),
        error=error_bytes(error),
        end_payload=events[-1].payload if is_end else b"",
        end_salt=events[-1].salt if is_end else b"",
        continues=continues,
        carry=carry,
    )


def continued_by(facts: Mapping[str, Any]) -> tuple[bool, tuple[int, ...]]:
    """Whether a run_succeeded of these facts says that the run goes on as a new one; the places of its signals."""
    carry = facts.get("carry", [])
    places = [each for each in cast("list[object]", carry) if isinstance(each, int)] if isinstance(carry, list) else []
    return facts.get("continueAsNew") is True, tuple(places)


_NOT_PARKED = ParkFacts(waiting_on="")


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


def facts_equal(one: bytes | None, other: bytes | None) -> bool:
    """Whether two errors as they are kept say the same."""
    try:
        return error_facts(one) == error_facts(other)
    except (ValueError, AttributeError):
        return False


_DIGEST = re.compile(r"[0-9a-f]{64}")


def digest_of(raw: bytes | None) -> str:
    """The code that an error in a run's row names as the one that failed; empty where it names none."""
    facts = error_facts(raw)
    named = (facts.details or {}).get("digest", "") if facts is not None else ""
    return named if _DIGEST.fullmatch(named) else ""


PROGRAM_WAITS = frozenset({"approval", "signal", "timer", "child", "operator"})
"""Waits of the program itself: one of its branches may go on whatever the others wait for."""

RESTORED_WAITS = PROGRAM_WAITS - {"operator"}
"""Waits that a resumed run falls back into. What the others wait for may have come while it was paused (a worker, other
code, a settlement): such a run is queued instead, and whoever finds it no driver or drives it decides anew."""

_WOKEN_BY: dict[str, frozenset[str]] = {
    RESUME: frozenset({"paused", "operator", "code_fix", "budget"}),
    DECISION: PROGRAM_WAITS,
    CHILD: PROGRAM_WAITS,
    UPDATE: PROGRAM_WAITS,
    PAUSE: frozenset(),
    DELEGATION: frozenset(),
}


def wakes(kind: str, name: str, waiting_on: str, signals: Collection[str]) -> bool:
    """Whether an inbox entry wakes a run that waits on that; see the table at the top.

    Args:
        kind: Of the entry.
        name: Of the signal, for one.
        waiting_on: What the run waits on.
        signals: The signals that it named when it was parked.
    """
    if kind == CANCEL:
        return True
    if kind == SIGNAL:
        return waiting_on in PROGRAM_WAITS and (name in signals if signals else waiting_on == "signal")
    return waiting_on in _WOKEN_BY[kind]


def wake_reason_of(kind: str) -> str:
    """Why a run that an entry woke needs a driver."""
    return APPROVED if kind == DECISION else SIGNALLED


def ends_at_once(state: RunState, waiting_on: str, epoch: int, *, nothing_to_compensate: bool) -> bool:
    """Whether a cancel ends the run in its own transaction (S1).

    So it is where nobody drives the run and there is nothing to compensate, because it was never driven or its last
    park says so, or where its code cannot be driven.
    """
    if state is RunState.RUNNING:
        return False
    return epoch == 0 or waiting_on == "code_fix" or nothing_to_compensate


def terminated_error(run_id: str, by: str) -> RunErrorFacts:
    """Why a run ended whose workflow id another start took over."""
    return RunErrorFacts(
        code=reasons.RUN_TERMINATED, message=f"run {by} was started in place of it", details={"by": by, "run": run_id}
    )
