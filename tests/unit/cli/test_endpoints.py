"""The state file of `lantern up` and how commands find the services.

Method: files in a temporary folder, environments as mappings.
"""

from pathlib import Path

import pytest

from lantern.cli import endpoints
from lantern.cli.endpoints import Endpoints
from lantern_kernel import reasons
from lantern_kernel.errors import InvalidField, LanternError

RUNNING = Endpoints(
    journal="127.0.0.1:1",
    executors=("127.0.0.1:2", "127.0.0.1:3"),
    recovery="127.0.0.1:4",
    database="sqlite:x",
    pids={"journal": 7},
)


def test_what_is_written_is_read(tmp_path: Path):
    RUNNING.write(tmp_path)
    assert endpoints.read(tmp_path) == RUNNING
    assert [p.name for p in tmp_path.iterdir()] == ["endpoints.json"]
    endpoints.remove(tmp_path)
    endpoints.remove(tmp_path)
    assert endpoints.read(tmp_path) is None


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"journal": "x"}', "null", '{"journal":1,"executors":2}'])
def test_a_broken_file_is_none(tmp_path: Path, content: str):
    (tmp_path / "endpoints.json").write_text(content)
    assert endpoints.read(tmp_path) is None


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b"\xff", b"[" * 100_000])
def test_a_command_says_that_a_file_is_no_state_file(tmp_path: Path, content: bytes):
    (tmp_path / "endpoints.json").write_bytes(content)
    with pytest.raises(InvalidField, match="is not the state file"):
        endpoints.find(tmp_path, {})


def test_a_command_says_that_the_state_file_cannot_be_read(tmp_path: Path):
    (tmp_path / "endpoints.json").mkdir()
    with pytest.raises(InvalidField, match=r"cannot read .*Is a directory"):
        endpoints.find(tmp_path, {})


def test_a_named_folder_comes_before_the_environment(tmp_path: Path):
    RUNNING.write(tmp_path)
    assert endpoints.find(tmp_path, {"LANTERN_JOURNAL": "elsewhere:1"}) == RUNNING


def test_the_environment_comes_before_the_default_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    endpoints.DEFAULT_DIR.mkdir()
    RUNNING.write(endpoints.DEFAULT_DIR)
    environment = {"LANTERN_JOURNAL": "j:1", "LANTERN_EXECUTOR": "e:1, e:2,"}
    assert endpoints.find(None, environment) == Endpoints(journal="j:1", executors=("e:1", "e:2"))
    assert endpoints.find(None, {}) == RUNNING


def test_nothing_runs_is_said_with_what_to_do(tmp_path: Path):
    with pytest.raises(LanternError, match="lantern up") as caught:
        endpoints.find(tmp_path, {})
    assert caught.value.reason == reasons.UNAVAILABLE


def test_a_folder_is_for_one_at_a_time(tmp_path: Path):
    with endpoints.exclusive(tmp_path / "new"):
        second = endpoints.exclusive(tmp_path / "new")
        with pytest.raises(LanternError, match=r"another `lantern up` \(process \d+\)"):
            second.__enter__()
    with endpoints.exclusive(tmp_path / "new"):
        pass
