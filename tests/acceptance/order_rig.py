"""A system of two executors of which one is killed where a test says so, and started again for the next test."""

import time
from collections.abc import Mapping
from typing import Any

from client import start_run_at
from system import System

from lantern.api.journal.v1 import run_pb2
from lantern_kernel.event import Event

TIMEOUT_S = 30.0
HOLD_TIMEOUT_S = 60.0


class Rig:
    """Recovery, a victim and a standby, both offering the same workflows."""

    def __init__(self, system: System, settings: Mapping[str, str] | None = None) -> None:
        self.system = system
        self.shop = system.shop
        recovery = system.add_recovery().launch()
        self.victim = system.add_executor("victim", settings).launch()
        self.standby = system.add_executor("standby", settings).launch()
        for process in (recovery, self.victim, self.standby):
            process.await_ready()
        for process in (self.victim, self.standby):
            system.await_worker(process)

    def start(self, order_id: str, *, agent: str = "order", **more: Any) -> str:
        """Starts an order at the victim; the run's id."""
        order = self.system.order_input(order_id, **more)
        return start_run_at(self.victim.address, order, order_id, agent=agent).run_id

    def finish(self, run_id: str, state: "run_pb2.Run.State" = run_pb2.Run.STATE_SUCCEEDED) -> run_pb2.Run:
        """Waits for the end of a run."""
        return self.system.await_state(run_id, state, TIMEOUT_S)

    def await_held(self, count: int) -> None:
        """Waits until the shop holds as many replies."""
        deadline = time.monotonic() + HOLD_TIMEOUT_S
        while (held := self.shop.held()) != count:
            assert time.monotonic() < deadline, f"{held} of {count} requests came\n{self.system.tails()}"
            time.sleep(0.01)

    def kill_while_held(self, path: str, order_id: str, **more: Any) -> run_pb2.Run:
        """Kills the driver when the shop has acted and not replied; the run, finished by the standby."""
        self.shop.order_fault(path, "hold")
        run_id = self.start(order_id, **more)
        self.await_held(1)
        self.kill_victim()
        run = self.finish(run_id)
        self.revive_victim()
        return run

    def kill_victim(self) -> None:
        """SIGKILL; then the shop lets go what it holds, for nobody."""
        self.victim.kill()
        self.shop.release()

    def revive_victim(self) -> None:
        """A new process in its place."""
        self.victim.start()
        self.system.await_worker(self.victim)

    def events(self, run: run_pb2.Run) -> list[Event]:
        """A run's events."""
        return self.system.client.events(run.run_id)
