"""The engine in memory: real replay, a journal, workers and time, in one process and without waiting."""

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Self
from uuid import UUID

from lantern import registry
from lantern.program import conversion
from lantern.registry import WorkflowFunction
from lantern.testing.drive import Crash, Drive, Surroundings
from lantern.testing.faults import Injector
from lantern.testing.handle import RunHandle
from lantern.testing.journal import MemoryJournal
from lantern.testing.outside import Attempt, HttpRequest, Outside
from lantern.testing.programs import Agent, Markers, WatchedProgram
from lantern.testing.replaying import check_history, check_replay, replayed
from lantern.testing.stored import StoredRun
from lantern.testing.waking import CANCEL
from lantern_kernel import reasons
from lantern_kernel.blobs import BlobRef
from lantern_kernel.bounds import PAYLOAD_INLINE_BYTES_MAX
from lantern_kernel.errors import InvalidField, LanternError
from lantern_kernel.work import ChildWork

START_US = 1_767_225_600_000_000
"""2026-01-01T00:00:00Z, when every environment begins."""

SETTLE_US = 300_000
"""What `settle` lets pass at most: a run is parked only once nothing has come for a moment."""

DURABILITIES = ("sync", "async", "exit")

REPLAYED_EACH_TIME = 200
"""Events up to which a run is replayed after each commit."""

REPLAYED_GROWTH = 1.05
"""Above that: whenever its history has grown by so much, and at its end."""

TURNS_MAX = 100_000
"""Turns at one time, after which something goes round."""

_GONE = frozenset({reasons.LEASE_LOST, reasons.RUN_CLOSED})


class SeededChance:
    """Chance that is the same each time."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)  # noqa: S311 - a test repeats it

    def random_bytes(self, count: int) -> bytes:
        """See Chance."""
        return self._random.randbytes(count)

    def random01(self) -> float:
        """See Chance."""
        return self._random.random()


class SeededWorld:
    """The time of an environment, and chance that is the same each time: what `ctx.now`, `random` and `uuid` record."""

    def __init__(self, now_us: Callable[[], int], seed: int) -> None:
        self._now_us = now_us
        self._random = Random(seed)  # noqa: S311 - a test repeats it

    def now_us(self) -> int:
        """See Surroundings."""
        return self._now_us()

    def random01(self) -> float:
        """See Surroundings."""
        return self._random.random()

    def uuid(self) -> str:
        """See Surroundings."""
        return str(UUID(bytes=self._random.randbytes(16), version=4))


class Environment:
    """Runs workflows in memory, on a time of its own that stands still unless it is skipped.

    Use it in a plain test function, as a context manager or with `close`. From inside a running event loop it has to
    be called in a thread: `await asyncio.to_thread(run.result)`.

    Args:
        seed: Of the jitter of retries, and of what `ctx.random` and `ctx.uuid` give.
        replay_every_await: After each commit the run is replayed from its history by fresh code, which must ask for
            exactly the same; else ReplayDiffers. Above 200 events it is whenever the history has grown by a twentieth,
            and at the end.
        faults: What goes wrong; nothing by default.
        markers: What markers give, where they are to give what they gave in another environment.

    Attributes:
        attempts: All executions of steps, in order.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        replay_every_await: bool = True,
        faults: Injector | None = None,
        markers: Markers | None = None,
    ) -> None:
        self._us = START_US
        self._jumped_us = 0
        self._replayed_at: dict[str, int] = {}
        self._replay_every_await = replay_every_await
        self._markers = markers or Markers()
        self._world = SeededWorld(lambda: self._us, seed)
        self._outside = Outside()
        self._journal = MemoryJournal(lambda: self._us)
        self._agents: dict[str, Agent] = {}
        self._drives: list[Drive] = []
        self._runner: asyncio.Runner | None = None
        self._requests = itertools.count(1)
        self._workers = itertools.count(1)
        self._around = Surroundings(
            journal=self._journal,
            outside=self._outside,
            faults=faults or Injector(),
            now_us=lambda: self._us,
            jump=self._jump,
            chance=SeededChance(seed),
            wait=self._wait,
            program_of=self._program_of,
            begin_child=self._begin_child,
            stop_child=self._stop_child,
            take_over=self._take_over,
            committed=self._committed,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends whatever still runs."""
        for drive in self._drives:
            drive.close()
        self._drives.clear()
        if self._runner is not None:
            self._runner.close()
            self._runner = None

    # What a test says.

    @property
    def attempts(self) -> list[Attempt]:
        """All executions of steps, in order."""
        return self._outside.attempts

    @property
    def journal(self) -> MemoryJournal:
        """The journal."""
        return self._journal

    @property
    def now(self) -> datetime:
        """The time of the environment."""
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=self._us)

    @property
    def now_us(self) -> int:
        """The same in microseconds since the epoch."""
        return self._us

    def fake(self, step: str, stand_in: Any = None, *, takes_s: float = 0.0) -> None:
        """Lets something stand in for a step.

        Args:
            step: The step's name.
            stand_in: A function, async or not, that is called with the step's arguments (for an HTTP step with an
                HttpRequest); or the value that the step gives. None keeps the step's own code.
            takes_s: How long the reply takes, in the time of the environment; above the step's time-out it is lost.
        """
        self._outside.put(step, stand_in, takes_s)

    def http(self, answer: Callable[[HttpRequest], Any]) -> None:
        """Names what answers HTTP steps: it gives `(status, body)`, or the body alone for 200."""
        self._outside.http = answer

    def offer(self, *workflows: WorkflowFunction | Agent) -> None:
        """Makes workflows known that are started by their name alone, as children are."""
        for workflow in workflows:
            agent = self._agent_of(workflow)
            self._agents[agent.name] = agent

    def deploy(self, *workflows: WorkflowFunction | Agent) -> None:
        """Puts other code in the place of workflows of the same names, as a deploy that kills the old workers does.

        Runs in flight are replayed by it at once, those that waited on code_fix, too. An attempt whose reply was on its
        way is made again, under its key.
        """
        self.offer(*workflows)
        names = {self._agent_of(workflow).name for workflow in workflows}
        for drive in [each for each in self._drives if each.run.agent_name in names]:
            self._drives.remove(drive)
            drive.close()
            self._journal.expire(drive.run.run_id)
        for run in self._journal.runs.values():
            if run.agent_name in names:
                self._journal.upgrade(run.run_id)

    def start(
        self,
        workflow: WorkflowFunction | str,
        input: Any = None,  # noqa: A002 - as the client has it
        *,
        workflow_id: str = "",
        durability: str = "sync",
    ) -> RunHandle:
        """Starts a run. Nothing is done before the test waits for something or lets time pass.

        Args:
            workflow: The workflow's function, or its name.
            input: What JSON can say.
            workflow_id: The user's own name for the work.
            durability: When its events are committed: sync, async or exit. What is not committed, a crash loses.
        """
        if durability not in DURABILITIES:
            raise InvalidField("durability", f"{durability!r} is none of {', '.join(DURABILITIES)}")
        if not isinstance(workflow, str):
            self.offer(workflow)
            workflow = self._agent_of(workflow).name
        agent = self._agent(workflow)
        content = self.content(conversion.encode(input, "input"))
        run = self._journal.create(
            agent.name,
            agent.digest,
            content,
            workflow_id=workflow_id,
            request_id=self.request_id(),
            durability=durability,
        )
        return RunHandle(self, run)

    def skip(self, seconds: float) -> None:
        """Lets that much time pass, and everything happen that comes due on the way."""
        self._pass(round(seconds * 1e6), to_the_end=True)

    def settle(self) -> None:
        """Lets everything happen that can happen now; at most 0.3 s pass."""
        self._pass(SETTLE_US, to_the_end=False)

    def finish(self, run_id: str = "") -> None:
        """Skips time until the run has ended, or all that can come by itself has come."""
        while True:
            self._work()
            if run_id and not self._journal.run(run_id).is_open:
                return
            due_us = self._next_due_us()
            if due_us is None:
                return
            self._us = max(self._us, due_us)

    def skip_to_next(self) -> bool:
        """Skips to when something comes by itself next, and lets it happen; False where nothing does."""
        due_us = self._next_due_us()
        if due_us is not None:
            self._us = max(self._us, due_us)
            self._work()
        return due_us is not None

    def check_replays(self) -> None:
        """Replays the whole history of every run; ReplayDiffers where the code asks for something else by now."""
        for run in self._journal.runs.values():
            check_history(run, self._program_of, self._journal.content)

    # What handles need.

    def ask(self, run: StoredRun, name: str, data: bytes) -> bytes:
        """What a run's code answers to a query, from its history alone."""
        events = tuple(run.events)
        with replayed(run.run_id, run.workflow_id, events, lambda: self._program_of(run), self._journal.content) as (
            _,
            program,
        ):
            return program.answer_query(name, data)

    def request_id(self) -> str:
        """Names the next request."""
        return f"test-{next(self._requests)}"

    def content(self, raw: bytes) -> bytes | BlobRef:
        """What stands for content in an event."""
        return raw if len(raw) <= PAYLOAD_INLINE_BYTES_MAX else self._journal.put_blob(raw)

    def handle(self, run_id: str) -> RunHandle:
        """A run that was begun by another, or that goes on for another."""
        return RunHandle(self, self._journal.run(run_id))

    @property
    def runs(self) -> list[RunHandle]:
        """All runs, in the order of their creation."""
        return [RunHandle(self, run) for run in self._journal.runs.values()]

    # How it works.

    def _pass(self, by_us: int, *, to_the_end: bool) -> None:
        """Lets so much time pass; a jump of the clock on the way is none of it."""
        begun_us, jumped_us = self._us, self._jumped_us
        while True:
            self._work()
            due_us, until_us = self._next_due_us(), begun_us + by_us + self._jumped_us - jumped_us
            if due_us is None or due_us > until_us:
                break
            self._us = max(self._us, due_us)
        if to_the_end:
            self._us = max(self._us, until_us)

    def _next_due_us(self) -> int | None:
        dues = [self._journal.next_due_us(), *(drive.next_due_us for drive in self._drives)]
        return min((due_us for due_us in dues if due_us is not None), default=None)

    def _work(self) -> None:
        """All that can be done at this time."""
        for _ in range(TURNS_MAX):
            self._journal.pass_time()
            queued = self._journal.queued()
            for run in queued:
                self._grant(run)
            # Not any(...): each has its turn.
            if not (sum([self._turn(drive) for drive in list(self._drives)]) or queued):
                return
        raise AssertionError(f"{TURNS_MAX} turns without time passing: something goes round")

    def _turn(self, drive: Drive) -> bool:
        try:
            return drive.turn()
        except Crash:
            self._journal.expire(drive.run.run_id)
            drive.close()
            return True
        except LanternError as error:
            if error.reason not in _GONE:
                raise
            drive.close()
            return True
        finally:
            if drive.is_over and drive in self._drives:
                self._drives.remove(drive)
                drive.close()

    def _grant(self, run: StoredRun) -> None:
        epoch = self._journal.grant(run.run_id, f"worker-{next(self._workers)}", run.cause)
        self._drives.append(Drive(self._around, run, epoch))

    def _take_over(self, run: StoredRun) -> None:
        run.cause = "crash"
        self._grant(run)

    def _jump(self, by_us: int) -> None:
        self._us += by_us
        self._jumped_us += by_us

    def _wait(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            if self._runner is None:
                self._runner = asyncio.Runner()
            return self._runner.run(coroutine)
        coroutine.close()
        raise RuntimeError(
            "lantern.testing waits for the code of steps: inside a running event loop call it in a thread, for"
            " instance `await asyncio.to_thread(run.result)`"
        )

    def _agent_of(self, workflow: WorkflowFunction | Agent) -> Agent:
        return workflow if isinstance(workflow, Agent) else Agent.of(registry.definition_of(workflow), self._world)

    def _agent(self, name: str) -> Agent:
        if name not in self._agents:
            message = f"agent {name} is not known here: name its function, env.offer(function)"
            raise LanternError(reasons.AGENT_NOT_FOUND, message)
        return self._agents[name]

    def _program_of(self, run: StoredRun) -> WatchedProgram:
        content = self._journal.content(run.input_blob or run.input)
        return WatchedProgram(self._agent(run.agent_name), run.run_id, run.workflow_id, content, self._markers)

    def _begin_child(self, run: StoredRun, work: ChildWork) -> None:
        command = work.command
        agent = self._agent(command.agent_name)
        self._journal.create(
            agent.name,
            agent.digest,
            self.content(command.input),
            workflow_id=command.workflow_id,
            request_id=work.request_id,
            parent=(run.run_id, command.step_id),
            is_abandoned=command.abandon,
        )

    def _stop_child(self, run: StoredRun, work: ChildWork) -> None:
        for child in list(self._journal.runs.values()):
            if child.parent == (run.run_id, work.command.step_id) and child.is_open:
                self._journal.send(child.run_id, CANCEL, request_id=f"stop:{work.request_id}")

    def _committed(self, run: StoredRun, program: WatchedProgram) -> None:
        """Replays a run after a commit; a long one not after each, or its replays would cost the square of it."""
        if not self._replay_every_await:
            return
        count, replayed_at = len(run.events), self._replayed_at.get(run.run_id, 0)
        if count > REPLAYED_EACH_TIME and run.is_open and count < replayed_at * REPLAYED_GROWTH:
            return
        self._replayed_at[run.run_id] = count
        check_replay(run, program.commands, self._program_of, self._journal.content)
