"""`lantern runs query` and `lantern runs update`: what is sent, what is printed, how refusals end.

Method: the real command line over a fake client; no socket is opened.
"""

import json

import pytest
from fake_client import RUN_ID, FakeClient, make_run
from typer.testing import CliRunner, Result

from lantern.cli import exit_codes, runs
from lantern.cli.main import app
from lantern_kernel import reasons
from lantern_kernel.errors import LanternError
from lantern_kernel.payloads import RunErrorFacts


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    fake = FakeClient(runs=[make_run()])
    monkeypatch.setattr(runs, "connect", lambda folder: fake)  # pyright: ignore[reportUnknownLambdaType] - a stand-in
    return fake


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["runs", *arguments], env={"NO_COLOR": "1", "TERM": "dumb"})


def test_a_query_prints_its_answer(client: FakeClient):
    result = run("query", RUN_ID[:13], "status", "--payload", '{"full": true}')
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {"at": "charge"}
    assert ("query", (RUN_ID, "status", b'{"full": true}')) in client.calls


def test_an_update_prints_its_answer(client: FakeClient):
    result = run("update", RUN_ID, "address", "--request-id", "u1")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == [1]
    assert ("update", (RUN_ID, "address", b"null", "u1")) in client.calls


def test_a_refused_update_says_why(client: FakeClient):
    client.refusal = RunErrorFacts(code="TOO_LATE", message="it is packed")
    result = run("update", RUN_ID, "address")
    assert result.exit_code == exit_codes.REFUSED
    assert "TOO_LATE" in result.stderr
    assert "it is packed" in result.stderr
    assert result.stdout == ""


def test_what_is_not_there_has_its_own_exit_code(client: FakeClient):
    client.error = LanternError(reasons.QUERY_NOT_FOUND, "no query status", query="status")
    assert run("query", RUN_ID, "status").exit_code == exit_codes.NOT_FOUND


def test_a_payload_that_is_no_json_is_refused_at_once(client: FakeClient):
    assert run("query", RUN_ID, "status", "--payload", "{").exit_code == exit_codes.REFUSED
    assert run("update", RUN_ID, "address", "--payload", "{").exit_code == exit_codes.REFUSED
    assert [name for name, _ in client.calls if name in {"query", "update"}] == []
