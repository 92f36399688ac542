"""The processes of bench_journal: a journal, the load against it."""

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
START_S = 120
MEASURE_S = 300


@dataclass(frozen=True, kw_only=True, slots=True)
class Journal:
    """A journal process that serves."""

    # host:port.
    address: str
    # Its process.
    pid: int


@asynccontextmanager
async def journal(database: str, without: str = "") -> AsyncGenerator[Journal]:
    """The journal's real process on a database, or one of the bench's own that leaves something out."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LANTERN_")}
    settings = {"LANTERN_DATABASE": database, "LANTERN_LOG_LEVEL": "WARNING"}
    command = ["-m", "lantern_journal"] if not without else [str(HERE / "journal_ablated.py"), "--without", without]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *command,
        env=kept | settings | {"LANTERN_EXIT_WITH_PARENT": str(os.getpid())},
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), START_S)
        yield Journal(address=json.loads(line)["address"], pid=process.pid)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def probe(journals: Sequence[Journal]) -> list[dict[str, Any]]:
    """Times single operations on journals in turn, from a process of its own; for each what they took."""
    return await output_of(str(HERE / "journal_probes.py"), *(journal.address for journal in journals))


async def show(journal: Journal, run_id: str) -> float:
    """How long `lantern runs show` takes, as a person runs it."""
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).with_name("lantern")),
        *("runs", "show", run_id),
        env=os.environ | {"LANTERN_JOURNAL": journal.address},
        stdout=asyncio.subprocess.PIPE,
    )
    shown, _ = await process.communicate()
    assert run_id.encode() in shown, "the run is shown"
    return time.perf_counter() - began


async def load(journal: Journal, postgres_pid: int, *options: str) -> dict[str, Any]:
    """Runs the load in a process of its own; what it measured."""
    return await output_of(
        str(HERE / "journal_load.py"),
        "--journal",
        journal.address,
        "--journal-pid",
        str(journal.pid),
        "--postgres-pid",
        str(postgres_pid),
        *options,
    )


async def output_of(*arguments: str, cwd: Path | None = None) -> Any:
    """The line of JSON that a Python program prints."""
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=asyncio.subprocess.PIPE, cwd=cwd)
    try:
        printed, _ = await asyncio.wait_for(process.communicate(), MEASURE_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if not printed.strip():
        raise RuntimeError(f"{arguments[0]} printed nothing and ended with {process.returncode}")
    return json.loads(printed)
