"""A whole Lantern of real processes for a test: started, killed by process id, started again, and always cleaned up.

Every process ends with the test's own (LANTERN_EXIT_WITH_PARENT), so an interrupted run leaves nothing behind. Start
processes from the main thread only: the kernel's death signal follows the thread that started them.
"""

import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from client import Client, ShopClient

from lantern.api.journal.v1 import run_pb2

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "clients" / "python" / "examples"
WORKFLOW = "order.workflow"
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 15.0


class Process:
    """One process that prints a line of JSON when it is ready; its log is `<folder>/<name>.log`."""

    def __init__(self, name: str, argv: Sequence[str], settings: Mapping[str, str], folder: Path) -> None:
        self.name = name
        self._argv = [sys.executable, *argv]
        self._settings = dict(settings)
        self._log = folder / f"{name}.log"
        self._popen: subprocess.Popen[bytes] | None = None
        self.ready: dict[str, Any] = {}

    @property
    def pid(self) -> int:
        """Of the process that was started last."""
        assert self._popen is not None, f"{self.name} was never started"
        return self._popen.pid

    @property
    def address(self) -> str:
        """Where it listens."""
        return str(self.ready["address"])

    def launch(self) -> Self:
        """Starts it without waiting."""
        self.ready = {}
        environment = {
            "PATH": os.environ.get("PATH", ""),
            "HOME": os.environ.get("HOME", ""),
            "PYTHONPATH": os.pathsep.join([str(EXAMPLES), str(ROOT / "tests" / "acceptance")]),
            "LANTERN_EXIT_WITH_PARENT": str(os.getpid()),
            **self._settings,
        }
        with self._log.open("ab") as log:
            self._popen = subprocess.Popen(
                self._argv, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, cwd=ROOT
            )
        return self

    def await_ready(self) -> Self:
        """Waits for the line that says where it listens; returns at once where it was waited for before."""
        if self.ready:
            return self
        assert self._popen is not None, "launch comes first"
        assert self._popen.stdout is not None, "its output is a pipe"
        readable, _, _ = select.select([self._popen.stdout], [], [], START_TIMEOUT_S)
        line = self._popen.stdout.readline() if readable else b""
        if not line:
            tail = self.log_text()[-3000:]
            self.kill()
            raise AssertionError(f"{self.name} did not get ready within {START_TIMEOUT_S} s\n{tail}")
        self.ready = json.loads(line)
        return self

    def start(self) -> Self:
        """Starts it and waits until it is ready."""
        return self.launch().await_ready()

    def is_alive(self) -> bool:
        """Whether it runs (or is stopped)."""
        return self._popen is not None and self._popen.poll() is None

    def kill(self) -> None:
        """SIGKILL, and waits until it is gone."""
        if self._popen is not None:
            self._popen.kill()
            self._gone(STOP_TIMEOUT_S)

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal, such as SIGSTOP or SIGCONT."""
        os.kill(self.pid, number)

    def terminate(self) -> int:
        """SIGTERM, and waits for the orderly end; its exit code."""
        assert self._popen is not None, "it was started"
        self._popen.terminate()
        return self._gone(STOP_TIMEOUT_S)

    def await_end(self, timeout_s: float) -> int:
        """Waits until it ends by itself; its exit code, negative where a signal ended it."""
        return self._gone(timeout_s)

    def log_text(self) -> str:
        """All that it has logged so far."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def log_lines(self) -> list[dict[str, Any]]:
        """Its log's JSON lines."""
        lines = (line for line in self.log_text().splitlines() if line.startswith("{"))
        return [json.loads(line) for line in lines]

    def _gone(self, timeout_s: float) -> int:
        assert self._popen is not None, "it was started"
        try:
            code = self._popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
            raise AssertionError(f"{self.name} did not end within {timeout_s} s\n{self.log_text()[-3000:]}") from None
        if self._popen.stdout is not None:
            self._popen.stdout.close()
        return code


class System:
    """Journal, recovery services, executors and the shop; use as a context manager.

    Args:
        folder: For databases and logs.
        database: LANTERN_DATABASE.
        settings: Further settings for every service.
    """

    def __init__(self, folder: Path, database: str, settings: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.settings = dict(settings or {})
        self._processes: list[Process] = []
        journal_address = f"127.0.0.1:{free_port()}"
        self.journal = self._process(
            "journal",
            ["-m", "lantern_journal"],
            {"LANTERN_DATABASE": database, "LANTERN_LISTEN": journal_address},
        )
        self.journal_address = journal_address
        self.shop_process = self._process(
            "shop",
            ["-m", "order.shop", "--dir", str(folder / "shop"), "--exit-with-parent", str(os.getpid())],
            {},
        )
        self.client = Client(journal_address)
        self.shop = ShopClient()

    def __enter__(self) -> Self:
        try:
            self.shop_process.launch()
            self.journal.start()
            self.shop = ShopClient(self.shop_process.await_ready().ready)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kills everything that is left, and leaves the logs."""
        self.client.close()
        for process in reversed(self._processes):
            process.kill()

    def add_recovery(self, name: str = "recovery") -> Process:
        """One more recovery service, not started yet."""
        return self._process(
            name, ["-m", "lantern_recovery"], {"LANTERN_JOURNAL": self.journal_address, "LANTERN_LISTEN": "127.0.0.1:0"}
        )

    def add_executor(
        self, name: str, settings: Mapping[str, str] | None = None, entry: Sequence[str] = ("-m", "lantern_executor")
    ) -> Process:
        """One more executor that offers the order workflow, not started yet."""
        own = {
            "LANTERN_JOURNAL": self.journal_address,
            "LANTERN_LISTEN": "127.0.0.1:0",
            "LANTERN_MODULES": WORKFLOW,
        }
        return self._process(name, entry, {**own, **(settings or {})})

    def order_input(self, order_id: str, **more: Any) -> dict[str, Any]:
        """The input of an order at this system's shop."""
        return {"orderId": order_id, "shop": self.shop.http, "smtp": self.shop.smtp, **more}

    def await_worker(self, executor: Process, timeout_s: float = START_TIMEOUT_S) -> str:
        """Waits until the executor's session stands; its worker id."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            for worker in self.client.find_workers():
                if worker.address == executor.address:
                    return worker.worker_id
            time.sleep(0.01)
        raise AssertionError(f"{executor.name} did not attach within {timeout_s} s\n{executor.log_text()[-3000:]}")

    def await_state(self, run_id: str, state: "run_pb2.Run.State", timeout_s: float) -> run_pb2.Run:
        """Waits for a run's state; fails at once in a final state that is another one."""
        return self.await_one_of(run_id, [state], timeout_s)

    def await_one_of(self, run_id: str, states: Sequence["run_pb2.Run.State"], timeout_s: float) -> run_pb2.Run:
        """Waits until a run is in one of these states; fails at once in a final state that is none of them."""
        deadline = time.monotonic() + timeout_s
        while True:
            run = self.client.get_run(run_id)
            if run.state in states:
                return run
            shown = run_pb2.Run.State.Name(run.state)
            assert not run.HasField("end_time"), f"{run_id} ended {shown}: {run.error.code} {run.error.message}"
            if time.monotonic() > deadline:
                raise AssertionError(f"{run_id} is {shown} after {timeout_s} s\n{self.tails()}")
            time.sleep(0.01)

    def tails(self, size: int = 1500) -> str:
        """The ends of all logs, for a failure's message."""
        return "\n".join(f"--- {process.name}\n{process.log_text()[-size:]}" for process in self._processes)

    def _process(self, name: str, argv: Sequence[str], settings: Mapping[str, str]) -> Process:
        process = Process(name, argv, {**self.settings, **settings}, self.folder)
        self._processes.append(process)
        return process


def free_port() -> int:
    """A port below those that the kernel hands out, so that it stays free while its server is restarted."""
    while True:
        port = random.randint(15_000, 30_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
