"""`lantern runs redrive`: what is sent, what is printed, what is refused.

Method: the real command line over a fake client; no socket is opened.
"""

import pytest
from fake_client import RUN_ID, FakeClient, make_run
from typer.testing import CliRunner, Result

from lantern.cli import exit_codes, runs
from lantern.cli.main import app


def redrive(monkeypatch: pytest.MonkeyPatch, waiting_on: str, *arguments: str) -> tuple[FakeClient, Result]:
    state = "WAITING" if waiting_on else "SUCCEEDED"
    fake = FakeClient(runs=[make_run(state=state, waiting_on=waiting_on)])
    monkeypatch.setattr(runs, "connect", lambda folder: fake)  # pyright: ignore[reportUnknownLambdaType] - a stand-in
    environment = {"NO_COLOR": "1", "TERM": "dumb"}
    return fake, CliRunner().invoke(app, ["runs", "redrive", *arguments], env=environment)


@pytest.mark.parametrize("waiting_on", ["operator", "code_fix", "budget"])
def test_a_run_that_stands_still_tries_again(monkeypatch: pytest.MonkeyPatch, waiting_on: str):
    fake, result = redrive(monkeypatch, waiting_on, RUN_ID)
    assert result.exit_code == 0
    assert "resume" in [name for name, _ in fake.calls]


def test_a_run_is_set_back_to_an_event(monkeypatch: pytest.MonkeyPatch):
    fake, result = redrive(monkeypatch, "code_fix", RUN_ID[:13], "--from-event", "7")
    assert result.exit_code == 0
    assert ("reset", (RUN_ID, 7)) in fake.calls
    assert "QUEUED" in result.stdout


@pytest.mark.parametrize("waiting_on", ["signal", ""])
def test_others_are_told_what_they_wait_on(monkeypatch: pytest.MonkeyPatch, waiting_on: str):
    fake, result = redrive(monkeypatch, waiting_on, RUN_ID)
    assert result.exit_code == exit_codes.REFUSED
    assert ("waits on signal" if waiting_on else "is SUCCEEDED") in " ".join(result.stderr.split())
    assert "resume" not in [name for name, _ in fake.calls]


def test_there_is_no_event_before_the_first(monkeypatch: pytest.MonkeyPatch):
    _, result = redrive(monkeypatch, "code_fix", RUN_ID, "--from-event", "-1")
    assert result.exit_code == exit_codes.REFUSED
