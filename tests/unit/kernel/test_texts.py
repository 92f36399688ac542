"""Goal: text on record is bounded, can be encoded, and is not cut twice.

Method: lengths around the bound, text that is no Unicode, a second time through.
"""

import pytest

from lantern_kernel.texts import TEXT_CHARACTERS_MAX, printable


@pytest.mark.parametrize("text", ["", "short", "\u20ac", "x" * TEXT_CHARACTERS_MAX])
def test_what_is_printable_stays_as_it_is(text: str) -> None:
    assert printable(text) == text


@pytest.mark.parametrize("length", [4_001, 4_030, 10_000, 1_000_000])
def test_what_is_too_long_says_how_much_is_missing(length: int) -> None:
    text = printable("x" * length)
    assert len(text) <= TEXT_CHARACTERS_MAX
    kept = text.index(" ... (")
    assert text[kept:] == f" ... ({length - kept} more characters)"


@pytest.mark.parametrize("text", ["\ud800" + "x" * 10_000, "\udfff" * 3_999, "\ud800"])
def test_what_is_no_unicode_is_bounded_and_can_be_encoded(text: str) -> None:
    said = printable(text)
    assert len(said) <= TEXT_CHARACTERS_MAX
    assert said.encode().startswith(b"\\ud")


@pytest.mark.parametrize("text", ["x" * 5_000, "\ud800" * 5_000, "x" * 4_000])
def test_a_second_time_changes_nothing(text: str) -> None:
    assert printable(printable(text)) == printable(text)


def test_another_bound() -> None:
    assert len(printable("x" * 300, 200)) <= 200
