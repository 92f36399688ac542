"""Goal: know how long a run of 10,000 completed steps takes from its grant to its first live step after a crash.

Method: an executor drives a run through 10,000 steps and into one that hangs; it is killed with SIGKILL, another one
waits to take over. What is measured stands in the journal: the time from the second lease_granted to the step_started
that follows it. Whole processes, on both databases; medians as one line of JSON. Run it as a program: it is its own
workflow module too.
"""

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench_engine import process

import lantern

STEPS = 10_000
AT_ONCE = 50
ROUNDS = 3
WAIT_S = 180.0


async def nothing(number: int) -> dict[str, Any]:
    """A step."""
    return {"number": number, "ok": True}


async def hang() -> None:
    """The step in which the driver is killed; done at once by the next one."""
    if "LANTERN_BENCH_HANGS" in os.environ:
        await asyncio.Event().wait()


@lantern.workflow(name="long")
async def long(ctx: lantern.Context) -> int:
    """Many steps, then one that hangs at the first driver."""
    done = 0
    for first in range(0, STEPS, AT_ONCE):
        done += len(await asyncio.gather(*(ctx.step("nothing", nothing, first + i) for i in range(AT_ONCE))))
    await ctx.step("hang", hang)
    return done


async def measure(url: str) -> float:
    """Milliseconds from the grant to the first live step."""
    from lantern.client import Client
    from lantern_kernel import kinds

    async with process("lantern_journal", DATABASE=url) as journal:
        run_id = await _drive_until_it_hangs(journal)
        async with (
            process("lantern_executor", JOURNAL=journal, MODULES=__file__),
            process("lantern_recovery", JOURNAL=journal, LISTEN="127.0.0.1:0"),
            Client(journal, []) as client,
        ):
            run = await asyncio.wait_for(client.wait(run_id), WAIT_S)
            assert run.result_value == STEPS, run
            events = await client.events(run_id)
    granted = next(event for event in events if event.kind == kinds.LEASE_GRANTED and event.epoch == 2)
    live = events[events.index(granted) + 1]
    assert (live.kind, live.step_id, live.epoch) == (kinds.STEP_STARTED, "hang", 2), live
    assert sum(event.kind == kinds.STEP_STARTED for event in events) == STEPS + 2, "no recorded step ran again"
    return (live.time_us - granted.time_us) / 1000


async def _drive_until_it_hangs(journal: str) -> str:
    """Starts the run at an executor, kills that one when all but the last step are done; the run's id."""
    from lantern.client import Client
    from lantern_kernel import kinds

    environment = {k: v for k, v in os.environ.items() if not k.startswith("LANTERN_")}
    settings = {"LANTERN_JOURNAL": journal, "LANTERN_MODULES": __file__, "LANTERN_BENCH_HANGS": "1"}
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "lantern_executor",
        env=environment | settings,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        assert child.stdout is not None
        address = json.loads(await child.stdout.readline())["address"]
        async with Client(journal, [address]) as client:
            run = await client.start("long", None)
            deadline = time.monotonic() + WAIT_S
            async for event in client.watch(run.run_id):
                if (event.kind, event.step_id) == (kinds.STEP_STARTED, "hang"):
                    return run.run_id
                assert time.monotonic() < deadline, "the run does not get on"
            raise AssertionError("the run ended at the executor that was to hang")
    finally:
        child.kill()
        await child.wait()


async def compare(databases: dict[str, Callable[[str], str]]) -> dict[str, list[float]]:
    """All rounds, the databases in turn, each on a database of its own."""
    found: dict[str, list[float]] = {name: [] for name in databases}
    for number in range(ROUNDS):
        for name, make in databases.items():
            found[name].append(await measure(make(f"golive{number}")))
    return found


def main() -> None:
    """Prints the result."""
    from lantern.cli.local_postgres import LocalPostgres

    with tempfile.TemporaryDirectory() as folder, LocalPostgres() as postgres:

        def sqlite(name: str) -> str:
            return f"sqlite:{Path(folder) / name}.db"

        databases = {"postgres": postgres.create_database, "sqlite": sqlite}
        found = asyncio.run(compare(databases))
    medians = {f"{name}_go_live_ms": round(statistics.median(values), 1) for name, values in found.items()}
    print(json.dumps({"benchmark": "go_live", "steps": STEPS, "rounds": ROUNDS, **medians}))


if __name__ == "__main__":
    main()
