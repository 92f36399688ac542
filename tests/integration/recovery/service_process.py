"""A Lantern service as a process of its own, for tests."""

import asyncio
import itertools
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

START_S = 20.0
_NUMBERS = itertools.count(1)


@dataclass(frozen=True, kw_only=True)
class ServiceProcess:
    """A running service."""

    address: str
    process: asyncio.subprocess.Process
    log: Path


@asynccontextmanager
async def service_process(package: str, folder: Path, **settings: str) -> AsyncGenerator[ServiceProcess]:
    """Runs `python -m package` with LANTERN_* settings until the block ends, then SIGTERM, which must do."""
    log = folder / f"{package}-{next(_NUMBERS)}.log"
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("LANTERN_")}
    environment = {**inherited, **settings, "LANTERN_EXIT_WITH_PARENT": str(os.getpid())}
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", package, stdout=asyncio.subprocess.PIPE, stderr=errors, env=environment
        )
    try:
        assert process.stdout
        async with asyncio.timeout(START_S):
            line = await process.stdout.readline()
        assert line, log.read_text()
        yield ServiceProcess(address=json.loads(line)["address"], process=process, log=log)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(START_S):
                    assert await process.wait() == 0, log.read_text()
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
