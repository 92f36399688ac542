"""Goal: while the disk is full appends are refused clearly, reads go on, nothing promised is lost; then all goes on.

Method: the database lies on a small file system, which is filled up under load, left so for a while, and given room
again. PostgreSQL is hurt in both places: where it keeps its tables (it refuses the statement), and where it keeps its
write-ahead log (it crashes, and must be started again where it cannot restart by itself).
"""

import asyncio
import json
import os
import pwd
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import psycopg
import pytest
from disks import SmallDisk
from rig import KillablePostgres, Load
from system import Process

from lantern.api.journal.v1 import journal_service_pb2 as journal_pb
from lantern.api.journal.v1 import journal_service_pb2_grpc as journal_grpc
from lantern_kernel import reasons
from lantern_kernel.errors import LanternError
from lantern_serving import channels, status

FULL_S = 1.5
WAIT_S = 30.0
RPC_S = 20.0
SOME = json.dumps(os.urandom(80_000).hex()).encode()
"""More than may be left on a page somewhere."""


@pytest.fixture
def small_disk() -> Iterator[SmallDisk]:
    """A disk for the database alone."""
    with SmallDisk(48) as disk:
        yield disk


def asked(address: str) -> tuple[LanternError, int]:
    """What a start is told now, and how many runs can be read."""

    async def ask() -> tuple[LanternError, int]:
        channel = channels.connect(address)
        try:
            stub = journal_grpc.JournalServiceStub(channel)
            listed = await stub.ListRuns(journal_pb.ListRunsRequest(page_size=10), timeout=RPC_S)
            request = journal_pb.CreateRunRequest(request_id="full", agent_name="load", input=SOME)
            try:
                started = await stub.CreateRun(request, timeout=RPC_S)
            except grpc.aio.AioRpcError as error:
                return status.to_error(error), len(listed.runs)
            raise AssertionError(f"the disk is full, but {started.run.run_id} was started")
        finally:
            await channel.close()

    return asyncio.run(ask())


def said_full(journals: list[Process]) -> int:
    """How often the journals have logged that the disk is full."""
    return sum(journal.log_text().count('"disk_full"') for journal in journals)


def be_full(journals: list[Process], load: Load, disk: SmallDisk) -> None:
    """Fills the disk, looks how it is told, and gives room again."""
    load.await_progress()
    before = said_full(journals)
    disk.fill()
    deadline = time.monotonic() + WAIT_S
    while said_full(journals) == before:
        assert time.monotonic() < deadline, f"nobody says that the disk is full\n{load.tails()}"
        time.sleep(0.05)
    refused, listed = asked(journals[0].address)
    assert listed > 0, "what is there can be read"
    assert (refused.reason, refused.details.get("cause")) == (reasons.UNAVAILABLE, "disk_full")
    assert refused.retry_after_s is not None
    time.sleep(FULL_S)
    disk.free()
    load.await_progress()


@pytest.mark.timeout(120)
def test_the_disk_of_sqlite_is_full(
    small_disk: SmallDisk, start_journal: Callable[..., Process], tmp_path: Path
) -> None:
    database = f"sqlite:{small_disk.folder / 'journal.db'}"
    journals = [start_journal("journal", database)]
    with Load(journals, tmp_path) as load:
        for _ in range(2):
            be_full(journals, load, small_disk)
        load.check(database)
    assert journals[0].is_alive()


@pytest.mark.timeout(120)
def test_the_disk_of_postgres_tables_is_full(
    small_disk: SmallDisk, own_postgres: KillablePostgres, start_journal: Callable[..., Process], tmp_path: Path
) -> None:
    place = _folder_for(own_postgres, small_disk.folder / "tables")
    with psycopg.connect(own_postgres.url, autocommit=True) as server:
        server.execute(f"CREATE TABLESPACE small LOCATION '{place}'".encode())
        server.execute(b"CREATE DATABASE small TABLESPACE small")
    database = own_postgres.database_url("small")
    journals = [start_journal(name, database) for name in ("one", "two")]
    with Load(journals, tmp_path) as load:
        be_full(journals, load, small_disk)
        load.check(database)
    assert all(journal.is_alive() for journal in journals)


@pytest.mark.timeout(120)
def test_the_disk_of_postgres_log_is_full(
    small_disk: SmallDisk, own_postgres: KillablePostgres, start_journal: Callable[..., Process], tmp_path: Path
) -> None:
    database = own_postgres.create_database("walled")
    own_postgres.stop()
    data = own_postgres.folder / "data"
    place = _folder_for(own_postgres, small_disk.folder / "log")
    shutil.copytree(data / "pg_wal", place, dirs_exist_ok=True)
    _own(own_postgres, place)
    shutil.rmtree(data / "pg_wal")
    (data / "pg_wal").symlink_to(place)
    own_postgres.start()
    journals = [start_journal(name, database) for name in ("one", "two")]
    with Load(journals, tmp_path) as load:
        load.await_progress()
        small_disk.fill()
        deadline = time.monotonic() + WAIT_S
        while "PANIC:" not in (own_postgres.folder / "log").read_text(errors="replace"):
            assert time.monotonic() < deadline, "PostgreSQL bears a full log"
            _switch_log(own_postgres)
            time.sleep(0.05)
        time.sleep(FULL_S)
        small_disk.free()
        # As its administrator would, where it could not recover by itself while there was no room.
        if not own_postgres.is_up():
            own_postgres.start()
        load.await_progress()
        load.check(database)
    assert all(journal.is_alive() for journal in journals)


def _switch_log(server: KillablePostgres) -> None:
    """Uses up a segment of the log."""
    try:
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(b"SELECT pg_switch_wal()")
    except psycopg.OperationalError:
        return  # it is down by now


def _folder_for(server: KillablePostgres, folder: Path) -> Path:
    folder.mkdir()
    _own(server, folder)
    return folder


def _own(server: KillablePostgres, folder: Path) -> None:
    """Gives a folder to the user that runs PostgreSQL."""
    user = pwd.getpwuid((server.folder / "data").stat().st_uid)
    for path in (folder, *folder.rglob("*")):
        os.chown(path, user.pw_uid, user.pw_gid)
    folder.chmod(0o700)
