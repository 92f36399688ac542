"""Goal: know how many events a second the replay core and the workflow host take in.

Method: a history of 50,000 events (one run_started, then steps one after the other) is replayed by the core alone and
by the core together with a workflow; the best of five rounds is printed as one line of JSON.
"""

import json
import time
from collections.abc import Callable

import lantern
from lantern.program.host import RunInfo, WorkflowHost
from lantern.registry import define
from lantern_kernel import kinds, payloads
from lantern_kernel.commands import RunStep
from lantern_kernel.event import AppliedEvent
from lantern_kernel.keys import idempotency_key
from lantern_kernel.replay import Replay

RUN_ID = "0190b5f0-0000-7000-8000-000000000001"
STEPS = 25_000
ROUNDS = 5


def make_history() -> list[AppliedEvent]:
    history = [_event(1, kinds.RUN_STARTED, "", 0, payloads.pack({"agent": "bench"}, b"null"))]
    for number in range(STEPS):
        step_id = f"work[{number}]" if number else "work"
        started = payloads.pack(
            {
                "name": "work",
                "type": "function",
                "of": 3,
                "keyAttempt": 1,
                "key": idempotency_key(RUN_ID, step_id, 1),
                "inputHash": "0" * 64,
                "source": "bench_replay.py:1",
                "code": "0" * 64,
            }
        )
        history.append(_event(len(history) + 1, kinds.STEP_STARTED, step_id, 1, started))
        history.append(
            _event(len(history) + 1, kinds.STEP_COMPLETED, step_id, 1, payloads.pack({}, b'{"order":1042,"ok":true}'))
        )
    return history


def _event(seq: int, kind: str, step_id: str, attempt: int, payload: bytes) -> AppliedEvent:
    return AppliedEvent(
        seq=seq, kind=kind, step_id=step_id, attempt=attempt, epoch=1, time_us=seq * 1000, payload=payload
    )


def replay_core(history: list[AppliedEvent], commands: list[RunStep]) -> None:
    replay = Replay(run_id=RUN_ID, workflow_id="")
    for event in history:
        replay.apply(event)
    for command in commands:
        replay.issue(command)
        assert replay.next_outcome() is not None
    replay.finish_history()
    assert replay.steps_replayed == STEPS


async def work(ctx: lantern.Context) -> None:
    for _ in range(STEPS):
        await ctx.step("work", print)


def replay_workflow(history: list[AppliedEvent]) -> None:
    replay = Replay(run_id=RUN_ID, workflow_id="")
    host = WorkflowHost(define(work), b"null", RunInfo(run_id=RUN_ID, workflow_id=""))
    for event in history:
        replay.apply(event)
    while True:
        for command in host.advance():
            replay.issue(command)
        outcome = replay.next_outcome()
        if outcome is None:
            break
        host.resolve(outcome)
    replay.finish_history()
    assert len(replay.take_work(0)) == 1
    host.close()


def best_rate(events: int, run: Callable[[], None]) -> int:
    seconds: list[float] = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - begun)
    return round(events / min(seconds))


def main() -> None:
    history = make_history()
    commands = [
        RunStep(step_id=event.step_id, name="work", type="function", input=b"[]", source="bench_replay.py:1")
        for event in history
        if event.kind == kinds.STEP_STARTED
    ]
    report = {
        "events": len(history),
        "core_events_per_s": best_rate(len(history), lambda: replay_core(history, commands)),
        "workflow_events_per_s": best_rate(len(history), lambda: replay_workflow(history)),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
