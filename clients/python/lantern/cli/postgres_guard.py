"""Removes a LocalPostgres when the command that made it is gone, however it went.

Run as `python -m lantern.cli.postgres_guard FOLDER` with a pipe as standard input: the pipe ends with the command, and
the kernel tells us. A PostgreSQL whose command was killed outright would otherwise stay for ever.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

_WAIT_S = 10.0


def start(folder: Path) -> "subprocess.Popen[bytes]":
    """Starts the guard of a folder; it acts when the caller closes its pipe, or ends."""
    return subprocess.Popen(
        [sys.executable, "-m", "lantern.cli.postgres_guard", str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def remove(folder: Path) -> None:
    """Stops the server at once (SIGQUIT), where it still runs, and removes its folder."""
    with contextlib.suppress(OSError, ValueError):
        pid = int((folder / "data" / "postmaster.pid").read_text().split()[0])
        os.kill(pid, signal.SIGQUIT)
        end_s = time.monotonic() + _WAIT_S
        while time.monotonic() < end_s:
            os.kill(pid, 0)  # raises as soon as it is gone
            time.sleep(0.05)
    shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Waits for the pipe to end, then acts."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    remove(Path(sys.argv[1]))


if __name__ == "__main__":
    main()
