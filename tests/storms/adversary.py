"""A program that asks for anything at any time, as long as it is what replay allows: all depends on what it was told.

Each of its decisions follows from a digest over all that it was told before, in order. So a replay that tells it one
thing more, less, twice or in another order makes it ask for something else, and is found out at the next command.
"""

from collections import deque
from collections.abc import Sequence
from hashlib import sha256

from lantern_kernel.commands import (
    AwaitSignal,
    Cancelled,
    Command,
    CompleteUpdate,
    ContinueAsNew,
    Fail,
    RecordMarker,
    RequestApproval,
    RunStep,
    StartChild,
    StartTimer,
    Succeed,
    Withdraw,
)
from lantern_kernel.outcomes import Happening, Notice
from lantern_kernel.payloads import RunErrorFacts
from lantern_kernel.program import ReplayView
from lantern_kernel.retry import RetryPolicy

SIGNALS = ("paid", "shipped")
KINDS = ("step", "step", "step", "marker", "known", "timer", "signal", "signal", "approval", "child")
SOURCE = "adversary.py:1"
ERROR = RunErrorFacts(code="DONE", message="as decided")

Told = tuple[str, str, bytes | None, str]
"""What it was told: the kind of outcome or notice, the step, the data, the error's code."""


class Adversary:
    """One run of it. `size` bounds how many commands it issues."""

    def __init__(self, seed: int, size: int) -> None:
        self.digest = "ad" * 32
        self.told: list[Told] = []
        self.asked: list[Command] = []
        self.open: dict[str, Command] = {}
        self.withdrawn: set[str] = set()
        self.markers: dict[str, bytes] = {}
        self.free: set[str] = set()  # steps that touch nothing outside
        self.ended = False
        self.abandoned: set[str] = set()  # children that go on by themselves
        self._left = size
        self._mind = sha256(repr(seed).encode())
        self._count = 0
        self._fresh: list[Command] = []
        self._coming: deque[Happening] = deque()
        self._has_begun = False
        self._unanswered: list[str] = []
        self._evaluated = 0
        self._view: ReplayView | None = None

    @property
    def has_compensation(self) -> bool:
        """Not the same all the time."""
        return len(self.told) % 3 == 0

    def begin(self, view: ReplayView) -> None:
        """See Program."""
        self._view = view

    def advance(self) -> Sequence[Command]:
        """See Program."""
        assert self._view is not None, "it was shown the replay core first"
        if not self._has_begun:
            self._has_begun = True
            self._decide()
        while self._coming and not self.ended:
            self._hear(self._coming.popleft())
            self._decide()
        fresh, self._fresh = self._fresh, []
        self.asked += fresh
        return fresh

    def resolve(self, outcome: Happening) -> None:
        """See Program."""
        assert not self.ended, "nobody is told anything after the end"
        self._coming.append(outcome)

    def marker_value(self, step_id: str) -> bytes:
        """See Program. Another value at each evaluation."""
        self._evaluated += 1
        self.markers[step_id] = b'{"evaluated":%d}' % self._evaluated
        return self.markers[step_id]

    def close(self) -> None:
        """Nothing to end."""

    def _hear(self, outcome: Happening) -> None:
        if isinstance(outcome, Notice):
            told: Told = (outcome.kind, outcome.step_id, outcome.data, "")
            if outcome.kind == "update":
                self._unanswered.append(outcome.step_id)
            else:
                self._left = min(self._left, 4)
        else:
            command = self.open.pop(outcome.step_id)  # it is open, and told only once
            told = (type(command).__name__, outcome.step_id, outcome.data, outcome.error.code if outcome.error else "")
            if outcome.step_id in self.markers:
                assert self.markers[outcome.step_id] == outcome.data, "what was evaluated is what comes back"
        self.told.append(told)
        self._mind.update(repr(told).encode())

    def _number(self, below: int) -> int:
        self._mind.update(b".")
        return int.from_bytes(self._mind.digest()[:4], "big") % below

    def _decide(self) -> None:
        for _ in range(self._number(4)):
            if self._left:
                self._ask(KINDS[self._number(len(KINDS))])
        while self._unanswered and self._number(3):
            update = self._unanswered.pop(self._number(len(self._unanswered)))
            is_well = self._number(2) == 0
            self._fresh.append(
                CompleteUpdate(
                    step_id=update, source=SOURCE, result=b"1" if is_well else None, error=None if is_well else ERROR
                )
            )
        while self.open and self._number(6) == 0:
            self._withdraw(list(self.open)[self._number(len(self.open))])
        if (not self.open and not self._left) or self._number(60) == 0:
            self._end()
        elif not self.open:
            self._ask("step")

    def _withdraw(self, step_id: str) -> None:
        del self.open[step_id]
        self.withdrawn.add(step_id)
        self._fresh.append(Withdraw(step_id=step_id))

    def _ask(self, kind: str) -> None:
        self._left = max(0, self._left - 1)
        self._count += 1
        step_id = f"{kind}{self._count}"
        command = self._command(kind, step_id)
        self.open[step_id] = command
        self._fresh.append(command)

    def _command(
        self, kind: str, step_id: str
    ) -> RunStep | RecordMarker | StartTimer | AwaitSignal | RequestApproval | StartChild:
        match kind:
            case "step":
                policy = RetryPolicy(max_attempts=1 + self._number(3), backoff_ms=self._number(3) * 8_000)
                is_free = self._number(4) == 0
                if is_free:
                    self.free.add(step_id)
                total_ms = 20_000 if self._number(4) == 0 else None
                return RunStep(
                    step_id=step_id,
                    name=kind,
                    type="function",
                    input=b"%d" % self._number(1000),
                    source=SOURCE,
                    retry=policy,
                    total_timeout_ms=total_ms,
                    check_input=self._number(2) == 0,
                    effects="none" if is_free else "outside",
                )
            case "marker" | "known":
                value = b'"known"' if kind == "known" else None
                return RecordMarker(step_id=step_id, name=kind, source=SOURCE, value=value)
            case "timer":
                return StartTimer(step_id=step_id, duration_us=self._number(4) * 7_000_000, source=SOURCE)
            case "signal":
                return AwaitSignal(step_id=step_id, name=SIGNALS[self._number(2)], source=SOURCE)
            case "approval":
                timeout_us = 60_000_000 if self._number(2) else None
                return RequestApproval(
                    step_id=step_id, name=kind, title="Well?", source=SOURCE, data=b"1", timeout_us=timeout_us
                )
            case _:
                abandon = self._number(3) == 0
                if abandon:
                    self.abandoned.add(step_id)
                return StartChild(
                    step_id=step_id, name=kind, agent_name="child", input=b"1", source=SOURCE, abandon=abandon
                )

    def _end(self) -> None:
        ends: tuple[Command, ...] = (
            Succeed(result=b"%d" % self._number(1000)),
            Succeed(result=b"null"),
            Fail(error=ERROR),
            Cancelled(error=ERROR),
            ContinueAsNew(input=b"%d" % self._number(1000)),
        )
        self.ended = True
        self._fresh.append(ends[self._number(len(ends))])
