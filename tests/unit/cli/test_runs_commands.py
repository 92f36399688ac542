"""`lantern runs`: arguments, output for people and programs, exit codes, faults on one line.

Method: the real command line over a fake client; no socket is opened.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from event_lists import History, order_with_everything
from fake_client import RUN_ID, FakeClient, make_run
from typer.testing import CliRunner, Result

from lantern.cli import runs
from lantern.cli.main import app
from lantern.client.run import Taken
from lantern_kernel import kinds, reasons
from lantern_kernel.errors import InvalidField, LanternError
from lantern_kernel.payloads import RunErrorFacts

FAILED = RunErrorFacts(code="CARD_DECLINED", message="no money", step_id="charge", details={"status": "402"})


class Command:
    """Runs `lantern` against the fake client."""

    def __init__(self, client: FakeClient) -> None:
        self.client = client

    def __call__(self, *arguments: str, stdin: str | bytes | None = None, columns: int = 80) -> Result:
        environment = {"COLUMNS": str(columns), "NO_COLOR": "1", "TERM": "dumb"}
        return CliRunner().invoke(app, list(arguments), input=stdin, env=environment)


@pytest.fixture
def lantern(monkeypatch: pytest.MonkeyPatch) -> Command:
    client = FakeClient(runs=[make_run(result=b'{"ok":true}')], history=order_with_everything().events)
    monkeypatch.setattr(runs, "connect", lambda folder: client)  # pyright: ignore[reportUnknownLambdaType]
    return Command(client)


def sent(lantern: Command, name: str) -> Any:
    return next(what for call, what in lantern.client.calls if call == name)


def test_start_sends_the_bytes_as_they_are(lantern: Command):
    text = '{"n": 12345678901234567890123, "s": "é\\u0000"}'
    result = lantern("runs", "start", "order", "--input", text, "--workflow-id", "order-1", "--request-id", "r1")
    assert result.exit_code == 0
    agent, fields = sent(lantern, "start")
    assert agent == "order"
    assert fields == {
        "input_json": text.encode(),
        "workflow_id": "order-1",
        "policy": "allow-after-close",
        "durability": "",
        "signal": "",
        "signal_payload_json": b"null",
        "request_id": "r1",
    }
    assert RUN_ID in result.stdout
    assert lantern.client.calls[-1] == ("close", None)


def test_start_reads_a_file_or_standard_input(lantern: Command, tmp_path: Path):
    path = tmp_path / "input.json"
    path.write_bytes(b' {"from": "file"}\n')
    lantern("runs", "start", "order", "--input", f"@{path}")
    assert sent(lantern, "start")[1]["input_json"] == b'{"from": "file"}'
    lantern.client.calls.clear()
    lantern("runs", "start", "order", "--input", "-", stdin='{"from": "stdin"}\n')
    assert sent(lantern, "start")[1]["input_json"] == b'{"from": "stdin"}'


def test_start_without_input_or_ids_leaves_them_to_the_client(lantern: Command):
    lantern("runs", "start", "order")
    fields = sent(lantern, "start")[1]
    assert fields["input_json"] == b"null"
    assert fields["request_id"] is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "no JSON"),
        ("", "no JSON"),
        ('{"a":[1,NaN]}', "--input.a[1]"),
        ("@no/such/file", "cannot read no/such/file"),
        ("[" * 65 + "]" * 65, "nested deeper than 64"),
        ('"\\ud800"', "lone surrogate"),
    ],
)
def test_input_that_is_no_json_is_refused_before_anything_is_sent(lantern: Command, text: str, said: str):
    result = lantern("runs", "start", "order", "--input", text)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: INVALID_")
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert lantern.client.calls == []


@pytest.mark.parametrize(
    ("state", "code"), [("SUCCEEDED", 0), ("FAILED", 1), ("CANCELLED", 1), ("WAITING", 0), ("RUNNING", 0)]
)
@pytest.mark.parametrize("arguments", [("show", RUN_ID), ("watch", RUN_ID), ("start", "order", "--wait")])
def test_the_exit_code_says_how_the_run_ended(lantern: Command, arguments: tuple[str, ...], state: str, code: int):
    lantern.client.runs = [make_run(state=state)]
    assert lantern("runs", *arguments).exit_code == code
    assert lantern("runs", *arguments, "--json").exit_code == code


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (reasons.RUN_NOT_FOUND, 3),
        (reasons.AGENT_NOT_FOUND, 3),
        (reasons.UNAVAILABLE, 4),
        (reasons.DEADLINE_EXCEEDED, 4),
        (reasons.UNKNOWN_OUTCOME, 4),
        (reasons.REQUEST_ID_REUSED, 2),
        (reasons.WORKFLOW_ID_IN_USE, 2),
        (reasons.RUN_CLOSED, 2),
        (reasons.PAYLOAD_TOO_LARGE, 2),
        (reasons.INTERNAL, 5),
    ],
)
@pytest.mark.parametrize(
    "arguments",
    [
        ("start", "order"),
        ("list",),
        ("show", RUN_ID),
        ("watch", RUN_ID),
        ("cancel", RUN_ID),
        ("pause", RUN_ID),
        ("resume", RUN_ID),
        ("signal", RUN_ID, "go"),
        ("settle", RUN_ID, "k", "--refused"),
    ],
)
def test_every_refusal_is_one_line_and_an_exit_code(
    lantern: Command, arguments: tuple[str, ...], reason: str, code: int
):
    lantern.client.error = LanternError(reason, "first\nsecond", field="run_id")
    result = lantern("runs", *arguments)
    assert result.exit_code == code
    assert result.stderr == f"error: {reason}: first second (field run_id)\n"
    machine = lantern("runs", *arguments, "--json")
    assert machine.exit_code == code
    assert json.loads(machine.stderr)["error"] == {
        "reason": reason,
        "message": "first\nsecond",
        "details": {"field": "run_id"},
    }


def test_a_field_is_not_named_twice(lantern: Command):
    lantern.client.error = InvalidField("workflow_id", "too long")
    assert lantern("runs", "list").stderr == "error: INVALID_FIELD: workflow_id: too long\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("runs", "start"),
        ("runs", "show"),
        ("runs", "signal", RUN_ID),
        ("runs", "list", "--limit", "0"),
        ("runs", "list", "--limit", "x"),
        ("runs", "list", "--state", "DONE"),
        ("runs", "nonsense"),
        ("runs", "list", "--nonsense"),
    ],
)
def test_wrong_usage_is_two(lantern: Command, arguments: tuple[str, ...]):
    result = lantern(*arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.output
    assert lantern.client.calls == []


def test_list_passes_filters_on_and_pages_until_the_limit(lantern: Command):
    lantern.client.runs = [make_run(f"0192f0c1-2222-7abc-8def-{n:012d}") for n in range(7)]
    lantern.client.page_rows_max = 2
    result = lantern(
        "runs", "list", "--state", "failed", "--state", "WAITING", "--agent", "order", "--limit", "5", "--json"
    )
    assert [what for call, what in lantern.client.calls if call == "list"] == [
        (("FAILED", "WAITING"), "order", "", 5, ""),
        (("FAILED", "WAITING"), "order", "", 3, "2"),
        (("FAILED", "WAITING"), "order", "", 1, "4"),
    ]
    assert len(json.loads(result.stdout)["runs"]) == 5


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_list_shows_whole_ids_at_every_width(lantern: Command, columns: int):
    lantern.client.runs = [make_run(workflow_id="w" * 100, state="WAITING", waiting_on="approval")]
    result = lantern("runs", "list", columns=columns)
    assert RUN_ID in result.stdout
    assert max(len(line) for line in result.stdout.splitlines()) <= columns


def test_an_empty_list_says_so(lantern: Command):
    lantern.client.runs = []
    assert lantern("runs", "list").stdout == "no runs\n"
    assert json.loads(lantern("runs", "list", "--json").stdout) == {"runs": []}


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_show_draws_the_run_in_the_width_of_the_terminal(lantern: Command, columns: int):
    result = lantern("runs", "show", RUN_ID, columns=columns)
    assert "SUCCEEDED" in result.stdout
    assert "resume 2 · crash · " in result.stdout
    assert "6.50 s · 2 resumes · 1 crash" in result.stdout
    assert '{"ok": true}' in result.stdout
    assert "\x1b" not in result.stdout
    assert max(len(line) for line in result.stdout.splitlines()) <= max(60, columns)


def test_show_says_the_error_with_its_step_and_facts(lantern: Command):
    lantern.client.runs = [make_run(state="FAILED", error=FAILED)]
    result = lantern("runs", "show", RUN_ID)
    assert "CARD_DECLINED: no money (step charge)" in result.stdout
    assert "status: 402" in result.stdout


def test_show_for_programs_holds_run_and_events(lantern: Command):
    lantern.client.runs = [make_run(state="FAILED", error=FAILED)]
    shown = json.loads(lantern("runs", "show", RUN_ID, "--json").stdout)
    assert shown["run"]["runId"] == RUN_ID
    assert shown["run"]["createTime"] == "2023-11-14T22:13:20.000000Z"
    assert shown["run"]["error"]["code"] == "CARD_DECLINED"
    assert [event["seq"] for event in shown["events"]] == list(range(1, len(lantern.client.history) + 1))
    assert shown["events"][0]["facts"]["agent"] == "order"
    assert shown["events"][0]["data"] == {}


def test_watch_prints_an_event_a_line(lantern: Command):
    result = lantern("runs", "watch", RUN_ID)
    lines = result.stdout.splitlines()
    assert len(lines) == len(lantern.client.history) + 1
    assert "lease_granted      resume 2 · crash · worker worker-2 · epoch 2" in result.stdout
    assert "HTTP_UNREACHABLE" in result.stdout
    machine = lantern("runs", "watch", RUN_ID, "--json").stdout.splitlines()
    assert [json.loads(line)["seq"] for line in machine] == list(range(1, len(lantern.client.history) + 1))


@pytest.mark.parametrize("as_json", [(), ("--json",)])
@pytest.mark.parametrize("arguments", [("watch", RUN_ID), ("start", "order", "--wait")])
def test_who_watches_is_told_that_the_journal_is_away(
    lantern: Command, arguments: tuple[str, ...], as_json: tuple[str, ...]
):
    lantern.client.away = LanternError(reasons.UNAVAILABLE, "nothing answers at j:1")
    result = lantern("runs", *arguments, *as_json)
    assert result.exit_code == 0
    assert result.stderr == "the journal does not answer (nothing answers at j:1); trying again for 30 s\n"


@pytest.mark.parametrize("columns", [60, 80])
def test_watch_keeps_each_event_on_its_line(lantern: Command, columns: int):
    message = "a long\nmessage " * 30
    error = {"code": "X", "message": message}
    history = History().run().grant(1, worker="w" * 90)
    history.add(kinds.STEP_RETRYING, 5, step="a", attempt=1, error=error, delayMs=1)
    lantern.client.history = history.add(kinds.RUN_FAILED, 6, code="X", message=message).events
    lines = lantern("runs", "watch", RUN_ID, columns=columns).stdout.splitlines()
    assert len(lines) == 5
    assert max(len(line) for line in lines[:4]) <= columns


@pytest.mark.parametrize(
    ("policy", "signal", "name", "payload"),
    [
        ("terminate-existing", 'paid={"by": "card=1"}', "paid", b'{"by": "card=1"}'),
        ("use-existing", "go", "go", b"null"),
    ],
)
def test_start_sends_policy_and_signal(lantern: Command, policy: str, signal: str, name: str, payload: bytes):
    assert lantern("runs", "start", "order", "--policy", policy, "--signal", signal).exit_code == 0
    fields = sent(lantern, "start")[1]
    assert (fields["policy"], fields["signal"], fields["signal_payload_json"]) == (policy, name, payload)


@pytest.mark.parametrize("signal", ["=1", "paid={"])
def test_start_refuses_a_signal_that_is_none(lantern: Command, signal: str):
    result = lantern("runs", "start", "order", "--signal", signal)
    assert result.exit_code == 2
    assert "--signal" in result.stderr
    assert lantern.client.calls == []


@pytest.mark.parametrize(
    ("taken", "said", "code"),
    [
        (
            Taken(number=4, state="RUNNING", already_ended=False),
            "cancel taken in as entry 4: it can no longer succeed",
            0,
        ),
        (Taken(number=4, state="CANCELLED", already_ended=False), "cancelled", 0),
        (Taken(number=0, state="SUCCEEDED", already_ended=True), "already SUCCEEDED", 2),
        (Taken(number=0, state="FAILED", already_ended=True), "already FAILED", 2),
        (Taken(number=0, state="CANCELLED", already_ended=True), "already CANCELLED", 0),
    ],
)
def test_cancel_says_who_won(lantern: Command, taken: Taken, said: str, code: int):
    lantern.client.taken = taken
    result = lantern("runs", "cancel", RUN_ID, "--request-id", "c1")
    assert (result.stdout, result.exit_code) == (f"{RUN_ID}  {said}\n", code)
    assert sent(lantern, "cancel") == (RUN_ID, {"request_id": "c1"})
    value = json.loads(lantern("runs", "cancel", RUN_ID, "--json").stdout)
    assert value.pop("alreadyEnded", False) is taken.already_ended
    assert value == {"runId": RUN_ID, "number": taken.number, "state": taken.state}


@pytest.mark.parametrize(
    ("command", "state", "said"),
    [
        ("pause", "WAITING", "paused"),
        ("pause", "RUNNING", "pauses once its steps have ended"),
        ("resume", "QUEUED", "resumed: QUEUED"),
    ],
)
def test_pause_and_resume_say_where_the_run_stands(lantern: Command, command: str, state: str, said: str):
    lantern.client.taken = Taken(number=2, state=state, already_ended=False)
    assert lantern("runs", command, RUN_ID, "--request-id", "p1").stdout == f"{RUN_ID}  {said}\n"
    assert sent(lantern, command) == (RUN_ID, {"request_id": "p1"})
    value = json.loads(lantern("runs", command, RUN_ID, "--json").stdout)
    assert value == {"runId": RUN_ID, "number": 2, "state": state}


def test_signal_says_what_was_taken_in(lantern: Command):
    result = lantern("runs", "signal", RUN_ID, "address", "--payload", '{"street":"x"}', "--json")
    assert json.loads(result.stdout) == {"runId": RUN_ID, "number": 3}
    assert sent(lantern, "signal") == (RUN_ID, "address", {"payload_json": b'{"street":"x"}', "request_id": None})


def _asks(*steps: str) -> History:
    history = History().run().grant(1)
    for step in steps:
        history.started(step, 2).add(kinds.STEP_WAITING, 3, step=step, attempt=1, on="operator", key=f"key-{step}")
    return history.add(kinds.RUN_PARKED, 4, on="operator", error={"code": "STEP_OUTCOME_UNKNOWN", "message": "m"})


def test_settle_takes_the_only_open_claim(lantern: Command):
    lantern.client.history = _asks("mail").events
    result = lantern("runs", "settle", RUN_ID, "--delivered", "--result", '{"n":1}')
    assert result.stdout == f"{RUN_ID}  key-mail settled as delivered\n"
    assert sent(lantern, "settle") == (RUN_ID, "key-mail", {"delivered": True, "result_json": b'{"n":1}'})


def test_settle_takes_the_key_that_is_named(lantern: Command):
    result = lantern("runs", "settle", RUN_ID, "k", "--refused", "--json")
    assert json.loads(result.stdout) == {"runId": RUN_ID, "key": "k", "state": "REFUSED"}
    assert sent(lantern, "settle") == (RUN_ID, "k", {"delivered": False, "result_json": b"null"})


@pytest.mark.parametrize(
    ("history", "said"),
    [
        (_asks("mail", "fax"), "key-mail (step mail), key-fax (step fax)"),
        (_asks("mail").grant(9, "signal").completed("mail", 10), "no step whose delivery"),
        (_asks("mail").add(kinds.RUN_CANCELLED, 9), "no step whose delivery"),
    ],
)
def test_settle_asks_for_a_key_where_it_is_not_plain(lantern: Command, history: History, said: str):
    lantern.client.history = history.events
    result = lantern("runs", "settle", RUN_ID, "--delivered")
    assert result.exit_code == 2
    assert said in result.stderr
    assert all(call != "settle" for call, _ in lantern.client.calls)


@pytest.mark.parametrize("outcomes", [(), ("--delivered", "--refused")])
def test_settle_wants_one_outcome(lantern: Command, outcomes: tuple[str, ...]):
    result = lantern("runs", "settle", RUN_ID, "k", *outcomes)
    assert result.exit_code == 2
    assert lantern.client.calls == []


def test_show_says_how_to_settle_what_a_run_asks(lantern: Command):
    lantern.client.runs = [make_run(state="WAITING", waiting_on="operator")]
    lantern.client.history = _asks("mail").events
    shown = lantern("runs", "show", RUN_ID, "--dir", "my dir").stdout
    assert "key key-mail" in shown
    assert f"lantern runs settle {RUN_ID} key-mail --dir 'my dir' --delivered\n" in shown


def test_what_a_terminal_cannot_show_fails_no_command(lantern: Command):
    lantern.client.runs = [make_run(workflow_id="order-1", result=b'"\xff"')]
    result = lantern("runs", "show", RUN_ID)
    assert result.exit_code == 0
    assert json.loads(lantern("runs", "show", RUN_ID, "--json").stdout)["run"]["result"] == {"base64": "Iv8i"}


def test_start_names_the_durability_mode(lantern: Command):
    assert lantern("runs", "start", "order", "--durability", "exit").exit_code == 0
    assert sent(lantern, "start")[1]["durability"] == "exit"
