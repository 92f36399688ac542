"""What the fault tests run: journals and their load as processes, and a PostgreSQL that can be killed."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import ledger
from system import Process, free_port

from lantern.cli.local_postgres import LocalPostgres

HERE = Path(__file__).parent
SCALE = float(os.environ.get("LANTERN_TEST_FAULTS", "1"))
"""How many of the faults are injected: 1 is what CI does; less is for a quick look."""

DATABASES = ("sqlite", "postgres")
MakeDatabase = Callable[[str], str]

GONE_S = 10.0
SETTLE_S = 90.0


def scaled(count: int, at_least: int = 1) -> int:
    """A number of faults or rounds, by LANTERN_TEST_FAULTS."""
    return max(at_least, round(count * SCALE))


def journal_process(
    name: str,
    database: str,
    folder: Path,
    settings: Mapping[str, str] | None = None,
    entry: Sequence[str] = ("-m", "lantern_journal"),
) -> Process:
    """A journal, not started yet, on an address that it keeps when it is started again."""
    own = {
        "LANTERN_DATABASE": database,
        "LANTERN_LISTEN": f"127.0.0.1:{free_port()}",
        # A start whose answer was lost is granted anew before long.
        "LANTERN_GRANT_TTL": "1s",
    }
    return Process(name, entry, {**own, **(settings or {})}, folder)


class KillablePostgres(LocalPostgres):
    """A private PostgreSQL whose processes can all be killed at once."""

    def process_ids(self) -> list[int]:
        """The postmaster's, first, and those of its children."""
        pid_file = self.folder / "data" / "postmaster.pid"
        if not pid_file.exists():
            return []
        postmaster = int(pid_file.read_text().splitlines()[0])
        return [postmaster, *_children(postmaster)]

    def kill(self) -> None:
        """SIGKILL to the postmaster and all of its children; returns when they are gone."""
        doomed = self.process_ids()
        for pid in doomed:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        deadline = time.monotonic() + GONE_S
        # Not even as zombies: the next postmaster would take the old one's file for that of a living one.
        while any(Path(f"/proc/{pid}").exists() for pid in doomed):
            assert time.monotonic() < deadline, f"some of {doomed} outlive SIGKILL"
            time.sleep(0.005)

    def is_up(self) -> bool:
        """Whether its postmaster lives."""
        return any(_is_alive(pid) for pid in self.process_ids()[:1])


def _children(parent: int) -> list[int]:
    found: list[int] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            after_name = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        if int(after_name[1]) == parent:
            found.append(int(stat.parent.name))
    return found


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Load:
    """`load.py` as a process: started, left alone, told to stop, and held to its promises."""

    def __init__(self, journals: Sequence[Process], folder: Path, runs: int = 16) -> None:
        self.promises = folder / "promises"
        self._journals = journals
        self._log = folder / "load.log"
        addresses = [word for journal in journals for word in ("--journal", journal.address)]
        self._argv = [
            *(sys.executable, str(HERE / "load.py"), *addresses),
            *("--promises", str(self.promises), "--runs", str(runs)),
        ]
        self._popen: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self._log.open("ab") as log:
            self._popen = subprocess.Popen(
                self._argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=HERE
            )
        self._line(30)
        return self

    def __exit__(self, *_: object) -> None:
        if self._popen is not None and self._popen.poll() is None:
            self._popen.kill()
            self._popen.wait()

    def promised(self) -> int:
        """How many answers were written down so far, in bytes: it grows while the service serves."""
        return self.promises.stat().st_size

    def await_progress(self, within_s: float = 20.0, least_bytes: int = 4_000) -> None:
        """Returns once the journal has promised more."""
        before, deadline = self.promised(), time.monotonic() + within_s
        while self.promised() < before + least_bytes:
            assert time.monotonic() < deadline, f"nothing was promised for {within_s} s\n{self.tails()}"
            time.sleep(0.01)

    def finish(self) -> dict[str, Any]:
        """Ends the load; what it counted."""
        assert self._popen is not None, "it was entered"
        assert self._popen.stdin is not None, "its input is a pipe"
        self._popen.stdin.write(b"stop\n")
        self._popen.stdin.flush()
        told = self._line(SETTLE_S)
        self._popen.wait(10)
        return told

    def check(self, database: str) -> dict[str, Any]:
        """Ends the load and compares its promises with the database; what it counted."""
        told = self.finish()
        stored = ledger.read(database)
        faults = ledger.find_faults(self.promises, stored)
        faults += ledger.find_api_faults(self._journals[0].address, stored)
        assert not faults, f"{len(faults)} faults, such as {faults[:5]}\n{told}\n{self.tails()}"
        assert not told["hanging"], f"{told}\n{self.tails()}"
        assert not told["refusals"], f"{told['refusals'][:5]}\n{self.tails()}"
        assert told["counts"]["ended"] > 0, f"no run came to its end: {told}"
        print(json.dumps({**told, "runs": len(stored.runs), "events": sum(map(len, stored.events.values()))}))
        return told

    def tails(self, size: int = 2000) -> str:
        """The ends of the logs."""
        logs = [f"--- {journal.name}\n{journal.log_text()[-size:]}" for journal in self._journals]
        return "\n".join([*logs, f"--- load\n{self._log.read_text(errors='replace')[-size:]}"])

    def _line(self, within_s: float) -> dict[str, Any]:
        assert self._popen is not None, "it was entered"
        assert self._popen.stdout is not None, "its output is a pipe"
        readable, _, _ = select.select([self._popen.stdout], [], [], within_s)
        line = self._popen.stdout.readline() if readable else b""
        assert line, f"the load said nothing for {within_s} s\n{self.tails()}"
        return json.loads(line)
