"""What the console prints where colour is not wanted.

Method: a stand-in for the terminal, and the real command line in this process.
"""

import io
import sys

import pytest
from rich.text import Text
from typer.testing import CliRunner

from lantern.cli.console import make_console
from lantern.cli.main import app


@pytest.mark.parametrize(("value", "plain"), [("1", True), ("", False)])
def test_no_color_leaves_out_bold_and_dim_too(monkeypatch: pytest.MonkeyPatch, value: str, plain: bool):
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("NO_COLOR", value)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    make_console().print(Text("x", style="bold dim red"))
    assert (screen.getvalue() == "x\n") == plain


def test_the_version_is_said():
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.stdout.startswith("lantern ")
    assert result.stdout.count("\n") == 1
    assert result.stdout.split()[1][0].isdigit()
