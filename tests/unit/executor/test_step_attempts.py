"""Goal: attempts, keys, time-outs and claims are recorded and honoured as SPEC E1 to E4 say.

Method: steps with scripted failures over the in-memory journal; the keys that reached the outside and the events count.
"""

import asyncio
from typing import Any, Literal

import pytest
from executor_fakes import FakeJournal, JournalWorld, Outside, Row, SimulatedSources, programs_of, request, simulate
from executor_fakes import kinds_of as kinds_in

import lantern
from lantern_executor.application.drive import Drive
from lantern_executor.domain.step import SideEffect
from lantern_kernel import kinds, payloads, reasons
from lantern_kernel.keys import idempotency_key


class World:
    """One run of one workflow."""

    def __init__(self) -> None:
        self.journal = JournalWorld()
        self.row: Row = self.journal.create(request("flow"))
        self.outside = Outside()

    async def drive(self, workflow: Any, worker_id: str = "w1") -> FakeJournal:
        journal = FakeJournal(self.journal, worker_id)
        epoch = self.journal.grant(self.row.run.run_id, worker_id)
        await Drive(
            journal=journal,
            programs=programs_of(flow=workflow),
            sources=SimulatedSources(),
            run_id=self.row.run.run_id,
            epoch=epoch,
        ).run()
        return journal

    def key(self, step_id: str, key_attempt: int) -> str:
        return idempotency_key(self.row.run.run_id, step_id, key_attempt)

    def facts(self, kind: str) -> list[dict[str, Any]]:
        return [dict(payloads.unpack(event.payload).facts) for event in self.row.events if event.kind == kind]


@pytest.mark.parametrize(
    ("outcomes", "key_attempts"),
    [
        # every failure is documented to have done nothing: each attempt gets a key of its own
        ([False, False], [1, 2, 3]),
        # one lost reply freezes the key for good
        ([None, None], [1, 1, 1]),
        ([False, None], [1, 2, 2]),
        ([None, False], [1, 1, 1]),
    ],
)
def test_key_attempt_grows_only_after_documented_refusals(outcomes: list[bool | None], key_attempts: list[int]) -> None:
    async def main() -> None:
        world = World()
        left = list(outcomes)

        async def step() -> str:
            world.outside.do(None)
            if left:
                raise lantern.StepFailure("no", executed=left.pop(0))
            return "paid"

        async def flow(ctx: lantern.Context) -> str:
            return await ctx.step("pay", step, retry=lantern.RetryPolicy(max_attempts=3, backoff_ms=100))

        await world.drive(flow)
        assert world.row.run.result == b'"paid"'
        assert [key for _, key in world.outside.requests] == [world.key("pay", n) for n in key_attempts]
        assert [facts["keyAttempt"] for facts in world.facts(kinds.STEP_STARTED)] == key_attempts
        assert [facts["delayMs"] for facts in world.facts(kinds.STEP_RETRYING)] == [100, 200]
        assert asyncio.get_running_loop().time() == pytest.approx(0.3, abs=0.05)

    simulate(main())


def test_long_back_off_parks() -> None:
    async def main() -> None:
        world = World()

        async def step() -> str:
            if lantern.step_info().attempt == 1:
                raise lantern.StepFailure("later")
            return "paid"

        async def flow(ctx: lantern.Context) -> str:
            return await ctx.step("pay", step, retry=lantern.RetryPolicy(max_attempts=2, backoff_ms=20_000))

        await world.drive(flow)
        assert (world.row.run.state, world.row.run.waiting_on) == ("WAITING", "timer")
        await asyncio.sleep(20)
        await world.drive(flow, "w2")
        assert world.row.run.result == b'"paid"'

    simulate(main())


def test_time_out_is_unknown_and_stops_the_step() -> None:
    async def main() -> None:
        world = World()
        stopped: list[int] = []

        async def step() -> None:
            world.outside.do(None)
            try:
                await asyncio.sleep(1_000)
            finally:
                stopped.append(1)

        async def flow(ctx: lantern.Context) -> str:
            try:
                await ctx.step("pay", step, timeout_s=2, retry=lantern.RetryPolicy(max_attempts=2))
            except lantern.StepError as error:
                return error.code
            return ""

        await world.drive(flow)
        assert world.row.run.result == b'"STEP_TIMEOUT"'
        assert len(stopped) == 2
        assert len(world.outside.effects) == 1
        assert world.facts(kinds.STEP_RETRYING)[0]["outcome"] == "unknown"
        assert world.facts(kinds.STEP_FAILED)[0]["class"] == "timeout"

    simulate(main())


def _mail(world: World, claim: Literal["retry", "ask", "skip"], *, fails: int = 0) -> Any:
    left = [fails]

    async def send() -> str:
        world.outside.do(None)
        left[0] -= 1
        if left[0] >= 0:
            raise lantern.StepFailure("lost")
        return "sent"

    async def flow(ctx: lantern.Context) -> Any:
        retry = lantern.RetryPolicy(max_attempts=2)
        return await ctx.step("mail", send, claim=claim, sink="mail", retry=retry)

    return flow


def test_claim_is_made_before_and_settled_after() -> None:
    async def main() -> None:
        world = World()
        await world.drive(_mail(world, "ask"))
        claim = world.journal.claims[world.key("mail", 1)]
        assert (claim.state, claim.result, world.row.run.result) == ("delivered", b'"sent"', b'"sent"')

    simulate(main())


def test_found_delivered_is_not_sent_again() -> None:
    async def main() -> None:
        world = World()
        world.journal.claims[world.key("mail", 1)] = SideEffect(claimed=False, state="delivered", result=b'"before"')
        await world.drive(_mail(world, "ask"))
        assert world.row.run.result == b'"before"'
        assert world.outside.requests == []

    simulate(main())


@pytest.mark.parametrize(("claim", "result", "sent"), [("retry", b'"sent"', 1), ("skip", b"null", 0)])
def test_found_open_is_sent_again_or_skipped(claim: Any, result: bytes, sent: int) -> None:
    async def main() -> None:
        world = World()
        world.journal.claims[world.key("mail", 1)] = SideEffect(claimed=False, state="claimed", result=b"")
        await world.drive(_mail(world, claim))
        assert world.row.run.result == result
        assert world.outside.count("mail") == sent

    simulate(main())


@pytest.mark.parametrize("in_process", [True, False])
def test_ask_parks_for_an_operator_and_goes_by_what_he_settles(in_process: bool) -> None:
    async def main() -> None:
        world = World()
        key = world.key("mail", 1)
        if not in_process:
            world.journal.claims[key] = SideEffect(claimed=False, state="claimed", result=b"")
        flow = _mail(world, "ask", fails=1 if in_process else 0)
        await world.drive(flow)
        assert (world.row.run.state, world.row.run.waiting_on) == ("WAITING", "operator")
        assert world.row.run.error is not None
        assert world.row.run.error.code == reasons.STEP_OUTCOME_UNKNOWN
        assert kinds_in(world.row)[-2:] == [kinds.STEP_WAITING, kinds.RUN_PARKED]
        sent = world.outside.count("mail")
        assert sent == (1 if in_process else 0)
        await world.drive(flow, "w2")  # woken without an answer: it asks again and sends nothing
        assert world.row.run.waiting_on == "operator"
        world.journal.claims[key] = SideEffect(claimed=False, state="delivered", result=b'"seen in the outbox"')
        await world.drive(flow, "w3")
        assert world.row.run.result == b'"seen in the outbox"'
        assert world.outside.count("mail") == sent

    simulate(main())


@pytest.mark.parametrize(
    ("outcomes", "states"),
    [
        ([False], {1: "refused", 2: "delivered"}),
        # After one unknown answer a refusal of the repeat says nothing about the first delivery.
        ([None, False], {1: "claimed"}),
        ([None], {1: "delivered"}),
    ],
)
def test_claim_is_refused_only_while_nothing_under_its_key_is_unknown(
    outcomes: list[bool | None], states: dict[int, str]
) -> None:
    async def main() -> None:
        world = World()
        left = list(outcomes)

        async def send() -> str:
            if left:
                raise lantern.StepFailure("no", executed=left.pop(0))
            return "sent"

        async def flow(ctx: lantern.Context) -> str:
            retry = lantern.RetryPolicy(max_attempts=2)
            return await ctx.step("mail", send, claim="retry", sink="mail", retry=retry)

        await world.drive(flow)
        expected = {world.key("mail", key_attempt): state for key_attempt, state in states.items()}
        assert {key: claim.state for key, claim in world.journal.claims.items()} == expected

    simulate(main())


def test_refused_claim_is_a_failure_that_did_nothing() -> None:
    async def main() -> None:
        world = World()
        refusal = b'{"code":"NO_SUCH_ADDRESS","message":"nobody lives there"}'
        world.journal.claims[world.key("mail", 1)] = SideEffect(claimed=False, state="refused", result=refusal)
        await world.drive(_mail(world, "ask"))
        assert world.facts(kinds.STEP_RETRYING)[0]["error"]["code"] == "NO_SUCH_ADDRESS"
        assert world.facts(kinds.STEP_RETRYING)[0]["outcome"] == "not_executed"
        assert [key for _, key in world.outside.requests] == [world.key("mail", 2)]

    simulate(main())


@pytest.mark.parametrize("claim", ["ask", "skip", "retry"])
def test_every_claim_has_a_nonce_of_its_own(claim: Any) -> None:
    async def main() -> None:
        world = World()
        left = [False, False]

        async def send() -> str:
            world.outside.do(None)
            if left:
                raise lantern.StepFailure("no", executed=left.pop())
            return "sent"

        async def flow(ctx: lantern.Context) -> str:
            return await ctx.step("mail", send, claim=claim, retry=lantern.RetryPolicy(max_attempts=3))

        await world.drive(flow)
        nonces = list(world.journal.nonces.values())
        assert len(set(nonces)) == 3
        assert all(len(nonce) == 16 for nonce in nonces)

    simulate(main())
