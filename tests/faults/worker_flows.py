"""The agent of the worker fault tests. Its steps write to the ledger what they do, each line at once."""

import asyncio
import ctypes
import json
import os
import time
from pathlib import Path
from typing import Any

import lantern

_LEDGER = Path(os.environ["FLOWS_LEDGER"])
_LOCKED = ctypes.PyDLL(None)
"""The C library, called as a C extension of Python calls itself: the interpreter's lock stays with the caller."""


def _note(what: str) -> None:
    info = lantern.step_info()
    line = {
        "what": what,
        "run_id": info.run_id,
        "step_id": info.step_id,
        "key": info.key,
        "epoch": info.epoch,
        "pid": os.getpid(),
        "at_s": time.monotonic(),
    }
    with _LEDGER.open("a") as ledger:
        ledger.write(json.dumps(line) + "\n")


def _is_repeated() -> bool:
    """Whether an earlier lease has begun this very step."""
    info = lantern.step_info()
    begun = [json.loads(line) for line in _LEDGER.read_text().splitlines()]
    return any(each["key"] == info.key and each["epoch"] < info.epoch for each in begun)


async def _short() -> None:
    _note("begin")
    await asyncio.sleep(0.05)
    _note("end")


async def _wait(seconds: float) -> None:
    _note("begin")
    await asyncio.sleep(0 if _is_repeated() else seconds)
    _note("end")


async def _block_loop(seconds: float) -> None:
    _note("begin")
    time.sleep(0 if _is_repeated() else seconds)  # noqa: ASYNC251 - the fault
    _note("end")


def _hold_lock(seconds: float) -> None:
    _note("begin")
    if not _is_repeated():
        _LOCKED.usleep(int(seconds * 1e6))
    _note("end")


_LONG = {"wait": _wait, "block": _block_loop, "lock": _hold_lock}


@lantern.workflow(name=os.environ["FLOWS_AGENT"])
async def flow(ctx: lantern.Context, order: dict[str, Any]) -> str:
    """A short step, one that takes `s` seconds in the way of `how`, where asked a timer, and `short` more steps."""
    await ctx.step("before", _short)
    if order.get("s"):
        await ctx.step("long", _LONG[order["how"]], order["s"])
    if order.get("timer"):
        await ctx.sleep(order["timer"])
    for number in range(order.get("short", 1)):
        await ctx.step(f"after{number}", _short)
    return "done"
