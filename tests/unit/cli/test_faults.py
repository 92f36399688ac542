"""What the system refuses on the command line: one line, an exit code, never a traceback.

Method: wrapped functions and the real command line in this process; standard output is a stand-in that takes nothing.
"""

import errno
import io
import json
import os
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from lantern.cli.exit_codes import READER_GONE
from lantern.cli.faults import reported
from lantern.cli.main import app, main


class Closed(io.StringIO):
    """A stream that takes nothing."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def flush(self) -> None:
        raise OSError(self._number, os.strerror(self._number))


def _code(number: int, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "stdout", Closed(number))
    with pytest.raises(typer.Exit) as caught:
        reported(lambda: print("x"))()
    return caught.value.exit_code


def test_a_full_disk_behind_the_output_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    assert _code(errno.ENOSPC, monkeypatch) == 1
    assert capsys.readouterr().err == "error: INTERNAL: cannot write the output: No space left on device\n"


def test_a_reader_that_went_away_is_silent(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    assert _code(errno.EPIPE, monkeypatch) == READER_GONE
    assert capsys.readouterr().err == ""


def test_a_refused_file_is_named(capsys: pytest.CaptureFixture[str]):
    @reported
    def command(as_json: bool) -> None:
        Path("/dev/null/x").write_text("")

    for as_json in (False, True):
        with pytest.raises(typer.Exit) as caught:
            command(as_json=as_json)
        assert caught.value.exit_code == 2
    line, machine = capsys.readouterr().err.splitlines()
    assert line == "error: INVALID_FIELD: cannot use /dev/null/x: Not a directory"
    assert json.loads(machine)["error"]["message"] == "cannot use /dev/null/x: Not a directory"


def test_a_folder_that_cannot_be_is_one_line(tmp_path: Path):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/nope"), tmp_path / ("x" * 300)):
        result = CliRunner().invoke(app, ["up", "--dir", str(folder)])
        assert result.exit_code == 2
        assert result.stderr.startswith(f"error: INVALID_FIELD: --dir: cannot use {folder}: ")
        assert len(result.stderr.splitlines()) == 1


def test_help_for_a_reader_that_went_away_is_silent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def gone() -> None:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    monkeypatch.setattr("lantern.cli.main.app", gone)
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == READER_GONE
    assert capsys.readouterr().err == ""
