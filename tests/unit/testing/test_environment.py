"""The environment: time that is skipped, steps that are stood in for, replay after every commit.

Method: small workflows in it; each promise has a workflow that breaks it, and that is noticed.
"""

import asyncio
import time
from itertools import pairwise
from typing import Any

import pytest

import lantern
from lantern.testing import Environment, HttpRequest, ReplayDiffers, Stuck
from lantern_kernel import kinds, reasons
from lantern_kernel.event import find_chain_fault

HOUR_S = 3600.0
PATIENT = lantern.RetryPolicy(max_attempts=3, backoff_ms=60_000)


@pytest.fixture
def env():
    with Environment() as environment:
        yield environment


def never(*_: Any) -> Any:
    raise AssertionError("the test has put something in its place")


@lantern.workflow
async def patient(ctx: lantern.Context, order: dict[str, Any]) -> Any:
    """Takes three hours, two parks and three attempts."""
    paid = await ctx.step("pay", never, order["amount"], retry=PATIENT, timeout_s=5.0)
    await ctx.sleep(2 * HOUR_S)
    stock, rates = await asyncio.gather(
        ctx.http("stock", "POST", "http://shop/stock", json={"item": order["item"]}),
        ctx.step("rates", never),
    )
    await ctx.sleep(HOUR_S)
    return {"paid": paid, "stock": stock.body, "rates": rates}


def test_three_hours_pass_at_once(env: Environment):
    answers = iter((lantern.StepFailure("busy", executed=False), TimeoutError("slow"), "done"))

    def pay(amount: int) -> Any:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return {"amount": amount}

    env.fake("pay", pay)
    env.fake("rates", [1, 2])
    env.http(lambda request: {"reserved": request.json["item"]})
    began = time.monotonic()
    begun_us = env.now_us
    run = env.start(patient, {"amount": 40, "item": "lantern"})
    assert run.result() == {"paid": {"amount": 40}, "stock": {"reserved": "lantern"}, "rates": [1, 2]}
    assert (env.now_us - begun_us) / 1e6 == pytest.approx(3 * HOUR_S + 60 + 60, abs=1.0)
    assert time.monotonic() - began < 1.0
    assert find_chain_fault(run.run_id, run.events) is None
    tried = [(each.attempt, each.key) for each in env.attempts if each.name == "pay"]
    assert [number for number, _ in tried] == [1, 2, 3]
    # The first was refused before anything was done, so the second has a key of its own; its outcome is not known.
    assert tried[0][1] != tried[1][1] == tried[2][1]


def test_nothing_happens_before_its_time(env: Environment):
    env.fake("pay", 1)
    env.fake("rates", 2)
    env.fake("stock", {"left": 7})
    run = env.start(patient, {"amount": 1, "item": "x"})
    assert run.state == "QUEUED"
    env.settle()
    assert (run.state, run.waiting_on) == ("WAITING", "timer")
    env.skip(2 * HOUR_S - 10)
    assert [each.name for each in env.attempts] == ["pay"]
    env.skip(10)
    assert [each.name for each in env.attempts] == ["pay", "stock", "rates"]
    assert run.result()["stock"] == {"left": 7}


@pytest.mark.parametrize(("takes_s", "state"), [(4.9, "SUCCEEDED"), (5.1, "FAILED")])
def test_a_reply_takes_its_time(env: Environment, takes_s: float, state: str):
    env.fake("pay", "late", takes_s=takes_s)
    env.fake("rates", 2)
    env.fake("stock", {})
    begun_us = env.now_us
    run = env.start(patient, {"amount": 1, "item": "x"}).finish()
    assert run.state == state
    if state == "FAILED":
        assert run.error is not None
        assert (run.error.code, run.error.step_id) == (reasons.STEP_TIMEOUT, "pay")
        assert len(env.attempts) == 3
        assert (env.now_us - begun_us) / 1e6 == pytest.approx(3 * 5 + 60 + 60)
        assert len({each.key for each in env.attempts}) == 1


@lantern.workflow
async def asks_http(ctx: lantern.Context, url: str) -> Any:
    try:
        return (await ctx.http("ask", "GET", url, retry=lantern.RetryPolicy(max_attempts=2))).body
    except lantern.StepError as error:
        return {"code": error.code, **error.details}


@pytest.mark.parametrize(
    ("answer", "result", "keys"),
    [
        ((200, {"a": 1}), {"a": 1}, 1),
        ({"a": 1}, {"a": 1}, 1),
        ((503, None), {"code": reasons.HTTP_STATUS, "status": "503"}, 1),
        ((429, "later"), {"code": reasons.HTTP_STATUS, "status": "429"}, 2),
        (ConnectionRefusedError(), {"code": reasons.HTTP_UNREACHABLE}, 2),
        (ConnectionResetError(), {"code": reasons.HTTP_UNREACHABLE}, 1),
    ],
)
@pytest.mark.parametrize("by_name", [False, True])
def test_http_is_answered_and_judged(env: Environment, answer: Any, result: Any, keys: int, by_name: bool):
    seen: list[HttpRequest] = []

    def serve(request: HttpRequest) -> Any:
        seen.append(request)
        if isinstance(answer, Exception):
            raise answer
        return answer

    if by_name:
        env.fake("ask", serve)
    else:
        env.http(serve)
    assert env.start(asks_http, "http://shop/x").result() == result
    assert len({request.headers["Idempotency-Key"] for request in seen}) == keys
    assert seen[0].url == "http://shop/x"


def test_http_that_nobody_answers_says_what_to_do(env: Environment):
    with pytest.raises(AssertionError, match=r"env\.http\(function\)"):
        env.start(asks_http, "http://shop/x").result()


@lantern.workflow
async def fails(ctx: lantern.Context) -> None:
    await ctx.step("ship", never)


def test_a_failed_run_raises_as_a_client_does(env: Environment):
    def ship() -> None:
        raise lantern.StepFailure("no parcels", code="NO_PARCELS")

    env.fake("ship", ship)
    with pytest.raises(lantern.RunFailed) as failed:
        env.start(fails).result()
    assert (failed.value.code, failed.value.step_id) == ("NO_PARCELS", "ship")


@lantern.workflow
async def holds(ctx: lantern.Context) -> str:
    await ctx.sleep(HOUR_S)
    return "done"


def test_a_paused_run_is_stuck_until_it_is_resumed(env: Environment):
    run = env.start(holds)
    env.skip(60)
    run.pause()
    with pytest.raises(Stuck, match="waits on paused"):
        run.result()
    run.resume()
    assert run.result() == "done"


def test_a_cancel_ends_a_run(env: Environment):
    run = env.start(holds)
    env.skip(60)
    run.cancel()
    assert run.finish().state == "CANCELLED"
    assert [event.kind for event in run.events][-2:] == [kinds.CANCEL_REQUESTED, kinds.RUN_CANCELLED]


rounds: list[int] = []


@lantern.workflow
async def counts_outside(ctx: lantern.Context) -> int:
    """What it asks for depends on how often its code ran in this process."""
    rounds.append(1)
    name = "first" if len(rounds) == 1 else "later"
    await ctx.step(name, never)
    return 1


@lantern.workflow
async def passes_what_varies(ctx: lantern.Context) -> int:
    """Its commands are the same each time, but not what they hold."""
    rounds.append(1)
    await ctx.step("same", never, len(rounds))
    return 1


def test_what_varies_is_found_at_its_first_commit(env: Environment):
    rounds.clear()
    env.fake("first", 1)
    env.fake("later", 1)
    with pytest.raises(ReplayDiffers, match=r"after event 3: .*step first.*test_environment\.py:\d+.*step later"):
        env.start(counts_outside).result()


def test_an_input_that_varies_is_found(env: Environment):
    rounds.clear()
    env.fake("same", 1)
    with pytest.raises(ReplayDiffers, match=r"RunStep same with \[1\].*replayed, it is RunStep same with \[2\]"):
        env.start(passes_what_varies).result()


def test_without_replay_a_run_goes_on_whatever_varies():
    rounds.clear()
    with Environment(replay_every_await=False) as env:
        env.fake("same", 1)
        assert env.start(passes_what_varies).result() == 1


@lantern.workflow
async def mails(ctx: lantern.Context) -> Any:
    return await ctx.step("mail", never, claim="ask", retry=lantern.RetryPolicy(max_attempts=2))


def test_a_delivery_in_doubt_waits_for_its_operator(env: Environment):
    def lose() -> None:
        raise TimeoutError("no answer")

    env.fake("mail", lose)
    run = env.start(mails)
    with pytest.raises(Stuck, match="waits on operator"):
        run.result()
    env.journal.settle(env.attempts[0].key, delivered=True, result=b'"sent"')
    assert run.result() == "sent"
    assert len(env.attempts) == 1


@lantern.workflow
async def large(ctx: lantern.Context, text: str) -> str:
    return await ctx.step("grow", never, text)


def test_large_contents_are_kept_as_blobs(env: Environment):
    text = "x" * 400_000

    def grow(given: str) -> str:
        return given + "y"

    env.fake("grow", grow)
    assert env.start(large, text).result() == text + "y"
    assert len(env.journal.blobs) == 2


async def test_inside_a_running_loop_it_says_what_to_do():
    with Environment() as env:
        env.fake("ship", 1)
        with pytest.raises(RuntimeError, match=r"asyncio\.to_thread"):
            env.start(fails).result()


async def test_in_a_thread_it_works_beside_a_loop():
    def run() -> Any:
        with Environment() as env:
            env.fake("ship", 1)
            return env.start(fails).result()

    assert await asyncio.to_thread(run) is None


@lantern.workflow
async def looks_around(ctx: lantern.Context) -> list[Any]:
    await ctx.sleep(HOUR_S)
    return [(await ctx.now()).isoformat(), await ctx.random(), str(await ctx.uuid())]


def test_time_and_chance_are_those_of_the_environment():
    def look(seed: int) -> list[Any]:
        with Environment(seed=seed) as env:
            return env.start(looks_around).result()

    assert look(1) == look(1)
    assert look(1)[0] == look(2)[0] == "2026-01-01T01:00:00+00:00"
    assert look(1)[1:] != look(2)[1:]


@lantern.workflow(guarded=False)
async def unguarded(ctx: lantern.Context) -> bool:
    await ctx.step("same", never)
    return time.time() > 0


def test_an_unguarded_workflow_stays_one(env: Environment):
    env.fake("same", 1)
    assert env.start(unguarded).result() is True


@lantern.workflow
async def long(ctx: lantern.Context) -> int:
    for _ in range(150):
        await ctx.step("same", never)
    await ctx.step("same", never, len(rounds))
    return len(rounds)


def test_a_long_run_is_replayed_at_its_end_at_the_latest(env: Environment, monkeypatch: pytest.MonkeyPatch):
    env.fake("same", 1)
    rounds.clear()
    replays: list[int] = []

    def count(run: Any, *_: Any) -> None:
        replays.append(len(run.events))

    monkeypatch.setattr("lantern.testing.environment.check_replay", count)
    env.start(long).result()
    assert replays[-1] == len(env.runs[0].events)
    assert max(after - before for before, after in pairwise(at for at in replays if at <= 200)) == 2
    assert len([at for at in replays if at > 200]) < 12
