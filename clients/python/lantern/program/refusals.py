"""What workflow code must not ask for, because it would get another answer on replay, and what to use instead."""

import os
import random
import secrets
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from datetime import date, datetime
from types import ModuleType
from typing import Any

from lantern.program.failures import NotReplayable

CLOCK = "the clock of the machine cannot be replayed: use `await ctx.now()`"
WAIT = "waiting here would hold up every run of the executor: use `await ctx.sleep(seconds)`"
CHANCE = "chance cannot be replayed: use `await ctx.random()`, or `await ctx.side_effect(name, function)`"
UNIQUE = "a new unique id cannot be replayed: use `await ctx.uuid()`"
ENVIRONMENT = (
    "the environment differs from machine to machine: read it with `await ctx.side_effect(name, function)` or in a step"
)
FILES = "files cannot be replayed: read and write them in a step, `await ctx.step(name, function)`"
NETWORK = (
    "what is outside cannot be replayed: reach it in a step, `await ctx.step(name, function)` or `await ctx.http(...)`"
)
PROCESSES = "other processes cannot be replayed: start them in a step, `await ctx.step(name, function)`"
THREADS = "threads cannot be replayed: do such work in a step, `await ctx.step(name, function)`"

_RANDOM = [
    "random",
    "uniform",
    "triangular",
    "randint",
    "choice",
    "randrange",
    "sample",
    "shuffle",
    "choices",
    "normalvariate",
    "lognormvariate",
    "expovariate",
    "vonmisesvariate",
    "gammavariate",
    "gauss",
    "betavariate",
    "paretovariate",
    "weibullvariate",
    "getrandbits",
    "randbytes",
    "binomialvariate",
    "seed",
]

_STARTS = ("system", "exec", "posix_spawn", "spawn", "fork", "forkpty", "kill")

FUNCTIONS: Mapping[ModuleType, Mapping[str, str]] = {
    time: dict.fromkeys(
        [
            "time",
            "time_ns",
            "monotonic",
            "monotonic_ns",
            "perf_counter",
            "perf_counter_ns",
            "process_time",
            "process_time_ns",
            "thread_time",
            "thread_time_ns",
            "clock_gettime",
            "clock_gettime_ns",
        ],
        CLOCK,
    )
    | {"sleep": WAIT},
    random: dict.fromkeys(_RANDOM, CHANCE),
    secrets: dict.fromkeys(["token_bytes", "token_hex", "token_urlsafe", "choice", "randbelow", "randbits"], CHANCE),
    uuid: {"uuid1": UNIQUE, "uuid4": UNIQUE},
    os: {"urandom": CHANCE, "getrandom": CHANCE, "getenv": ENVIRONMENT},
    threading: dict.fromkeys(("_start_new_thread", "_start_joinable_thread"), THREADS),
}
"""Functions that are refused wherever they are called from, as long as workflow code runs on the thread."""

WITHOUT_ARGUMENTS: Mapping[ModuleType, Mapping[str, str]] = {
    time: dict.fromkeys(("localtime", "gmtime", "ctime", "asctime"), CLOCK),
}
"""Functions that read the clock where they are given none."""

BY_SOURCE: Mapping[Callable[..., Any], str] = {
    datetime.now: CLOCK,
    datetime.utcnow: CLOCK,  # pyright: ignore[reportDeprecated] - that is why
    datetime.today: CLOCK,
    date.today: CLOCK,
    random.SystemRandom: CHANCE,
    threading.Thread: THREADS,
    threading.Timer: THREADS,
}
"""Besides the above, what the source of workflows must not call: Python offers no way to refuse it as it runs."""

EVENTS: Mapping[str, str] = {
    **dict.fromkeys(
        [
            "open",
            "os.listdir",
            "os.scandir",
            "os.remove",
            "os.rename",
            "os.mkdir",
            "os.rmdir",
            "os.truncate",
            "os.link",
            "os.symlink",
            "os.chmod",
            "os.chown",
            "os.utime",
            "os.chdir",
            "shutil.copyfile",
            "shutil.move",
            "shutil.rmtree",
            "tempfile.mkstemp",
            "tempfile.mkdtemp",
            "glob.glob",
            "sqlite3.connect",
        ],
        FILES,
    ),
    **dict.fromkeys(
        [
            "socket.__new__",
            "socket.connect",
            "socket.bind",
            "socket.getaddrinfo",
            "socket.gethostbyname",
            "socket.sendto",
            "urllib.Request",
            "http.client.connect",
            "smtplib.connect",
            "ftplib.connect",
        ],
        NETWORK,
    ),
    **dict.fromkeys(("subprocess.Popen", *map("os.".__add__, _STARTS)), PROCESSES),
    **dict.fromkeys(("os.putenv", "os.unsetenv"), ENVIRONMENT),
    "builtins.input": NETWORK,
}
"""Audit events (PEP 578) that are refused as long as workflow code runs on the thread."""


def message_of(what: str, why: str, position: str) -> str:
    """For people: the place, what was asked for there, and what to use instead."""
    return f"{position}: {what} in a workflow: {why}" if position else f"{what} in a workflow: {why}"


def refuse(what: str, why: str, position: str) -> NotReplayable:
    """What to raise."""
    return NotReplayable(message_of(what, why, position))
