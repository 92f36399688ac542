"""Workflows of the executor's integration tests. Their steps write to a ledger file what they do."""

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import lantern


def _note(what: str) -> None:
    info = lantern.step_info()
    with Path(os.environ["TEST_LEDGER"]).open("a") as ledger:
        ledger.write(f"{what} {info.step_id} {info.key} {info.epoch}\n")


async def _work(value: Any, ms: int) -> Any:
    _note("begin")
    await asyncio.sleep(ms / 1_000)
    _note("end")
    return value


def _work_in_thread(value: Any, ms: int) -> Any:
    _note("begin")
    time.sleep(ms / 1_000)
    _note("end")
    return value


@lantern.workflow(name="chain")
async def chain(ctx: lantern.Context, order: dict[str, int]) -> dict[str, Any]:
    """`steps` steps one after the other, each of `ms`, every other one in a thread, with a marker among them."""
    done: list[Any] = []
    picked = await ctx.side_effect("picked", os.getpid)
    for number in range(order["steps"]):
        function = _work_in_thread if number % 2 else _work
        done.append(await ctx.step(f"s{number}", function, number, order["ms"]))
    return {"done": done, "picked": picked}


@lantern.workflow(name="patient")
async def patient(ctx: lantern.Context, order: dict[str, int]) -> str:
    """One step of `ms`, then a wait of `s` seconds, then another step."""
    await ctx.step("before", _work, 1, order["ms"])
    await ctx.sleep(order["s"])
    await ctx.step("after", _work, 2, 1)
    return "done"


@lantern.workflow(name="mail")
async def mail(ctx: lantern.Context, order: dict[str, int]) -> Any:
    """One delivery that cannot be deduplicated."""
    return await ctx.step("mail", _work, "sent", order["ms"], claim="ask", sink="mail")


@lantern.workflow(name="spin")
async def spin(ctx: lantern.Context, order: dict[str, int]) -> None:
    """Never gives anybody else a turn, once it has begun."""
    await ctx.step("before", _work, 1, 1)
    while True:
        pass


async def _bulk(character: str, size: int) -> str:
    _note("begin")
    return character * size


@lantern.workflow(name="bulky")
async def bulky(ctx: lantern.Context, order: dict[str, Any]) -> dict[str, Any]:
    """A step of `size` bytes, its content handed to a second one, and the input's own beside it in the result."""
    first = await ctx.step("first", _bulk, "f", order["size"])
    second = await ctx.step("second", _bulk, first[:1] + "s", order["size"] // 2)
    return {"given": len(order.get("pad", "")), "first": first, "second": len(second)}


@lantern.workflow(name="mostly_free")
async def mostly_free(ctx: lantern.Context, ms: int) -> list[Any]:
    """Steps without effects, one with, steps without again, one with."""
    done: list[Any] = []
    for part in ("x", "y"):
        for number in range(3):
            result = await ctx.step(f"{part}{number}", _work, number, ms, effects="none")
            done.append(result)
        done.append(await ctx.step(f"{part}end", _work, part, ms))
    return done


@lantern.workflow(name="family")
async def family(ctx: lantern.Context, order: dict[str, int]) -> list[Any]:
    """Children that work for a while, all at once."""
    parts = [ctx.child(f"part{number}", "chain", order) for number in range(3)]
    return [each["done"] for each in await asyncio.gather(*parts)]


@lantern.workflow(name="conversation")
async def conversation(ctx: lantern.Context) -> dict[str, Any]:
    """Books, and waits to be told to go on; it can be asked, changed, and called off."""
    state: dict[str, Any] = {"at": "start", "to": ""}

    def readdress(to: str) -> str:
        before, state["to"] = state["to"], to
        return str(before)

    def check(to: str) -> None:
        if not to:
            raise ValueError("no address")

    ctx.on_query("state", lambda: dict(state))
    ctx.on_update("readdress", readdress, validator=check)
    async with ctx.saga() as saga:
        await ctx.step("book", _work, "booked", 1)
        saga.add(ctx.step, "unbook", _work, "unbooked", 1)
        state["at"] = "booked"
        child = asyncio.ensure_future(ctx.child("aside", "chain", {"steps": 1, "ms": 600_000}))
        state["go"] = await ctx.wait_signal("go")
        child.cancel()
    return state
