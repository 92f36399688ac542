"""`lantern approvals`: arguments, output for people and programs, exit codes.

Method: the real command line over a fake client; no socket is opened.
"""

import json
from typing import Any

import pytest
from fake_client import RUN_ID, FakeClient, make_approval, make_run
from typer.testing import CliRunner, Result

from lantern.cli import approvals, runs
from lantern.cli.main import app
from lantern_kernel import reasons
from lantern_kernel.errors import LanternError


class Command:
    """Runs `lantern approvals` against the fake client."""

    def __init__(self, client: FakeClient) -> None:
        self.client = client

    def __call__(self, *arguments: str) -> Result:
        environment = {"COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb"}
        return CliRunner().invoke(app, ["approvals", *arguments], env=environment)


@pytest.fixture
def lantern(monkeypatch: pytest.MonkeyPatch) -> Command:
    client = FakeClient(runs=[make_run(workflow_id="order-1")], asked=[make_approval()])
    monkeypatch.setattr(runs, "connect", lambda folder: client)  # pyright: ignore[reportUnknownLambdaType]
    monkeypatch.setattr(approvals.getpass, "getuser", lambda: "bob")
    return Command(client)


def sent(lantern: Command, name: str) -> Any:
    return next(what for call, what in lantern.client.calls if call == name)


def test_list_shows_what_is_pending_on_a_line_each(lantern: Command):
    lantern.client.asked += [make_approval("refund", assignee="", expire_us=2**60, title="")]
    lines = lantern("list").stdout.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith(f"{RUN_ID}  ship  PENDING  ")
    assert lines[0].endswith("order  order-1  for ann  Ship it?")
    assert "expires in" in lines[1]
    assert sent(lantern, "approvals")[2]["states"] == ["PENDING"]


def test_list_goes_through_all_pages_up_to_the_limit(lantern: Command):
    lantern.client.asked = [make_approval(f"a{i}") for i in range(7)]
    lantern.client.page_rows_max = 3
    value = json.loads(lantern("list", "--limit", "5", "--json").stdout)
    assert [approval["approvalId"] for approval in value["approvals"]] == ["a0", "a1", "a2", "a3", "a4"]
    assert value["approvals"][0]["requestTime"] == "2023-11-14T22:13:20.000000Z"


def test_list_filters(lantern: Command):
    lantern("list", "--state", "denied", "--state", "EXPIRED", "--assignee", "ann", "--run", RUN_ID)
    fields = sent(lantern, "approvals")[2]
    assert fields == {"states": ["DENIED", "EXPIRED"], "assignee": "ann", "run_id": RUN_ID}
    lantern.client.calls.clear()
    lantern("list", "--state", "all")
    assert sent(lantern, "approvals")[2]["states"] == []
    assert lantern("list", "--state", "maybe").exit_code == 2


@pytest.mark.parametrize(("command", "yes"), [("approve", True), ("deny", False)])
def test_a_decision_names_who_took_it(lantern: Command, command: str, yes: bool):
    word = "approved" if yes else "denied"
    result = lantern(command, "order-1", "--comment", '{"why": 1}', "--request-id", "d1")
    assert result.stdout == f"{RUN_ID}  ship  {word} by bob\n"
    assert sent(lantern, "decide") == (
        RUN_ID,
        "ship",
        "bob",
        {"approve": yes, "comment_json": b'{"why": 1}', "request_id": "d1"},
    )
    lantern.client.already_decided = True
    lantern.client.calls.clear()
    result = lantern(command, RUN_ID, "other", "--by", "eve")
    assert result.stdout == f"{RUN_ID}  other  already {word} by eve\n"
    assert sent(lantern, "decide")[:3] == (RUN_ID, "other", "eve")
    value = json.loads(lantern(command, RUN_ID, "--json").stdout)
    assert (value["state"], value["alreadyDecided"]) == (word.upper(), True)


def test_delegate(lantern: Command):
    assert lantern("delegate", RUN_ID, "eve").stdout == f"{RUN_ID}  ship  now for eve\n"
    assert sent(lantern, "delegate") == (RUN_ID, "ship", "eve", "bob", {"request_id": None})


@pytest.mark.parametrize(
    ("pending", "code", "said"),
    [(0, 3, "APPROVAL_NOT_FOUND"), (2, 2, "a0, a1"), (9, 2, "a4\n")],
)
def test_without_an_id_exactly_one_may_be_pending(lantern: Command, pending: int, code: int, said: str):
    lantern.client.asked = [make_approval(f"a{i}") for i in range(pending)]
    result = lantern("approve", RUN_ID)
    assert result.exit_code == code
    assert said.strip() in result.stderr
    assert "decide" not in {call for call, _ in lantern.client.calls}


def test_a_contrary_decision_is_refused(lantern: Command):
    lantern.client.error = LanternError(reasons.APPROVAL_DECIDED, "approval ship is DENIED by eve", run_id=RUN_ID)
    result = lantern("approve", RUN_ID, "ship")
    assert result.exit_code == 2
    assert "APPROVAL_DECIDED" in result.stderr
