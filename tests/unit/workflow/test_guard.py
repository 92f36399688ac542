"""Goal: workflow code that reads a clock, chance or the outside is refused at its line, before it runs or as it runs.

Method: one workflow per kind of call. What the source shows is found by `findings_in`; what it does not show (calls by
way of a value, of the standard library) is refused while it runs. The same calls in steps and side effects pass.
"""

import ast
import asyncio
import logging
import os
import random
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Callable
from datetime import date, datetime
from os import environ
from pathlib import Path
from random import choice as pick
from time import time as clock
from typing import Any

import outside_reach
import pytest
from host_kit import INFO, done
from outside_reach import Clock, pure, stamp

import lantern
from lantern.program import reading
from lantern.program.host import WorkflowHost
from lantern.program.reading import findings_in
from lantern.registry import LoadError, define
from lantern_kernel.commands import Fail, Succeed

ROOT = Path(__file__).parent


async def _datetime(ctx: lantern.Context) -> Any:
    return datetime.now().isoformat()


async def _today(ctx: lantern.Context) -> Any:
    return date.today().isoformat()


async def _imported_name(ctx: lantern.Context) -> Any:
    return [clock(), pick([1, 2])]


async def _imported_inside(ctx: lantern.Context) -> Any:
    from time import monotonic

    return monotonic()


async def _environment(ctx: lantern.Context) -> Any:
    return [os.environ["HOME"], environ.get("HOME"), os.getenv("HOME")]


async def _uuid(ctx: lantern.Context) -> Any:
    return str(uuid.uuid4())


async def _file(ctx: lantern.Context) -> Any:
    with open("/etc/hostname") as file:
        return file.read()


async def _process(ctx: lantern.Context) -> Any:
    return subprocess.run(["true"], check=False).returncode


async def _thread(ctx: lantern.Context) -> None:
    threading.Thread(target=print).start()


async def _wait(ctx: lantern.Context) -> None:
    time.sleep(1)


async def _socket(ctx: lantern.Context) -> None:
    socket.create_connection(("localhost", 1))


async def _another_file(ctx: lantern.Context) -> Any:
    return [pure(1), stamp(), Clock.read(), outside_reach.through_a_class()]


async def _nested(ctx: lantern.Context) -> Any:
    async def one(number: int) -> float:
        await ctx.step("a", print)
        return random.random() * number

    return await asyncio.gather(*(one(number) for number in range(2)))


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (_datetime, [("datetime.now", "ctx.now()")]),
        (_today, [("date.today", "ctx.now()")]),
        (_imported_name, [("time.time", "ctx.now()"), ("random.choice", "ctx.random()")]),
        (_imported_inside, [("time.monotonic", "ctx.now()")]),
        (
            _environment,
            [("os.environ", "ctx.side_effect"), ("os.environ", "side_effect"), ("os.getenv", "side_effect")],
        ),
        (_uuid, [("uuid.uuid4", "ctx.uuid()")]),
        (_file, [("open", "ctx.step")]),
        (_process, [("subprocess.run", "ctx.step")]),
        (_thread, [("Thread", "ctx.step")]),
        (_wait, [("time.sleep", "ctx.sleep")]),
        (_socket, [("socket.create_connection", "ctx.http")]),
        (_another_file, [("time.time", "ctx.now()"), ("datetime.now", "ctx.now()")]),
        (_nested, [("random.random", "ctx.random()")]),
    ],
)
def test_what_the_source_shows_is_found_with_its_line(
    function: Callable[..., Any], expected: list[tuple[str, str]]
) -> None:
    findings = findings_in(function, ROOT)
    assert len(findings) == len(expected)
    for finding, (what, replacement) in zip(findings, expected, strict=True):
        place = f"{finding.file}:{finding.line}: "
        assert finding.message.startswith(f"{place}{what} in a workflow: ")
        assert replacement in finding.message
        line = Path(finding.file).read_text().splitlines()[finding.line - 1]
        assert what.split(".")[-1] in line or "clock(" in line or "pick(" in line or "environ" in line
    with pytest.raises(LoadError, match="cannot be replayed"):
        define(function)


def test_what_is_handed_to_steps_and_side_effects_is_let_through() -> None:
    async def program(ctx: lantern.Context) -> Any:
        def read() -> str:
            return datetime.now().isoformat()

        first = await ctx.side_effect("read", read)
        second = await ctx.side_effect("time", time.time)
        third = await ctx.side_effect("lambda", lambda: uuid.uuid4().hex)
        await ctx.step("stamp", stamp)
        time_of_day = {"time": 1}
        return [first, second, third, time_of_day["time"], datetime(2026, 1, 1).isoformat(), time.gmtime(0).tm_year]

    assert findings_in(program, ROOT) == []
    host = WorkflowHost(define(program), b"null", INFO)
    for step_id in ("read", "time", "lambda", "stamp"):
        host.advance()
        host.resolve(done(step_id, host.marker_value(step_id) if step_id != "stamp" else b"1"))
    (end,) = host.advance()
    assert isinstance(end, Succeed)


def test_names_bound_in_the_function_are_not_taken_for_others() -> None:
    async def program(ctx: lantern.Context, time: Any) -> Any:
        open = ctx.step  # noqa: A001 - the case
        await open("a", print)
        return time.time()

    assert findings_in(program, ROOT) == []


BY_VALUE: dict[str, Callable[[], Any]] = {
    "time": lambda: [time.time()],
    "asctime": lambda: [time.asctime()],
    "random": lambda: [random.randint(1, 2)],
    "urandom": lambda: os.urandom(3),
    "uuid": lambda: [uuid.uuid4()],
    "environ": lambda: dict(os.environ),
    "set environ": lambda: os.environ.update(LANTERN_TEST="1"),
    "path": lambda: Path(__file__).read_text(),
    "listing": lambda: list(Path(__file__).parent.iterdir()),
    "socket": lambda: [socket.socket()],
    "process": lambda: subprocess.Popen(["true"]),
    "thread": lambda: threading.Thread(target=print).start(),
    "sleep": lambda: time.sleep(0),
}
"""Calls that stand in no function which the workflow calls by name."""


@pytest.mark.parametrize(
    ("name", "replacement"),
    [
        ("time", "ctx.now()"),
        ("asctime", "ctx.now()"),
        ("random", "ctx.random()"),
        ("urandom", "ctx.random()"),
        ("uuid", "ctx.uuid()"),
        ("environ", "ctx.side_effect"),
        ("set environ", "ctx.side_effect"),
        ("path", "ctx.step"),
        ("listing", "ctx.step"),
        ("socket", "ctx.http"),
        ("process", "ctx.step"),
        ("thread", "ctx.step"),
        ("sleep", "ctx.sleep"),
    ],
)
@pytest.mark.enable_socket
def test_what_the_source_hides_is_refused_as_it_runs(name: str, replacement: str) -> None:
    hidden = [BY_VALUE[name]]

    async def program(ctx: lantern.Context) -> Any:
        hidden[0]()

    (end,) = WorkflowHost(define(program), b"null", INFO).advance()
    assert isinstance(end, Fail)
    assert replacement in end.error.message
    assert f"{__file__}:" in end.error.message
    assert end.error.details is not None
    assert end.error.details["source"].startswith("test_guard.py:")


@pytest.mark.parametrize("name", ["time", "random", "environ", "path"])
def test_unguarded_code_and_other_code_go_their_way(name: str) -> None:
    hidden = [BY_VALUE[name]]

    async def program(ctx: lantern.Context) -> Any:
        hidden[0]()
        stamp()

    (end,) = WorkflowHost(define(program, guarded=False), b"null", INFO).advance()
    assert end == Succeed(result=b"null")
    hidden[0]()


def test_other_threads_are_not_touched_while_a_workflow_runs() -> None:
    begun, read = threading.Event(), threading.Event()
    seen: list[float] = []

    def other() -> None:
        begun.wait(10)
        seen.append(time.time())
        read.set()

    hold = [begun.set, lambda: read.wait(10)]

    async def program(ctx: lantern.Context) -> Any:
        for each in hold:
            each()

    thread = threading.Thread(target=other)
    thread.start()
    (end,) = WorkflowHost(define(program), b"null", INFO).advance()
    thread.join()
    assert end == Succeed(result=b"null")
    assert len(seen) == 1


def test_a_log_line_and_an_import_in_a_workflow_are_no_offence(caplog: pytest.LogCaptureFixture) -> None:
    async def program(ctx: lantern.Context) -> Any:
        import colorsys

        logging.getLogger("flow").warning("at %s", colorsys.ONE_THIRD)

    (end,) = WorkflowHost(define(program), b"null", INFO).advance()
    assert end == Succeed(result=b"null")
    assert "at 0.33" in caplog.text


def test_a_parser_that_was_disturbed_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    parse, disturbed = ast.parse, [SystemError("AST constructor recursion depth mismatch")] * 2

    def parse_at_last(*args: Any) -> ast.AST:
        if disturbed:
            raise disturbed.pop()
        return parse(*args)

    reading.functions_of.cache_clear()
    monkeypatch.setattr(ast, "parse", parse_at_last)
    assert [finding.message.split(" in a")[0][-12:] for finding in findings_in(_datetime, ROOT)] == ["datetime.now"]
    assert disturbed == []
