"""Runs that wait for other code, as `runs show` says it: where, what was recorded, what the code asks, what to do."""

from fake_client import make_run

from lantern.cli import draw
from lantern_kernel import reasons
from lantern_kernel.nondeterminism import NonDeterminism
from lantern_kernel.payloads import RunErrorFacts

FOUND = NonDeterminism(
    seq=9,
    recorded="step ship (function)",
    asked="step gift (function)",
    recorded_source="shop.py:12",
    asked_source="shop.py:11",
)
DETAILS = {"digest": "ab" * 32, **{key: str(value) for key, value in FOUND.facts().items()}}
ERROR = RunErrorFacts(code=reasons.NONDETERMINISM, message=FOUND.message, details=DETAILS)


def shown(state: str, waiting_on: str) -> list[str]:
    return [line.plain for line in draw.run_end(make_run(state=state, waiting_on=waiting_on, error=ERROR))]


def test_both_sides_are_shown():
    head, recorded, asked, code, hint = shown("WAITING", "code_fix")
    assert head == "error   NONDETERMINISM at event 9"
    assert recorded.split(maxsplit=1) == ["recorded", "step ship (function)  (shop.py:12)"]
    assert asked.split(maxsplit=2) == ["code", "asks", "step gift (function)  (shop.py:11)"]
    assert code.split() == ["by", "code", "abababababab"]
    assert "replay-check" in hint


def test_a_run_that_failed_by_it_waits_for_nothing():
    assert not any(line.startswith("next") for line in shown("FAILED", ""))


def test_other_errors_are_as_they_were():
    run = make_run(state="FAILED", error=RunErrorFacts(code="CARD", message="no", details={"status": "402"}))
    assert [line.plain for line in draw.run_end(run)] == ["error   CARD: no", "        status: 402"]
