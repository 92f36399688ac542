"""Disks that fail and disks that are full: syncs that end with EIO, and a small file system of its own."""

import contextlib
import errno
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Self

STRACE_HINT = "strace is missing; install it, e.g. `apt-get install strace`"
ATTACH_S = 10.0
BLOCK_BYTES = 64 * 1024


@contextlib.contextmanager
def failing_syncs(pids: Iterable[int], when: str) -> Generator[None]:
    """Lets fsync and fdatasync of processes, and of what they start, fail with EIO meanwhile.

    Args:
        pids: The processes.
        when: Which of them, counted for each thread alone, in the words of strace's `when=`: `3+5` is the third and
            every fifth after it.
    """
    program = shutil.which("strace")
    assert program, STRACE_HINT
    wanted = list(pids)
    attached = [word for pid in wanted for word in ("-p", str(pid))]
    calls = "fsync,fdatasync"
    rules = ["-e", f"trace={calls}", "-e", f"inject={calls}:error=EIO:when={when}"]
    tracer = subprocess.Popen(
        [program, "-f", "-qq", "-o", os.devnull, *rules, *attached],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        deadline = time.monotonic() + ATTACH_S
        while not all(_is_traced(pid) for pid in wanted):
            assert tracer.poll() is None, f"strace cannot trace: {tracer.communicate()[1].decode()}"
            assert time.monotonic() < deadline, f"strace did not attach to {wanted}"
            time.sleep(0.01)
        yield
    finally:
        tracer.send_signal(signal.SIGINT)  # lets go of them all, and ends
        try:
            tracer.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            tracer.kill()
            tracer.communicate()


def _is_traced(pid: int) -> bool:
    """Whether every thread of a process is traced; also where it has ended meanwhile."""
    try:
        states = [thread.read_text() for thread in Path(f"/proc/{pid}/task").glob("*/status")]
    except OSError:
        return True
    return all("TracerPid:\t0\n" not in state for state in states)


class SmallDisk:
    """A file system of a few megabytes that can be filled up and given room again; use as a context manager."""

    def __init__(self, megabytes: int) -> None:
        self._megabytes = megabytes
        # Where also PostgreSQL's unprivileged user gets to.
        self.folder = Path(tempfile.mkdtemp(prefix="lantern-small-disk-", dir="/tmp"))
        self._ballast = self.folder / "ballast"

    def __enter__(self) -> Self:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={self._megabytes}m,mode=0777", "lantern-small-disk", self.folder],
            capture_output=True,
            text=True,
            check=False,
        )
        if mounted.returncode:
            self.folder.rmdir()
            raise AssertionError(f"a small disk cannot be mounted, which takes root: {mounted.stderr.strip()}")
        return self

    def __exit__(self, *_: object) -> None:
        # Lazily: whatever still holds a file open there loses it when it ends.
        subprocess.run(["umount", "--lazy", self.folder], check=True)
        self.folder.rmdir()

    def fill(self) -> None:
        """Leaves no room at all."""
        with self._ballast.open("ab", buffering=0) as ballast:
            size = BLOCK_BYTES
            while size >= 1:
                try:
                    ballast.write(bytes(size))
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    size //= 2

    def free(self) -> None:
        """Gives the room back."""
        self._ballast.unlink()
