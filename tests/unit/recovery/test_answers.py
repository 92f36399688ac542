"""Goal: no lost connection ends a task of the service, and our own cancellation does.

Method: each way in which a call can fail, inside a task that is or is not cancelled.
"""

import asyncio

import grpc
import pytest

from lantern_kernel import reasons
from lantern_kernel.errors import LanternError
from lantern_recovery.adapters.answers import translated


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata()), "UNAVAILABLE"),
        (
            grpc.aio.AioRpcError(grpc.StatusCode.DEADLINE_EXCEEDED, grpc.aio.Metadata(), grpc.aio.Metadata()),
            "DEADLINE_EXCEEDED",
        ),
        (asyncio.CancelledError(), "UNAVAILABLE"),
    ],
)
async def test_a_call_that_failed_is_a_lantern_error(error: BaseException, reason: str):
    with pytest.raises(LanternError) as caught, translated():
        raise error
    assert caught.value.reason == reason


async def test_our_own_cancellation_passes():
    async def calling() -> None:
        with translated():
            await asyncio.Event().wait()

    task = asyncio.create_task(calling())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


async def test_a_refusal_passes_as_it_is():
    refusal = LanternError(reasons.LEASE_LOST, "gone")
    with pytest.raises(LanternError) as caught, translated():
        raise refusal
    assert caught.value is refusal
