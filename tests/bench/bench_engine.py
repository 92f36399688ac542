"""Goal: know what the whole engine does: journal process, executor process, a Python workflow, on both databases.

Method: W1 is one run of 100 no-op steps, W2 are runs of 10 no-op steps with 64 in flight, each step durable before the
next begins. The client starts each run and waits for its end in one call. Rounds of the databases take turns; medians
and their ratio are printed as one line of JSON. Run it as a program: it is its own workflow module too.
"""

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import lantern

W1_STEPS = 100
W2_STEPS = 10
W2_RUNS = 600
IN_FLIGHT = 64
ROUNDS = 3


async def nothing(number: int) -> int:
    """A step."""
    return number


@lantern.workflow(name="bench")
async def bench(ctx: lantern.Context, steps: int) -> int:
    """As many steps as asked, one after the other."""
    done = 0
    for number in range(steps):
        done = await ctx.step("nothing", nothing, number)
    return done


async def measure(executor_address: str) -> dict[str, float]:
    """One round: W1 and W2."""
    from lantern.api.executor.v1 import executor_service_pb2 as ep
    from lantern.api.executor.v1 import executor_service_pb2_grpc as eg
    from lantern.api.journal.v1.run_pb2 import Run
    from lantern_serving import channels

    async with channels.connect(executor_address) as channel:
        executor = eg.ExecutorServiceStub(channel)

        async def one(steps: int) -> None:
            request = ep.StartRunRequest(request_id=os.urandom(8).hex(), agent_name="bench", input=str(steps).encode())
            request.wait.FromSeconds(60)
            end = (await executor.StartRun(request)).end
            assert end.state == Run.STATE_SUCCEEDED, end

        async def lane(count: int) -> None:
            for _ in range(count):
                await one(W2_STEPS)

        await asyncio.gather(*(lane(2) for _ in range(IN_FLIGHT)))  # warm
        began = time.perf_counter()
        await one(W1_STEPS)
        alone_s = time.perf_counter() - began
        began = time.perf_counter()
        await asyncio.gather(*(lane(W2_RUNS // IN_FLIGHT) for _ in range(IN_FLIGHT)))
        together_s = time.perf_counter() - began
    steps = W2_RUNS // IN_FLIGHT * IN_FLIGHT * W2_STEPS
    return {"w1_ms_per_step": alone_s * 1000 / W1_STEPS, "w2_steps_per_s": steps / together_s}


@asynccontextmanager
async def process(module: str, **settings: str) -> AsyncGenerator[str]:
    """A service; its address."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("LANTERN_")}
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        env=environment | {f"LANTERN_{name}": value for name, value in settings.items()},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        assert child.stdout is not None
        yield json.loads(await child.stdout.readline())["address"]
    finally:
        child.terminate()
        await child.wait()


async def compare(databases: dict[str, str]) -> dict[str, dict[str, list[float]]]:
    """All rounds, the databases in turn."""
    found: dict[str, dict[str, list[float]]] = {name: {} for name in databases}
    for _ in range(ROUNDS):
        for name, url in databases.items():
            async with (
                process("lantern_journal", DATABASE=url) as journal,
                process("lantern_executor", JOURNAL=journal, MODULES=__file__) as executor,
            ):
                for key, value in (await measure(executor)).items():
                    found[name].setdefault(key, []).append(value)
    return found


def main() -> None:
    """Prints the result."""
    from lantern.cli.local_postgres import LocalPostgres

    with tempfile.TemporaryDirectory() as folder, LocalPostgres() as postgres:
        databases = {"postgres": postgres.create_database("bench"), "sqlite": f"sqlite:{Path(folder) / 'bench.db'}"}
        found = asyncio.run(compare(databases))
    medians = {
        name: {key: round(statistics.median(values), 3) for key, values in rounds.items()}
        for name, rounds in found.items()
    }
    ratio = medians["sqlite"]["w2_steps_per_s"] / medians["postgres"]["w2_steps_per_s"]
    line = {"benchmark": "engine", "rounds": ROUNDS, **medians, "w2_sqlite_to_postgres": round(ratio, 3)}
    sys.stdout.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
