"""Goal: know how many steps a second workflow code makes where journal and steps cost nothing.

Method: a workflow of 20,000 steps is driven live over the kernel's course, each append kept at once and each step ended
at once; processor time, the best of five rounds, is printed as one line of JSON.
"""

import json
import time

import lantern
from lantern.program.host import RunInfo, WorkflowHost
from lantern.registry import Definition, define
from lantern_kernel import kinds, payloads
from lantern_kernel.course.course import Course
from lantern_kernel.event import Event
from lantern_kernel.step_ends import Completed

RUN_ID = "0190b5f0-0000-7000-8000-000000000001"
STEPS = 20_000
ROUNDS = 5
STARTED = Event(
    seq=1,
    kind=kinds.RUN_STARTED,
    step_id="",
    attempt=0,
    epoch=1,
    time_us=1,
    payload=payloads.pack({"agent": "bench"}, b"null"),
    salt=bytes(16),
    digest=bytes(32),
    hash=bytes(32),
)


class NoChance:
    """Nothing here depends on it."""

    def random_bytes(self, count: int) -> bytes:
        return bytes(count)

    def random01(self) -> float:
        return 0.5


class Hosted(WorkflowHost):
    """A host that knows the version of its code, as a driver's program does."""

    def __init__(self, definition: Definition) -> None:
        super().__init__(definition, b"null", RunInfo(run_id=RUN_ID, workflow_id=""))
        self.digest = definition.digest


def nothing() -> int:
    return 1


async def work(ctx: lantern.Context) -> None:
    for _ in range(STEPS):
        await ctx.step("work", nothing)


def _now_us() -> int:
    return time.monotonic_ns() // 1000


def drive() -> int:
    """Drives it to its end; the number of steps."""
    host = Hosted(define(work))
    course = Course(run_id=RUN_ID, workflow_id="", epoch=1, program=host, sources=NoChance(), now_us=_now_us)
    course.load([STARTED])
    steps = 0
    while True:
        course.advance()
        if course.ending:
            return steps
        course.committed(len(course.events))
        for started in course.take_starts():
            host.step_call(started.command.step_id)
            course.step_ended(started, Completed(output=b"1"))
            steps += 1


def main() -> None:
    seconds: list[float] = []
    for _ in range(ROUNDS):
        begun = time.process_time()
        assert drive() == STEPS
        seconds.append(time.process_time() - begun)
    print(json.dumps({"steps": STEPS, "steps_per_cpu_s": round(STEPS / min(seconds))}))


if __name__ == "__main__":
    main()
