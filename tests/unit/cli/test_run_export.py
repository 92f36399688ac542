"""`lantern runs export`: which runs, what file.

Method: the real command line over a fake client that holds a whole chain of events.
"""

import json
from pathlib import Path

import pytest
from fake_client import FakeClient, make_run
from typer.testing import CliRunner, Result

from lantern.cli import runs
from lantern.cli.main import app
from lantern.cli.run_query import OPEN_STATES, parse_query
from lantern.testing.histories import read_histories
from lantern.testing.journal import MemoryJournal
from lantern_kernel.errors import InvalidField


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    journal = MemoryJournal(lambda: 1_700_000_000_000_000)
    run = journal.create("order", "d" * 64, b'{"n":1}', workflow_id="order-1", request_id="r1")
    journal.grant(run.run_id, "w", "start")
    fake = FakeClient(runs=[make_run(run.run_id, state="RUNNING", workflow_id="order-1")], history=run.events)
    monkeypatch.setattr(runs, "connect", lambda folder: fake)  # pyright: ignore[reportUnknownLambdaType] - a stand-in
    return fake


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["runs", "export", *arguments], env={"NO_COLOR": "1", "TERM": "dumb"})


@pytest.mark.parametrize("which", [("order-1",), ("--runs", "agent=order,state=running")])
def test_runs_are_written(client: FakeClient, tmp_path: Path, which: tuple[str, ...]):
    file = tmp_path / "out.jsonl.gz"
    result = invoke(*which, "--out", str(file), "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.output) == {"file": str(file), "runs": 1, "events": 2}
    (history,) = read_histories(file)
    assert history.events == tuple(client.history)
    assert history.input == b'{"n":1}'


def test_a_query_is_asked_of_the_journal(client: FakeClient, tmp_path: Path):
    invoke("--runs", "agent=order,workflow=order-1", "--out", str(tmp_path / "out.jsonl"))
    (asked,) = [what for call, what in client.calls if call == "list"]
    assert asked[:3] == (OPEN_STATES, "order", "order-1")


@pytest.mark.parametrize("which", [(), ("order-1", "--runs", "all")])
def test_ids_or_a_query(client: FakeClient, tmp_path: Path, which: tuple[str, ...]):
    result = invoke(*which, "--out", str(tmp_path / "out.jsonl"))
    assert result.exit_code == 2
    assert "one of the two" in result.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["order", "agent=", "agent=a,agent=b", "state=asleep", "color=red", "agent=a,"])
def test_other_queries_are_refused(text: str):
    with pytest.raises(InvalidField):
        parse_query(text)


def test_queries():
    assert parse_query("open") == parse_query("")
    assert parse_query("all").states == ()
    assert parse_query("state=failed, state=WAITING").states == ("FAILED", "WAITING")
