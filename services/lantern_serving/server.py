"""A service's process: server, health, reflection, and an orderly end on SIGTERM or SIGINT."""

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer
from grpc_reflection.v1alpha import reflection

from lantern_kernel import reasons
from lantern_kernel.bounds import MESSAGE_RECEIVE_BYTES_MAX
from lantern_kernel.errors import LanternError
from lantern_serving import channels
from lantern_serving.interceptors import ErrorInterceptor

log = logging.getLogger(__name__)

DRAIN_GRACE_S = 5.0
"""How long open calls may go on after the server stopped taking new ones."""

_OPTIONS: list[tuple[str, int]] = [
    # A second process on the same port would otherwise take half of the calls.
    ("grpc.so_reuseport", 0),
    ("grpc.keepalive_time_ms", channels.CLIENT_KEEPALIVE_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", channels.SERVER_MIN_PING_INTERVAL_MS),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.max_receive_message_length", MESSAGE_RECEIVE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_RECEIVE_BYTES_MAX),
]


class Server:
    """A gRPC server with health and reflection.

    Health (grpc.health.v1) says SERVING for the whole server and for each service once `start` returned, and
    NOT_SERVING from the beginning of the drain.
    """

    def __init__(self, address: str, services: Mapping[str, Callable[[grpc.aio.Server], None]]) -> None:
        """`address` is `host:port` (port 0 picks one); `services` maps full names to what adds each to the server."""
        self._server = grpc.aio.server(options=_OPTIONS, interceptors=[ErrorInterceptor()])
        self._names = tuple(services)
        for add in services.values():
            add(self._server)
        self._health = HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection((*self._names, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server)
        self._address = address
        host = address.rpartition(":")[0]
        try:
            port = self._server.add_insecure_port(address)
        except RuntimeError as error:
            raise LanternError(reasons.UNAVAILABLE, f"cannot listen on {address}: {error}", field="address") from None
        self.address = f"{host}:{port}"

    async def start(self) -> None:
        """Begins to serve and says so."""
        await self._server.start()
        for name in ("", *self._names):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)

    async def drain(self, grace_s: float = DRAIN_GRACE_S) -> None:
        """Stops taking calls, lets open ones end within `grace_s`, and stops."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(grace_s)


async def run_until_signal(
    address: str, drain: Callable[[], Awaitable[Any]], background: Iterable[asyncio.Task[Any]] = ()
) -> None:
    """Says where the service listens, waits for SIGTERM or SIGINT, then drains; a second signal ends it at once.

    Args:
        address: `host:port`; printed as one line of JSON on standard output, for whoever started the process.
        drain: Ends the service in order.
        background: Tasks that last as long as the service. One that ends by itself is a fault that nobody would notice
            from outside: the service drains and raises, so that its supervisor starts it anew.

    Raises:
        LanternError: INTERNAL, a background task ended.
    """
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            os._exit(1)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    # Only now: whoever reads the address may send a signal at once.
    log.info("listening", extra={"action": "listening", "address": address})
    sys.stdout.write(json.dumps({"address": address}) + "\n")
    sys.stdout.flush()
    stopped = asyncio.create_task(stop.wait(), name="signal")
    done, _ = await asyncio.wait({stopped, *background}, return_when=asyncio.FIRST_COMPLETED)
    ended = [task for task in done if task is not stopped]
    for task in ended:
        cause = None if task.cancelled() else task.exception()
        log.error("a background task ended", extra={"action": "task_ended", "task": task.get_name()}, exc_info=cause)
    log.info("draining", extra={"action": "drain"})
    stopped.cancel()
    await drain()
    log.info("stopped", extra={"action": "stopped"})
    if ended:
        raise LanternError(reasons.INTERNAL, f"the task {ended[0].get_name()} ended; the log says why")
