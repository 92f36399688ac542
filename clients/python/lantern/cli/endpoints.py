"""Where the services of `lantern up` listen: the state file DIR/endpoints.json and the lock beside it."""

import contextlib
import fcntl
import json
import os
from collections.abc import Generator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from lantern_kernel import reasons
from lantern_kernel.errors import InvalidField, LanternError

DEFAULT_DIR = Path(".lantern")

_FILE = "endpoints.json"
_LOCK = "lock"
_NOT_OURS = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


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
        return _parse((folder / _FILE).read_bytes())
    except (OSError, *_NOT_OURS):
        return None


def _parse(raw: bytes) -> Endpoints:
    """The state that a file says; raises one of _NOT_OURS where it says something else."""
    values = json.loads(raw)
    return Endpoints(
        journal=str(values["journal"]),
        executors=tuple(str(address) for address in values["executors"]),
        recovery=str(values["recovery"]),
        database=str(values["database"]),
        pids={str(name): int(pid) for name, pid in values["pids"].items()},
    )


def remove(folder: Path) -> None:
    """Takes the file away: nothing runs from that folder any more."""
    (folder / _FILE).unlink(missing_ok=True)


def find(folder: Path | None, environment: Mapping[str, str]) -> Endpoints:
    """The services that a command speaks to: those of `--dir`, else of the environment, else of the default folder.

    Raises UNAVAILABLE where none is named and none runs, INVALID_FIELD where the state file cannot be read.
    """
    if folder is None and environment.get("LANTERN_JOURNAL"):
        executors = environment.get("LANTERN_EXECUTOR", "")
        return Endpoints(
            journal=environment["LANTERN_JOURNAL"],
            executors=tuple(address.strip() for address in executors.split(",") if address.strip()),
        )
    chosen = DEFAULT_DIR if folder is None else folder
    try:
        return _parse((chosen / _FILE).read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise LanternError(
            reasons.UNAVAILABLE,
            f"nothing runs from {chosen}; start it with `lantern up`, or name it with --dir or LANTERN_JOURNAL",
        ) from None
    except OSError as error:
        raise InvalidField("--dir", f"cannot read {chosen / _FILE}: {error.strerror}") from None
    except _NOT_OURS:
        raise InvalidField("--dir", f"{chosen / _FILE} is not the state file of a `lantern up`") from None


@contextlib.contextmanager
def exclusive(folder: Path) -> Generator[None]:
    """Holds a folder for one `lantern up`; the lock ends with the process, however that ends."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        opened = (folder / _LOCK).open("a+")
    except FileExistsError:
        raise InvalidField("--dir", f"cannot use {folder}: it is no folder") from None
    except OSError as error:
        raise InvalidField("--dir", f"cannot use {folder}: {error.strerror}") from None
    with opened as lock:
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
