"""`runs list` in every width: ids, states and ages whole, names shortened, columns left out rather than cut.

Method: hand-made runs in, lines of text out.
"""

import pytest
from fake_client import RUN_ID, make_run

from lantern.cli.run_table import age, run_table
from lantern.client.run import Run

NOW_US = 1_700_000_000_000_000 + 3_600_000_000 * 47


def table(width: int, *runs: Run) -> list[str]:
    return [line.plain for line in run_table(runs, NOW_US, width)]


@pytest.mark.parametrize("width", range(60, 130))
@pytest.mark.parametrize("on", ["capacity", "code_fix", "operator"])
def test_ids_states_and_ages_are_whole_from_60_columns(width: int, on: str):
    run = make_run(state="WAITING", waiting_on=on, workflow_id="workflow-" * 10)
    lines = table(width, run, make_run())
    assert max(map(len, lines)) <= width
    assert lines[1].startswith(f"{RUN_ID} ")
    assert f" WAITING({on}) " in lines[1]
    assert lines[1].endswith(" 47 h")


def test_80_columns_show_all_columns():
    lines = table(80, make_run(state="WAITING", waiting_on="capacity", workflow_id="order-2024-000001"))
    assert lines[0].split() == ["run", "state", "agent", "workflow", "age"]
    assert "order@1" in lines[1]
    assert "order-2…" in lines[1]


@pytest.mark.parametrize(
    ("width", "columns"), [(59, "run state age"), (58, "run state"), (54, "run state"), (53, "run"), (10, "run")]
)
def test_narrow_terminals_get_fewer_columns(width: int, columns: str):
    lines = table(width, make_run(state="WAITING", waiting_on="capacity", workflow_id="w"))
    assert lines[0].split() == columns.split()
    assert lines[1].split() == [RUN_ID, "WAITING(capacity)", "47", "h"][: {1: 1, 2: 2, 3: 4}[len(columns.split())]]


def test_no_workflow_ids_no_column():
    assert table(200, make_run())[0].split() == ["run", "state", "agent", "age"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0 s"), (0, "0 s"), (59.9, "59 s"), (60, "1 m"), (3600, "1 h"), (172_799, "47 h"), (172_800, "2 d")],
)
def test_ages_are_short(seconds: float, text: str):
    assert age(int(seconds * 1e6)) == text
