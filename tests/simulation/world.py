"""The outside world, and the workflows that reach into it. It records every request and every effect."""

import asyncio
import contextvars
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import lantern
from lantern.program.calls import StepInfo, step_info
from lantern.program.failures import StepFailure
from lantern.registry import Definition
from lantern_kernel import kinds
from lantern_kernel.retry import RetryPolicy
from oracle.tables import Tables
from simulation.loop import PROCESS, SimulatedLoop

PATIENT = RetryPolicy(max_attempts=20, backoff_ms=50, max_backoff_ms=2_000, jitter=0.5)


@dataclass(kw_only=True)
class World:
    """Takes requests, dedups by key, is slow at times, refuses, and loses answers."""

    loop: SimulatedLoop
    random: Random
    tables: Tables
    # Chances of a refusal and of a lost answer; 0 where all is well.
    bad_luck: float = 0.25
    # By run and step: the keys under which something was done.
    done: dict[tuple[str, str], list[str]] = field(default_factory=dict[tuple[str, str], list[str]])
    faults: list[str] = field(default_factory=list[str])
    # Who was told that the lease is gone: process, run, epoch.
    told_lost: set[tuple[str, str, int]] = field(default_factory=set[tuple[str, str, int]])
    requests: int = 0

    async def request(self, info: StepInfo) -> int:
        """One request of a step; what the outside answers."""
        self._check(info)
        self.requests += 1
        process = PROCESS.get().name
        luck, latency_s = self.random.random(), self.random.uniform(0.001, 0.2)
        if self.random.random() < 0.03:
            latency_s = self.random.uniform(1.0, 6.0)
        self.loop.note(f"{process} does {info.step_id} of {info.run_id[-4:]} epoch {info.epoch} {info.key[:6]}")
        if luck < self.bad_luck / 2:
            await asyncio.sleep(latency_s)
            raise StepFailure("refused", executed=False)
        # It is done though whoever asked may die meanwhile.
        self.loop.call_later(latency_s / 2, self._do, info, context=self.loop.world.context)
        await asyncio.sleep(latency_s)
        if luck < self.bad_luck:
            raise ConnectionResetError("the answer was lost")
        return len(info.step_id)

    def _do(self, info: StepInfo) -> None:
        keys = self.done.setdefault((info.run_id, info.step_id), [])
        if info.key not in keys:
            keys.append(info.key)
        if len(keys) > 1:
            self.faults.append(f"{info.step_id} of {info.run_id} took effect under {len(keys)} keys")

    def _check(self, info: StepInfo) -> None:
        """What must hold whenever a step is dispatched."""
        process = PROCESS.get().name
        if (process, info.run_id, info.epoch) in self.told_lost:
            self.faults.append(f"{process} dispatches {info.step_id} of {info.run_id} though it knows that it lost")
        begun = False
        for event in self.tables.events.get(info.run_id, ()):
            if event.step_id != info.step_id or event.epoch > info.epoch:
                continue
            begun |= event.kind == kinds.STEP_STARTED and event.attempt == info.attempt
            if event.kind in (kinds.STEP_COMPLETED, kinds.STEP_FAILED):
                self.faults.append(f"{info.step_id} of {info.run_id} is done again under epoch {info.epoch}")
        if not begun:
            self.faults.append(f"{info.step_id} of {info.run_id} is dispatched before its step_started is committed")


WORLD: contextvars.ContextVar[World] = contextvars.ContextVar("world")


async def reach_out(*_: Any) -> int:
    """The code of every step."""
    return await WORLD.get().request(step_info())


async def order(ctx: lantern.Context, number: int) -> list[int]:
    """Steps one after the other, a marker, a short wait, and a long one that parks."""
    first = await ctx.step("reserve", reach_out, number, retry=PATIENT)
    value = await ctx.side_effect("dice", lambda: 7)
    await ctx.sleep(0.5)
    second = await ctx.step("charge", reach_out, first, retry=PATIENT, timeout_s=3)
    if number % 2:
        await ctx.sleep(12 + number)
    return [first, value, second, await ctx.step("ship", reach_out, second, retry=PATIENT)]


async def fan(ctx: lantern.Context, number: int) -> list[int]:
    """Steps side by side, twice, with a wait that stays with the driver."""
    results = await asyncio.gather(*(ctx.step("part", reach_out, at, retry=PATIENT) for at in range(3)))
    await ctx.sleep(3)
    more = await asyncio.gather(*(ctx.step("rest", reach_out, at, retry=PATIENT) for at in range(2)))
    return [number, *results, *more]


async def mail(ctx: lantern.Context, number: int) -> list[int]:
    """Deliveries that are claimed: an unknown one is asked for, or sent again."""
    first = await ctx.step("letter", reach_out, number, retry=PATIENT, claim="ask")
    return [first or 0, await ctx.step("notice", reach_out, number, retry=PATIENT, claim="retry")]


def definitions() -> dict[str, Definition]:
    """The workflows of every executor."""
    return {
        function.__name__: Definition(
            name=function.__name__,
            function=function,
            takes_input=True,
            digest=function.__name__.ljust(64, "0").replace("o", "0").encode().hex()[:64],
            root=Path(__file__).parent,
        )
        for function in (order, fan, mail)
    }
