"""Goal: ids are exactly those that the key's join allows; durations are read as Go writes them.

Method: hypothesis over characters and numbers; tables of what must be refused.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lantern_kernel import kinds, names, reasons
from lantern_kernel.durations import parse_duration_s
from lantern_kernel.errors import InvalidField
from lantern_kernel.keys import idempotency_key

ALLOWED = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.:/@-"


@given(st.text(st.sampled_from(ALLOWED), min_size=1, max_size=200))
def test_ids_of_users(value: str) -> None:
    assert names.check_user_id("id", value) == value
    assert names.check_engine_id("id", f"{value}[12]") == f"{value}[12]"


@given(st.characters().filter(lambda character: character not in ALLOWED), st.integers(0, 3))
def test_any_other_character_is_refused(character: str, at: int) -> None:
    value = "abc"[:at] + character + "abc"[at:]
    with pytest.raises(InvalidField) as caught:
        names.check_user_id("workflow_id", value)
    assert caught.value.details["field"] == "workflow_id"
    if character not in "[]#":
        with pytest.raises(InvalidField):
            names.check_engine_id("step_id", value)


@pytest.mark.parametrize("value", ["", "a" * 201, "a\n", "a|b", "ä", "a b"])
def test_ids_that_are_refused(value: str) -> None:
    with pytest.raises(InvalidField):
        names.check_user_id("id", value)


@pytest.mark.parametrize(
    "value",
    [
        "0190b5f0-7e1a-4c3d-9a2b-0123456789ab",
        "0190B5F0-7E1A-7C3D-9A2B-0123456789AB",
        "0190b5f0-7e1a-7c3d-1a2b-0123456789ab",
        "0190b5f07e1a7c3d9a2b0123456789ab",
        "0190b5f0-7e1a-7c3d-9a2b-0123456789ab\n",
        "",
    ],
)
def test_run_ids_that_are_refused(value: str) -> None:
    with pytest.raises(InvalidField):
        names.check_run_id("run_id", value)


def test_a_run_id() -> None:
    assert names.check_run_id("run_id", "0190b5f0-7e1a-7c3d-9a2b-0123456789ab")


ids = st.text(st.sampled_from(ALLOWED + "[]#"), min_size=1, max_size=8)


@given(st.tuples(ids, ids, st.integers(1, 99)), st.tuples(ids, ids, st.integers(1, 99)))
def test_keys_are_equal_only_for_equal_effects(one: tuple[str, str, int], other: tuple[str, str, int]) -> None:
    assert (idempotency_key(*one) == idempotency_key(*other)) == (one == other)


def test_reasons_and_kinds_are_their_own_names() -> None:
    assert all(reason.isupper() and getattr(reasons, reason) == reason for reason in reasons.ALL)
    assert all(names.EVENT_KIND.fullmatch(kind) for kind in kinds.KNOWN)
    assert kinds.TERMINAL < kinds.ENDS_DRIVE < kinds.KNOWN


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("45s", 45.0),
        ("1m30s", 90.0),
        ("250ms", 0.25),
        ("1h2m3s4ms5us6ns", 3723.004005006),
        ("1.5h", 5400.0),
        (".5s", 0.5),
        ("1.s", 1.0),
        ("-2s", -2.0),
        ("+2s", 2.0),
        ("10µs", 1e-5),
        ("10μs", 1e-5),
        ("0", 0.0),
        ("-0", 0.0),
        (" 1s ", 1.0),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration_s(text) == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize("text", ["", "s", "1", "1 s", "1d", "--1s", "1s-", ".s", "1e3s", "1s 2s", "inf", "nan"])
def test_durations_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="no duration"):
        parse_duration_s(text)


@given(st.integers(0, 10**6), st.integers(0, 59), st.integers(0, 999))
def test_durations_add_up(minutes: int, seconds: int, milliseconds: int) -> None:
    expected = minutes * 60 + seconds + milliseconds / 1000
    assert parse_duration_s(f"{minutes}m{seconds}s{milliseconds}ms") == pytest.approx(expected)
