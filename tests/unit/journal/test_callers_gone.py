"""Goal: what was committed is told, also where the caller that asked for it has gone away before the answer.

Method: each use case over a store that holds the call at its commit; the caller is cancelled there.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest
from journal_fakes import LIMITS, FakeStore, Gate, as_any, causes, settle

from lantern_journal.adapters.sources import SystemSources
from lantern_journal.application import announcements
from lantern_journal.application.announcements import Hub
from lantern_journal.application.committer import GroupCommitter
from lantern_journal.application.runs import Runs, StartRequest
from lantern_journal.application.sessions import Listener, Sessions
from lantern_journal.application.starts import Starter
from lantern_journal.domain.records import (
    Attach,
    Attached,
    NewEntry,
    NewRun,
    Run,
    SentEntry,
    StartedRun,
    WorkflowIdPolicy,
)
from lantern_journal.domain.run_state import RunState
from lantern_kernel import reasons
from lantern_kernel.errors import LanternError

RUN = "01890000-0000-7000-8000-000000000001"


def run_in(state: RunState, run_id: str = RUN) -> Run:
    return Run(
        run_id=run_id,
        tenant_id="",
        workflow_id="",
        agent_name="order",
        agent_version=1,
        agent_digest="",
        state=state,
        waiting_on="",
        due_us=None,
        created_us=0,
        updated_us=0,
        ended_us=None,
        error=None,
        traceparent="",
        inbox_number=0,
        consumed_inbox=0,
        epoch=0,
        end_seq=None,
    )


class Held(FakeStore):
    """Commits at once, and answers when the gate opens."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = Gate()
        self.created = True
        self.state = RunState.QUEUED
        self.sent = SentEntry(number=1, state=RunState.WAITING, repeated=False)
        self.closed: list[tuple[str, int]] = []
        self.close_answer: int | None = 1
        self.close_error: Exception | None = None
        self.refusal: Exception | None = None

    async def start_runs(self, starts: Sequence[NewRun], limits: object) -> list[StartedRun | LanternError]:
        await self.gate.pass_through()
        return [StartedRun(run=run_in(self.state, new.run_id), created=self.created) for new in starts]

    async def send(self, entry: NewEntry, limits: object) -> SentEntry:
        await self.gate.pass_through()
        if self.refusal is not None:
            raise self.refusal
        return self.sent

    async def attach(self, request: Attach) -> Attached:
        await self.gate.pass_through()
        if self.refusal is not None:
            raise self.refusal
        return Attached(number=4, woken=1)

    async def close_session(self, worker_id: str, number: int) -> int | None:
        if self.close_error is not None:
            raise self.close_error
        self.closed.append((worker_id, number))
        return self.close_answer


class World:
    """The use cases over a held store."""

    def __init__(self) -> None:
        self.store, self.hub = Held(), Hub()
        clock, store = self.store.clock, as_any(self.store)
        self.sessions = Sessions(store, clock, self.hub, LIMITS, grace_s=0)
        committer = GroupCommitter(store, clock, self.hub)
        self.runs = Runs(store, clock, SystemSources(), self.hub, self.sessions, committer, LIMITS)
        self.pushed: list[str] = []
        self.listener = Listener(inbox=self.pushed.extend, end=lambda: None, move=lambda: None)

    def start(self) -> Coroutine[Any, Any, StartedRun]:
        return self.runs.start(
            StartRequest(
                request_id="r",
                tenant_id="",
                agent_name="order",
                input=b"1",
                workflow_id="",
                policy=WorkflowIdPolicy.REJECT,
                traceparent="",
                target=None,
            )
        )

    def send(self) -> Coroutine[Any, Any, SentEntry]:
        return self.runs.send("r", RUN, "signal", "n", b"1")

    def attach(self, worker_id: str = "w") -> Coroutine[Any, Any, object]:
        request = Attach(worker_id=worker_id, address="", capacity=1, offers=(), tenant_id="", draining=False)
        return self.sessions.attach(request, self.listener)

    async def cancelled_at_commit(self, call: Coroutine[Any, Any, object]) -> None:
        """Runs a call up to its commit, cancels the caller there, and lets the commit be answered."""
        caller = asyncio.create_task(call)
        await self.store.gate.reached.wait()
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        self.store.gate.open()
        await settle()


@pytest.fixture
def world() -> World:
    return World()


async def test_a_start_is_announced_without_its_caller(world: World) -> None:
    await world.cancelled_at_commit(world.start())
    assert causes(world.hub) == {announcements.QUEUED}


@pytest.mark.parametrize(
    ("state", "told"), [(RunState.QUEUED, {announcements.QUEUED}), (RunState.RUNNING, set()), (RunState.FAILED, set())]
)
async def test_a_start_that_finds_its_run_announces_it_where_it_is_queued(
    world: World, state: RunState, told: set[str]
) -> None:
    world.store.created, world.store.state = False, state
    world.store.gate.open()
    assert (await world.start()).run.state is state
    assert causes(world.hub) == told


async def test_a_send_wakes_without_its_caller(world: World) -> None:
    world.store.sent = SentEntry(number=1, state=RunState.WAITING, repeated=False, woken=True)
    await world.cancelled_at_commit(world.send())
    assert causes(world.hub) == {announcements.WOKEN}


async def test_a_send_is_pushed_to_the_driver_without_its_caller(world: World) -> None:
    gate, world.store.gate = world.store.gate, Gate()
    world.store.gate.open()
    await world.attach()
    world.store.gate = gate
    world.store.sent = SentEntry(number=1, state=RunState.WAITING, repeated=False, driver="w")
    await world.cancelled_at_commit(world.send())
    assert world.pushed == [RUN]


@pytest.mark.parametrize(
    "sent",
    [
        SentEntry(number=1, state=RunState.WAITING, repeated=False, ended=True),
        SentEntry(number=1, state=RunState.WAITING, repeated=True),
    ],
    ids=["end", "repeat"],
)
async def test_followers_hear_of_a_run_that_a_cancel_may_have_ended(world: World, sent: SentEntry) -> None:
    world.store.sent = sent
    with world.hub.follow(RUN) as follower:
        await world.cancelled_at_commit(world.send())
        assert await asyncio.wait_for(follower.take(), 1) == []


async def test_a_repeated_send_announces_what_the_first_may_not_have(world: World) -> None:
    world.store.sent = SentEntry(number=1, state=RunState.WAITING, repeated=True)
    world.store.gate.open()
    await world.send()
    assert causes(world.hub) == {announcements.WOKEN}


async def test_a_refusal_after_the_caller_has_gone_disturbs_nobody(world: World) -> None:
    world.store.refusal = LanternError(reasons.RUN_CLOSED, "it has ended")
    await world.cancelled_at_commit(world.send())
    await world.hub.finish(1)
    assert causes(world.hub) == set()
    with pytest.raises(LanternError):
        await world.send()


async def test_a_session_whose_stream_broke_while_it_was_opened_is_closed(world: World) -> None:
    await world.cancelled_at_commit(world.attach())
    assert world.store.closed == [("w", 4)]
    assert causes(world.hub) == {announcements.WOKEN, announcements.LEASE_EXPIRED}


async def test_an_attach_that_failed_after_its_caller_has_gone_closes_nothing(world: World) -> None:
    world.store.refusal = LanternError(reasons.UNAVAILABLE, "the database does not answer")
    await world.cancelled_at_commit(world.attach())
    assert world.store.closed == []


async def test_a_close_whose_own_repeat_finds_it_closed_is_announced(world: World) -> None:
    world.store.close_answer = None
    await world.cancelled_at_commit(world.attach())
    assert announcements.LEASE_EXPIRED in causes(world.hub)


async def test_a_close_that_fails_in_any_way_is_left_to_the_silence(world: World) -> None:
    world.store.close_error = RuntimeError("not foreseen")
    await world.cancelled_at_commit(world.attach())
    await world.sessions.close()
    assert announcements.LEASE_EXPIRED not in causes(world.hub)


async def test_the_end_of_the_process_waits_for_what_was_begun(world: World) -> None:
    caller = asyncio.create_task(world.send())
    await world.store.gate.reached.wait()
    caller.cancel()
    ending = asyncio.create_task(world.hub.finish(5))
    await settle()
    assert not ending.done()
    world.store.gate.open()
    await ending
    starting = asyncio.create_task(world.start())
    await settle()
    await world.runs.finish()
    await starting


async def test_starts_go_on_after_a_store_that_answers_nonsense() -> None:
    class Odd(FakeStore):
        answers: list[list[StartedRun]]

        async def start_runs(self, starts: Sequence[NewRun], limits: object) -> list[StartedRun]:
            return self.answers.pop(0)

    store = Odd()
    good = StartedRun(run=run_in(RunState.QUEUED), created=True)
    store.answers = [[], [good], [good]]
    told: list[StartedRun] = []

    def tell(started: StartedRun) -> None:
        told.append(started)
        if len(told) == 1:
            raise RuntimeError("not foreseen")

    starter = Starter(as_any(store), LIMITS, tell)
    new = NewRun(
        run_id=RUN,
        request_id="r",
        request_digest=b"",
        tenant_id="",
        agent_name="order",
        input=b"1",
        workflow_id="",
        policy=WorkflowIdPolicy.REJECT,
        traceparent="",
        target=None,
        salts=(b"", b""),
        end_salt=b"",
    )
    with pytest.raises(LanternError) as caught:
        await asyncio.wait_for(starter.start(new), 1)
    assert caught.value.reason == reasons.INTERNAL
    assert await asyncio.wait_for(starter.start(new), 1) is good
    assert await asyncio.wait_for(starter.start(new), 1) is good
    assert len(told) == 2
