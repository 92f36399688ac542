"""Goal: the last thing that is awaited before a step is dispatched is the certainty that the lease is ours.

Method: one attempt whose room, claim and lease take their time; what happened is written down in order.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from executor_fakes import FakeJournal, JournalWorld, SimulatedSources, request, simulate

from lantern_executor.application.execution import StepExecution
from lantern_executor.domain.step import SideEffect, StepCall, StepContext
from lantern_kernel import reasons
from lantern_kernel.commands import RunStep
from lantern_kernel.errors import LanternError
from lantern_kernel.retry import Failure, RetryPolicy
from lantern_kernel.step_ends import Completed
from lantern_kernel.work import StepWork


class Attempt:
    """One attempt of a step with a second's time-out; the wait for its room is longer."""

    def __init__(self, claim: Any) -> None:
        self.happened: list[str] = []
        self.lease_is_ours = True
        world = JournalWorld()
        row = world.create(request("flow"))
        epoch = world.grant(row.run.run_id, "w1")
        self.context = StepContext(
            run_id=row.run.run_id, workflow_id="", step_id="a", attempt=1, key_attempt=1, key="k", epoch=epoch
        )
        command = RunStep(
            step_id="a",
            name="a",
            type="function",
            input=b"[]",
            source="flow.py:1",
            retry=RetryPolicy(),
            timeout_ms=1_000,
            claim=claim,
            sink="mail",
            key_scope="run",
        )
        self.work = StepWork(command=command, attempt=1, key_attempt=1, key_frozen=False, key="k", not_before_us=None)
        self.journal = FakeJournal(world)
        claim_side_effect = self.journal.claim_side_effect

        async def claimed(context: StepContext, sink: str, nonce: bytes) -> SideEffect:
            self.happened.append("claim")
            return await claim_side_effect(context, sink, nonce)

        self.journal.claim_side_effect = claimed

    async def be_sure(self) -> None:
        await asyncio.sleep(5)
        self.happened.append("sure")
        if not self.lease_is_ours:
            raise LanternError(reasons.LEASE_LOST, "another's")

    @asynccontextmanager
    async def room(self) -> AsyncGenerator[None]:
        await asyncio.sleep(20)
        self.happened.append("room")
        yield
        self.happened.append("left")

    async def run(self, context: StepContext) -> Completed | Failure:
        self.happened.append("run")
        await asyncio.sleep(0.5)
        return Completed(output=b"1")

    async def execute(self) -> object:
        execution = StepExecution(self.journal, SimulatedSources(), self.be_sure, lambda: 0)
        return await execution.execute(self.work, StepCall(run=self.run, room=self.room), self.context)


@pytest.mark.parametrize(
    ("claim", "expected"),
    [("", ["room", "sure", "run", "left"]), ("ask", ["room", "claim", "sure", "run", "left"])],
)
def test_lease_is_looked_at_last_and_no_wait_is_the_steps_own_time(claim: Any, expected: list[str]) -> None:
    async def main() -> None:
        attempt = Attempt(claim)
        assert await attempt.execute() == Completed(output=b"1")
        assert attempt.happened == expected

    simulate(main())


@pytest.mark.parametrize("claim", ["", "ask"])
def test_lease_that_went_while_the_step_waited_for_room_dispatches_nothing(claim: Any) -> None:
    async def main() -> None:
        attempt = Attempt(claim)
        attempt.lease_is_ours = False
        with pytest.raises(LanternError, match=reasons.LEASE_LOST):
            await attempt.execute()
        assert "run" not in attempt.happened

    simulate(main())
