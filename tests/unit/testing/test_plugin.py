"""The pytest plugin: its fixtures do what three lines of a user's ask, and it costs nothing where none is asked for."""

import importlib
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lantern
from lantern.testing import Environment, Fault, plugin
from lantern.testing.plugin import lantern_env, lantern_faults

__all__ = ["lantern_env", "lantern_faults"]

ROOT = Path(__file__).resolve().parents[3]


def greet(name: str) -> str:
    return f"hello {name}"


@lantern.workflow
async def greeting(ctx: lantern.Context, name: str) -> str:
    return await ctx.step("greet", greet, name)


def test_a_run_in_memory(lantern_env: Environment):
    assert lantern_env.start(greeting, "you").result() == "hello you"


def test_every_fault(lantern_faults: Callable[..., list[Fault]]):
    assert len(lantern_faults(greeting, "you")) >= 9


def test_the_package_names_the_plugin():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (module,) = project["entry-points"]["pytest11"].values()
    assert importlib.import_module(module) is plugin


@pytest.mark.parametrize(
    "name", ["grpc", "google.protobuf", "aiohttp", "lantern.testing.environment", "lantern.registry"]
)
def test_pytest_loads_nothing_heavy_with_it(name: str):
    code = f"import sys, lantern.testing.plugin; sys.exit({name!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_public_name_is_there():
    testing: Any = importlib.import_module("lantern.testing")
    for name in testing._HOMES:
        assert getattr(testing, name).__name__ == name
    with pytest.raises(AttributeError):
        _ = testing.nothing
