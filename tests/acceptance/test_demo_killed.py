"""Goal: a demonstration that is killed in the middle leaves no process behind: `lantern up` and the shop end with it.

Method: the real demonstration is started, and killed with SIGKILL as soon as its services are up; every process that it
named must be gone soon after.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from system import EXAMPLES, ROOT

START_TIMEOUT_S = 60.0
END_TIMEOUT_S = 30.0


def test_a_killed_demonstration_leaves_no_process(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLES), "TMPDIR": str(tmp_path)}
    demo = subprocess.Popen([sys.executable, "-m", "order.demo"], env=environment, cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        state = _await_file(tmp_path, demo)
        pids = list(json.loads(state.read_text())["pids"].values())
        assert len(pids) >= 4, "journal, recovery and two executors"
    finally:
        demo.kill()
        demo.wait()
    deadline = time.monotonic() + END_TIMEOUT_S
    while left := [pid for pid in pids if _is_lantern(pid)]:
        assert time.monotonic() < deadline, f"still there: {left}"
        time.sleep(0.05)


def _await_file(folder: Path, demo: subprocess.Popen[bytes]) -> Path:
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        found = list(folder.glob("lantern-demo-*/lantern/endpoints.json"))
        if found:
            return found[0]
        assert demo.poll() is None, "the demonstration ended before its services were up"
        assert time.monotonic() < deadline, "the services did not come up"
        time.sleep(0.02)


def _is_lantern(pid: int) -> bool:
    try:
        return b"lantern_" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
