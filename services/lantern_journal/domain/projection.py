"""What a run's events say of the rows that are kept beside them: the events are the truth, the rows follow from them.

Not everything follows. A run that was handed back or woken has no event of that, so that after a grant it may be
RUNNING or QUEUED, after a park WAITING or QUEUED. The rows are judged by what the events allow, and a row that they do
not allow is rebuilt as the nearest that they do.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from lantern_journal.domain import run_state
from lantern_journal.domain.family import successor_id
from lantern_journal.domain.run_state import FINAL, RunState
from lantern_kernel import kinds, payloads
from lantern_kernel.errors import LanternError
from lantern_kernel.event import ChainCheck, Event
from lantern_kernel.payloads import ApprovalFacts, ParkFacts, RunErrorFacts

RETARGETED = frozenset({"capacity", "code_fix"})
"""What a due run may wait on instead, if nobody can drive it then: its park event still stands."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRow:
    """What of a run's row is judged; columns as in the table `runs`."""

    # See Run.
    agent_name: str
    # See Run.
    agent_version: int
    # See Run.
    agent_digest: str
    # See Run.
    workflow_id: str
    # See NewRun.
    request_id: str
    # See Run.
    traceparent: str
    # See Run.
    created_us: int
    # See Run.
    state: str
    # See Run.
    waiting_on: str
    # See Run.
    due_us: int | None
    # The error's facts as JSON.
    error: bytes | None
    # See Run.
    ended_us: int | None
    # See Run.
    end_seq: int | None
    # See Run.
    epoch: int
    # See Run.
    inbox_number: int
    # See Run.
    consumed_inbox: int
    # Where its cancel_requested stands.
    cancel_seq: int | None
    # See `runs`.
    awaited_signals: str
    # See `runs`.
    nothing_to_compensate: bool
    # See Run.
    durability: str = "sync"
    # See Run.
    parent_run_id: str = ""
    # See Run.
    parent_step_id: str = ""
    # See Run.
    depth: int = 0
    # See Parent.
    abandoned: bool = False
    # See Run.
    continued_as: str = ""
    # See Run.
    continued_from: str = ""


COLUMNS = tuple(field.name for field in fields(RunRow))


@dataclass(frozen=True, kw_only=True, slots=True)
class LockRow:
    """A row of `run_locks`."""

    # The holder; empty where it was released.
    worker_id: str
    # Of the holder.
    session_number: int
    # The fencing token.
    epoch: int
    # Until when.
    expires_us: int
    # Whether the holder has opened the run.
    opened: bool


class RunFold:
    """Reads a run's events one after another, and keeps what follows from them: bounded, however many there are."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        # What is wrong with the events themselves: subject and message.
        self.faults: list[tuple[str, str]] = []
        self.seq = self.epoch = self.time_us = 0
        self.kind = ""
        self.created_us = 0
        self.started: Mapping[str, Any] = {}
        # Whom the last grant was made for, unless its drive has ended; what the run was parked on since.
        self.holder: str | None = None
        self.was_granted = self.was_terminated = False
        self.parks: list[ParkFacts] = []
        self.taken_in = 0
        self.cancel_seq: int | None = None
        self.state = RunState.QUEUED
        self.error: RunErrorFacts | None = None
        self.continued_as = ""
        # Where each approval was asked for, and the content that is kept apart.
        self.asked: dict[str, int] = {}
        self.blobs: set[str] = set()
        self._chain = ChainCheck(run_id)
        self._before_cancel = ""

    def add(self, event: Event) -> None:
        """The next event."""
        fault = self._chain.fault_of(event)
        if fault is not None:
            self._blame("chain", fault)
            self._chain.go_on_from(event)
        self._check_place(event)
        self.seq, self.time_us = event.seq, event.time_us
        try:
            self._project(event)
        except (LanternError, RecursionError) as error:
            self._blame("payload", f"event {event.seq}: {error}")
        self.kind = event.kind

    def _blame(self, subject: str, message: str) -> None:
        if len(self.faults) < FAULTS_PER_RUN_MAX:
            self.faults.append((subject, message))

    def _check_place(self, event: Event) -> None:
        if self.kind in kinds.TERMINAL:
            self._blame("order", f"event {event.seq}: {event.kind} stands after {self.kind}")
        if (event.kind == kinds.RUN_STARTED) != (not self.kind):
            self._blame("order", f"event {event.seq}: {event.kind} is out of its place")
        # A run that is ended from outside gets an epoch of its own, which fences its driver.
        rises = event.kind == kinds.LEASE_GRANTED or event.kind in kinds.TERMINAL or event.kind == kinds.RUN_PARKED
        if event.epoch != self.epoch and not (rises and event.epoch == self.epoch + 1):
            self._blame("epoch", f"event {event.seq}: {event.kind} is of epoch {event.epoch} after {self.epoch}")
        elif event.kind == kinds.LEASE_GRANTED and event.epoch == self.epoch:
            self._blame("epoch", f"event {event.seq}: a grant that does not raise the epoch {event.epoch}")
        self.was_terminated = event.kind in kinds.TERMINAL and event.epoch > self.epoch
        self.epoch = max(self.epoch, event.epoch)

    def _project(self, event: Event) -> None:
        blob = payloads.named_blob(event.payload)
        if blob is not None:
            self.blobs.add(blob.sha256)
        if event.kind == kinds.RUN_STARTED:
            self.created_us = event.time_us
            self.started = payloads.unpack(event.payload).facts
        elif event.kind == kinds.LEASE_GRANTED:
            self.was_granted = True
            self.state, self.parks, self.holder = RunState.RUNNING, [], None
            self.holder = str(payloads.unpack(event.payload).facts.get("worker", ""))
        elif event.kind == kinds.RUN_PARKED:
            self.parks = [*self.parks, ParkFacts.unpack(event.payload)][-PARKS_KEPT:]
            self.state, self.holder = RunState.WAITING, None
        elif event.kind == kinds.APPROVAL_REQUESTED:
            self.asked[ApprovalFacts.from_facts(payloads.unpack(event.payload).facts).approval_id] = event.seq
        elif event.kind in kinds.TERMINAL:
            self._end(event)
        elif event.kind in kinds.FROM_INBOX:
            self.taken_in = max(self.taken_in, run_state.inbox_number_of(event.payload))
            if event.kind == kinds.CANCEL_REQUESTED and self.cancel_seq is None:
                self.cancel_seq = event.seq
                self._before_cancel = self.kind

    def _end(self, event: Event) -> None:
        final = run_state.next_state(RunState.RUNNING, event.kind)
        assert final is not None, "a running run can be ended"
        self.state, self.parks, self.holder = final, [], None
        if event.kind == kinds.RUN_SUCCEEDED:
            continues, _ = run_state.continued_by(payloads.unpack(event.payload).facts)
            self.continued_as = successor_id(self.run_id, event.time_us, event.salt) if continues else ""
            return
        facts = RunErrorFacts.from_facts(payloads.unpack(event.payload).facts)
        self.error = facts if facts.code else None
        undriven = self._before_cancel in ("", kinds.RUN_STARTED, kinds.RUN_PARKED)
        if self.error is None and self.kind == kinds.CANCEL_REQUESTED and self.cancel_seq == event.seq - 1 and undriven:
            # The journal itself ended a run that nobody drove.
            self.error = run_state.CANCELLED_ERROR


FAULTS_PER_RUN_MAX = 20
"""A run that is broken all over is told of by its first faults."""

PARKS_KEPT = 8
"""Parks without a grant between them: a pause and its end, a few times."""


def rebuilt(fold: RunFold, row: RunRow, lock: LockRow | None, inbox_last: int) -> RunRow:
    """The row that the events allow which is nearest to what is there: the row itself where it is in order.

    Args:
        fold: All events of the run.
        row: What is there.
        lock: The run's lock.
        inbox_last: The number of the last inbox entry.
    """
    facts = fold.started
    is_final = fold.state in FINAL
    state, waiting_on, due_us, error = _standing(fold, row, lock)
    # A drive ends only with its inbox consumed; one that is ended from outside leaves in it what it had not.
    leaves_none = is_final and not fold.was_terminated
    consumed = inbox_last if leaves_none else min(max(row.consumed_inbox, fold.taken_in), inbox_last)
    return RunRow(
        agent_name=str(facts.get("agent", row.agent_name)),
        agent_version=_int_of(facts.get("version"), row.agent_version),
        agent_digest=str(facts.get("digest", row.agent_digest)),
        workflow_id=str(facts.get("workflowId", row.workflow_id)),
        request_id=str(facts.get("requestId", row.request_id)),
        traceparent=str(facts.get("traceparent", row.traceparent)),
        created_us=fold.created_us,
        state=state.value,
        waiting_on=waiting_on,
        due_us=due_us,
        error=error,
        ended_us=fold.time_us if is_final else None,
        end_seq=fold.seq if is_final else None,
        epoch=fold.epoch,
        inbox_number=inbox_last,
        consumed_inbox=consumed,
        cancel_seq=fold.cancel_seq,
        awaited_signals=_awaited(fold, row, waiting_on, due_us),
        nothing_to_compensate=bool(fold.parks) and fold.parks[-1].nothing_to_compensate,
        durability=str(facts.get("durability", "sync")),
        continued_as=fold.continued_as,
        continued_from=str(facts.get("continuedFrom", "")),
        **_parentage(facts),
    )


def _parentage(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Whose child it is."""
    parent: Mapping[str, Any] = facts.get("parent", {})
    return {
        "parent_run_id": str(parent.get("runId", "")),
        "parent_step_id": str(parent.get("stepId", "")),
        "depth": _int_of(parent.get("depth"), 0),
        "abandoned": parent.get("abandoned") is True,
    }


def _awaited(fold: RunFold, row: RunRow, waiting_on: str, due_us: int | None) -> str:
    """The signals that wake it, as the park says that it stands on."""
    stands = [" ".join(park.signals) for park in fold.parks if (park.waiting_on, park.due_us) == (waiting_on, due_us)]
    return row.awaited_signals if row.awaited_signals in stands else stands[-1] if stands else ""


def _int_of(value: object, default: int) -> int:
    return value if isinstance(value, int) else default


Standing = tuple[RunState, str, int | None, bytes | None]


def _standing(fold: RunFold, row: RunRow, lock: LockRow | None) -> Standing:
    """State, what it waits on, until when, and the error."""
    if fold.state in FINAL:
        return _same(row.error, (fold.state, "", None, run_state.error_bytes(fold.error)))
    queued: Standing = (RunState.QUEUED, "", None, None)
    if row.state == RunState.QUEUED.value:
        return queued
    if fold.state is RunState.QUEUED:
        return queued
    if fold.state is RunState.RUNNING:
        is_held = lock is not None and lock.worker_id != "" and lock.epoch == fold.epoch
        return (RunState.RUNNING, "", None, None) if is_held else queued
    if row.state != RunState.WAITING.value:
        return _of_park(fold.parks[-1])
    return _waiting(fold, row)


def _of_park(park: ParkFacts) -> Standing:
    return RunState.WAITING, park.waiting_on, park.due_us, run_state.error_bytes(park.error)


def _same(error: bytes | None, standing: Standing) -> Standing:
    """With the very bytes that are there, where they say the same."""
    state, waiting_on, due_us, other = standing
    is_same = run_state.facts_equal(error, other)
    return state, waiting_on, due_us, error if is_same else other


def _waiting(fold: RunFold, row: RunRow) -> Standing:
    """Any of the parks since the last grant may be what it waits on; a due one may have been replaced."""
    for park in reversed(fold.parks):
        standing = _same(row.error, _of_park(park))
        if standing == (RunState.WAITING, row.waiting_on, row.due_us, row.error):
            return standing
    had_due = any(park.due_us is not None for park in fold.parks)
    if row.waiting_on in RETARGETED and row.due_us is None and row.error is not None and had_due:
        return RunState.WAITING, row.waiting_on, None, row.error
    return _same(row.error, _of_park(fold.parks[-1]))


def rebuilt_lock(fold: RunFold, lock: LockRow | None) -> LockRow | None:
    """The lock that the events allow which is nearest to what is there; None where there is to be none."""
    if not fold.was_granted and lock is None:
        return None
    if lock is not None and lock.epoch == fold.epoch and (not lock.worker_id or lock.worker_id == fold.holder):
        return lock
    # Released: whoever holds the lease by its event goes on until another one is granted, and is fenced then.
    return LockRow(worker_id="", session_number=0, epoch=fold.epoch, expires_us=0, opened=False)
