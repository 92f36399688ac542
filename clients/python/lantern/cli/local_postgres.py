"""A PostgreSQL of one's own, for the demo and the tests: made, started, stopped and removed again.

It listens on a free port of the loopback interface, is durable as a real one (fsync on), and its data live in a folder
of their own below the temporary directory, since the unprivileged user that must run it may not see the caller's.
"""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Self

INSTALL_HINT = "PostgreSQL's server programs are missing; install them, e.g. `apt-get install postgresql`"
START_TIMEOUT_S = 60


class PostgresMissing(RuntimeError):
    """The server programs (initdb, postgres) are not installed."""


def find_programs() -> Path:
    """The folder of initdb and pg_ctl; raises PostgresMissing with what to install."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: int(p.parent.name), reverse=True)
    on_path = shutil.which("initdb")
    for folder in [*found, *([Path(on_path).parent] if on_path else [])]:
        if (folder / "initdb").exists() and (folder / "pg_ctl").exists():
            return folder
    raise PostgresMissing(INSTALL_HINT)


class LocalPostgres:
    """A running server; use as a context manager.

    Args:
        settings: Further lines for the server's command line, as `name=value`.
    """

    def __init__(self, *settings: str) -> None:
        self._bin = find_programs()
        self._folder = Path(tempfile.mkdtemp(prefix="lantern-postgres-", dir="/tmp"))
        self._data = self._folder / "data"
        self._settings = settings
        self._user: str | None = None
        if os.geteuid() == 0:
            # PostgreSQL refuses to run as root.
            self._user = _unprivileged_user()
            shutil.chown(self._folder, self._user)
        self.port = _free_port()

    @property
    def folder(self) -> Path:
        """Where all that it has lies."""
        return self._folder

    @property
    def url(self) -> str:
        """Of its own first database."""
        return self.database_url("postgres")

    def database_url(self, name: str) -> str:
        """Of a database on it."""
        return f"postgresql://lantern@127.0.0.1:{self.port}/{name}"

    def create_database(self, name: str) -> str:
        """Makes an empty database and returns its URL."""
        self._run("createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", "lantern", name)
        return self.database_url(name)

    def start(self) -> None:
        """Makes the data folder where there is none, starts the server and waits until it answers."""
        if not self._data.exists():
            self._run("initdb", "-D", str(self._data), "-U", "lantern", "-A", "trust", "-E", "UTF8", "--no-sync")
        options = ["listen_addresses=127.0.0.1", f"port={self.port}", "unix_socket_directories="]
        line = " ".join(f"-c {option}" for option in [*options, "max_connections=200", *self._settings])
        log = str(self._folder / "log")
        self._run("pg_ctl", "-D", str(self._data), "-l", log, "-o", line, "-w", "-t", str(START_TIMEOUT_S), "start")

    def stop(self, mode: str = "fast") -> None:
        """Stops the server; `immediate` is a crash."""
        if (self._data / "postmaster.pid").exists():
            self._run("pg_ctl", "-D", str(self._data), "-m", mode, "-w", "stop")

    def remove(self) -> None:
        """Stops the server and removes its folder."""
        self.stop("immediate")
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [*_as_user(self._user), str(self._bin / program), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            check=False,
            cwd=self._folder,
            start_new_session=True,
        )
        if done.returncode:
            log = self._folder / "log"
            tail = log.read_text(errors="replace")[-2000:] if log.exists() else ""
            raise RuntimeError(f"{program} failed ({done.returncode}): {done.stderr.strip()} {tail}")


def _as_user(name: str | None) -> list[str]:
    """The words before a command that run it as that user; none where it is ours already.

    Not subprocess's own `user`: it forks a process that may have many threads by then, gRPC's among them, and the copy
    may crash before it has become the program.
    """
    if name is None:
        return []
    user = pwd.getpwnam(name)
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--"]


def _unprivileged_user() -> str:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    raise PostgresMissing("no user `postgres` or `nobody` to run PostgreSQL as")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
