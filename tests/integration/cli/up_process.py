"""`lantern up` as a process of its own, and a look at which processes are left."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

START_S = 60.0
STOP_S = 40.0

AGENT = '''"""Agents of the tests."""

import asyncio

import lantern


async def double(number: int) -> int:
    await asyncio.sleep(0.1)
    return number * 2


@lantern.workflow(name="double")
async def double_twice(ctx: lantern.Context, number: int) -> int:
    once = await ctx.step("once", double, number)
    return await ctx.step("twice", double, once)


async def linger(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "done"


@lantern.workflow(name="slow")
async def slow(ctx: lantern.Context, seconds: float) -> str:
    await ctx.step("first", double, 1)
    return await ctx.step("linger", linger, seconds)


@lantern.workflow(name="mails")
async def mails(ctx: lantern.Context, seconds: float) -> str:
    return await ctx.step("mail", linger, seconds, claim="ask", sink="mail")


@lantern.workflow(name="fails")
async def fails(ctx: lantern.Context, value: str) -> str:
    raise ValueError(value)
'''


def until(condition: Callable[[], Any], what: str, seconds: float = START_S) -> Any:
    """Waits for something in another process."""
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f"{what}: not within {seconds} s")


def alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def descendants(pid: int) -> set[int]:
    """All living processes below one."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return {child for child in found - {pid} if alive(child)}


class Up:
    """A running `lantern up` in a folder of its own."""

    def __init__(self, folder: Path, process: "subprocess.Popen[str]") -> None:
        self.folder = folder
        self.process = process

    @property
    def state(self) -> Mapping[str, Any]:
        return json.loads((self.folder / ".lantern/endpoints.json").read_text())

    def lantern(self, *arguments: str, stdin: str | None = None) -> "subprocess.CompletedProcess[str]":
        """Runs `lantern` in the same folder."""
        return run_lantern(self.folder, *arguments, stdin=stdin)

    def output(self) -> str:
        return (self.folder / "up.txt").read_text()

    def end(self, number: int) -> int:
        """Sends a signal and waits for the end; the exit code."""
        self.process.send_signal(number)
        return self.process.wait(STOP_S)


def environment() -> dict[str, str]:
    """Without settings of Lantern, and without colour."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LANTERN_")}
    return {**kept, "NO_COLOR": "1", "COLUMNS": "100"}


def run_lantern(folder: Path, *arguments: str, stdin: str | None = None) -> "subprocess.CompletedProcess[str]":
    """Runs `lantern` to its end."""
    command = [sys.executable, "-m", "lantern.cli.main", *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment(), input=stdin, capture_output=True, text=True, timeout=60, check=False
    )


@contextmanager
def running_up(folder: Path, *arguments: str) -> Generator[Up]:
    """Starts `lantern up` and waits until all is up; kills what is left at the end."""
    (folder / "agents.py").write_text(AGENT)
    with (folder / "up.txt").open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "lantern.cli.main", "up", *arguments],
            cwd=folder,
            env=environment(),
            stdout=output,
            stderr=output,
            text=True,
        )
    up = Up(folder, process)
    try:
        until(lambda: "Ctrl-C" in up.output() or process.poll() is not None, "up")
        assert process.poll() is None, up.output()
        yield up
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
