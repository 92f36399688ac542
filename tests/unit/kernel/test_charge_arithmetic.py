"""Goal: how often an order is charged agrees with the arithmetic of retries (SPEC E6), for all q and A of the lab.

Method: a seeded simulation of orders whose reply is lost with probability q, through the real retry code: the replay
core's attempts and keys, and `decide`. A service that knows no keys charges once per request, one that does once per
key. Means are held against the closed forms within four standard errors, and exactly where nothing can vary.
"""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from lantern_kernel import kinds, outcomes, payloads, reasons, retry
from lantern_kernel.commands import RunStep, Succeed
from lantern_kernel.errors import LanternError
from lantern_kernel.event import AppliedEvent
from lantern_kernel.replay import Replay
from lantern_kernel.retry import Failure, GiveUp, Outcome, RetryPolicy
from lantern_kernel.work import FinishWork, StepWork

LOST = (0.0, 0.05, 0.2, 0.5, 0.9, 1.0)
ATTEMPTS = (1, 2, 3, 5, 8)
ORDERS = 1_000
STANDARD_ERRORS = 4.0
RUN_ID = "0190b5f0-0000-7000-8000-000000000001"

Decide = Callable[[RetryPolicy, int, int, bool, Failure, float], "retry.RetryLater | GiveUp"]


@dataclass(kw_only=True)
class Order:
    """What became of one order."""

    # The key of every request that took the money, in order.
    keys: list[str]
    # Whether a reply came through in the end.
    succeeded: bool


class Charging:
    """One order's charge over the replay core, event by event."""

    def __init__(self, attempts: int, decide: Decide = retry.decide) -> None:
        self._decide = decide
        self._replay = Replay(run_id=RUN_ID, workflow_id="")
        self._append(kinds.RUN_STARTED)
        policy = RetryPolicy(max_attempts=attempts, backoff_ms=100)
        self._replay.issue(
            RunStep(step_id="charge", name="charge", type="http", input=b"{}", source="lab.py:1", retry=policy)
        )
        self._replay.finish_history()

    def run(self, answer: Callable[[int], tuple[bool, Outcome | None]]) -> Order:
        """`answer` says of each attempt whether the money was taken, and how it failed; None where it did not."""
        keys: list[str] = []
        while True:
            work = self._next()
            self._append(kinds.STEP_STARTED, work.attempt, keyAttempt=work.key_attempt, key=work.key)
            took_money, failed = answer(work.attempt)
            if took_money:
                keys.append(work.key)
            if failed is None:
                self._append(kinds.STEP_COMPLETED, work.attempt, b"{}")
                return Order(keys=keys, succeeded=self._ends_well())
            failure = Failure(code="LOST", message="no reply", error_class="timeout", outcome=failed)
            decision = self._decide(work.command.retry, work.attempt, work.key_attempt, work.key_frozen, failure, 0.0)
            if isinstance(decision, GiveUp):
                self._append(kinds.STEP_FAILED, work.attempt, code="LOST", message="no reply", final=True)
                return Order(keys=keys, succeeded=self._ends_well())
            self._append(
                kinds.STEP_RETRYING,
                work.attempt,
                delayMs=decision.delay_ms,
                keyAttempt=decision.key_attempt,
                outcome=failed,
            )

    def _next(self) -> StepWork:
        (work,) = self._replay.take_work(0)
        assert isinstance(work, StepWork)
        return work

    def _ends_well(self) -> bool:
        outcome = self._replay.next_outcome()
        assert isinstance(outcome, outcomes.Outcome)
        if outcome.error is None:
            self._replay.issue(Succeed(result=b"null"))
            (work,) = self._replay.take_work(0)
            assert isinstance(work, FinishWork)
        return outcome.error is None

    def _append(self, kind: str, attempt: int = 0, data: bytes | None = None, **facts: object) -> None:
        seq = self._replay.last_seq + 1
        payload = payloads.pack({"name": "charge", "type": "http", **facts}, data)
        step_id = "" if kind == kinds.RUN_STARTED else "charge"
        self._replay.apply(
            AppliedEvent(seq=seq, kind=kind, step_id=step_id, attempt=attempt, epoch=1, time_us=seq, payload=payload)
        )


def simulate(lost: float, attempts: int, orders: int = ORDERS) -> list[Order]:
    """Orders whose every request takes the money, and whose reply is lost with probability `lost`."""
    chance = random.Random(f"{lost} {attempts}")
    return [
        Charging(attempts).run(lambda attempt: (True, "unknown" if chance.random() < lost else None))
        for _ in range(orders)
    ]


def _within(measured: list[float], mean: float, variance: float, what: str) -> None:
    """The measured mean is the expected one, within four standard errors; exactly where the variance is 0."""
    error = abs(sum(measured) / len(measured) - mean)
    allowed = STANDARD_ERRORS * math.sqrt(max(0.0, variance) / len(measured))
    assert error <= allowed + 1e-12, f"{what}: {error} off {mean}, {allowed} is allowed"


@pytest.mark.parametrize("attempts", ATTEMPTS)
@pytest.mark.parametrize("lost", LOST)
def test_charges_agree_with_the_closed_forms(lost: float, attempts: int) -> None:
    orders = simulate(lost, attempts)
    # N = the first attempt whose reply comes through, at most A: P(N > i) = q^i.
    expected = sum(lost**i for i in range(attempts))
    of_squares = sum((2 * i + 1) * lost**i for i in range(attempts))
    _within([len(order.keys) for order in orders], expected, of_squares - expected**2, "charges without a key")
    twice = lost if attempts > 1 else 0.0
    _within([float(len(order.keys) > 1) for order in orders], twice, twice * (1 - twice), "charged more than once")
    failed = lost**attempts
    _within([float(not order.succeeded) for order in orders], failed, failed * (1 - failed), "failed")
    assert {len(set(order.keys)) for order in orders} == {1}, "with a key, one charge whatever happens"


def test_the_arithmetic_names_the_figures_of_the_lab() -> None:
    assert sum(0.2**i for i in range(3)) == pytest.approx(1.24)
    assert pytest.approx(0.008) == 0.2**3


def _trap(attempt: int) -> tuple[bool, Outcome | None]:
    """The reply to the first request is lost; a proxy refuses the second by itself; the third goes through."""
    if attempt == 1:
        return True, "unknown"
    return (False, "not_executed") if attempt == 2 else (True, None)


def test_the_trap_charges_once() -> None:
    order = Charging(3).run(_trap)
    assert order.succeeded
    assert len(order.keys) == 2
    assert len(set(order.keys)) == 1


def test_a_rule_that_looks_at_the_last_answer_only_is_refused_by_the_history_itself() -> None:
    """It would fall into the trap; the replay core does not take its word for the key."""

    def forgetful(
        policy: RetryPolicy, attempt: int, key_attempt: int, frozen: bool, failure: Failure, random01: float
    ) -> retry.RetryLater | GiveUp:
        del frozen
        return retry.decide(policy, attempt, key_attempt, False, failure, random01)

    with pytest.raises(LanternError, match="goes on with key attempt 2 where 1 is due") as caught:
        Charging(3, forgetful).run(_trap)
    assert caught.value.reason == reasons.HISTORY_UNREADABLE


@pytest.mark.parametrize("attempts", ATTEMPTS)
def test_documented_refusals_alone_never_charge_and_never_repeat_a_key(attempts: int) -> None:
    seen: list[int] = []

    def refuse(attempt: int) -> tuple[bool, Outcome | None]:
        seen.append(attempt)
        return False, "not_executed"

    order = Charging(attempts).run(refuse)
    assert (order.keys, order.succeeded) == ([], False)
    assert seen == list(range(1, attempts + 1))
