"""Processes that end with their parent, however it ends.

A supervisor that is killed outright cannot stop its children; the kernel does it instead (prctl(2), PR_SET_PDEATHSIG).
Linux only; elsewhere nothing happens.
"""

import ctypes
import os
import signal
from collections.abc import Mapping

_PR_SET_PDEATHSIG = 1


def exit_with_parent(environment: Mapping[str, str]) -> None:
    """Where `LANTERN_EXIT_WITH_PARENT` names our parent's process id: SIGTERM for us when it ends."""
    parent = environment.get("LANTERN_EXIT_WITH_PARENT", "")
    if parent.isdigit():
        end_with(int(parent), signal.SIGTERM)


def end_with(parent_pid: int, number: signal.Signals) -> None:
    """A signal for us when that parent ends; at once where it has ended already."""
    if not hasattr(os, "getppid"):
        return
    try:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, number)
    except (AttributeError, OSError):
        return
    if os.getppid() != parent_pid:
        os.kill(os.getpid(), number)  # it ended before we asked
