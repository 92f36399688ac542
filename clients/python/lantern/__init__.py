"""What users import: the workflow SDK, the client and the CLI of Lantern.

Names are loaded when they are first used, so that importing the generated stubs through this package stays cheap.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lantern.client.agents import Agents as Agents
    from lantern.client.client import Client as Client
    from lantern.client.run import Run as Run
    from lantern.client.run import RunFailed as RunFailed
    from lantern.program.asks import RunInfo as RunInfo
    from lantern.program.calls import HttpResponse as HttpResponse
    from lantern.program.calls import StepInfo as StepInfo
    from lantern.program.calls import step_info as step_info
    from lantern.program.context import Context as Context
    from lantern.program.failures import ChildFailed as ChildFailed
    from lantern.program.failures import NotReplayable as NotReplayable
    from lantern.program.failures import StepError as StepError
    from lantern.program.failures import StepFailure as StepFailure
    from lantern.program.saga import Saga as Saga
    from lantern.program.scopes import CancelScope as CancelScope
    from lantern.program.waits import Approval as Approval
    from lantern.registry import tool as tool
    from lantern.registry import workflow as workflow
    from lantern_kernel.errors import InvalidField as InvalidField
    from lantern_kernel.errors import LanternError as LanternError
    from lantern_kernel.retry import RetryPolicy as RetryPolicy

_HOMES = {
    "Saga": "lantern.program.saga",
    "RunInfo": "lantern.program.asks",
    "Approval": "lantern.program.waits",
    "ChildFailed": "lantern.program.failures",
    "CancelScope": "lantern.program.scopes",
    "Agents": "lantern.client.agents",
    "Client": "lantern.client.client",
    "Context": "lantern.program.context",
    "HttpResponse": "lantern.program.calls",
    "InvalidField": "lantern_kernel.errors",
    "LanternError": "lantern_kernel.errors",
    "NotReplayable": "lantern.program.failures",
    "RetryPolicy": "lantern_kernel.retry",
    "Run": "lantern.client.run",
    "RunFailed": "lantern.client.run",
    "StepError": "lantern.program.failures",
    "StepFailure": "lantern.program.failures",
    "StepInfo": "lantern.program.calls",
    "step_info": "lantern.program.calls",
    "tool": "lantern.registry",
    "workflow": "lantern.registry",
}
"""Where each public name lives."""


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'lantern' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
