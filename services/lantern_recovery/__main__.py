"""Wires the recovery service and runs it: `python -m lantern_recovery`."""

import asyncio
import logging
import os
import sys
from functools import partial

import uvloop

from lantern.api.recovery.v1 import recovery_service_pb2_grpc
from lantern_kernel.errors import LanternError
from lantern_recovery.adapters.executors import GrpcExecutors
from lantern_recovery.adapters.journal import GrpcJournal
from lantern_recovery.adapters.process import Bell, ProcessSources
from lantern_recovery.application.loop import SweepLoop, Watch
from lantern_recovery.application.sweep import Sweep
from lantern_recovery.servicer import RecoveryServicer
from lantern_recovery.settings import KNOWN, Settings
from lantern_serving import channels, logs, parents, server
from lantern_serving.settings import unknown_settings

log = logging.getLogger("lantern_recovery")

SERVICE_NAME = "lantern.api.recovery.v1.RecoveryService"


def _log_settings(settings: Settings) -> None:
    for hint in unknown_settings(os.environ, KNOWN):
        log.warning("unknown setting", extra={"action": "unknown_setting", "hint": hint})
    if settings.interval.fault:
        log.warning(
            "sweep interval not usable; using the default",
            extra={
                "action": "interval_fallback",
                "setting": "LANTERN_RECOVERY_INTERVAL",
                "fault": settings.interval.fault,
                "interval_s": settings.interval.seconds,
            },
        )


async def serve(settings: Settings) -> None:
    """Runs until SIGTERM or SIGINT. A pass that dies in the middle strands nothing, so the end waits for none."""
    journal_channel = channels.connect(settings.journal)
    journal = GrpcJournal(journal_channel)
    executors = GrpcExecutors(channels.connect)
    sources = ProcessSources()
    sweep = Sweep(journal, executors, sources)
    bell = Bell()
    add_recovery = partial(recovery_service_pb2_grpc.add_RecoveryServiceServicer_to_server, RecoveryServicer(sweep))
    grpc_server = server.Server(settings.listen, {SERVICE_NAME: add_recovery})
    await grpc_server.start()
    tasks = [
        asyncio.create_task(SweepLoop(sweep, bell, settings.interval.seconds).run(), name="sweep"),
        asyncio.create_task(Watch(journal, bell, Bell(), sources).run(), name="watch"),
    ]

    async def drain() -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await grpc_server.drain()
        await executors.close()
        await journal_channel.close()

    await server.run_until_signal(grpc_server.address, drain, tasks)


def main() -> None:
    """The command `lantern-recovery`."""
    parents.exit_with_parent(os.environ)
    logs.configure("recovery", os.environ.get("LANTERN_LOG_LEVEL") or "INFO")
    try:
        settings = Settings.read(os.environ)
        _log_settings(settings)
        uvloop.run(serve(settings))
    except LanternError as error:
        log.error("cannot start", extra={"action": "cannot_start", "reason": error.reason, "fault": error.message})
        sys.exit(1)


if __name__ == "__main__":
    main()
