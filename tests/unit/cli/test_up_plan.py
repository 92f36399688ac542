"""What `lantern up` and `lantern worker` would start: services, settings, refusals, readable logs.

Method: options in, specifications out; no process is started.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from lantern.cli.main import app
from lantern.cli.services import ServiceSpec, readable, service_environment, without_frames
from lantern.cli.up import UpOptions, check_options, plan
from lantern.cli.worker import worker_environment
from lantern_kernel.errors import InvalidField


def options(**changed: Any) -> UpOptions:
    values: dict[str, Any] = {"database": "", "folder": Path("x"), "executors": 1, "recoveries": 1, "modules": ("m",)}
    return UpOptions(**{**values, **changed})


def test_one_of_each_with_the_journal_first():
    specs = plan(options(), "sqlite:x", [1, 2, 3])
    assert [(s.name, s.package, s.port) for s in specs] == [
        ("journal", "lantern_journal", 1),
        ("recovery", "lantern_recovery", 2),
        ("executor", "lantern_executor", 3),
    ]
    assert specs[0].settings == {"LANTERN_DATABASE": "sqlite:x"}
    assert specs[1].settings == {"LANTERN_JOURNAL": "127.0.0.1:1"}
    assert specs[2].settings == {"LANTERN_JOURNAL": "127.0.0.1:1", "LANTERN_MODULES": "m"}


def test_several_are_numbered():
    specs = plan(options(executors=2, recoveries=2, modules=("a", "b.py")), "sqlite:x", range(1, 9))
    assert [s.name for s in specs] == ["journal", "recovery-1", "recovery-2", "executor-1", "executor-2"]
    assert specs[-1].settings["LANTERN_MODULES"] == "a,b.py"


def test_without_a_module_there_is_no_executor():
    assert [s.name for s in plan(options(modules=()), "sqlite:x", range(1, 9))] == ["journal", "recovery"]


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"database": "mysql://x"}, "--db"),
        ({"database": "lantern.db"}, "--db"),
        ({"executors": -1}, "--executors"),
        ({"executors": 65}, "--executors"),
        ({"recoveries": 65}, "--recoveries"),
        ({"modules": ("a,b",)}, "--module"),
        ({"modules": ("no/such/file.py",)}, "--module"),
    ],
)
def test_what_cannot_be_is_refused_by_name(changed: dict[str, Any], field: str):
    with pytest.raises(InvalidField) as caught:
        check_options(options(**changed))
    assert caught.value.details["field"] == field


@pytest.mark.parametrize("database", ["", "sqlite:x.db", "postgresql://h/d", "postgres"])
def test_databases(database: str):
    assert check_options(options(database=database)).database == database


def test_a_service_gets_its_own_settings_and_not_those_of_others():
    spec = ServiceSpec(name="recovery", package="lantern_recovery", port=5, settings={"LANTERN_JOURNAL": "j:1"})
    inherited = {
        "PATH": "/bin",
        "LANTERN_JOURNAL": "other:1",
        "LANTERN_LISTEN": "0.0.0.0:1",
        "LANTERN_LEASE_TTL": "1m",
        "LANTERN_RECOVERY_INTERVAL": "5s",
        "LANTERN_LOG_LEVEL": "DEBUG",
        "LANTERN_RECOVERY_INTERVALL": "a typo reaches the service, which warns of it",
    }
    environment = service_environment(spec, inherited, 42)
    del inherited["LANTERN_LEASE_TTL"]
    assert environment == {
        **inherited,
        "LANTERN_JOURNAL": "j:1",
        "LANTERN_LISTEN": "127.0.0.1:5",
        "LANTERN_EXIT_WITH_PARENT": "42",
    }


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("plain text", "plain text"),
        ("{broken", "{broken"),
        ("[1]", "[1]"),
        (
            json.dumps({"time": "t", "level": "error", "message": "cannot start", "action": "x", "fault": "taken"}),
            "error cannot start fault=taken",
        ),
        (
            json.dumps({"level": "error", "message": "m", "error": "Traceback\n  File\nValueError: no"}),
            "error m ValueError: no",
        ),
    ],
)
def test_log_lines_for_people(line: str, shown: str):
    assert readable(line) == shown


def test_frames_of_a_traceback_are_left_to_the_log():
    lines = ["a", "Traceback (most recent call last):", '  File "x"', "    y()", "    ^^^", "ValueError: no", "  more"]
    assert without_frames(lines) == ["a", "ValueError: no", "  more"]


def test_a_worker_is_an_executor_with_settings():
    environment = worker_environment({"A": "1"}, journal="j:1", modules=["m", "n.py"], listen="0.0.0.0:7", capacity=5)
    assert environment == {
        "A": "1",
        "LANTERN_JOURNAL": "j:1",
        "LANTERN_MODULES": "m,n.py",
        "LANTERN_LISTEN": "0.0.0.0:7",
        "LANTERN_EXECUTOR_CAPACITY": "5",
    }
    assert "LANTERN_LISTEN" not in worker_environment({}, journal="j:1", modules=["m"], listen="", capacity=None)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["worker", "--journal", "j:1"], "error: INVALID_FIELD: --module: name at least one module"),
        (["worker", "--journal", "j:1", "--module", "m", "--capacity", "0"], "--capacity: 0 is not between"),
        (["up", "--db", "oracle"], "error: INVALID_FIELD: --db: 'oracle' is neither"),
        (["up", "--executors", "x"], "--executors"),
    ],
)
def test_wrong_options_are_one_line_and_two(arguments: list[str], said: str):
    result = CliRunner().invoke(app, arguments, env={"NO_COLOR": "1", "COLUMNS": "200"})
    assert result.exit_code == 2
    assert said in result.stderr
    assert "Traceback" not in result.output
