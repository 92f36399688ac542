"""A driver in memory: drives a workflow over Replay and WorkflowHost, in a simulated outside world, with crashes.

What a step does and in which order things complete are functions of a seed and the step alone, so that two drives that
stand at the same place go on in the same way, whatever lies behind them.
"""

from collections import Counter
from hashlib import sha256
from typing import Any

from lantern.program.host import RunInfo, WorkflowHost
from lantern.registry import Definition
from lantern_kernel import json_bytes, kinds, payloads
from lantern_kernel.commands import Fail, Succeed
from lantern_kernel.event import AppliedEvent
from lantern_kernel.replay import Replay
from lantern_kernel.retry import Failure, RetryLater, decide
from lantern_kernel.work import FinishWork, MarkerWork, StepWork, StopWork, TimerWork

RUN_ID = "0190b5f0-0000-7000-8000-000000000001"


class Crash(Exception):
    """The driver's process is gone."""


class World:
    """The outside: answers by seed, step and attempt."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        # How often each attempt was made.
        self.made: Counter[tuple[str, int]] = Counter()
        # The key attempts of each attempt, in order.
        self.key_attempts: dict[str, list[tuple[int, int, str]]] = {}

    def number(self, *about: object) -> int:
        return int.from_bytes(sha256(repr((self.seed, *about)).encode()).digest()[:4], "big")

    def attempt(self, work: StepWork) -> bytes | Failure:
        step_id, attempt = work.command.step_id, work.attempt
        self.made[step_id, attempt] += 1
        luck = self.number("luck", step_id, attempt) % 4
        outcome = "not_executed" if luck == 1 else "unknown"
        self.key_attempts.setdefault(step_id, []).append((attempt, work.key_attempt, outcome if luck < 2 else "ok"))
        if luck < 2:
            return Failure(code=f"LUCK_{luck}", message="bad luck", error_class="tool", outcome=outcome)
        return json_bytes.encode({"step": step_id, "luck": self.number("value", step_id, attempt)}, "value")


class Drive:
    """One drive of a run: replays the journal, then goes on until the run ends or the process crashes."""

    def __init__(
        self,
        definition: Definition,
        journal: list[AppliedEvent],
        world: World,
        *,
        crash_at: int = 0,
        batch: bool = False,
    ) -> None:
        self.journal, self.world, self.crash_at, self.batch = journal, world, crash_at, batch
        self.replay = Replay(run_id=RUN_ID, workflow_id="")
        self.host = WorkflowHost(definition, b"7", RunInfo(run_id=RUN_ID, workflow_id=""))
        self.epoch = 2 + sum(event.kind == kinds.LEASE_GRANTED for event in journal) if journal else 1
        self.ready: dict[tuple[str, int], StepWork | TimerWork] = {}
        self.running: set[str] = set()

    def run(self) -> Succeed | Fail:
        """Returns how the run ended; raises Crash when the journal has `crash_at` events."""
        try:
            for event in self.journal:
                self.replay.apply(event)
            self.append(kinds.LEASE_GRANTED if self.journal else kinds.RUN_STARTED)
            self.pump()
            self.replay.finish_history()
            while True:
                end = self.begin_work()
                if end is not None:
                    return end
                for _ in range(2 if self.batch and len(self.ready) > 1 else 1):
                    self.complete_one()
                self.pump()
        finally:
            self.host.close()

    def pump(self) -> None:
        while True:
            for command in self.host.advance():
                self.replay.issue(command)
            outcome = self.replay.next_outcome()
            if outcome is None:
                return
            self.host.resolve(outcome)

    def append(
        self, kind: str, step_id: str = "", attempt: int = 0, data: bytes | None = None, **facts: Any
    ) -> AppliedEvent:
        seq = len(self.journal) + 1
        event = AppliedEvent(
            seq=seq,
            kind=kind,
            step_id=step_id,
            attempt=attempt,
            epoch=self.epoch,
            time_us=seq * 1000,
            payload=payloads.pack(facts, data),
        )
        self.replay.apply(event)
        self.journal.append(event)
        if seq == self.crash_at:
            raise Crash
        return event

    def begin_work(self) -> Succeed | Fail | None:
        goes_on = False
        for work in self.replay.take_work(now_us=len(self.journal) * 1000):
            match work:
                case FinishWork():
                    command = work.command
                    if isinstance(command, Succeed):
                        self.append(kinds.RUN_SUCCEEDED, data=command.result)
                    else:
                        assert isinstance(command, Fail), "nobody cancels"
                        self.append(kinds.RUN_FAILED, **command.error.to_facts())
                    return command
                case MarkerWork():
                    value = self.host.marker_value(work.command.step_id)
                    source = work.command.source
                    self.append(
                        kinds.MARKER_RECORDED, work.command.step_id, data=value, name=work.command.name, source=source
                    )
                    goes_on = True
                case TimerWork():
                    if not work.is_started:
                        self.append(kinds.TIMER_STARTED, work.command.step_id, dueUs=work.due_us)
                    self.ready[work.command.step_id, 0] = work
                case StepWork():
                    if work.not_before_us is None:
                        self.start(work)
                    self.ready[work.command.step_id, work.attempt] = work
                case StopWork():
                    self.stop(work)
                    goes_on = True
                case _:
                    raise AssertionError(f"no program here asks for {work}")
        if goes_on:
            self.pump()
            return self.begin_work()
        return None

    def start(self, work: StepWork) -> None:
        command = work.command
        self.append(
            kinds.STEP_STARTED,
            command.step_id,
            work.attempt,
            name=command.name,
            type=command.type,
            source=command.source,
            keyAttempt=work.key_attempt,
            key=work.key,
        )
        self.running.add(command.step_id)

    def stop(self, work: StopWork) -> None:
        step_id = work.step.command.step_id
        if not work.is_started:
            self.start(work.step)
        self.running.discard(step_id)
        self.ready = {at: each for at, each in self.ready.items() if at[0] != step_id}
        error: dict[str, Any] = {"code": "STEP_CANCELLED", "message": "not wanted any more"}
        self.append(kinds.STEP_FAILED, step_id, work.step.attempt, final=True, **error)

    def complete_one(self) -> None:
        """Lets the one that luck prefers happen: a timer fires, a back-off ends, an attempt ends."""
        at = min(self.ready, key=lambda each: self.world.number("order", *each))
        work = self.ready.pop(at)
        if isinstance(work, TimerWork):
            self.append(kinds.TIMER_FIRED, at[0])
            return
        if at[0] not in self.running:
            self.start(work)
        self.running.discard(at[0])
        answer = self.world.attempt(work)
        if isinstance(answer, bytes):
            self.append(kinds.STEP_COMPLETED, at[0], work.attempt, data=answer)
            return
        decision = decide(work.command.retry, work.attempt, work.key_attempt, work.key_frozen, answer, 0.5)
        error: dict[str, Any] = {"code": answer.code, "message": answer.message}
        if isinstance(decision, RetryLater):
            self.append(
                kinds.STEP_RETRYING,
                at[0],
                work.attempt,
                of=work.command.retry.max_attempts,
                error=error,
                delayMs=decision.delay_ms,
                keyAttempt=decision.key_attempt,
                outcome=answer.outcome,
            )
            for again in self.replay.take_work(0):
                assert isinstance(again, StepWork)
                self.ready[at[0], again.attempt] = again
        else:
            self.append(kinds.STEP_FAILED, at[0], work.attempt, final=True, **error)


def essence(journal: list[AppliedEvent]) -> list[tuple[object, ...]]:
    """What two journals of one program in one world share: without leases, and without crash points done again."""
    seen: set[tuple[str, str, int]] = set()
    kept: list[tuple[object, ...]] = []
    for event in journal:
        content = payloads.unpack(event.payload)
        place = (event.kind, event.step_id, event.attempt)
        is_again = event.kind == kinds.STEP_STARTED and place in seen
        seen.add(place)
        if event.kind != kinds.LEASE_GRANTED and not is_again:
            kept.append((*place, content.data, content.facts.get("code"), content.facts.get("source")))
    return kept
