"""The interval of the sweep: a Go duration, and nothing that can switch the sweep off.

Method: a table of settings.
"""

import pytest

from lantern_recovery.domain.interval import DEFAULT_S, sweep_interval


@pytest.mark.parametrize(
    ("setting", "seconds"),
    [("45s", 45.0), ("1m30s", 90.0), ("250ms", 0.25), ("1h", 3600.0), (" 5s ", 5.0), ("+2s", 2.0), ("1.5s", 1.5)],
)
def test_a_go_duration_is_taken(setting: str, seconds: float):
    interval = sweep_interval(setting)
    assert interval.seconds == pytest.approx(seconds)
    assert interval.fault == ""


@pytest.mark.parametrize("setting", [None, "", "   "])
def test_unset_is_the_default_without_a_fault(setting: str | None):
    assert sweep_interval(setting) == sweep_interval(None)
    assert sweep_interval(setting).seconds == DEFAULT_S == 30.0
    assert sweep_interval(setting).fault == ""


@pytest.mark.parametrize(
    "setting", ["0", "0s", "-1s", "-5m", "off", "30", "1 s", "s", "nan", "inf", "1d", "5s;", "0.0ms"]
)
def test_what_would_switch_it_off_falls_back_and_says_so(setting: str):
    interval = sweep_interval(setting)
    assert interval.seconds == DEFAULT_S
    assert interval.fault
