"""Goal: retries follow the policy, and the key follows SPEC E2; the arithmetic of lost replies (SPEC E6) comes out.

Method: tables of cases; hypothesis over sequences of outcomes; a seeded simulation of a charge service that loses
replies, driven by the real `decide`, compared with the closed forms within four standard errors.
"""

import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lantern_kernel import retry, sinks
from lantern_kernel.errors import InvalidField
from lantern_kernel.keys import idempotency_key
from lantern_kernel.retry import Failure, GiveUp, Outcome, RetryLater, RetryPolicy, decide


def failure(outcome: Outcome = "unknown", **named: Any) -> Failure:
    named = {"code": "NO", "message": "no", "error_class": "tool", "step_class": "tool", **named}
    return Failure(outcome=outcome, **named)


@pytest.mark.parametrize(
    ("listed", "error_class", "step_class", "expected"),
    [
        ((), "tool", "tool", True),
        (("any",), "llm", "", True),
        (("timeout",), "timeout", "tool", True),
        (("tool",), "timeout", "tool", True),
        (("connector",), "connector", "connector", True),
        (("timeout",), "tool", "tool", False),
        (("llm", "connector"), "timeout", "tool", False),
    ],
)
def test_a_failure_matches_by_its_class_or_the_steps(
    listed: tuple[str, ...], error_class: str, step_class: str, expected: bool
) -> None:
    policy = RetryPolicy(max_attempts=2, retryable_classes=listed)
    decision = decide(policy, 1, 1, False, failure(error_class=error_class, step_class=step_class), 0.0)
    assert isinstance(decision, RetryLater) == expected


def test_the_first_attempt_counts() -> None:
    policy = RetryPolicy(max_attempts=3)
    assert isinstance(decide(policy, 2, 1, False, failure(), 0.0), RetryLater)
    assert decide(policy, 3, 1, False, failure(), 0.0) == GiveUp()
    assert decide(RetryPolicy(), 1, 1, False, failure(), 0.0) == GiveUp()


def test_some_failures_are_final() -> None:
    policy = RetryPolicy(max_attempts=3, non_retryable=("DECLINED",))
    assert decide(policy, 1, 1, False, failure(code="DECLINED"), 0.0) == GiveUp()
    assert decide(policy, 1, 1, False, failure(retryable=False), 0.0) == GiveUp()


def test_waits_grow_and_are_bounded() -> None:
    policy = RetryPolicy(max_attempts=9, backoff_ms=100, multiplier=3.0, max_backoff_ms=1_000)
    assert [retry.backoff_ms(policy, attempt, 0.9) for attempt in range(1, 6)] == [100, 300, 900, 1_000, 1_000]
    steep = RetryPolicy(max_attempts=100, backoff_ms=1, multiplier=1e300)
    assert retry.backoff_ms(steep, 99, 0.0) == 60_000
    assert retry.backoff_ms(RetryPolicy(multiplier=1e300), 99, 0.0) == 0


def test_jitter_takes_its_share_of_a_wait() -> None:
    policy = RetryPolicy(backoff_ms=1_000, jitter=0.5)
    assert [retry.backoff_ms(policy, 1, chance) for chance in (0.0, 0.5, 0.999999)] == [1_000, 750, 500]


@pytest.mark.parametrize(
    "named",
    [
        {"max_attempts": 0},
        {"max_attempts": 101},
        {"max_attempts": 1.0},
        {"max_attempts": True},
        {"backoff_ms": -1},
        {"max_backoff_ms": 2**60},
        {"multiplier": 0.5},
        {"multiplier": math.nan},
        {"multiplier": math.inf},
        {"jitter": -0.1},
        {"jitter": 1.5},
        {"jitter": math.nan},
        {"retryable_classes": ("network",)},
        {"retryable_classes": "timeout"},
        {"non_retryable": "NO"},
    ],
)
def test_a_policy_out_of_range_names_the_field(named: dict[str, Any]) -> None:
    with pytest.raises(InvalidField) as caught:
        RetryPolicy(**named)
    assert caught.value.details["field"] == f"retry.{next(iter(named))}"


@given(st.lists(st.sampled_from(["not_executed", "unknown"]), max_size=20), st.integers(-1, 20))
def test_the_key_grows_only_while_everything_was_refused(outcomes: list[Outcome], crash: int) -> None:
    policy = RetryPolicy(max_attempts=100)
    key_attempt, frozen = 1, False
    for index, outcome in enumerate(outcomes):
        # A crash point done again is an unknown outcome of its own: the driver passes frozen for it.
        frozen = frozen or index == crash
        decision = decide(policy, index + 1, key_attempt, frozen, failure(outcome), 0.0)
        assert isinstance(decision, RetryLater)
        key_attempt, frozen = decision.key_attempt, decision.frozen
    refused_first = next((i for i, outcome in enumerate(outcomes) if outcome == "unknown"), len(outcomes))
    if 0 <= crash < len(outcomes):
        refused_first = min(refused_first, crash)
    assert key_attempt == 1 + refused_first
    assert frozen == (refused_first < len(outcomes))


def test_which_answers_are_refusals() -> None:
    refusals = {status for status in range(100, 600) if sinks.http_outcome(status) == "not_executed"}
    assert refusals == {400, 401, 402, 403, 404, 405, 406, 410, 413, 414, 415, 422, 429}
    assert {status for status in range(100, 600) if sinks.http_succeeded(status)} == set(range(200, 300))
    assert [sinks.fault_outcome(fault) for fault in ("connection_refused", "name_not_resolved")] == ["not_executed"] * 2
    assert {sinks.fault_outcome(fault) for fault in ("timeout", "reset", "other")} == {"unknown"}


class ChargeService:
    """Takes money for every key that it has not seen, and loses each reply with a probability."""

    def __init__(self, chance: random.Random, lost: float) -> None:
        self.chance, self.lost = chance, lost
        self.seen: set[str] = set()
        self.charges = 0

    def charge(self, key: str | None) -> Failure | None:
        if key is None or key not in self.seen:
            self.charges += 1
        if key is not None:
            self.seen.add(key)
        return failure("unknown", code="LOST") if self.chance.random() < self.lost else None


def make_order(chance: random.Random, lost: float, attempts: int, *, keyed: bool) -> tuple[int, bool]:
    """One order's charges, and whether it failed."""
    service = ChargeService(chance, lost)
    policy = RetryPolicy(max_attempts=attempts)
    attempt, key_attempt, frozen = 1, 1, False
    while True:
        answer = service.charge(idempotency_key("run", "charge", key_attempt) if keyed else None)
        if answer is None:
            return service.charges, False
        decision = decide(policy, attempt, key_attempt, frozen, answer, chance.random())
        if isinstance(decision, GiveUp):
            return service.charges, True
        attempt, key_attempt, frozen = attempt + 1, decision.key_attempt, decision.frozen


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize(("lost", "attempts"), [(0.2, 3), (0.2, 1), (0.5, 4), (0.05, 2), (0.0, 3), (1.0, 3)])
def test_the_arithmetic_of_lost_replies(lost: float, attempts: int, keyed: bool) -> None:
    orders = 20_000
    chance = random.Random(f"{lost} {attempts} {keyed}")
    results = [make_order(chance, lost, attempts, keyed=keyed) for _ in range(orders)]
    charges = [count for count, _ in results]
    if keyed:
        assert set(charges) == {1}, "one charge whatever happens"
    else:
        # P(charges >= k) = lost^(k-1), so E = sum of lost^i over i < attempts, and the second moment follows.
        expected = sum(lost**i for i in range(attempts))
        second = sum((2 * i + 1) * lost**i for i in range(attempts))
        assert_within_four_errors(charges, expected, second - expected**2)
        twice = lost if attempts >= 2 else 0.0
        assert_within_four_errors([count >= 2 for count in charges], twice, twice * (1 - twice))
    fails = lost**attempts
    assert_within_four_errors([failed for _, failed in results], fails, fails * (1 - fails))


def assert_within_four_errors(values: list[int] | list[bool], expected: float, variance: float) -> None:
    error = math.sqrt(max(variance, 0.0) / len(values))
    assert abs(sum(values) / len(values) - expected) <= max(4 * error, 1e-12)


def test_the_number_that_the_specification_names() -> None:
    assert sum(0.2**i for i in range(3)) == pytest.approx(1.24)
