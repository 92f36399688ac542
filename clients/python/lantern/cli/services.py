"""One service of `lantern up` as an operating system process: started, judged, stopped, its log read."""

import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

HOST = "127.0.0.1"
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 15.0

_PORTS = range(20_000, 32_000)
"""Below the ports that the system hands out by itself: no connection takes the place of a service that is down."""

_PROBE_S = 0.05
_PROBE_DEADLINE_S = 1.0
_TAIL_LINES = 12
_TAIL_BYTES = 16_384

_OWN_SETTINGS = {
    "lantern_journal": (
        "LANTERN_DATABASE", "LANTERN_LEASE_TTL", "LANTERN_GRANT_TTL", "LANTERN_SESSION_GRACE",
        "LANTERN_SESSION_SILENCE", "LANTERN_MIGRATE",
    ),
    "lantern_executor": (
        "LANTERN_MODULES", "LANTERN_EXECUTOR_CAPACITY", "LANTERN_DRAIN", "LANTERN_ADVERTISE", "LANTERN_STALL_LIMIT",
        "LANTERN_OPENAI_BASE_URL", "LANTERN_OPENAI_API_KEY", "LANTERN_ANTHROPIC_BASE_URL", "LANTERN_ANTHROPIC_API_KEY",
    ),
    "lantern_recovery": ("LANTERN_RECOVERY_INTERVAL",),
}  # fmt: skip
"""Settings that mean something to one service only: the others would warn that they do not know them."""

_NOT_INHERITED = frozenset({"LANTERN_LISTEN", "LANTERN_ADVERTISE", "LANTERN_EXECUTOR", "LANTERN_JOURNAL"})


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceSpec:
    """What to start."""

    # Unique within one `up`: journal, executor-1, recovery.
    name: str
    # The package that is run with `python -m`.
    package: str
    # Where it listens.
    port: int
    # Its settings.
    settings: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def address(self) -> str:
        """`host:port`."""
        return f"{HOST}:{self.port}"


def free_ports(count: int) -> list[int]:
    """Ports of the loopback interface on which nothing listens."""
    found: list[int] = []
    first = random.randrange(len(_PORTS))  # noqa: S311 - so that two `up` at once hardly meet
    for step in range(len(_PORTS)):
        port = _PORTS[(first + step) % len(_PORTS)]
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise OSError("no free port")


def service_environment(spec: ServiceSpec, inherited: Mapping[str, str], parent_pid: int) -> dict[str, str]:
    """The environment of a service: what is inherited, without the settings of others, and its own."""
    others = {name for package, names in _OWN_SETTINGS.items() if package != spec.package for name in names}
    kept = {name: value for name, value in inherited.items() if name not in others | _NOT_INHERITED}
    return {
        **kept,
        "LANTERN_LISTEN": spec.address,
        "LANTERN_EXIT_WITH_PARENT": str(parent_pid),
        **spec.settings,
    }


class Service:
    """A service and its present process.

    Started from the main thread only: the kernel ends a child when the *thread* that made it ends.
    """

    def __init__(self, spec: ServiceSpec, log_folder: Path) -> None:
        self.spec = spec
        self.log_path = log_folder / f"{spec.name}.log"
        self._process: Process | None = None
        self._log_start = 0

    @property
    def pid(self) -> int | None:
        """Of the present process."""
        return self._process.pid if self._process else None

    @property
    def exit_code(self) -> int | None:
        """Of a process that has ended; None while it runs."""
        return self._process.returncode if self._process else None

    async def start(self) -> None:
        """Starts a process; what it prints goes to the end of its log."""
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        environment = service_environment(self.spec, os.environ, os.getpid())
        with self.log_path.open("ab") as log:
            self._log_start = log.tell()
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                self.spec.package,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                # Ctrl-C in the terminal is for us alone: we stop the services in their order.
                start_new_session=True,
            )

    async def wait_ended(self) -> int:
        """Waits for the process to end; its exit code."""
        assert self._process, "started"
        return await self._process.wait()

    async def wait_healthy(self) -> bool:
        """True as soon as health says SERVING; False when the process ended or 30 s passed."""
        async with grpc.aio.insecure_channel(self.spec.address) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(START_TIMEOUT_S):
                    while self.exit_code is None:
                        if await _serves(stub):
                            return True
                        await asyncio.sleep(_PROBE_S)
        return False

    async def stop(self) -> None:
        """SIGTERM, and SIGKILL for it and its children where it still runs after 15 s."""
        if self._process is None or self._process.returncode is not None:
            return
        self._process.terminate()
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await self._process.wait()
        except TimeoutError:
            await self.kill()

    async def kill(self) -> None:
        """SIGKILL for the process and its children."""
        if self._process is None or self._process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()

    def log_tail(self) -> list[str]:
        """The last lines that the present process logged."""
        try:
            with self.log_path.open("rb") as log:
                end = log.seek(0, os.SEEK_END)
                log.seek(max(self._log_start, end - _TAIL_BYTES))
                lines = log.read().decode(errors="replace").splitlines()
        except OSError:
            return []
        return [readable(line) for line in without_frames(lines) if line.strip()][-_TAIL_LINES:]


async def _serves(stub: Any) -> bool:
    request = health_pb2.HealthCheckRequest(service="")
    try:
        response = await stub.Check(request, timeout=_PROBE_DEADLINE_S)
    except grpc.aio.AioRpcError:
        return False
    return response.status == health_pb2.HealthCheckResponse.SERVING


def without_frames(lines: Iterable[str]) -> list[str]:
    """The lines without the frames of Python tracebacks: what is left says what went wrong, the log itself where."""
    kept: list[str] = []
    in_frames = False
    for line in lines:
        if line.startswith("Traceback (most recent call last)"):
            in_frames = True
        elif not (in_frames and line.startswith(" ")):
            in_frames = False
            kept.append(line)
    return kept


_PLAIN = ("time", "level", "service", "message", "action", "error")


def readable(line: str) -> str:
    """A log line for people: a JSON line as `level message name=value ...`, any other as it is."""
    try:
        values = json.loads(line)
    except ValueError:
        return line
    if not isinstance(values, dict) or "message" not in values:
        return line
    parts: Sequence[str] = [f"{name}={value}" for name, value in values.items() if name not in _PLAIN]
    trace: Iterable[str] = str(values.get("error", "")).splitlines()[-1:]
    return " ".join([str(values.get("level", "")), str(values["message"]), *parts, *trace]).strip()
