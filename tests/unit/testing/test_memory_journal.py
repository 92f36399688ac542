"""The journal in memory against the journal's own domain: what it judges, chains and wakes is the same.

Method: whatever can be enumerated is enumerated (waking), the rest is drawn by hypothesis and judged twice.
"""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lantern.testing.journal import MemoryJournal
from lantern.testing.stored import StoredRun
from lantern.testing.waking import ends_at_once, wakes
from lantern_journal.domain import appends, run_state
from lantern_journal.domain.appends import Append, Head, Verdict
from lantern_journal.domain.run_state import RunGate, RunState
from lantern_kernel import kinds, payloads, reasons
from lantern_kernel.blobs import BlobRef
from lantern_kernel.errors import LanternError
from lantern_kernel.event import NewEvent, find_chain_fault
from lantern_kernel.payloads import WAITING_ON, ApprovalFacts, ParkFacts

START_US = 1_700_000_000_000_000
KINDS = ("signal", "cancel", "pause", "resume", "decision", "delegation", "child", "update")


class Clock:
    """A time that is set by hand."""

    def __init__(self) -> None:
        self.us = START_US

    def __call__(self) -> int:
        return self.us


def journal_and_run(granted: bool = True) -> tuple[MemoryJournal, StoredRun]:
    journal = MemoryJournal(Clock())
    run = journal.create("order", "d" * 64, b"{}", workflow_id="order-1", request_id="r1")
    if granted:
        journal.grant(run.run_id, "w1", "start")
    return journal, run


def event(kind: str, payload: bytes = b"{}", step_id: str = "", salt: int = 1) -> NewEvent:
    return NewEvent(kind=kind, step_id=step_id, payload=payload, salt=salt.to_bytes(16, "big"))


def put(journal: MemoryJournal, run: StoredRun, *events: NewEvent, consumed: int = 0) -> None:
    top = run.events[-1]
    journal.append(run.run_id, run.epoch, top.seq + 1, top.digest, events, consumed)


def parked(waiting_on: str = "signal", **facts: object) -> NewEvent:
    return event(kinds.RUN_PARKED, ParkFacts(waiting_on=waiting_on, **facts).pack())  # pyright: ignore[reportArgumentType] - any facts


@pytest.mark.parametrize("waiting_on", sorted(WAITING_ON))
def test_the_same_entries_wake_a_run(waiting_on: str):
    for kind, name, signals in product(KINDS, ("paid", "lost"), ((), ("paid",), ("shipped", "lost"))):
        expected = run_state.wakes(kind, name, waiting_on, signals)
        assert wakes(kind, name, waiting_on, signals) == expected, (kind, name, signals)


def test_the_same_cancels_end_a_run_at_once():
    for state, waiting_on, epoch, nothing in product(RunState, ("", *WAITING_ON), (0, 1, 7), (False, True)):
        if state in run_state.FINAL:
            continue
        ours = ends_at_once(state.value, waiting_on, epoch, nothing_to_compensate=nothing)
        assert ours == run_state.ends_at_once(state, waiting_on, epoch, nothing_to_compensate=nothing)


ENDINGS = (kinds.STEP_WAITING, kinds.RUN_PARKED, kinds.RUN_SUCCEEDED, kinds.RUN_FAILED, kinds.RUN_CANCELLED)


@settings(max_examples=400, deadline=None)
@given(
    lasting=st.integers(0, 3),
    ended_with=st.sampled_from(("", "", "", *ENDINGS[1:])),
    epochs_off=st.sampled_from((0, 0, 0, -1, 1)),
    seq_off=st.sampled_from((0, 0, 0, -2, -1, 1)),
    is_other_top=st.booleans(),
    salt=st.integers(1, 3),
    last=st.sampled_from(ENDINGS),
    entries=st.integers(0, 2),
    consumed=st.integers(0, 3),
    cancels=st.booleans(),
)
def test_an_append_is_judged_as_the_journal_judges_it(
    lasting: int,
    ended_with: str,
    epochs_off: int,
    seq_off: int,
    is_other_top: bool,
    salt: int,
    last: str,
    entries: int,
    consumed: int,
    cancels: bool,
):
    journal, run = journal_and_run()
    journal.grant(run.run_id, "w2", "crash")
    put(journal, run, event(kinds.STEP_WAITING, salt=1))
    for _ in range(lasting):
        put(journal, run, event(kinds.STEP_WAITING, salt=2))
    if cancels:
        journal.send(run.run_id, "cancel", request_id="c")
        put(journal, run, event(kinds.CANCEL_REQUESTED, payloads.pack({"number": 1})))
    if ended_with and not (cancels and ended_with == kinds.RUN_SUCCEEDED):
        put(journal, run, event(ended_with, ParkFacts(waiting_on="operator").pack(), salt=3), consumed=len(run.inbox))
    for number in range(entries if run.is_open else 0):
        journal.send(run.run_id, "signal", "x", b"1", request_id=f"s{number}")

    head_event = run.events[-1]
    head = Head(head_event.seq, head_event.digest, head_event.hash, run.epoch, head_event.time_us, head_event.kind)
    append = Append(
        run_id=run.run_id,
        epoch=run.epoch + epochs_off,
        first_seq=max(1, head.seq + 1 + seq_off),
        previous_digest=bytes(32) if is_other_top else head.digest,
        events=(
            event(last, ParkFacts(waiting_on="operator").pack() if last == kinds.RUN_PARKED else b"{}", salt=salt),
        ),
        consumed_inbox_number=consumed,
    )
    expected = verdict_of(append, head, run)
    before = list(run.events)
    try:
        journal.append(
            append.run_id,
            append.epoch,
            append.first_seq,
            append.previous_digest,
            append.events,
            append.consumed_inbox_number,
        )
        found = ""
    except LanternError as error:
        found = error.reason
    assert found == expected
    assert run.events[: len(before)] == before
    is_new = not expected and append.first_seq > len(before)
    assert len(run.events) == len(before) + is_new
    assert find_chain_fault(run.run_id, run.events) is None


def verdict_of(append: Append, head: Head, run: StoredRun) -> str:
    """The reason with which the journal's own domain refuses the append; empty where it takes it."""
    verdict = appends.judge(append, head)
    if verdict is Verdict.LOOK:
        stored = run.events[append.first_seq - 1 : append.first_seq - 1 + len(append.events)]
        if appends.is_repeat(append, stored):
            return ""
        verdict = appends.judge_place(append, head)
    if verdict is not Verdict.FITS:
        return appends.error_of(verdict, append, head).reason
    change = run_state.change_of(run.run_id, append.first_seq, append.events, append.consumed_inbox_number, START_US)
    if change is None:
        return ""
    cancel_seq = next((each.seq for each in run.events if each.kind == kinds.CANCEL_REQUESTED), None)
    gate = RunGate(state=RunState(run.state), inbox_number=len(run.inbox), cancel_seq=cancel_seq)
    refused = run_state.refusal(change, gate)
    return refused.reason if refused else ""


def test_a_repeat_of_a_final_append_changes_nothing():
    journal, run = journal_and_run()
    top, last = run.events[-1], (event(kinds.RUN_SUCCEEDED, b'{"data":1}'),)
    for _ in range(2):
        journal.append(run.run_id, run.epoch, top.seq + 1, top.digest, last, 0)
    assert [each.kind for each in run.events] == [kinds.RUN_STARTED, kinds.LEASE_GRANTED, kinds.RUN_SUCCEEDED]
    assert (run.state, run.result) == ("SUCCEEDED", b"1")


def test_only_the_journal_writes_its_own_kinds():
    journal, run = journal_and_run()
    with pytest.raises(LanternError, match="only the journal"):
        put(journal, run, event(kinds.LEASE_GRANTED))


def test_a_blob_is_kept_before_it_is_named():
    journal, run = journal_and_run()
    content = b'"' + b"x" * 300_000 + b'"'
    named = payloads.pack({}, BlobRef.of(content))
    with pytest.raises(LanternError) as refused:
        put(journal, run, event(kinds.RUN_SUCCEEDED, named))
    assert refused.value.reason == reasons.BLOB_NOT_FOUND
    journal.put_blob(content)
    put(journal, run, event(kinds.RUN_SUCCEEDED, named))
    assert journal.content(run.result) == content


def test_a_paused_run_falls_back_into_its_wait_unless_that_came_meanwhile():
    for name, state in (("lost", "WAITING"), ("paid", "QUEUED")):
        journal, run = journal_and_run()
        put(journal, run, parked(signals=("paid",)))
        journal.send(run.run_id, "pause", request_id="p")
        assert run.waiting_on == "paused"
        journal.send(run.run_id, "signal", name, b"1", request_id="s")
        assert run.waiting_on == "paused"
        journal.send(run.run_id, "resume", request_id="r")
        assert run.state == state
        assert find_chain_fault(run.run_id, run.events) is None


def test_a_request_is_taken_in_once():
    journal, run = journal_and_run()
    assert [journal.send(run.run_id, "signal", "paid", b"1", request_id="same") for _ in range(2)] == [1, 1]
    assert len(run.inbox) == 1


def ask(journal: MemoryJournal, run: StoredRun, expires_us: int | None = None) -> None:
    asked = ApprovalFacts(approval_id="ship", expires_us=expires_us).pack(b'{"order":1}')
    put(journal, run, event(kinds.APPROVAL_REQUESTED, asked, "ship"), parked("approval"))


def test_the_first_decision_wins():
    journal, run = journal_and_run()
    ask(journal, run)
    assert journal.decide(run.run_id, "ship", "approved", "ann") is False
    assert journal.decide(run.run_id, "ship", "approved", "bob") is True
    with pytest.raises(LanternError) as refused:
        journal.decide(run.run_id, "ship", "denied", "bob")
    assert refused.value.reason == reasons.APPROVAL_DECIDED
    assert (run.state, run.cause, len(run.inbox)) == ("QUEUED", "approval", 1)


def test_an_approval_expires_in_its_time():
    journal, run = journal_and_run()
    ask(journal, run, expires_us=START_US + 5)
    journal.pass_time()
    assert run.state == "WAITING"
    assert journal.next_due_us() == START_US + 5
    journal._now_us.us = START_US + 5  # pyright: ignore[reportFunctionMemberAccess, reportPrivateUsage]
    journal.pass_time()
    assert run.approvals["ship"].state == "EXPIRED"
    assert payloads.unpack(run.inbox[0].payload).facts["decision"] == "expired"


def test_a_claim_belongs_to_the_first():
    journal, run = journal_and_run()
    assert [journal.claim(run.run_id, 1, "key", nonce)[0] for nonce in (b"a", b"b", b"a")] == [True, False, True]
    journal.settle("key", delivered=True, result=b"1")
    journal.settle("key", delivered=True, result=b"1")
    with pytest.raises(LanternError) as refused:
        journal.settle("key", delivered=False, result=b"1")
    assert refused.value.reason == reasons.SIDE_EFFECT_SETTLED
    journal.grant(run.run_id, "w2", "crash")
    with pytest.raises(LanternError) as stale:
        journal.claim(run.run_id, 1, "other", b"a")
    assert stale.value.reason == reasons.LEASE_LOST
