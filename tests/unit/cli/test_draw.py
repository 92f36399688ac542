"""Drawing for people: every width from 60 on is kept, and nothing is said by colour alone.

Method: the lines of hand-made pictures as plain text.
"""

import pytest
from event_lists import History, order_with_everything
from rich.cells import cell_len

from lantern.cli import draw
from lantern.cli.waterfall import build
from lantern_kernel import kinds


@pytest.mark.parametrize(
    ("us", "shown"),
    [
        (0, "0.0 ms"),
        (400, "0.4 ms"),
        (9_999, "10.0 ms"),
        (10_000, "10 ms"),
        (250_000, "250 ms"),
        (999_499, "999 ms"),
        (999_500, "1.00 s"),
        (2_000_000, "2.00 s"),
        (59_994_000, "59.99 s"),
        (59_995_000, "1 m 00 s"),
        (185_000_000, "3 m 05 s"),
        (7_800_000_000, "2 h 10 m"),
        (273_600_000_000, "3 d 4 h"),
    ],
)
def test_durations(us: int, shown: str):
    assert draw.duration(us) == shown
    assert len(shown) <= 9


@pytest.mark.parametrize("width", [20, 60, 61, 80, 100, 120, 200])
def test_no_line_is_wider_than_asked(width: int):
    history = order_with_everything()
    history.events.pop()
    history.started("a-step-with-a-very-long-name-in-it[12]", 6502).completed("nobody", 6503)
    history.grant(7000, "crash", "worker-" + "x" * 80)
    history.add("ünknown_界_kind", 7001, step="界" * 40)
    for line in draw.waterfall(build(history.events), width):
        assert cell_len(line.plain) <= max(60, width), line.plain


def test_without_colour_everything_is_said_in_words():
    text = "\n".join(line.plain.rstrip() for line in draw.waterfall(build(order_with_everything().events), 80))
    for word in ("retry", "crash", "ok", "waited", "marker", "signal", "timer", "2/3"):
        assert word in text, word
    assert "resume 2 · crash · worker worker-2 · epoch 2 · replayed 1 step ─" in text
    assert "resume 3 · approval · worker worker-2 · epoch 3 · replayed 2 steps ─" in text
    assert "HTTP_UNREACHABLE: no answer within 2 s" in text


@pytest.mark.parametrize(
    ("width", "said"),
    [
        (60, "── resume 2 · crash · epoch 2 · replayed 0 steps ───────────"),
        (80, "── resume 2 · crash · worker executor-012345678… · epoch 2 · replayed 0 steps ──"),
        (120, "── resume 2 · crash · worker executor-0123456789abcdef0123456789abcdef · epoch 2 · replayed 0 steps "),
    ],
)
def test_a_workers_long_name_gives_way_first(width: int, said: str):
    history = History().run().grant(1).grant(2, "crash", "executor-0123456789abcdef0123456789abcdef")
    assert draw.waterfall(build(history.events), width)[2].plain.startswith(said)


def test_bars_stand_on_one_scale():
    history = History().run(0).grant(0).started("a", 0).completed("a", 500).started("b", 500).completed("b", 1000)
    lines = draw.waterfall(build(history.add(kinds.RUN_SUCCEEDED, 1000, data=b"1").events), 80)
    a, b = (line.plain for line in lines[2:4])
    assert a.index("█") < a.rindex("█") <= b.index("█") < b.rindex("█")
    assert abs(a.count("█") - b.count("█")) <= 1


def test_the_shortest_step_is_seen():
    history = History().run(0).grant(0).started("a", 0).completed("a", 0).started("b", 0).completed("b", 100_000)
    assert draw.waterfall(build(history.events), 80)[2].plain.count("█") == 1


def test_nothing_yet():
    assert [line.plain for line in draw.waterfall(build([]), 80)] == ["no events yet"]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_long_word_of_a_point_is_whole(width: int):
    history = History().run().grant(1).add(kinds.NONDETERMINISM_DETECTED, 5, seq=4)
    text = "\n".join(line.plain for line in draw.waterfall(build(history.events), width))
    assert "nondeterminism" in text
