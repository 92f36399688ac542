"""What the demonstration starts and stops: `lantern up` and the shop, in a folder of its own; and how it asks them."""

import asyncio
import json
import os
import signal
import sys
import tempfile
from collections.abc import Awaitable, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar

import aiohttp
import grpc

from lantern.api.journal.v1 import recovery_service_pb2, recovery_service_pb2_grpc
from lantern.client import Client

WORKFLOW = Path(__file__).with_name("workflow.py")
EXAMPLES = Path(__file__).parents[1]
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0
POLL_S = 0.02
RPC_TIMEOUT_S = 10.0

T = TypeVar("T")


class StageError(Exception):
    """Something did not start, or did not come about in time; the message says what."""


class Stage:
    """Journal, recovery, two executors and the shop; use as an async context manager.

    Args:
        database: What `lantern up --db` takes: `sqlite` (a file in the stage's folder) or `postgres`.
    """

    def __init__(self, database: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="lantern-demo-")
        self.state = Path(self._folder.name) / "lantern"
        self._database = f"sqlite:{self._folder.name}/lantern.db" if database == "sqlite" else database
        self._up: asyncio.subprocess.Process | None = None
        self._shop: asyncio.subprocess.Process | None = None
        self._pids: set[int] = set()
        self._http: aiohttp.ClientSession | None = None
        self.shop = ""
        self.smtp = ""

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends all that was started, and removes the folder."""
        if self._http is not None:
            await self._http.close()
        for process in (self._up, self._shop):
            await _end(process)
        self._folder.cleanup()

    def survivors(self) -> list[int]:
        """Processes of the stage that still run; none after `close`."""
        return [pid for pid in sorted(self._pids) if Path(f"/proc/{pid}/stat").exists()]

    def endpoints(self) -> dict[str, Any]:
        """Where the services listen now and which processes they are, as `lantern up` says."""
        found = json.loads((self.state / "endpoints.json").read_text())
        self._pids.update(_numbers(found.get("pids", {})))
        return found

    def client(self) -> Client:
        """A client of this system."""
        endpoints = self.endpoints()
        return Client(endpoints["journal"], endpoints["executors"])

    async def find_driver(self, worker_id: str) -> tuple[str, int]:
        """Name and process id of the executor that is this worker."""
        endpoints = self.endpoints()
        async with grpc.aio.insecure_channel(endpoints["journal"]) as channel:
            stub: recovery_service_pb2_grpc.JournalRecoveryServiceAsyncStub = (
                recovery_service_pb2_grpc.JournalRecoveryServiceStub(channel)
            )
            listed = await stub.FindWorkers(recovery_service_pb2.FindWorkersRequest(), timeout=RPC_TIMEOUT_S)
        addresses = {worker.worker_id: worker.address for worker in listed.workers}
        number = endpoints["executors"].index(addresses[worker_id])
        name = f"executor-{number + 1}"
        return name, int(endpoints["pids"][name])

    async def get_shop(self, path: str) -> Any:
        """Asks the shop."""
        async with self._session.get(self.shop + path) as reply:
            return await reply.json()

    async def post_shop(self, path: str, body: Mapping[str, Any]) -> None:
        """Tells the shop."""
        async with self._session.post(self.shop + path, json=body) as reply:
            reply.raise_for_status()

    async def await_held(self) -> None:
        """Waits until the shop has acted and holds its reply back."""
        await _within(START_TIMEOUT_S, self._held(), "the shop did not get the charge")

    async def show_run(self, run: str) -> None:
        """Lets `lantern runs show` draw a run on our own output."""
        command = [sys.executable, "-m", "lantern.cli.main", "runs", "show", run, "--dir", str(self.state)]
        process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL)
        if await process.wait():
            raise StageError("`lantern runs show` failed")

    @property
    def _session(self) -> aiohttp.ClientSession:
        assert self._http is not None, "the stage is entered first"
        return self._http

    async def _start(self) -> None:
        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=RPC_TIMEOUT_S))
        shop = ["-m", "order.shop", "--dir", f"{self._folder.name}/shop", "--exit-with-parent", str(os.getpid())]
        self._shop = await _launch(shop, Path(self._folder.name) / "shop.log", piped=True)
        up = ["-m", "lantern.cli.main", "up", "--dir", str(self.state), "--db", self._database]
        up += ["--executors", "2", "--module", str(WORKFLOW)]
        log = Path(self._folder.name) / "up.log"
        self._up = await _launch(up, log, piped=False)
        self._pids.update({self._shop.pid, self._up.pid})
        assert self._shop.stdout is not None, "the shop's output is a pipe"
        line = await _within(START_TIMEOUT_S, self._shop.stdout.readline(), "the shop did not start")
        ready = json.loads(line)
        self.shop, self.smtp = ready["http"], ready["smtp"]
        await _within(START_TIMEOUT_S, self._is_up(self._up, log), "`lantern up` did not start")
        self.endpoints()

    async def _is_up(self, process: asyncio.subprocess.Process, log: Path) -> None:
        while True:
            if (self.state / "endpoints.json").exists():
                return
            if process.returncode is not None:
                raise StageError(f"`lantern up` ended: {_tail(log)}")
            await asyncio.sleep(POLL_S)

    async def _held(self) -> None:
        while True:
            if (await self.get_shop("/faults"))["held"]:
                return
            await asyncio.sleep(POLL_S)


async def _launch(arguments: list[str], log: Path, *, piped: bool) -> asyncio.subprocess.Process:
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLES), "LANTERN_EXIT_WITH_PARENT": str(os.getpid())}
    with log.open("ab") as sink:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            *arguments,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE if piped else sink,
            stderr=sink,
            start_new_session=True,
        )


async def _end(process: asyncio.subprocess.Process | None) -> None:
    if process is None or process.returncode is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(STOP_TIMEOUT_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


async def _within(seconds: float, awaited: Awaitable[T], what: str) -> T:
    """What is awaited; a StageError that says what did not come about, where it takes longer."""
    try:
        async with asyncio.timeout(seconds):
            return await awaited
    except TimeoutError:
        raise StageError(f"{what} within {seconds:.0f} s") from None


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:]


def _numbers(value: Any) -> set[int]:
    if isinstance(value, dict):
        return {number for item in value.values() for number in _numbers(item)}
    if isinstance(value, list):
        return {number for item in value for number in _numbers(item)}
    return {value} if isinstance(value, int) else set()
