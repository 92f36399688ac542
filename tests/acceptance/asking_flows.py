"""Workflows that wait for others, for the acceptance tier."""

import asyncio
from typing import Any

import lantern


@lantern.workflow(name="asking")
async def asking(ctx: lantern.Context, wanted: dict[str, Any]) -> list[list[Any]]:
    """Asks `count` times at once, each for `timeout_s` where given; what came of each: decision, by whom, data."""
    timeout_s = wanted.get("timeoutSeconds")
    decided = await asyncio.gather(*(ctx.approval("ask", timeout_s=timeout_s) for _ in range(wanted["count"])))
    return [[each.decision, each.by, each.data] for each in decided]
