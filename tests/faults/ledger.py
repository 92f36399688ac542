"""Whether a database holds what its journal has promised: read by SQL, all of it, and through the API.

Every promised event must be where it was said to be with the same content, every run dense and its chain recomputed,
nothing twice, every grant one event, and no run stuck.
"""

import asyncio
import json
import sqlite3
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from lantern.api.journal.v1 import journal_service_pb2 as journal_pb
from lantern.api.journal.v1 import journal_service_pb2_grpc as journal_grpc
from lantern.api.journal.v1 import run_pb2
from lantern_journal.domain import feed
from lantern_kernel import kinds
from lantern_kernel.event import Event, find_chain_fault
from lantern_serving import channels

API_RUNS_MAX = 150
"""Runs that are read through the API as well: the newest and the oldest."""


def rows(database: str, query: str) -> list[tuple[Any, ...]]:
    """What a query finds in a database, which is named as LANTERN_DATABASE names it."""
    if database.startswith("sqlite:"):
        connection = sqlite3.connect(f"file:{database.removeprefix('sqlite:')}?mode=ro", uri=True)
        try:
            return connection.execute(query).fetchall()
        finally:
            connection.close()
    with psycopg.connect(database) as server:
        return server.execute(query.encode()).fetchall()


class RunRow(NamedTuple):
    """What is of interest of a run's row."""

    state: str
    epoch: int
    end_seq: int | None
    request_id: str


@dataclass(kw_only=True, slots=True)
class Stored:
    """What a database holds."""

    # By run, in order of seq.
    events: dict[str, list[Event]] = field(default_factory=lambda: defaultdict[str, list[Event]](list))
    # By run.
    runs: dict[str, RunRow] = field(default_factory=dict[str, RunRow])
    # By run and number: request id.
    inbox: dict[tuple[str, int], str] = field(default_factory=dict[tuple[str, int], str])
    # How often each event stands in the feed over all runs.
    feed: Counter[tuple[str, int]] = field(default_factory=Counter[tuple[str, int]])
    # By key: state and nonce.
    claims: dict[str, tuple[str, bytes]] = field(default_factory=dict[str, tuple[str, bytes]])


def read(database: str) -> Stored:
    """All that concerns runs."""
    stored = Stored()
    columns = "run_id, seq, kind, step_id, attempt, epoch, time_us, payload, salt, digest, hash"
    for run_id, seq, kind, step_id, attempt, epoch, time_us, *blobs in rows(
        database, f"SELECT {columns} FROM journal_events ORDER BY run_id, seq"
    ):
        payload, salt, digest, chained = (bytes(blob) for blob in blobs)
        stored.events[run_id].append(
            Event(
                seq=seq,
                kind=kind,
                step_id=step_id,
                attempt=attempt,
                epoch=epoch,
                time_us=time_us,
                payload=payload,
                salt=salt,
                digest=digest,
                hash=chained,
            )
        )
    for run_id, *facts in rows(database, "SELECT run_id, state, epoch, end_seq, request_id FROM runs"):
        stored.runs[run_id] = RunRow(*facts)
    for (packed,) in rows(database, "SELECT entries FROM journal_feed"):
        for entry in feed.unpack(bytes(packed)):
            stored.feed.update((entry.run_id, entry.first_seq + offset) for offset in range(entry.events))
    for run_id, number, request_id in rows(database, "SELECT run_id, number, request_id FROM run_inbox"):
        stored.inbox[run_id, number] = request_id
    for key, state, nonce in rows(database, "SELECT key, state, nonce FROM side_effect_receipts"):
        stored.claims[key] = (state, bytes(nonce))
    return stored


def find_faults(promised: Path, stored: Stored, *, all_ended: bool = True) -> list[str]:
    """What is not as it was promised; empty where all is well. `all_ended`: no run may be open any more."""
    faults = [fault for run_id in stored.runs for fault in run_faults(run_id, stored, all_ended=all_ended)]
    faults += [f"{run_id}: events without a run" for run_id in stored.events.keys() - stored.runs.keys()]
    if stored.feed != Counter((run_id, event.seq) for run_id, events in stored.events.items() for event in events):
        faults.append("the feed over all runs does not hold every event once")
    requests = Counter(row.request_id for row in stored.runs.values())
    faults += [f"request {request_id} started {times} runs" for request_id, times in requests.items() if times > 1]
    numbers = Counter(run_id for run_id, _ in stored.inbox)
    faults += [
        f"{run_id}: its inbox is not dense" for run_id, many in numbers.items() if (run_id, many) not in stored.inbox
    ]
    for line in promised.read_text().splitlines():
        fault = _broken(json.loads(line), stored)
        if fault:
            faults.append(f"{fault}: {line}")
    return faults


def run_faults(run_id: str, stored: Stored, *, all_ended: bool) -> list[str]:
    row = stored.runs[run_id]
    events = stored.events.get(run_id, [])
    faults = [fault] if (fault := find_chain_fault(run_id, events)) else []
    if len({event.salt for event in events}) != len(events):
        faults.append("an event stands there twice")
    grants = [event.epoch for event in events if event.kind == kinds.LEASE_GRANTED]
    if grants != list(range(1, row.epoch + 1)):
        faults.append(f"the grants are {grants}, the run's epoch is {row.epoch}")
    if any(later.epoch < former.epoch for former, later in pairwise(events)):
        faults.append("an epoch falls")
    ends = [event.seq for event in events if event.kind in kinds.TERMINAL]
    if (ends or [None])[0] != row.end_seq or (ends and ends != [len(events)]):
        faults.append(f"the terminal events are {ends}, the run's row says {row.end_seq}")
    if all_ended and not ends:
        faults.append(f"is stuck: {row.state}")
    return [f"{run_id}: {fault}" for fault in faults]


def _broken(promise: list[Any], stored: Stored) -> str:
    """How a promise is broken; empty where it is kept."""
    match promise:
        case ["event", run_id, seq, digest]:
            events = stored.events.get(run_id, [])
            if seq > len(events):
                return "lost"
            return "" if events[seq - 1].digest.hex() == digest else "another event stands there"
        case ["run", run_id, request_id]:
            return "" if run_id in stored.runs and stored.runs[run_id].request_id == request_id else "lost"
        case ["ended", run_id, seq]:
            row = stored.runs.get(run_id)
            return "" if row is not None and (row.state, row.end_seq) == ("SUCCEEDED", seq) else "did not end so"
        case ["entry", run_id, number, request_id]:
            return "" if stored.inbox.get((run_id, number)) == request_id else "lost"
        case ["claim", key, nonce]:
            return "" if key in stored.claims and stored.claims[key][1].hex() == nonce else "lost"
        case ["settled", key]:
            return "" if stored.claims.get(key, ("", b""))[0] == "delivered" else "lost"
        case ["granted" | "released", run_id, epoch]:
            granted = [e.epoch for e in stored.events.get(run_id, []) if e.kind == kinds.LEASE_GRANTED]
            return "" if epoch in granted else "lost"
        case _:
            return "unknown"


def find_api_faults(address: str, stored: Stored) -> list[str]:
    """Where the API tells another story than SQL, of some of the runs."""
    return asyncio.run(_find_api_faults(address, stored))


async def _find_api_faults(address: str, stored: Stored) -> list[str]:
    chosen = sorted(stored.runs)
    chosen = [*chosen[: API_RUNS_MAX // 2], *chosen[-API_RUNS_MAX // 2 :]] if len(chosen) > API_RUNS_MAX else chosen
    faults: list[str] = []
    channel = channels.connect(address)
    try:
        stub = journal_grpc.JournalServiceStub(channel)
        for run_id in chosen:
            run = (await stub.GetRun(journal_pb.GetRunRequest(run_id=run_id))).run
            if run_pb2.Run.State.Name(run.state).removeprefix("STATE_") != stored.runs[run_id].state:
                faults.append(f"{run_id}: the API says state {run.state}")
            told: list[tuple[int, bytes]] = []
            request = journal_pb.ListEventsRequest(run_id=run_id)
            while True:
                page = await stub.ListEvents(request)
                told += [(event.seq, event.hash) for event in page.events]
                if not page.next_page_token:
                    break
                request.page_token = page.next_page_token
            if told != [(event.seq, event.hash) for event in stored.events[run_id]]:
                faults.append(f"{run_id}: the API lists other events")
    finally:
        await channel.close()
    return faults
