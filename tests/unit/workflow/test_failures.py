"""Goal: what a step function raises means the right thing to the retry policy and the key.

Method: each kind of exception, compared with the Failure that it becomes.
"""

from typing import Any

import pytest

import lantern
from lantern.program.calls import HttpCall, HttpResponse
from lantern.program.failures import failure_of
from lantern_kernel import reasons
from lantern_kernel.errors import InvalidField
from lantern_kernel.retry import Failure


class Unprintable(Exception):
    """Has no text."""

    def __str__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (lantern.StepFailure("no"), ("STEP_FAILED", "no", "tool", "unknown", True)),
        (lantern.StepFailure("no", code="SOLD_OUT", executed=False), ("SOLD_OUT", "no", "tool", "not_executed", True)),
        (lantern.StepFailure("no", executed=True, retryable=False), ("STEP_FAILED", "no", "tool", "unknown", False)),
        (TimeoutError("slow"), ("STEP_TIMEOUT", "TimeoutError: slow", "timeout", "unknown", True)),
        (KeyError("x"), ("STEP_FAILED", "KeyError: 'x'", "tool", "unknown", True)),
        (InvalidField("result.a", "no"), ("INVALID_FIELD", "result.a: no", "tool", "unknown", False)),
    ],
)
def test_what_an_exception_means(error: Exception, expected: tuple[Any, ...]) -> None:
    failure = failure_of(error)
    assert (
        failure.code,
        failure.message,
        failure.error_class,
        failure.outcome,
        failure.retryable,
    ) == expected
    assert failure.step_class == "tool"


def test_the_class_follows_the_type_of_the_step() -> None:
    failure = failure_of(ValueError("x"), "http")
    assert (failure.error_class, failure.step_class) == ("connector", "connector")
    assert isinstance(failure_of(Unprintable()), Failure)
    assert failure_of(ValueError("y" * 99_999)).message.endswith("more characters)")


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b'{"a": 1.50}', {"a": 1.5}),
        (b"", ""),
        (b"plain", "plain"),
        (b"NaN", "NaN"),
        (b"\x00", "\x00"),
        (b'"\\ud800"', '"\\ud800"'),
        (b"9" * 5_000, "9" * 5_000),
        ("é".encode(), "é"),
    ],
)
def test_http_answers_are_kept_exactly_where_they_are_json(body: bytes, value: Any) -> None:
    recorded = HttpCall.output(200, body)
    assert HttpResponse.from_output(recorded) == HttpResponse(status=200, body=value)
    if not isinstance(value, str):
        assert recorded == b'{"status":200,"body":' + body + b"}"


@pytest.mark.parametrize(
    ("body", "reason"), [(b"\xff", reasons.INVALID_FIELD), (b" " * 67_108_865, "PAYLOAD_TOO_LARGE")]
)
def test_http_answers_that_cannot_be_kept(body: bytes, reason: str) -> None:
    with pytest.raises(InvalidField) as caught:
        HttpCall.output(200, body)
    assert caught.value.reason == reason
