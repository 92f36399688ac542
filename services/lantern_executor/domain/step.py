"""One step as something to execute: what its code is told, and how it can end."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass

from lantern_kernel.blobs import BlobRef
from lantern_kernel.retry import Failure
from lantern_kernel.step_ends import Completed


# Not frozen, which would more than double what making one costs: there are some for every step.
@dataclass(kw_only=True, slots=True)
class StepContext:
    """What the code of a step may know about itself."""

    # The run.
    run_id: str
    # The user's own name for the run; may be empty.
    workflow_id: str
    # The step.
    step_id: str
    # 1 for the first try.
    attempt: int
    # The attempt that is in the key.
    key_attempt: int
    # The idempotency key.
    key: str
    # The lease under which it is dispatched.
    epoch: int
    # The tenant of the run; empty is `default`.
    tenant_id: str = ""


# Not frozen, which would more than double what making one costs: there are some for every step.
@dataclass(kw_only=True, slots=True)
class StepCall:
    """The code of one step, to be called."""

    # Executes one attempt, at once. Whatever the user's code does is an end; only cancellation is raised.
    run: Callable[[StepContext], Awaitable[Completed | Failure]]
    # What it needs to be executed at once, such as a thread: entered before, perhaps after a wait, and left at the end.
    room: Callable[[], AbstractAsyncContextManager[object]] = nullcontext[None]


CLAIM_NONCE_BYTES = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class SideEffect:
    """What the journal knows of one claimed delivery (SPEC E4)."""

    # True when this very call, or one that it repeats, made the claim.
    claimed: bool
    # claimed, delivered or refused.
    state: str
    # JSON: what came back, or why it was refused.
    result: bytes
    # The blob that holds it, `result` being empty then.
    result_blob: BlobRef | None = None
