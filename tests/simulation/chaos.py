"""What goes wrong, by seed: processes die and stand still, machines are cut off, the database is away."""

import asyncio
from typing import Any

from simulation.cluster import Cluster, DatabaseEdge

KINDS = ("kill", "kill", "stop", "freeze", "cut", "cut", "database", "luck", "clock")


class Chaos:
    """Breaks a cluster for a while, then mends it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._loop = cluster, cluster.loop
        self._random = cluster.loop.random
        self._under_way: list[asyncio.Task[Any]] = []
        # How fast one fault follows the other, and what goes wrong all the time.
        self._pause_s = self._random.choice((0.2, 1.0, 3.0))
        self._network_luck = self._random.choice((0.0, 0.003, 0.02))
        self._database_luck = self._random.choice((0.0, 0.003, 0.02))

    async def rage(self, for_s: float) -> None:
        """Breaks one thing after the other; returns when all of it is mended."""
        until_s = self._loop.now_s + for_s
        self._be_lucky()
        while self._loop.now_s < until_s:
            await asyncio.sleep(self._random.expovariate(1.0) * self._pause_s)
            task = asyncio.create_task(self._break(self._random.choice(KINDS)))
            self._under_way.append(task)
        for task in self._under_way:
            await task
        self._cluster.network.heal_all()
        for edge in self._cluster.edges.values():
            edge.is_away, edge.bad_luck = False, 0.0
        self._cluster.world.bad_luck = 0.0
        self._loop.note("all is well again")

    async def _break(self, kind: str) -> None:
        for_s = self._random.choice((0.05, 0.5, 2.0, 5.0, 12.0)) * self._random.uniform(0.5, 1.5)
        name = self._random.choice(sorted(self._cluster.live))
        match kind:
            case "kill":
                await self._kill(name, for_s / 2)
            case "stop":
                await self._stop(name, for_s / 2)
            case "freeze":
                await self._freeze(name, for_s)
            case "cut":
                await self._cut(name, self._random.choice(sorted(self._cluster.live)), for_s)
            case "database":
                await self._database(for_s / 3)
            case "luck":
                await self._luck(for_s)
            case _:
                self._cluster.wall_offset_s = self._random.choice((-3600.0, 3600.0))

    async def _kill(self, name: str, for_s: float) -> None:
        if not self._cluster.live[name].is_alive:
            return
        self._cluster.kill(name)
        await asyncio.sleep(for_s)
        self._cluster.start(name)

    async def _stop(self, name: str, for_s: float) -> None:
        """In order, as a deploy does it; whoever takes too long is killed."""
        process, drain = self._cluster.live[name], self._cluster.drains.get(name)
        if drain is None or not process.is_alive:
            return
        self._loop.note(f"stop {process.name}")
        draining = process.spawn(drain())
        for _ in range(40):
            await asyncio.sleep(0.25)
            if draining.done():
                break
        if self._cluster.live[name] is process:
            await self._kill(name, for_s)

    async def _freeze(self, name: str, for_s: float) -> None:
        process = self._cluster.live[name]
        if process.is_frozen or not process.is_alive:
            return
        self._loop.note(f"freeze {process.name} for {for_s:.2f}")
        process.is_frozen = True
        await asyncio.sleep(for_s)
        process.is_frozen = False
        self._loop.note(f"thaw {process.name}")

    async def _cut(self, one: str, other: str, for_s: float) -> None:
        first, second = self._cluster.live[one].name, self._cluster.live[other].name
        if one == other:
            return
        self._loop.note(f"cut {first} from {second} for {for_s:.2f}")
        self._cluster.network.cut(first, second)
        await asyncio.sleep(for_s)
        self._cluster.network.heal(first, second)
        self._loop.note(f"heal {first} and {second}")

    async def _database(self, for_s: float) -> None:
        edges = list(self._cluster.edges.values())
        chosen = edges if self._random.random() < 0.5 else [self._random.choice(edges)]
        self._loop.note(f"database away from {len(chosen)} for {for_s:.2f}")
        for edge in chosen:
            edge.is_away = True
        await asyncio.sleep(for_s)
        for edge in chosen:
            edge.is_away = False

    async def _luck(self, for_s: float) -> None:
        self._be_lucky(times=5.0)
        await asyncio.sleep(for_s)
        self._be_lucky()

    def _be_lucky(self, times: float = 1.0) -> None:
        """How often calls and transactions go wrong from now on."""
        self._cluster.network.bad_luck = times * self._network_luck
        for name in self._cluster.journals:
            edge = self._cluster.edges.setdefault(name, DatabaseEdge(self._loop, name))
            edge.bad_luck = times * self._database_luck
