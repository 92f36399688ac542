"""Goal: a run moves only as its table says, and refusals, waking and the life of leases are exact.

Method: tables over the pure functions.
"""

import pytest

from lantern_journal.domain import approvals, leases, run_state
from lantern_journal.domain.leases import AgentOffer, Limits, Lock, Session
from lantern_journal.domain.run_state import FINAL, TRANSITIONS, RunGate, RunState
from lantern_kernel import kinds, payloads, reasons
from lantern_kernel.event import NewEvent
from lantern_kernel.payloads import ApprovalFacts, ParkFacts

LIMITS = Limits(lease_us=100, grant_us=10, silence_us=50)


def test_nothing_leaves_a_final_state_and_every_open_state_can_end() -> None:
    assert not [state for state, _ in TRANSITIONS if state in FINAL]
    for state in set(RunState) - FINAL:
        for kind in kinds.TERMINAL:
            assert run_state.next_state(state, kind) in FINAL


@pytest.mark.parametrize("state", sorted(FINAL | {RunState.WAITING}))
def test_what_is_not_driven_cannot_park(state: RunState) -> None:
    assert run_state.next_state(state, kinds.RUN_PARKED) is None


def event(kind: str, payload: bytes = b"{}") -> NewEvent:
    return NewEvent(kind=kind, payload=payload, salt=b"s" * 16)


PARK = event(kinds.RUN_PARKED, b'{"on":"signal"}')
SUCCESS = event(kinds.RUN_SUCCEEDED, b'{"data":1}')
CANCELLED = event(kinds.RUN_CANCELLED)
ASKED = event(kinds.CANCEL_REQUESTED, b'{"number":3}')
SIGNAL = event(kinds.SIGNAL_RECEIVED, b'{"number":3,"name":"x","data":{"number":9}}')


@pytest.mark.parametrize(
    ("events", "consumed", "gate", "reason"),
    [
        ([PARK], 3, (RunState.RUNNING, 3, None), None),
        ([PARK], 2, (RunState.RUNNING, 3, None), reasons.INBOX_AHEAD),
        ([PARK], 4, (RunState.RUNNING, 3, None), reasons.INVALID_FIELD),
        ([SIGNAL, PARK], 0, (RunState.RUNNING, 3, None), None),
        ([PARK], 0, (RunState.WAITING, 0, None), reasons.LEASE_LOST),
        ([PARK], 0, (RunState.SUCCEEDED, 0, None), reasons.RUN_CLOSED),
        ([SUCCESS], 0, (RunState.RUNNING, 0, None), None),
        ([SUCCESS], 0, (RunState.RUNNING, 0, 7), reasons.CANCEL_REQUESTED),
        ([ASKED, SUCCESS], 3, (RunState.RUNNING, 3, None), reasons.CANCEL_REQUESTED),
        ([ASKED, CANCELLED], 3, (RunState.RUNNING, 3, None), None),
        ([SIGNAL], 0, (RunState.RUNNING, 9, None), None),
    ],
)
def test_refusals(
    events: list[NewEvent], consumed: int, gate: tuple[RunState, int, int | None], reason: str | None
) -> None:
    change = run_state.change_of("run", 10, events, consumed, 99)
    assert change is not None
    error = run_state.refusal(change, RunGate(state=gate[0], inbox_number=gate[1], cancel_seq=gate[2]))
    assert (error.reason if error else None) == reason


def test_changes_name_what_was_consumed_and_cancelled() -> None:
    change = run_state.change_of("run", 10, [event("step_started"), ASKED, SIGNAL], 0, 99)
    assert change is not None
    assert (change.taken_in, change.cancel_seq, change.ends_with) == (3, 11, "")
    assert run_state.change_of("run", 10, [event("step_started"), event("step_completed")], 5, 99) is None


def test_errors_are_kept() -> None:
    failed = event(kinds.RUN_FAILED, b'{"code":"STEP_FAILED","message":"no","stepId":"a","details":{"k":"v"}}')
    change = run_state.change_of("run", 1, [failed], 0, 1)
    assert change is not None
    facts = run_state.error_facts(change.error)
    assert facts is not None
    assert (facts.code, facts.message, facts.step_id, facts.details) == ("STEP_FAILED", "no", "a", {"k": "v"})


WAITS = ["approval", "signal", "timer", "child", "operator", "code_fix", "capacity", "budget", "paused"]
OF_THE_PROGRAM = {"approval", "signal", "timer", "child", "operator"}


@pytest.mark.parametrize("on", WAITS)
@pytest.mark.parametrize(
    ("kind", "name", "signals", "woken"),
    [
        ("cancel", "", (), set(WAITS)),
        ("cancel", "", ("paid",), set(WAITS)),
        ("signal", "paid", (), {"signal"}),
        ("signal", "paid", ("other", "paid"), OF_THE_PROGRAM),
        ("signal", "paid", ("other",), set[str]()),
        ("signal", "pai", ("paid",), set[str]()),
        ("decision", "ask", (), OF_THE_PROGRAM),
        ("child", "", (), OF_THE_PROGRAM),
        ("resume", "", (), {"paused", "operator", "code_fix", "budget"}),
        ("pause", "", (), set[str]()),
        ("delegation", "ask", (), set[str]()),
    ],
)
def test_waking(on: str, kind: str, name: str, signals: tuple[str, ...], woken: set[str]) -> None:
    assert run_state.wakes(kind, name, on, signals) is (on in woken)


def test_every_wait_can_be_waked_by_somebody() -> None:
    """By an entry, its due time, a settlement or a worker: whatever a run may be parked on is in the table (S3)."""
    assert set(WAITS) == payloads.WAITING_ON
    documented = {row.split("|")[1].strip() for row in (run_state.__doc__ or "").splitlines() if row.startswith("| ")}
    assert documented - {"waits on"} == set(WAITS)
    by_others = {"timer", "capacity"}
    for on in set(WAITS) - by_others:
        assert any(run_state.wakes(kind, "s", on, ("s",)) for kind in ("signal", "decision", "child", "resume")), on


@pytest.mark.parametrize(
    ("state", "on", "epoch", "nothing", "ends"),
    [
        (RunState.QUEUED, "", 0, False, True),
        (RunState.QUEUED, "", 1, False, False),
        (RunState.QUEUED, "", 1, True, True),
        (RunState.RUNNING, "", 1, False, False),
        (RunState.RUNNING, "", 1, True, False),
        (RunState.WAITING, "capacity", 0, False, True),
        (RunState.WAITING, "capacity", 2, False, False),
        (RunState.WAITING, "code_fix", 2, False, True),
        (RunState.WAITING, "signal", 2, False, False),
        (RunState.WAITING, "signal", 2, True, True),
        (RunState.WAITING, "paused", 2, True, True),
        (RunState.WAITING, "paused", 2, False, False),
    ],
)
def test_a_cancel_ends_at_once_what_has_nothing_to_compensate(
    state: RunState, on: str, epoch: int, nothing: bool, ends: bool
) -> None:
    assert run_state.ends_at_once(state, on, epoch, nothing_to_compensate=nothing) is ends


def test_a_park_says_all_that_waking_and_cancelling_need() -> None:
    facts = ParkFacts(
        waiting_on="paused",
        due_us=7,
        signals=("a", "b/c"),
        nothing_to_compensate=True,
        before=ParkFacts(waiting_on="timer", due_us=9),
    )
    assert ParkFacts.unpack(facts.pack()) == facts
    change = run_state.change_of("run", 10, [event(kinds.RUN_PARKED, facts.pack())], 0, 99)
    assert change is not None
    assert (change.due_us, change.signals, change.nothing_to_compensate) == (7, ("a", "b/c"), True)


def test_changes_name_the_approvals_that_are_asked_for() -> None:
    asked = ApprovalFacts(approval_id="ask[2]#3", assignee="ann", title="Ship?", expires_us=5)
    change = run_state.change_of(
        "run", 10, [event("step_started"), event(kinds.APPROVAL_REQUESTED, asked.pack(b"1"))], 0, 99
    )
    assert change is not None
    (request,) = change.approvals
    assert (request.approval_id, request.seq, request.assignee) == ("ask[2]#3", 11, "ann")
    assert (request.title, request.expires_us) == ("Ship?", 5)
    assert approvals.repeated("run", change.approvals, ()) is None
    for requests, before in (((request,), {("run", "ask[2]#3")}), ((request, request), set[tuple[str, str]]())):
        error = approvals.repeated("run", requests, before)
        assert error is not None
        assert error.reason == reasons.INVALID_FIELD


def session(seen_us: int = 100, *, closed: bool = False, draining: bool = False, number: int = 1) -> Session:
    return Session(worker_id="w", number=number, seen_us=seen_us, closed=closed, draining=draining)


def lock(expires_us: int, *, opened: bool = True, worker_id: str = "w") -> Lock:
    return Lock(worker_id=worker_id, epoch=1, expires_us=expires_us, opened=opened)


@pytest.mark.parametrize(
    ("held", "holder", "free"),
    [
        (None, None, True),
        (lock(0, worker_id=""), None, True),
        (lock(101), session(), False),
        (lock(101), None, False),
        (lock(100), None, True),
        (lock(100), session(), False),
        (lock(100), session(closed=True), True),
        (lock(100), session(50), True),
        (lock(100), session(51), False),
        (lock(100, opened=False), session(), True),
        (lock(101, opened=False), session(), False),
    ],
)
def test_which_lease_is_free_at_100(held: Lock | None, holder: Session | None, free: bool) -> None:
    assert leases.is_free(held, holder, 100, LIMITS) is free


@pytest.mark.parametrize(
    ("found", "may"),
    [
        (None, False),
        (session(), True),
        (session(number=2), False),
        (session(draining=True), False),
        (session(closed=True), False),
        (session(50), False),
    ],
)
def test_who_may_be_granted_a_lease(found: Session | None, may: bool) -> None:
    assert leases.may_receive(found, 1, 100, LIMITS.silence_us) is may


A, B, C = "a" * 64, "b" * 64, "c" * 64


@pytest.mark.parametrize(
    ("failed", "offered", "fixed", "drivable"),
    [
        ("", [A], True, True),
        (A, [A], False, False),
        (A, [B], True, True),
        (A, [A, B], True, True),
        (f"{B} {A}", [A], False, True),
        (f"{B} {A}", [B], False, False),
        (f"{B} {A}", [C], True, True),
        (A, [], False, False),
    ],
)
def test_code_that_failed_is_no_fix_and_the_last_one_drives_nothing(
    failed: str, offered: list[str], fixed: bool, drivable: bool
) -> None:
    offers = [AgentOffer(name="order", digest=digest, program_kind="code") for digest in offered]
    assert leases.is_fixed_by(offers, failed) is fixed
    assert leases.can_drive(offers, leases.failed_last(failed)) is drivable


def test_codes_that_failed_are_kept_last_first_once_each_and_not_without_bound() -> None:
    assert leases.failed_too(A, "") == A
    assert leases.failed_too(B, A) == f"{B} {A}"
    assert leases.failed_too(A, f"{B} {A}") == f"{A} {B}"
    many = ""
    for number in range(100):
        many = leases.failed_too(f"{number:064x}", many)
    assert len(many.split()) == leases.FAILED_DIGESTS_MAX
    assert leases.failed_last(many) == f"{99:064x}"


@pytest.mark.parametrize(("faults", "seconds"), [(1, 1), (2, 2), (3, 4), (6, 32), (7, 60), (1_000_000, 60)])
def test_the_pause_after_faulty_drives_doubles_up_to_a_minute(faults: int, seconds: int) -> None:
    assert leases.fault_pause_us(faults) == seconds * 1_000_000


@pytest.mark.parametrize(
    ("opened", "used", "seen_us", "closed", "free"),
    [
        (False, False, 100, False, True),
        (True, False, 100, False, False),
        (True, False, 10, False, True),
        (False, True, 100, False, False),
        (False, True, 10, False, False),
        (False, True, 100, True, True),
    ],
)
def test_an_expired_lease_that_was_used_is_sheltered_until_its_session_is_closed(
    opened: bool, used: bool, seen_us: int, closed: bool, free: bool
) -> None:
    lock = Lock(worker_id="w", epoch=1, expires_us=90, opened=opened, used=used)
    holder = Session(worker_id="w", number=1, seen_us=seen_us, closed=closed, draining=False)
    assert leases.is_free(lock, holder, 100, LIMITS) is free


@pytest.mark.parametrize(
    ("raw", "digest"),
    [
        (None, ""),
        (b'{"code":"X","message":"m"}', ""),
        (b'{"code":"X","message":"m","details":{"digest":"short"}}', ""),
        (b'{"code":"X","message":"m","details":{"digest":"' + b"a" * 64 + b'"}}', A),
    ],
)
def test_an_error_names_the_code_that_failed(raw: bytes | None, digest: str) -> None:
    assert run_state.digest_of(raw) == digest
