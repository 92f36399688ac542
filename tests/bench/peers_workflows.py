"""The workflows that bench_peers runs on Lantern: what the peers' scripts run on theirs."""

import asyncio
import os
import time
from typing import Any

import lantern

TEXT = "x" * 160
"""Makes a result of about 200 bytes."""


async def result_of(number: int) -> dict[str, Any]:
    """A step that does nothing."""
    return {"ok": True, "step": number, "text": TEXT}


async def logged(log: str, run: str, number: int, pause_ms: float) -> dict[str, Any]:
    """A step of about `pause_ms`, whose execution is noted in a file."""
    line = f"{os.environ.get('PHASE', 'A')} {run} {number} {time.time():.6f}\n"
    descriptor = os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)
    await asyncio.sleep(pause_ms / 1e3)
    return {"ok": True, "step": number, "text": TEXT}


@lantern.workflow(name="steps")
async def steps(ctx: lantern.Context, count: int) -> int:
    """As many steps as asked, one after the other."""
    for number in range(count):
        await ctx.step("step", result_of, number)
    return count


@lantern.workflow(name="logged")
async def logged_steps(ctx: lantern.Context, asked: dict[str, Any]) -> int:
    """The same, each noted."""
    for number in range(asked["count"]):
        await ctx.step("step", logged, asked["log"], asked["run"], number, asked["pause_ms"])
    return asked["count"]
