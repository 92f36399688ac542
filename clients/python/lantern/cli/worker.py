"""`lantern worker`: an executor with the user's own modules, in the place of this very process."""

import os
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

from lantern_kernel.errors import InvalidField

CAPACITY_MAX = 100_000


def worker_environment(
    inherited: Mapping[str, str], *, journal: str, modules: Sequence[str], listen: str, capacity: int | None
) -> dict[str, str]:
    """The environment of the executor; raises InvalidField naming the option that cannot be."""
    if not modules:
        raise InvalidField("--module", "name at least one module with workflows")
    if capacity is not None and not 1 <= capacity <= CAPACITY_MAX:
        raise InvalidField("--capacity", f"{capacity} is not between 1 and {CAPACITY_MAX}")
    environment = {
        **inherited,
        "LANTERN_JOURNAL": journal,
        "LANTERN_MODULES": ",".join(modules),
    }
    if listen:
        environment["LANTERN_LISTEN"] = listen
    if capacity is not None:
        environment["LANTERN_EXECUTOR_CAPACITY"] = str(capacity)
    return environment


def become_executor(environment: Mapping[str, str]) -> NoReturn:
    """Replaces this process by the executor: signals and the exit code are its own."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, "-m", "lantern_executor"], dict(environment))  # noqa: S606 - no shell
