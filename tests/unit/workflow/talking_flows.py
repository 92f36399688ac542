"""Workflows that wait for others, give up waiting, undo, go on as new ones, and answer: what the tests drive."""

import asyncio
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import lantern


def work(*args: Any) -> Any:
    return list(args)


def undo(*args: Any) -> Any:
    return list(args)


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


@dataclass(frozen=True)
class Line:
    sku: str
    price: Decimal
    size: Size = Size.SMALL


@dataclass(frozen=True)
class Order:
    id: UUID
    placed: datetime
    lines: list[Line]
    note: str | None = None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Receipt:
    order: UUID
    total: Decimal
    by_sku: dict[str, Line] = field(default_factory=dict[str, Line])


def price(order: Order, factor: Decimal) -> Receipt:
    assert isinstance(order.lines[0].size, Size)
    total = sum((line.price for line in order.lines), Decimal(0)) * factor
    return Receipt(order=order.id, total=total, by_sku={line.sku: line for line in order.lines})


@lantern.workflow(name="typed")
async def typed(ctx: lantern.Context, order: Order) -> Receipt:
    assert order.tags == ("new", "gift")
    receipt: Receipt = await ctx.step("price", price, order, Decimal("1.5"))
    assert receipt.by_sku["lamp"] == order.lines[0]
    return receipt


@lantern.workflow(name="signalled")
async def signalled(ctx: lantern.Context) -> Any:
    """Two signals, the second within an hour."""
    first = await ctx.wait_signal("paid")
    try:
        line = await ctx.wait_signal("line", timeout_s=3600, into=Line)
    except TimeoutError:
        return [first, "late", await ctx.step("after", work)]
    assert isinstance(line, Line)
    return [first, str(line.price), await ctx.step("after", work)]


@lantern.workflow(name="approved")
async def approved(ctx: lantern.Context, amount: int) -> Any:
    decided = await ctx.approval("refund", title=f"Refund {amount}?", data={"amount": amount}, timeout_s=3600)
    return [decided.decision, decided.by, decided.is_approved, decided.data]


@lantern.workflow(name="child")
async def child(ctx: lantern.Context, value: int) -> int:
    await ctx.sleep(60)
    if value < 0:
        raise lantern.StepError("NEGATIVE", "too small", "child")
    return value * 2


@lantern.workflow(name="parent")
async def parent(ctx: lantern.Context) -> Any:
    good = await asyncio.gather(*(ctx.child(f"part-{value}", child, value) for value in (1, 2)))
    try:
        await ctx.child("bad", "child", -1)
    except lantern.ChildFailed as error:
        return [good, error.code, error.state, len(error.run_id)]


@lantern.workflow(name="impatient")
async def impatient(ctx: lantern.Context) -> Any:
    """Gives up on a child and on a signal."""
    try:
        async with asyncio.timeout(30):
            await ctx.child("part", child, 1)
    except TimeoutError:
        pass
    first = asyncio.create_task(ctx.wait_signal("go"))
    await ctx.sleep(1)
    first.cancel()
    return await ctx.wait_signal("go")


@lantern.workflow(name="chain")
async def chain(ctx: lantern.Context, number: int) -> int:
    if number < 3:
        await ctx.step("work", work, number)
        ctx.continue_as_new(number + 1)
    return number


@lantern.workflow(name="booking")
async def booking(ctx: lantern.Context, fails: str) -> Any:
    """Books three things; what was booked is taken back when the third cannot be, or the run is cancelled."""
    async with ctx.saga() as saga:
        await ctx.step("flight", work)
        saga.add(ctx.step, "unbook-flight", undo, "flight")
        await ctx.step("hotel", work)
        saga.add(ctx.step, "unbook-hotel", undo, "hotel")
        await ctx.sleep(3600)
        if fails:
            await ctx.step("car", broken)
    return "booked"


def broken() -> None:
    raise lantern.StepFailure("no car", code="NO_CAR")


@lantern.workflow(name="shielded")
async def shielded(ctx: lantern.Context) -> Any:
    async def both() -> None:
        await ctx.step("first", work)
        await ctx.sleep(60)
        await ctx.step("second", work)

    await ctx.shield(both())
    await ctx.step("never", work)


@lantern.workflow(name="scoped")
async def scoped(ctx: lantern.Context) -> Any:
    """The first of two signals wins; the waits for the other are given up."""
    seen: list[Any] = []
    async with ctx.scope() as scope:

        async def take(name: str) -> None:
            seen.append([name, await ctx.wait_signal(name)])
            scope.cancel()

        await asyncio.gather(take("left"), take("right"))
    return [*seen, scope.cancelled, await ctx.wait_signal("right")]


@lantern.workflow(name="counter")
async def counter(ctx: lantern.Context) -> int:
    """Counts by updates until it is told to stop; can be asked for its count."""
    total, stopped = 0, asyncio.Event()

    @ctx.query
    def count() -> int:
        return total

    @ctx.update
    def stop() -> None:
        stopped.set()

    async def add(number: int) -> int:
        nonlocal total
        await ctx.step("add", work, number)
        total += number
        return total

    def positive(number: int) -> None:
        if number <= 0:
            raise ValueError("only upwards")

    ctx.on_update("add", add, validator=positive)
    ctx.on_query("broken", lambda: 1 // 0)
    await stopped.wait()
    return total


@lantern.workflow(name="chancy")
async def chancy(ctx: lantern.Context) -> Any:
    return [(await ctx.now()).isoformat(), await ctx.random(), str(await ctx.uuid()), asyncio.get_running_loop().time()]
