"""Waits for others in the environment: signals, approvals, children, updates, cancels, runs that go on as new ones.

Method: programs written as the commands that they ask for, alone and under every fault.
"""

import json
from typing import Any

import pytest
from scripted import Script, agent

import lantern
from lantern.client.run import UpdateFailed
from lantern.testing import Environment, Stuck, check_every_fault
from lantern_kernel import kinds, payloads, reasons
from lantern_kernel.commands import (
    AwaitSignal,
    Cancelled,
    CompleteUpdate,
    ContinueAsNew,
    Fail,
    RequestApproval,
    RunStep,
    StartChild,
    StartTimer,
    Succeed,
    Withdraw,
)
from lantern_kernel.errors import LanternError
from lantern_kernel.event import find_chain_fault
from lantern_kernel.outcomes import Happening, Notice, Outcome
from lantern_kernel.payloads import RunErrorFacts

HOUR_US = 3_600_000_000


def outcome(happening: Happening) -> Outcome:
    assert isinstance(happening, Outcome)
    return happening


def step(step_id: str) -> RunStep:
    return RunStep(step_id=step_id, name=step_id, type="function", input=b"[]", source="s.py:1")


def paid_twice(content: bytes) -> Script:
    """Two signals of one name, an hour's sleep between them."""
    first = outcome((yield [AwaitSignal(step_id="paid", name="paid", source="s.py:1")]))
    yield [StartTimer(step_id="sleep", duration_us=HOUR_US, source="s.py:2")]
    second = outcome((yield [AwaitSignal(step_id="paid[1]", name="paid", source="s.py:3")]))
    yield [Succeed(result=b"[%b,%b,%b]" % (content, first.data or b"", second.data or b""))]


def approved(content: bytes) -> Script:
    decided = outcome(
        (
            yield [
                RequestApproval(
                    step_id="ship", name="ship", title="Ship?", source="s.py:1", data=content, timeout_us=HOUR_US
                )
            ]
        )
    )
    yield [Succeed(result=json.dumps([decided.facts["decision"], decided.facts["by"]]).encode())]


def parent(content: bytes) -> Script:
    ended = outcome(
        (yield [StartChild(step_id="part", name="part", agent_name="child", input=content, source="s.py:1")])
    )
    if ended.error is not None:
        yield [Fail(error=ended.error)]
    yield [Succeed(result=b'{"part":%b}' % (ended.data or b"null"))]


def child(content: bytes) -> Script:
    made = outcome((yield [step("make")]))
    if made.error is not None:
        yield [Fail(error=made.error)]
    yield [StartTimer(step_id="sleep", duration_us=HOUR_US, source="s.py:2")]
    yield [Succeed(result=content)]


@pytest.fixture
def env():
    with Environment() as environment:
        environment.offer(
            agent("paid-twice", paid_twice),
            agent("approved", approved),
            agent("parent", parent),
            agent("child", child),
        )
        environment.fake("make", 1)
        yield environment


def test_signals_are_taken_in_the_order_of_their_waits(env: Environment):
    run = env.start("paid-twice", 0)
    run.signal("other", "x")
    run.signal("paid", 1)
    run.signal("paid", 2)
    assert run.result() == [0, 1, 2]


def test_a_run_waits_for_its_signal(env: Environment):
    run = env.start("paid-twice", 0)
    with pytest.raises(Stuck, match=r"waits on signal \(paid\)"):
        run.result()
    assert (run.state, run.waiting_on) == ("WAITING", "signal")
    run.signal("other", 9)
    env.settle()
    assert run.state == "WAITING"
    run.signal("paid", 1)
    env.skip(3600)
    run.signal("paid", 2)
    assert run.result() == [0, 1, 2]
    assert find_chain_fault(run.run_id, run.events) is None


@pytest.mark.parametrize("decision", ["approved", "denied"])
def test_approvals_are_decided(env: Environment, decision: str):
    run = env.start("approved", {"order": 1})
    (run.approve if decision == "approved" else run.deny)("ship", by="ann")
    assert run.result() == [decision, "ann"]


def test_an_approval_that_nobody_decides_expires(env: Environment):
    run = env.start("approved", {"order": 1})
    begun_us = env.now_us
    assert run.result() == ["expired", ""]
    assert (env.now_us - begun_us) == pytest.approx(HOUR_US, abs=1_000_000)


def test_what_was_decided_stays(env: Environment):
    run = env.start("approved", {"order": 1})
    env.settle()
    (asked,) = run.approvals
    assert (asked.facts.title, asked.data) == ("Ship?", b'{"order":1}')
    run.approve(by="ann")
    with pytest.raises(LanternError) as refused:
        env.journal.decide(run.run_id, "ship", "denied", "bob")
    assert refused.value.reason == reasons.APPROVAL_DECIDED
    with pytest.raises(Stuck, match="asks for 0 approvals"):
        run.deny()
    assert run.result() == ["approved", "ann"]


def test_a_child_is_a_run_of_its_own(env: Environment):
    run = env.start("parent", [7])
    assert run.result() == {"part": [7]}
    (part,) = run.children
    assert (part.state, len(env.runs)) == ("SUCCEEDED", 2)
    ends = [event for event in run.events if event.kind == kinds.CHILD_COMPLETED]
    assert payloads.unpack(ends[0].payload).facts["runId"] == part.run_id


def test_a_child_fails_its_parent(env: Environment):
    def fail() -> None:
        raise lantern.StepFailure("broken", code="BROKEN")

    env.fake("make", fail)
    with pytest.raises(lantern.RunFailed) as failed:
        env.start("parent", [7]).result()
    assert failed.value.code == "BROKEN"


def test_a_child_that_nobody_knows_fails_the_step(env: Environment):
    def lonely(content: bytes) -> Script:
        ended = outcome(
            (yield [StartChild(step_id="part", name="part", agent_name="nobody", input=content, source="s.py:1")])
        )
        assert ended.error is not None
        yield [Fail(error=ended.error)]

    env.offer(agent("lonely", lonely))
    with pytest.raises(lantern.RunFailed) as failed:
        env.start("lonely").result()
    assert failed.value.code == reasons.AGENT_NOT_FOUND


def test_children_are_at_most_five_deep(env: Environment):
    def nested(content: bytes) -> Script:
        command = StartChild(step_id="in", name="in", agent_name="nested", input=content, source="s.py:1")
        ended = outcome((yield [command]))
        assert ended.error is not None
        yield [Fail(error=ended.error)]

    env.offer(agent("nested", nested))
    with pytest.raises(lantern.RunFailed) as failed:
        env.start("nested").result()
    assert (failed.value.code, len(env.runs)) == (reasons.CHILD_TOO_DEEP, 6)


def test_a_cancelled_parent_ends_its_children(env: Environment):
    run = env.start("parent", [7])
    env.skip(60)
    run.cancel()
    env.finish()
    assert [each.state for each in env.runs] == ["CANCELLED", "CANCELLED"]


def undoes(content: bytes) -> Script:
    """Books, waits for ever, and when it is cancelled takes its booking back."""
    del content
    yield [step("book")]
    told = yield [AwaitSignal(step_id="go", name="go", source="s.py:2")]
    assert isinstance(told, Notice)
    assert told.kind == "cancel"
    yield [Withdraw(step_id="go"), step("unbook")]
    yield [Cancelled(error=RunErrorFacts(code=reasons.CANCEL_REQUESTED, message="taken back"))]


def test_a_cancelled_run_compensates_first(env: Environment):
    env.offer(agent("undoes", undoes, compensates=True))
    env.fake("book", 1)
    env.fake("unbook", 1)
    run = env.start("undoes")
    env.skip(60)
    run.cancel()
    assert run.finish().state == "CANCELLED"
    assert [attempt.name for attempt in env.attempts] == ["book", "unbook"]


def counts(content: bytes) -> Script:
    """Goes on as a new run until it has counted to three, then waits for a signal that came to the first."""
    number = json.loads(content)
    if number < 3:
        yield [step("count")]
        yield [ContinueAsNew(input=b"%d" % (number + 1))]
    told = outcome((yield [AwaitSignal(step_id="done", name="done", source="s.py:3")]))
    yield [Succeed(result=told.data or b"")]


def test_a_run_goes_on_as_a_new_one(env: Environment):
    env.offer(agent("counts", counts))
    env.fake("count", 1)
    run = env.start("counts", 1, workflow_id="count-1")
    run.signal("done", "at last")
    assert run.result() == "at last"
    assert [each.state for each in env.runs] == ["SUCCEEDED"] * 3
    assert len({each.snapshot().workflow_id for each in env.runs}) == 1


def leaves(content: bytes) -> Script:
    """Goes on as a new run while its child still works."""
    if content == b"1":
        yield [
            StartChild(step_id="part", name="part", agent_name="child", input=b"[]", source="s.py:1"),
            StartTimer(step_id="sleep", duration_us=60_000_000, source="s.py:2"),
        ]
        yield [ContinueAsNew(input=b"2")]
    yield [Succeed(result=content)]


def test_children_do_not_outlive_a_run_that_goes_on(env: Environment):
    env.offer(agent("leaves", leaves))
    run = env.start("leaves", 1)
    assert run.result() == 2
    env.finish()
    assert [(each.snapshot().agent_name, each.state) for each in env.runs] == [
        ("leaves", "SUCCEEDED"),
        ("child", "CANCELLED"),
        ("leaves", "SUCCEEDED"),
    ]


def answers(content: bytes) -> Script:
    del content
    told = yield [AwaitSignal(step_id="end", name="end", source="s.py:1")]
    while isinstance(told, Notice):
        told = yield [CompleteUpdate(step_id=told.step_id, source="s.py:2", result=b"[%b]" % (told.data or b""))]
    yield [Succeed(result=b"1")]


def test_updates_are_answered(env: Environment):
    env.offer(agent("answers", answers))
    run = env.start("answers")
    assert run.update("add", 5) == [5]
    env.skip(60)
    assert run.update("add", "more") == ["more"]
    run.signal("end")
    assert run.result() == 1


def test_a_refused_update_raises_as_a_client_does(env: Environment):
    def refuses(content: bytes) -> Script:
        del content
        told = yield [AwaitSignal(step_id="end", name="end", source="s.py:1")]
        error = RunErrorFacts(code="TOO_LATE", message="closed")
        told = yield [CompleteUpdate(step_id=told.step_id, source="s.py:2", error=error)]
        yield [Succeed(result=b"1")]

    env.offer(agent("refuses", refuses))
    run = env.start("refuses")
    with pytest.raises(UpdateFailed, match="update add: TOO_LATE: closed"):
        run.update("add", 5)


def test_queries_are_answered_from_the_history(env: Environment):
    env.offer(agent("told", paid_twice, answers=True))
    run = env.start("told", 0)
    run.signal("paid", 1)
    events = len(run.events)
    assert run.query("happened", {"n": 1}) == {"query": "happened", "data": {"n": 1}, "happened": 1}
    env.skip(3600)
    assert run.query("happened")["happened"] == 2
    assert len(run.events) > events
    events = len(run.events)
    run.query("happened")
    assert len(run.events) == events, "nothing is recorded of a query"
    with pytest.raises(LanternError) as refused:
        env.start("paid-twice", 0).query("happened")
    assert refused.value.reason == reasons.QUERY_NOT_FOUND


def test_waits_survive_every_fault():
    def scenario(env: Environment) -> None:
        env.offer(
            agent("paid-twice", paid_twice),
            agent("approved", approved),
            agent("parent", parent),
            agent("child", child),
            agent("counts", counts),
            agent("answers", answers),
        )
        for name in ("make", "count"):
            env.fake(name, 1)
        paid, asks, whole = env.start("paid-twice", 0), env.start("approved", 1), env.start("parent", [7])
        paid.signal("paid", 1)
        env.settle()
        paid.signal("paid", 2)
        asks.approve("ship", by="ann")
        goes_on, told = env.start("counts", 1), env.start("answers")
        goes_on.signal("done", "x")
        results: list[Any] = [told.update("add", 5)]
        told.signal("end")
        results.extend(run.result() for run in (paid, asks, whole, goes_on, told))
        assert results == [[5], [0, 1, 2], ["approved", "ann"], {"part": [7]}, "x", 1]
        assert all(find_chain_fault(run.run_id, run.events) is None for run in env.runs)

    faults = check_every_fault(scenario, kinds=["crash-before-commit", "crash-after-commit", "lost-answer"])
    assert len(faults) > 80
    check_every_fault(scenario, kinds=["duplicate-delivery", "second-driver"])
