"""What tests of workflows are made of: the engine in memory, with time that is skipped and faults on purpose."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lantern.testing.checking import check_files as check_files
    from lantern.testing.environment import Environment as Environment
    from lantern.testing.every_fault import FaultNoticed as FaultNoticed
    from lantern.testing.every_fault import check_every_fault as check_every_fault
    from lantern.testing.faults import Fault as Fault
    from lantern.testing.faults import FaultKind as FaultKind
    from lantern.testing.faults import Injector as Injector
    from lantern.testing.handle import RunHandle as RunHandle
    from lantern.testing.handle import Stuck as Stuck
    from lantern.testing.outside import Attempt as Attempt
    from lantern.testing.outside import HttpRequest as HttpRequest
    from lantern.testing.replaying import ReplayDiffers as ReplayDiffers

_HOMES = {
    "Attempt": "outside",
    "Environment": "environment",
    "Fault": "faults",
    "FaultKind": "faults",
    "FaultNoticed": "every_fault",
    "HttpRequest": "outside",
    "Injector": "faults",
    "ReplayDiffers": "replaying",
    "RunHandle": "handle",
    "Stuck": "handle",
    "check_every_fault": "every_fault",
    "check_files": "checking",
}
"""Where each public name lives; loaded when it is first used, since pytest imports the plugin in every project."""


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'lantern.testing' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"lantern.testing.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
