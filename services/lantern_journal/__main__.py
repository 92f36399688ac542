"""The journal's process: wiring only."""

import argparse
import asyncio
import gc
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path

import grpc
import uvloop

from lantern.api.journal.v1 import (
    admin_service_pb2_grpc,
    agent_service_pb2_grpc,
    approval_service_pb2_grpc,
    blob_service_pb2_grpc,
    doctor_service_pb2_grpc,
    feed_service_pb2_grpc,
    journal_service_pb2_grpc,
    recovery_service_pb2_grpc,
    worker_service_pb2_grpc,
)
from lantern_journal.adapters import migrate
from lantern_journal.adapters.archive_files import FolderFiles
from lantern_journal.adapters.clock import CarriedClock
from lantern_journal.adapters.engines import sqlite_path
from lantern_journal.adapters.postgres import PostgresStore
from lantern_journal.adapters.sources import SystemSources
from lantern_journal.adapters.sqlite import SqliteStore
from lantern_journal.application.agents import Agents
from lantern_journal.application.announcements import DueTimer, Hub, Relay
from lantern_journal.application.approvals import Approvals
from lantern_journal.application.blobs import Blobs
from lantern_journal.application.committer import GroupCommitter
from lantern_journal.application.doctor import Doctor
from lantern_journal.application.feed import Feed, FeedTrimmer
from lantern_journal.application.housekeeping import Housekeeping
from lantern_journal.application.leases import Leases
from lantern_journal.application.retention import Retention
from lantern_journal.application.runs import Runs
from lantern_journal.application.sessions import Sessions
from lantern_journal.domain.graphs import faults_of_graph
from lantern_journal.ports import Clock, Disconnected, Store
from lantern_journal.servicer.admin import AdminServicer
from lantern_journal.servicer.agents import AgentServicer
from lantern_journal.servicer.approval import ApprovalServicer
from lantern_journal.servicer.blobs import BlobServicer
from lantern_journal.servicer.doctor import DoctorServicer
from lantern_journal.servicer.feed import FeedServicer
from lantern_journal.servicer.journal import JournalServicer
from lantern_journal.servicer.recovery import RecoveryServicer
from lantern_journal.servicer.streams import OpenStreams
from lantern_journal.servicer.worker import WorkerServicer
from lantern_journal.settings import KNOWN, Settings, read
from lantern_kernel import reasons
from lantern_kernel.errors import LanternError
from lantern_serving import logs
from lantern_serving.parents import exit_with_parent
from lantern_serving.server import Server, run_until_signal
from lantern_serving.settings import unknown_settings

log = logging.getLogger("lantern_journal")

PACKAGE = "lantern.api.journal.v1"
STREAMS_END_S = 1.0
"""How long workers have to leave by themselves when the process stops."""

COMMITS_END_S = 5.0
"""How long what was begun for a caller that has gone away may take to be committed and told."""

CALIBRATION_S = 1.0


async def serve(settings: Settings) -> None:
    """Runs the service until it is told to stop."""
    clock, sources = CarriedClock(), SystemSources()
    store = await _open(settings, clock)
    hub, streams = Hub(), OpenStreams()
    sessions = Sessions(store, clock, hub, settings.limits, grace_s=settings.session_grace_s)
    committer = GroupCommitter(store, clock, hub)
    leases = Leases(store, clock, sources, hub, committer, settings.limits)
    runs = Runs(store, clock, sources, hub, sessions, committer, settings.limits)
    blobs = Blobs(store, clock, sources, hub, kept_us=int(settings.blob_keep_s * 1e6))
    blob_servicer = BlobServicer(blobs, streams)
    approvals = Approvals(store, clock, hub, sessions)
    approval = ApprovalServicer(approvals, store)
    journal = JournalServicer(runs, store, streams)
    worker = WorkerServicer(runs, sessions, committer, leases, store, clock, streams)
    recovery = RecoveryServicer(leases, hub, streams)
    housekeeping = _housekeeping(settings, store, clock)
    admin = AdminServicer(housekeeping)
    agents = AgentServicer(Agents(store, hub, {"graph": faults_of_graph}), store)
    feed = FeedServicer(Feed(store, clock, hub), streams)
    doctor = DoctorServicer(Doctor(store, hub, committer, settings.limits), streams)
    server = Server(
        settings.listen, _registrations(journal, approval, blob_servicer, feed, worker, recovery, admin, doctor, agents)
    )
    await sessions.adopt()
    # Before the first append: a week whose events have begun to fill the default partition stays there.
    await housekeeping.make_partitions()
    trimmer = FeedTrimmer(store, clock, int(settings.feed_retention_s * 1e6))
    tasks = [
        asyncio.create_task(sessions.run(), name="sessions"),
        asyncio.create_task(DueTimer(store, clock, hub).run(), name="due timer"),
        asyncio.create_task(housekeeping.run(), name="housekeeping"),
        asyncio.create_task(trimmer.run(), name="feed trimmer"),
        *(_among_others(store, clock, hub) if store.is_shared else ()),
        asyncio.create_task(blobs.run(), name="blobs"),
        asyncio.create_task(approvals.run(), name="expiry of approvals"),
    ]
    await server.start()
    # What stands now stands for ever: the collector need not walk it again and again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)

    async def drain() -> None:
        sessions.stop()
        await streams.end(STREAMS_END_S)
        await server.drain()
        await committer.finish()
        await runs.finish()
        await hub.finish(COMMITS_END_S)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await sessions.close()
        await store.close()

    await run_until_signal(server.address, drain, tasks)


def _housekeeping(settings: Settings, store: Store, clock: Clock) -> Housekeeping:
    if settings.retention_s is None:
        return Housekeeping(store)
    files = FolderFiles(Path(settings.archive_dir))
    return Housekeeping(store, Retention(store, files, clock, age_us=int(settings.retention_s * 1e6)))


async def _open(settings: Settings, clock: CarriedClock) -> Store:
    """The store, and the clock set by it."""
    path = sqlite_path(settings.database)
    store = (
        await PostgresStore.open(settings.database, migrate=settings.migrate, check_digests=settings.check_digests)
        if path is None
        else await SqliteStore.open(path, clock, migrate=settings.migrate)
    )
    try:
        clock.calibrate(await store.ping())
    except Disconnected as error:
        raise LanternError(reasons.UNAVAILABLE, f"the database was lost at start: {error}") from None
    return store


def _among_others(store: Store, clock: CarriedClock, hub: Hub) -> list[asyncio.Task[None]]:
    """What only a journal does that shares its database with others."""
    return [
        asyncio.create_task(Relay(store, hub).run(), name="relay"),
        asyncio.create_task(_calibrate(clock, store), name="clock"),
    ]


def _registrations(
    journal: JournalServicer,
    approval: ApprovalServicer,
    blobs: BlobServicer,
    feed: FeedServicer,
    worker: WorkerServicer,
    recovery: RecoveryServicer,
    admin: AdminServicer,
    doctor: DoctorServicer,
    agents: AgentServicer,
) -> dict[str, Callable[[grpc.aio.Server], None]]:
    """The services by name, each with what adds it to a server."""
    return {
        f"{PACKAGE}.JournalAgentService": lambda to: agent_service_pb2_grpc.add_JournalAgentServiceServicer_to_server(
            agents, to
        ),
        f"{PACKAGE}.JournalDoctorService": lambda to: (
            doctor_service_pb2_grpc.add_JournalDoctorServiceServicer_to_server(doctor, to)
        ),
        f"{PACKAGE}.JournalService": lambda to: journal_service_pb2_grpc.add_JournalServiceServicer_to_server(
            journal, to
        ),
        f"{PACKAGE}.JournalApprovalService": lambda to: (
            approval_service_pb2_grpc.add_JournalApprovalServiceServicer_to_server(approval, to)
        ),
        f"{PACKAGE}.JournalBlobService": lambda to: blob_service_pb2_grpc.add_JournalBlobServiceServicer_to_server(
            blobs, to
        ),
        f"{PACKAGE}.JournalFeedService": lambda to: feed_service_pb2_grpc.add_JournalFeedServiceServicer_to_server(
            feed, to
        ),
        f"{PACKAGE}.JournalWorkerService": lambda to: (
            worker_service_pb2_grpc.add_JournalWorkerServiceServicer_to_server(worker, to)
        ),
        f"{PACKAGE}.JournalRecoveryService": lambda to: (
            recovery_service_pb2_grpc.add_JournalRecoveryServiceServicer_to_server(recovery, to)
        ),
        f"{PACKAGE}.JournalAdminService": lambda to: admin_service_pb2_grpc.add_JournalAdminServiceServicer_to_server(
            admin, to
        ),
    }


async def _calibrate(clock: CarriedClock, store: Store) -> None:
    """Sets the clock by the database's, once a second (SPEC J5)."""
    while True:
        await asyncio.sleep(CALIBRATION_S)
        try:
            clock.calibrate(await store.ping())
        except Exception as error:
            log.warning("clock not calibrated", extra={"action": "calibrate_failed", "cause": type(error).__name__})


def main() -> None:
    """Reads the settings and serves, or migrates the database."""
    parser = argparse.ArgumentParser(prog="lantern-journal", description="Serves the journal of LANTERN_DATABASE.")
    commands = parser.add_subparsers(dest="command")
    migrating = commands.add_parser("migrate", help="bring the database to this release's schema, and end")
    migrating.add_argument(
        "--phase",
        choices=(migrate.PRE, migrate.POST),
        default=migrate.PRE,
        help="pre: add what this release needs (older journals go on); post: also take away what only they needed",
    )
    asked = parser.parse_args()
    exit_with_parent(os.environ)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    logs.configure("journal", os.environ.get("LANTERN_LOG_LEVEL") or "INFO")
    try:
        settings = read(os.environ)
        for hint in unknown_settings(os.environ, KNOWN):
            log.warning("unknown setting", extra={"action": "unknown_setting", "hint": hint})
        if asked.command == "migrate":
            print(migrate.run(settings.database, asked.phase))  # noqa: T201 - the answer to the command
            return
        uvloop.run(serve(settings))
    except LanternError as error:
        log.error("cannot start", extra={"action": "start_failed", "reason": error.reason, "hint": error.message})
        sys.exit(1)


if __name__ == "__main__":
    main()
