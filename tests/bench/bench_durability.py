"""Goal: know what the durability modes buy: steps without effects, one after the other, alone and 64 runs at once.

Method: as bench_engine, with 100 steps a run that are declared to have no effects; in `mixed` every tenth has effects.
The modes take turns within each round on each database; medians and their ratios to sync are printed as one line of
JSON a database. Run it as a program: it is its own workflow module too.
"""

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from bench_engine import process

import lantern

STEPS = 100
RUNS = 64
ROUNDS = 3
MODES = ("sync", "async", "exit")
EVENTS = 2 * STEPS + 3
"""run_started, lease_granted, two of each step, the end."""


async def nothing(number: int) -> int:
    """A step."""
    return number


@lantern.workflow(name="free")
async def free(ctx: lantern.Context) -> None:
    """Steps without effects."""
    for number in range(STEPS):
        await ctx.step("nothing", nothing, number, effects="none")


@lantern.workflow(name="mixed")
async def mixed(ctx: lantern.Context) -> None:
    """Every tenth step has effects."""
    for number in range(STEPS):
        await ctx.step("nothing", nothing, number, effects="none" if number % 10 else "outside")


async def measure(executor_address: str, journal_address: str) -> dict[str, float]:
    """One round: every mode, alone and together."""
    found: dict[str, float] = {}
    async with lantern.Client(journal_address, [executor_address]) as client:

        async def one(agent: str, mode: str) -> None:
            run = await client.start(agent, durability=mode)
            async for _ in client.watch(run.run_id, after_seq=EVENTS - 1):
                pass

        await asyncio.gather(*(one("free", mode) for mode in MODES for _ in range(8)))  # warm
        for agent in ("free", "mixed"):
            for mode in MODES:
                began = time.perf_counter()
                await one(agent, mode)
                found[f"{agent}_{mode}_ms_per_step"] = (time.perf_counter() - began) * 1000 / STEPS
                began = time.perf_counter()
                await asyncio.gather(*(one(agent, mode) for _ in range(RUNS)))
                found[f"{agent}_{mode}_steps_per_s"] = RUNS * STEPS / (time.perf_counter() - began)
    return found


async def compare(url: str) -> dict[str, list[float]]:
    """All rounds on one database."""
    found: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        async with (
            process("lantern_journal", DATABASE=url) as journal,
            process("lantern_executor", JOURNAL=journal, MODULES=__file__) as executor,
        ):
            for key, value in (await measure(executor, journal)).items():
                found.setdefault(key, []).append(value)
    return found


def main() -> None:
    """Prints the result."""
    from lantern.cli.local_postgres import LocalPostgres

    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    with tempfile.TemporaryDirectory() as folder, LocalPostgres() as postgres:
        databases = {"postgres": postgres.create_database("bench"), "sqlite": f"sqlite:{Path(folder) / 'bench.db'}"}
        for name, url in databases.items():
            medians = {key: round(statistics.median(each), 3) for key, each in asyncio.run(compare(url)).items()}
            ratios = {
                f"{agent}_{mode}_to_sync": round(
                    medians[f"{agent}_{mode}_steps_per_s"] / medians[f"{agent}_sync_steps_per_s"], 2
                )
                for agent in ("free", "mixed")
                for mode in ("async", "exit")
            }
            line = {"benchmark": "durability", "database": name, "rounds": ROUNDS, **medians, **ratios}
            sys.stdout.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
