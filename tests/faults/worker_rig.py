"""What the worker fault tests run: journals, a recovery service for each, workers of one module, and a ledger outside.

Everything is a real process of `system.Process`, ended with the test by its own id.
"""

import json
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from client import Client, start_run_at
from system import Process, free_port

from lantern.api.journal.v1 import run_pb2
from lantern_kernel import kinds
from lantern_kernel.event import Event, find_chain_fault
from lantern_kernel.payloads import unpack

WORKFLOWS = Path(__file__).with_name("worker_flows.py")
WAIT_S = 40.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Effect:
    """One line of the ledger: what a step did to the outside world."""

    # begin or end.
    what: str
    # Of the run.
    run_id: str
    # Of the step.
    step_id: str
    # The idempotency key that it came with.
    key: str
    # The lease under which it was done.
    epoch: int
    # The process that did it.
    pid: int
    # When: CLOCK_MONOTONIC, seconds.
    at_s: float


class WorkerRig:
    """Journals on one database and workers; use as a context manager.

    Args:
        folder: For logs and the ledger.
        database: LANTERN_DATABASE.
        journals: How many journal processes.
        settings: Further settings of every service.
    """

    def __init__(
        self, folder: Path, database: str, *, journals: int = 1, settings: Mapping[str, str] | None = None
    ) -> None:
        self.folder = folder
        self.ledger = folder / "ledger"
        self.settings = dict(settings or {})
        folder.mkdir(parents=True, exist_ok=True)
        self.ledger.touch()
        self._processes: list[Process] = []
        self._clients: dict[str, Client] = {}
        self.journals = [
            self._process(
                f"journal{number}",
                "lantern_journal",
                {"LANTERN_DATABASE": database, "LANTERN_LISTEN": f"127.0.0.1:{free_port()}"},
            )
            for number in range(journals)
        ]

    def __enter__(self) -> Self:
        try:
            for journal in self.journals:
                journal.start()
            recoveries = [
                self._process(f"recovery{number}", "lantern_recovery", {"LANTERN_JOURNAL": journal.address}).launch()
                for number, journal in enumerate(self.journals)
            ]
            for recovery in recoveries:
                recovery.await_ready()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kills everything that is left."""
        for client in self._clients.values():
            client.close()
        for process in reversed(self._processes):
            process.kill()

    def worker(self, name: str, settings: Mapping[str, str] | None = None) -> Process:
        """One more worker that offers the agent `<name without digits>`, launched and not awaited."""
        own = {
            "LANTERN_JOURNAL": ",".join(journal.address for journal in self.journals),
            "LANTERN_MODULES": str(WORKFLOWS),
            "LANTERN_LISTEN": "127.0.0.1:0",
            "FLOWS_LEDGER": str(self.ledger),
            "FLOWS_AGENT": agent_of(name),
        }
        return self._process(name, "lantern_executor", {**own, **(settings or {})}).launch()

    def client(self, journal: int = 0) -> Client:
        """A client of a journal process."""
        address = self.journals[journal].address
        if address not in self._clients:
            self._clients[address] = Client(address)
        return self._clients[address]

    def start_at(self, worker: Process, **order: Any) -> str:
        """Starts a run of the worker's own agent at it; its id."""
        worker.await_ready()
        return start_run_at(worker.address, order, agent=agent_of(worker.name)).run_id

    def effects(self, run_id: str, what: str = "begin", step_id: str = "") -> list[Effect]:
        """What a run's steps did, in order."""
        found = self.all_effects(what)
        return [each for each in found if each.run_id == run_id and step_id in ("", each.step_id)]

    def all_effects(self, what: str = "begin") -> list[Effect]:
        """What the steps of all runs did, in order."""
        found = [Effect(**json.loads(line)) for line in self.ledger.read_text().splitlines()]
        return [each for each in found if each.what == what]

    def await_effect(self, run_id: str, step_id: str, what: str = "begin", epoch: int = 1) -> Effect:
        """Waits until a step has begun (or ended) under an epoch."""
        found: list[Effect] = []

        def look() -> bool:
            found[:] = [each for each in self.effects(run_id, what, step_id) if each.epoch == epoch]
            return bool(found)

        self.wait(look, f"{step_id} of {run_id} under epoch {epoch}: {what}")
        return found[0]

    def await_success(self, run_id: str, journal: int = 0, timeout_s: float = WAIT_S) -> list[Event]:
        """Waits for a run's success, checks that its journal is sound, and returns its events."""
        client = self.client(journal)
        self.wait(lambda: client.get_run(run_id).HasField("end_time"), f"the end of {run_id}", timeout_s)
        run = client.get_run(run_id)
        assert run.state == run_pb2.Run.STATE_SUCCEEDED, f"{run_id}: {run}\n{self.tails()}"
        events = client.events(run_id)
        assert find_chain_fault(run_id, events) is None
        times = [event.time_us for event in events]
        assert times == sorted(times), f"event times fall: {times}"
        completed = [event.step_id for event in events if event.kind == kinds.STEP_COMPLETED]
        assert len(completed) == len(set(completed)), f"a step completed twice: {completed}"
        return events

    def check_effects(self, run_id: str) -> None:
        """No effect outside was doubled: one key for each step, and nothing was begun by a driver that was replaced.

        A step that was in flight when its driver was lost is begun again, under the same key: that is no second effect
        for who heeds the key (SPEC E5).
        """
        begun = self.effects(run_id)
        for step_id in {effect.step_id for effect in begun}:
            of_step = [effect for effect in begun if effect.step_id == step_id]
            assert len({effect.key for effect in of_step}) == 1, f"{step_id} went out under several keys: {of_step}"
            epochs = [effect.epoch for effect in of_step]
            assert len(epochs) == len(set(epochs)), f"{step_id} was begun twice under one lease: {of_step}"
        epochs = [effect.epoch for effect in sorted(begun, key=lambda effect: effect.at_s)]
        assert epochs == sorted(epochs), f"a replaced driver began a step: {begun}"

    def wait(self, holds: Callable[[], bool], what: str, timeout_s: float = WAIT_S) -> None:
        """Waits until something holds."""
        deadline = time.monotonic() + timeout_s
        while not holds():
            assert time.monotonic() < deadline, f"waited {timeout_s} s in vain: {what}\n{self.tails()}"
            time.sleep(0.02)

    def tails(self, size: int = 2500) -> str:
        """The ends of all logs, for a failure's message."""
        return "\n".join(f"--- {process.name}\n{process.log_text()[-size:]}" for process in self._processes)

    def _process(self, name: str, package: str, settings: Mapping[str, str]) -> Process:
        process = Process(name, ["-m", package], {**self.settings, **settings}, self.folder)
        self._processes.append(process)
        return process


def agent_of(name: str) -> str:
    """What a worker of that name offers: those that differ in their number alone can replace each other."""
    return name.rstrip("0123456789")


def granted(events: Sequence[Event]) -> list[tuple[int, str]]:
    """The leases of a run: epoch and reason."""
    return [(each.epoch, unpack(each.payload).facts["reason"]) for each in events if each.kind == kinds.LEASE_GRANTED]


def keeper_of(worker: Process) -> int:
    """The process id of a worker's present helper process."""
    (pid,) = children_of(worker.pid)
    return pid


def children_of(parent: int) -> list[int]:
    """The living children of a process."""
    found: list[int] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, ppid, *_ = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        if int(ppid) == parent and state != "Z":
            found.append(int(stat.parent.name))
    return found


def is_running(pid: int) -> bool:
    """Whether a process is there, and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def send(pids: Sequence[int], number: signal.Signals) -> None:
    """A signal to each."""
    for pid in pids:
        os.kill(pid, number)


def logged(worker: Process, action: str) -> list[dict[str, Any]]:
    """What a worker (or its helper, which logs to the same place) has logged under an action."""
    return [line for line in worker.log_lines() if line.get("action") == action]
