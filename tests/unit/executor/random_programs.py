"""Random workflows, and a world in which what a step does depends on the seed, the step and the attempt alone.

So two drives of one program end alike, however often and wherever their workers died; where they do not, replay is at
fault. Names are unique by position: which of two branches comes first may differ from drive to drive.
"""

import asyncio
import random
from collections import Counter
from hashlib import sha256
from typing import Any

import lantern

Node = tuple[Any, ...]

RETRY = lantern.RetryPolicy(max_attempts=4, backoff_ms=500, multiplier=3.0)
"""The last wait is 4.5 s: it stays with the driver."""


class Outside:
    """The outside world: answers by seed, step and attempt, counts requests, and knows effects by their key."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.requests: Counter[tuple[str, int]] = Counter()  # by step and attempt
        self.effects: dict[str, set[str]] = {}  # by step: the keys under which something happened

    def number(self, *about: object) -> int:
        """Chance, the same for the same question."""
        return int.from_bytes(sha256(repr((self.seed, *about)).encode()).digest()[:4], "big")

    async def act(self) -> dict[str, Any]:
        """What every step does: takes its time, then refuses, loses its answer, or answers."""
        info = lantern.step_info()
        step_id, attempt = info.step_id, info.attempt
        self.requests[step_id, attempt] += 1
        await asyncio.sleep(self.number("time", step_id, attempt) % 3000 / 1000)
        luck = self.number("luck", step_id, attempt) % 5
        if luck == 0:
            raise lantern.StepFailure("refused", code="REFUSED", executed=False)
        self.effects.setdefault(step_id, set()).add(info.key)
        if luck == 1:
            raise lantern.StepFailure("lost", code="LOST")
        return {"step": step_id, "value": self.number("value", step_id)}

    async def undo(self) -> str:
        """What undoes a step: it takes its time, and works."""
        info = lantern.step_info()
        self.requests[info.step_id, info.attempt] += 1
        await asyncio.sleep(self.number("time", info.step_id) % 1000 / 1000)
        self.effects.setdefault(info.step_id, set()).add(info.key)
        return "undone"


class RandomProgram:
    """A workflow made of nodes; where `free`, every other step is declared to have no effects."""

    def __init__(self, node: Node, outside: Outside, *, free: bool = False) -> None:
        self.free = free
        self.node, self.outside = node, outside
        self.evaluated = 0

    @staticmethod
    def is_free(outside: Outside, step_id: str) -> bool:
        """Whether the step is declared to have no effects, where that is done."""
        return outside.number("free", step_id) % 2 == 1

    async def workflow(self, ctx: lantern.Context, value: int) -> Any:
        """What is driven."""
        assert value == 7
        return await self._run(ctx, self.node, "n")

    async def _run(self, ctx: lantern.Context, node: Node, path: str) -> Any:
        match node:
            case ("step", attempts):
                retry = lantern.RetryPolicy(max_attempts=attempts, backoff_ms=500, multiplier=3.0)
                effects = "none" if self.free and self.is_free(self.outside, f"s{path}") else "outside"
                try:
                    return await ctx.step(f"s{path}", self.outside.act, retry=retry, effects=effects)
                except lantern.StepError as error:
                    return [error.step_id, error.code]
            case ("effect",):
                return {f"e{path}": await ctx.side_effect(f"e{path}", self._evaluate)}
            case ("sleep", seconds):
                return await ctx.sleep(seconds)
            case ("signal",):
                return {"step": await ctx.wait_signal(f"g{path}")}
            case ("approval",):
                return [(await ctx.approval(f"a{path}", timeout_s=900)).decision]
            case ("child",):
                return {"step": await ctx.child(f"c{path}", "child", path)}
            case ("timeout", seconds, inner):
                try:
                    async with asyncio.timeout(seconds):
                        return await self._run(ctx, inner, f"{path}.t")
                except TimeoutError:
                    return "late"
            case ("saga", nodes):
                return await self._undone(ctx, nodes, path)
            case ("seq", nodes):
                return [await self._run(ctx, each, f"{path}.{at}") for at, each in enumerate(nodes)]
            case ("gather", nodes):
                return await asyncio.gather(*(self._run(ctx, each, f"{path}.{at}") for at, each in enumerate(nodes)))
            case _:
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(self._run(ctx, each, f"{path}.{at}")) for at, each in enumerate(node[1])]
                return [task.result() for task in tasks]

    async def _undone(self, ctx: lantern.Context, nodes: list[Node], path: str) -> Any:
        """Each part is known to be undone before it is begun."""
        async with ctx.saga() as saga:
            done: list[Any] = []
            for at, each in enumerate(nodes):
                saga.add(ctx.step, f"u{path}.{at}", self.outside.undo)
                done.append(await self._run(ctx, each, f"{path}.{at}"))
            return done

    def _evaluate(self) -> int:
        """Another value at each evaluation: one that is made anew shows."""
        self.evaluated += 1
        return self.evaluated


def grow(chance: random.Random, depth: int) -> Node:
    """A program of some size, the same for the same chance."""
    if depth == 0 or chance.random() < 0.2:
        match chance.choice(["step", "step", "step", "effect", "sleep"]):
            case "step":
                return "step", chance.randint(1, 4)
            case "effect":
                return ("effect",)
            case _:
                return "sleep", chance.choice([0, 0.5, 4, 25])
    kind = chance.choice(["seq", "gather", "group"])
    return kind, [grow(chance, depth - 1) for _ in range(chance.randint(1, 3))]
