"""Where the services of `lantern up` listen: the state file DIR/endpoints.json and the lock beside it."""

import contextlib
import fcntl
import json
import os
from collections.abc import Generator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from lantern_kernel import reasons
from lantern_kernel.errors import LanternError

DEFAULT_DIR = Path(".lantern")

_FILE = "endpoints.json"
_LOCK = "lock"


@dataclass(frozen=True, kw_only=True, slots=True)
class Endpoints:
    """The addresses (`host:port`) of a running Lantern."""

    # Of the journal.
    journal: str
    # Of the executors; may be none.
    executors: tuple[str, ...] = ()
    # Of the first recovery service; empty where it is not known.
    recovery: str = ""
    # The database URL.
    database: str = ""
    # Process ids by service name.
    pids: Mapping[str, int] = field(default_factory=dict[str, int])

    def write(self, folder: Path) -> None:
        """Replaces the file: a reader sees the old or the new one, never half of it."""
        temporary = folder / f"{_FILE}.new"
        temporary.write_text(json.dumps(asdict(self), indent=2) + "\n")
        temporary.replace(folder / _FILE)


def read(folder: Path) -> Endpoints | None:
    """What is running from that folder; None where there is no (readable) state file."""
    try:
        values = json.loads((folder / _FILE).read_text())
        return Endpoints(
            journal=str(values["journal"]),
            executors=tuple(str(address) for address in values["executors"]),
            recovery=str(values["recovery"]),
            database=str(values["database"]),
            pids={str(name): int(pid) for name, pid in values["pids"].items()},
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def remove(folder: Path) -> None:
    """Takes the file away: nothing runs from that folder any more."""
    (folder / _FILE).unlink(missing_ok=True)


def find(folder: Path | None, environment: Mapping[str, str]) -> Endpoints:
    """The services that a command speaks to: those of `--dir`, else of the environment, else of the default folder.

    Raises UNAVAILABLE where none is named and none runs.
    """
    if folder is None and environment.get("LANTERN_JOURNAL"):
        executors = environment.get("LANTERN_EXECUTOR", "")
        return Endpoints(
            journal=environment["LANTERN_JOURNAL"],
            executors=tuple(address.strip() for address in executors.split(",") if address.strip()),
        )
    chosen = DEFAULT_DIR if folder is None else folder
    found = read(chosen)
    if found is None:
        raise LanternError(
            reasons.UNAVAILABLE,
            f"nothing runs from {chosen}; start it with `lantern up`, or name it with --dir or LANTERN_JOURNAL",
        )
    return found


@contextlib.contextmanager
def exclusive(folder: Path) -> Generator[None]:
    """Holds a folder for one `lantern up`; the lock ends with the process, however that ends."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _LOCK).open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read().strip() or "unknown"
            raise LanternError(
                reasons.UNAVAILABLE,
                f"another `lantern up` (process {holder}) runs from {folder}; stop it, or choose another --dir",
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield
