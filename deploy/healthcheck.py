"""Asks the service in this container for its health (grpc.health.v1); exit code 0 where it serves."""

import os
import sys

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

DEADLINE_S = 2.0


def main() -> int:
    """0 where the service says SERVING."""
    port = os.environ["LANTERN_LISTEN"].rpartition(":")[2]
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        try:
            answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=DEADLINE_S)
        except grpc.RpcError:
            return 1
    return 0 if answer.status == health_pb2.HealthCheckResponse.SERVING else 1


if __name__ == "__main__":
    sys.exit(main())
