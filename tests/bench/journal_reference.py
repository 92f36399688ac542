"""The yardstick: a bare append path with the same fence, chain and salt, kept outside of this repository.

Its directory holds bench.py, which starts a server of its own, and journal.proto; the stubs are generated into a copy.
"""

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
from journal_processes import output_of

TRIES = 5


class Reference:
    """A copy of the yardstick that can be run."""

    def __init__(self, source: Path, folder: Path) -> None:
        self._folder = folder / "reference"
        shutil.copytree(source, self._folder)
        for path in [self._folder, *self._folder.iterdir()]:
            path.chmod(path.stat().st_mode | 0o200)
        compile_protos = ["-m", "grpc_tools.protoc", "-I.", "--python_out=.", "--grpc_python_out=.", "journal.proto"]
        subprocess.run([sys.executable, *compile_protos], cwd=self._folder, check=True)
        self._sqlite = folder / "reference.db"

    async def measure(self, postgres_url: str | None, runs: int, seconds: float, payload: int) -> dict[str, Any]:
        """One round, on an empty table; in the words of our own load."""
        if postgres_url is not None:
            await asyncio.to_thread(_empty, postgres_url)
            where = ["--postgres", postgres_url]
        else:
            for path in self._folder.parent.glob(self._sqlite.name + "*"):
                path.unlink()
            where = ["--sqlite", str(self._sqlite)]
        options = ["--lanes", str(runs), "--seconds", str(seconds), "--payload", str(payload)]
        found = await self._run(*where, *options)
        # Of PostgreSQL it counts every server on the machine, so that figure is left out.
        client, server, _ = found["us_step"]
        cpu_us = {"client": client, "journal": server}
        return {"steps_s": found["steps_s"], "p50_ms": found["p50"], "p99_ms": found["p99"], "cpu_us": cpu_us}

    async def _run(self, *options: str) -> dict[str, Any]:
        """Its line; where it says nothing, which happens on a busy machine, it is run again."""
        for tries in range(1, TRIES + 1):
            try:
                return await output_of(str(self._folder / "bench.py"), *options, cwd=self._folder)
            except RuntimeError as error:
                if tries == TRIES:
                    raise
                sys.stderr.write(f"the yardstick is run again: {error}\n")
        raise AssertionError("the last try returns or raises")


def _empty(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        if connection.execute("SELECT to_regclass('events')").fetchone() != (None,):
            connection.execute("TRUNCATE events")
