"""The checks of the kit can fail: the engine is broken in one place at a time, and each break is noticed.

Method: one part replaced by one that breaks a promise, and a sound workflow under every fault.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import lantern
from lantern.program.host import WorkflowHost
from lantern.testing import Environment, check_every_fault
from lantern.testing.journal import MemoryJournal
from lantern_kernel import keys, replay

RETRIED = lantern.RetryPolicy(max_attempts=3, backoff_ms=100)


def charge(amount: int) -> int:
    return amount


@lantern.workflow
async def sound(ctx: lantern.Context) -> Any:
    first = await ctx.step("charge", charge, 1, retry=RETRIED, timeout_s=2.0)
    option = await ctx.side_effect("option", lambda: 7)
    await ctx.sleep(60)
    others = await asyncio.gather(*(ctx.step("part", charge, n, retry=RETRIED) for n in range(2)))
    return [first, option, *others]


def scenario(env: Environment) -> None:
    assert env.start(sound).result() == [1, 7, 0, 1]


def forgetful(patch: pytest.MonkeyPatch) -> None:
    """The journal loses the last event that it acknowledged to a worker which then dies."""
    expire = MemoryJournal.expire

    def forget(self: MemoryJournal, run_id: str) -> None:
        run = self.runs[run_id]
        if run.is_held:
            run.events.pop()
        expire(self, run_id)

    patch.setattr(MemoryJournal, "expire", forget)


def no_fence(patch: pytest.MonkeyPatch) -> None:
    """Whoever was taken over still appends."""
    append = MemoryJournal.append

    def lenient(self: MemoryJournal, run_id: str, epoch: int, *rest: Any) -> None:
        append(self, run_id, max(epoch, self.runs[run_id].epoch), *rest)

    patch.setattr(MemoryJournal, "append", lenient)


def no_repeats(patch: pytest.MonkeyPatch) -> None:
    """An append that is repeated after a lost answer is refused."""
    patch.setattr("lantern.testing.journal._content", lambda event: (object(),))  # pyright: ignore[reportUnknownLambdaType]


def fresh_keys(patch: pytest.MonkeyPatch) -> None:
    """Each attempt has a key of its own."""
    count = iter(range(1_000_000))

    def key(scope_id: str, step_id: str, attempt: int) -> str:
        return keys.idempotency_key(scope_id, step_id, attempt + next(count))

    patch.setattr(replay, "idempotency_key", key)


def names_by_process(patch: pytest.MonkeyPatch) -> None:
    """The names of steps go on counting where another drive of the run left off."""
    names: dict[str, int] = {}

    def name_once(self: WorkflowHost, name: str) -> str:
        del self
        names[name] = names.get(name, -1) + 1
        return f"{name}[{names[name]}]" if names[name] else name

    patch.setattr(WorkflowHost, "name_once", name_once)


@pytest.mark.parametrize("broken", [forgetful, no_fence, no_repeats, fresh_keys, names_by_process])
def test_what_is_broken_is_noticed(broken: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch):
    check_every_fault(scenario)
    broken(monkeypatch)
    with pytest.raises(Exception, match=r".") as noticed:
        check_every_fault(scenario)
    assert not isinstance(noticed.value, TypeError | AttributeError), noticed.value
