"""Goal: `lantern doctor` says of a live journal whether it is in order, sets right what is not, and exits accordingly.

Method: a real journal process on SQLite and the real command; a row is changed by hand in the file.
"""

import asyncio
import json
import os
import sqlite3
import sys
from pathlib import Path
from typing import Any

import grpc

from lantern.api.journal.v1 import journal_service_pb2 as pb
from lantern.api.journal.v1 import journal_service_pb2_grpc, worker_service_pb2_grpc
from lantern.api.journal.v1 import worker_service_pb2 as wp

UNKNOWN = "01900000-0000-7000-8000-000000000000"


async def doctor(journal: str, *arguments: str) -> tuple[int, str, str]:
    """Exit code, output, errors."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "lantern.cli.main",
        "doctor",
        *arguments,
        env={**os.environ, "LANTERN_JOURNAL": journal, "COLUMNS": "200", "NO_COLOR": "1"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def make_run(address: str) -> str:
    """A queued run of an agent that a worker offered."""
    async with grpc.aio.insecure_channel(address) as channel:
        session: Any = worker_service_pb2_grpc.JournalWorkerServiceStub(channel).Session()
        offers = [wp.AgentOffer(name="order", digest="a" * 64, program_kind="code")]
        attach = wp.Attach(worker_id="w1", address="127.0.0.1:1", capacity=1, agents=offers)
        await session.write(wp.SessionRequest(attach=attach))
        await session.read()
        journal: Any = journal_service_pb2_grpc.JournalServiceStub(channel)
        made = await journal.CreateRun(pb.CreateRunRequest(request_id="r1", agent_name="order"))
        session.cancel()
        return made.run.run_id


async def test_doctor(tmp_path: Path) -> None:
    file = tmp_path / "journal.db"
    settings = {"LANTERN_DATABASE": f"sqlite:{file}", "LANTERN_EXIT_WITH_PARENT": str(os.getpid())}
    journal = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "lantern_journal", stdout=asyncio.subprocess.PIPE, env={**os.environ, **settings}
    )
    try:
        assert journal.stdout is not None
        address = json.loads(await asyncio.wait_for(journal.stdout.readline(), 30))["address"]
        run_id = await make_run(address)
        code, out, err = await doctor(address)
        assert (code, err) == (0, "")
        assert "checked 1 run, 1 event: 0 faults, 0 notes" in out
        with sqlite3.connect(file, timeout=10) as connection:
            connection.execute("UPDATE runs SET state = 'SUCCEEDED', epoch = 3")
        connection.close()
        code, out, _ = await doctor(address, "--json")
        told = json.loads(out)
        assert code == 1
        assert {(f["runId"], f["check"], f["subject"]) for f in told["findings"]} == {
            (run_id, "projection", "state"),
            (run_id, "projection", "epoch"),
        }
        code, out, _ = await doctor(address, "--run", run_id)
        assert code == 1
        assert "projection.state" in out
        assert "lantern doctor --rebuild sets 2 of them right" in out
        code, out, _ = await doctor(address, "--rebuild")
        assert code == 0
        assert "'QUEUED'" in out
        assert (await doctor(address, "--rebuild", "--json"))[:2] == (
            0,
            '{"runCount": 1, "eventCount": 1, "findings": [], "changes": []}\n',
        )
        code, out, err = await doctor(address, "--run", "nonsense")
        assert (code, out) == (2, "")
        assert err.startswith("error: INVALID_FIELD: run_id")
        for more in ((), ("--rebuild",)):
            code, out, err = await doctor(address, "--run", UNKNOWN, *more)
            assert (code, out) == (2, "")
            assert err.startswith("error: RUN_NOT_FOUND")
    finally:
        journal.kill()
        await journal.wait()
    code, out, err = await doctor(address)
    assert (code, out) == (2, "")
    assert err.startswith("error: UNAVAILABLE")
