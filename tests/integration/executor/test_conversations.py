"""Goal: children, queries, updates and cancels of workflow code, over real processes that are killed (SPEC 7.4, S1).

Method: a journal on SQLite, executors and the recovery service. Executors are killed -9 while children run and while a
run waits; the steps write to a ledger what they do.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from executor_processes import WAIT_S, Cluster, Service, cluster

import lantern
from lantern.client.run import UpdateFailed
from lantern_kernel import kinds, reasons
from lantern_kernel.errors import LanternError


@asynccontextmanager
async def lantern_at(folder: Path, executors: int = 2) -> AsyncGenerator[tuple[Cluster, lantern.Client]]:
    """All services, and a client."""
    async with cluster(folder, executors=executors) as at:
        recovery = Service("lantern_recovery", {"LANTERN_JOURNAL": at.journal.address}, folder / "recovery.log")
        await recovery.start()
        addresses = [each.address for each in at.executors]
        try:
            async with lantern.Client(at.journal.address, addresses) as client:
                yield at, client
        finally:
            await recovery.kill()


def made(at: Cluster, step_id: str) -> int:
    return sum(1 for line in at.effects() if line.startswith(f"end {step_id} "))


async def until_asked(client: lantern.Client, run_id: str, at: str) -> dict[str, Any]:
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                state = await client.query(run_id, "state")
            except LanternError as error:
                if error.reason != reasons.QUERY_NOT_FOUND:
                    raise
            else:
                if state["at"] == at:
                    return state
            await asyncio.sleep(0.05)


async def children_of(client: lantern.Client, run_id: str) -> dict[str, str]:
    """State by run id of all runs but the one named."""
    return {run.run_id: run.state for run in (await client.list()).runs if run.run_id != run_id}


async def test_children_end_once_whoever_is_killed(tmp_path: Path) -> None:
    async with lantern_at(tmp_path) as (at, client):
        run = await client.start("family", {"steps": 4, "ms": 300})
        await at.until_effect("begin s1")
        await at.executors[0].kill()
        ended = await client.wait(run.run_id)
        assert ended.result_value == [[0, 1, 2, 3]] * 3
        children = await children_of(client, run.run_id)
        assert list(children.values()) == ["SUCCEEDED"] * 3, "no child twice"
        happened = [event.kind for event in await client.events(run.run_id)]
        assert happened.count(kinds.CHILD_STARTED) == happened.count(kinds.CHILD_COMPLETED) == 3


async def test_a_run_is_asked_and_changed_live_and_parked_and_after_its_end(tmp_path: Path) -> None:
    async with lantern_at(tmp_path) as (at, client):
        run = await client.start("conversation")
        assert await until_asked(client, run.run_id, "booked") == {"at": "booked", "to": ""}
        assert await client.update(run.run_id, "readdress", "Ghent") == ""
        await _until_waiting(client, run.run_id)
        assert await client.query(run.run_id, "state") == {"at": "booked", "to": "Ghent"}
        assert await client.update(run.run_id, "readdress", "Bruges") == "Ghent"
        with pytest.raises(UpdateFailed, match="no address"):
            await client.update(run.run_id, "readdress", "")
        await at.executors[0].kill()
        assert (await client.query(run.run_id, "state"))["to"] == "Bruges"
        for name in ("query", "update"):
            with pytest.raises((LanternError, UpdateFailed)) as caught:
                await getattr(client, name)(run.run_id, "nothing")
            assert "nothing" in str(caught.value)
        await client.signal(run.run_id, "go", 7)
        ended = await client.wait(run.run_id)
        assert ended.result_value == {"at": "booked", "to": "Bruges", "go": 7}
        assert (await client.query(run.run_id, "state"))["go"] == 7, "of a run that has ended, too"
        with pytest.raises(LanternError) as refused:
            await client.update(run.run_id, "readdress", "Lille")
        assert refused.value.reason == reasons.RUN_CLOSED
        assert made(at, "book") == 1
        await _until_children_are(client, run.run_id, "CANCELLED")


@pytest.mark.parametrize("parked", [False, True])
async def test_a_cancel_compensates_and_cancels_the_children(tmp_path: Path, parked: bool) -> None:
    async with lantern_at(tmp_path) as (at, client):
        run = await client.start("conversation")
        await until_asked(client, run.run_id, "booked")
        if parked:
            await _until_waiting(client, run.run_id)
            await at.executors[0].kill()
        assert not (await client.cancel(run.run_id)).already_ended
        ended = await client.wait(run.run_id)
        assert ended.state == "CANCELLED"
        assert made(at, "unbook") == 1, "compensated once"
        await _until_children_are(client, run.run_id, "CANCELLED")


async def _until_waiting(client: lantern.Client, run_id: str) -> None:
    async with asyncio.timeout(WAIT_S):
        while (await client.get(run_id)).state != "WAITING":  # noqa: ASYNC110 - of a service
            await asyncio.sleep(0.05)


async def _until_children_are(client: lantern.Client, run_id: str, state: str) -> None:
    async with asyncio.timeout(WAIT_S):
        while set((await children_of(client, run_id)).values()) != {state}:  # noqa: ASYNC110 - of a service
            await asyncio.sleep(0.05)
