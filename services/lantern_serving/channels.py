"""Channels to other services: one set of options on both sides, and a deadline on every call.

Keepalive is set from one constant here and in `server`, since a server that allows fewer pings than its clients send
closes their connections (`too_many_pings`).
"""

from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from lantern_kernel.bounds import MESSAGE_RECEIVE_BYTES_MAX

CLIENT_KEEPALIVE_MS = 60_000
SERVER_MIN_PING_INTERVAL_MS = 20_000
RPC_DEADLINE_S = 10.0
"""For every unary call that has no reason to last longer."""

RECONNECT_BACKOFF_MS_MIN = 50
RECONNECT_BACKOFF_MS_MAX = 1_000
"""A peer that restarts is found again at once, not after gRPC's default of up to two minutes."""

OPTIONS: list[tuple[str, int]] = [
    ("grpc.keepalive_time_ms", CLIENT_KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.initial_reconnect_backoff_ms", RECONNECT_BACKOFF_MS_MIN),
    ("grpc.min_reconnect_backoff_ms", RECONNECT_BACKOFF_MS_MIN),
    ("grpc.max_reconnect_backoff_ms", RECONNECT_BACKOFF_MS_MAX),
    ("grpc.max_receive_message_length", MESSAGE_RECEIVE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_RECEIVE_BYTES_MAX),
    # Each channel its own connection: closing one must not be seen by another.
    ("grpc.use_local_subchannel_pool", 1),
]


class DeadlineInterceptor(grpc.aio.UnaryUnaryClientInterceptor):
    """Gives every unary call that names no deadline the default one: none may wait for ever."""

    async def intercept_unary_unary(
        self,
        continuation: Callable[[grpc.aio.ClientCallDetails, Any], Awaitable[Any]],
        client_call_details: grpc.aio.ClientCallDetails,
        request: Any,
    ) -> Any:
        """Adds the deadline where there is none."""
        if client_call_details.timeout is None:
            client_call_details = grpc.aio.ClientCallDetails(
                client_call_details.method,
                RPC_DEADLINE_S,
                client_call_details.metadata,
                client_call_details.credentials,
                client_call_details.wait_for_ready,
            )
        return await continuation(client_call_details, request)


def connect(address: str) -> grpc.aio.Channel:
    """A channel to `host:port`. Made inside the running loop; at most one loop per process uses grpc.aio."""
    return grpc.aio.insecure_channel(address, options=OPTIONS, interceptors=[DeadlineInterceptor()])
