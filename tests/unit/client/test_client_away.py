"""A journal that is away while somebody watches: told once for each time, and given up after a while.

Method: a client whose stream always fails, and a clock that goes on by itself; no channel is opened.
"""

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator

import pytest

from lantern.client.client import Client
from lantern_kernel import reasons
from lantern_kernel.errors import LanternError
from lantern_kernel.event import Event


@pytest.mark.parametrize(("step_s", "times"), [(0.3, 1), (1.0, 1), (40.0, 0)])
async def test_it_is_told_once_after_two_seconds(monkeypatch: pytest.MonkeyPatch, step_s: float, times: int):
    clock = itertools.count()
    client, told = Client("j:1"), list[float]()
    now_s = 0.0

    def monotonic() -> float:
        nonlocal now_s
        now_s = next(clock) * step_s
        return now_s

    async def no_pause(_: float) -> None:
        pass

    async def away(run_id: str, after_seq: int) -> AsyncGenerator[Event, None]:
        raise LanternError(reasons.UNAVAILABLE, "nothing answers at j:1")
        yield

    monkeypatch.setattr(client, "_follow", away)
    monkeypatch.setattr(time, "monotonic", monotonic)
    monkeypatch.setattr(asyncio, "sleep", no_pause)
    with pytest.raises(LanternError, match="nothing answers"):
        _ = [event async for event in client.watch("r", on_away=lambda _: told.append(now_s))]
    assert len(told) == times
    assert all(2.0 <= at_s < 2.0 + step_s for at_s in told)
    assert now_s >= 30.0
