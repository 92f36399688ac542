"""What became of a call, as a LanternError where it was no answer."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

import grpc

from lantern_kernel import reasons
from lantern_kernel.errors import LanternError
from lantern_serving import status


@contextmanager
def translated() -> Generator[None]:
    """Turns the errors of a call inside into LanternError; the caller's own cancellation passes."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        raise status.to_error(error) from None
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # By grpc.aio, which tells a lost connection so at times: it must not end the task that made the call.
        raise LanternError(reasons.UNAVAILABLE, "the call was cancelled") from None
