"""The executor's process: `python -m lantern_executor`. Wiring only."""

import asyncio
import gc
import logging
import os
import random
import socket
import sys
import threading
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Never

import uvloop

from lantern import registry
from lantern.api.executor.v1 import executor_service_pb2 as pb
from lantern.api.executor.v1.executor_service_pb2_grpc import add_ExecutorServiceServicer_to_server
from lantern_executor.adapters.addresses import JournalAddresses
from lantern_executor.adapters.graphs import AllPrograms, GraphPrograms, interpreted, interpreter_digest
from lantern_executor.adapters.journal import GrpcJournal, JournalProcesses, PublishedDefinitions
from lantern_executor.adapters.keeper_process import KeeperProcess
from lantern_executor.adapters.nodes import Nodes
from lantern_executor.adapters.programs import WorkflowPrograms
from lantern_executor.adapters.providers import ANTHROPIC, OPENAI, Providers, ProviderSettings
from lantern_executor.adapters.session import Session, WorkerIdentity
from lantern_executor.adapters.sources import SystemSources
from lantern_executor.adapters.steps import THREADS_DEFAULT, LocalStepRunner, http_session
from lantern_executor.adapters.watchdog import Watchdog
from lantern_executor.application.executor import Executor
from lantern_executor.servicer import ExecutorServicer
from lantern_executor.settings import KNOWN, OF_OTHERS, Settings
from lantern_kernel.errors import InvalidField, LanternError
from lantern_serving import channels, logs
from lantern_serving.parents import exit_with_parent
from lantern_serving.server import Server, run_until_signal
from lantern_serving.settings import unknown_settings

log = logging.getLogger("lantern_executor")

THREAD_PREFIX = "step"
THREADS_END_S = 0.1
"""Idle threads need this long, at most, to notice the end."""

EXIT_MISCONFIGURED = 2

SERVICE = pb.DESCRIPTOR.services_by_name["ExecutorService"].full_name


def main() -> None:
    """Runs an executor until SIGTERM; exits with 2 where settings or modules are unusable."""
    try:
        settings = Settings.read(os.environ)
    except InvalidField as error:
        _refuse(error.message)
    logs.configure("executor", settings.log_level)
    exit_with_parent(os.environ)
    for sentence in unknown_settings(os.environ, KNOWN | OF_OTHERS):
        log.warning("unknown setting", extra={"action": "unknown_setting", "hint": sentence})
    try:
        definitions = registry.load_modules(settings.modules)
        tools = registry.load_tools(settings.modules)
    except registry.LoadError as error:
        _refuse(str(error))
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)  # halves the 99th percentile at 512 runs
    try:
        uvloop.run(serve(settings, definitions, tools))
    except LanternError as error:
        _refuse(error.message)


def _refuse(message: str) -> Never:
    print(f"lantern-executor: {message}", file=sys.stderr)  # noqa: T201 - for the person who started it
    sys.exit(EXIT_MISCONFIGURED)


async def serve(
    settings: Settings, definitions: Mapping[str, registry.Definition], tools: Mapping[str, registry.Tool]
) -> None:
    """Serves until a signal comes, then drains."""
    Watchdog(settings.stall_limit_s).start()
    threads = ThreadPoolExecutor(THREADS_DEFAULT, thread_name_prefix=THREAD_PREFIX)
    asyncio.get_running_loop().set_default_executor(threads)
    # From a random one on: executors that are all told the same list are spread over it.
    first = random.randrange(len(settings.journal))  # noqa: S311 - no secret
    addresses = JournalAddresses((*settings.journal[first:], *settings.journal[:first]))
    processes = JournalProcesses(addresses, channels.connect)
    runner = LocalStepRunner(http_session, THREADS_DEFAULT)
    providers = Providers(_provider_settings(settings))
    digest = interpreter_digest()
    graphs = GraphPrograms(
        PublishedDefinitions(processes), interpreted(digest), Nodes(tools, runner, providers), digest
    )
    programs = AllPrograms(WorkflowPrograms(definitions, runner), graphs)
    identity = WorkerIdentity(
        worker_id=f"executor-{uuid.uuid4().hex}", capacity=settings.capacity, offers=programs.offers()
    )
    keeper = KeeperProcess(identity.worker_id, addresses, settings.stall_limit_s)
    session = Session(addresses, identity, keeper)
    executor = Executor(
        journal=GrpcJournal(processes, session),
        programs=programs,
        sources=SystemSources(),
        capacity=settings.capacity,
    )
    servicer = ExecutorServicer(executor)
    server = Server(settings.listen, {SERVICE: lambda to: add_ExecutorServiceServicer_to_server(servicer, to)})
    address = settings.advertise or _reachable(server.address)
    standing = session.start(address)
    await session.wait_attached()
    await server.start()

    async def drain() -> None:
        await asyncio.gather(executor.drain(settings.drain_s), server.drain())

    await run_until_signal(server.address, drain, [standing])
    await session.close()
    await processes.close()
    await runner.close()
    await providers.close()
    await _leave_threads(threads)


def _provider_settings(settings: Settings) -> dict[str, ProviderSettings]:
    return {
        OPENAI: ProviderSettings(base_url=settings.openai_base_url, api_key=settings.openai_api_key),
        ANTHROPIC: ProviderSettings(base_url=settings.anthropic_base_url, api_key=settings.anthropic_api_key),
    }


def _reachable(address: str) -> str:
    """The address for others where the one listened on is every interface of this machine."""
    host, _, port = address.rpartition(":")
    return f"{socket.gethostname()}:{port}" if host in {"0.0.0.0", "[::]"} else address  # noqa: S104 - compared, not bound


async def _leave_threads(threads: ThreadPoolExecutor) -> None:
    """Ends the process where a thread is still in user code: Python would wait for it, perhaps for ever.

    What such a function does is unknown to us already; its run has been handed back.
    """
    threads.shutdown(wait=False, cancel_futures=True)
    await asyncio.sleep(THREADS_END_S)
    if any(thread.name.startswith(THREAD_PREFIX) for thread in threading.enumerate()):
        log.warning("steps left behind", extra={"action": "steps_left"})
        logging.shutdown()
        os._exit(0)


if __name__ == "__main__":
    main()
