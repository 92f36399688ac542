"""Goal: what others wait to see is committed at once, however lazy the run's mode is (SPEC J7).

Method: scripted programs in each mode ask for an approval, start a child or answer an update while a step without
effects runs for an hour; a minute later the journal is looked at.
"""

import asyncio

import pytest
from executor_fakes import FakeJournal, JournalWorld, SimulatedSources, kinds_of, request, simulate
from scripted_programs import Flow, Script

from lantern_executor.application.drive import Drive
from lantern_kernel import kinds
from lantern_kernel.commands import (
    CompleteUpdate,
    RecordMarker,
    RequestApproval,
    RunStep,
    StartChild,
    Succeed,
)
from lantern_kernel.inbox import InboxEntry


def hour() -> RunStep:
    return RunStep(step_id="hour", name="hour", type="function", input=b"[]", source="f.py:1", effects="none")


def approval() -> Flow:
    yield [hour(), RequestApproval(step_id="ok", name="ok", title="ok", source="f.py:2")]
    yield [Succeed(result=b"1")]


def child() -> Flow:
    yield [hour(), StartChild(step_id="part", name="part", agent_name="worker", input=b"1", source="f.py:3")]
    yield [Succeed(result=b"1")]


def update() -> Flow:
    told = yield [hour()]
    yield [CompleteUpdate(step_id=told.step_id, source="f.py:4", result=b"2")]
    yield [Succeed(result=b"1")]


def marker() -> Flow:
    yield [hour(), RecordMarker(step_id="m", name="m", source="f.py:5", value=b"1")]
    yield []
    yield [Succeed(result=b"1")]


def _kinds_after_a_minute(flow: object, mode: str) -> list[str]:
    async def main() -> list[str]:
        world = JournalWorld()
        row = world.create(request("script"), mode)
        drive = Drive(
            journal=FakeJournal(world, "w"),
            programs=Script(flow=flow, step_s=3600.0),  # pyright: ignore[reportArgumentType] - one of those above
            sources=SimulatedSources(),
            run_id=row.run.run_id,
            epoch=world.grant(row.run.run_id, "w"),
        )
        task = asyncio.create_task(drive.run())
        await asyncio.sleep(30)
        if flow is update:
            row.inbox.append(InboxEntry(number=1, kind="update", name="change", payload=b"1"))
            drive.inbox_arrived()
        await asyncio.sleep(30)
        seen = kinds_of(row)
        task.cancel()
        await asyncio.wait([task])
        return seen

    return simulate(main())


@pytest.mark.parametrize("mode", ["sync", "async", "exit"])
@pytest.mark.parametrize(
    ("flow", "kind"),
    [(approval, kinds.APPROVAL_REQUESTED), (child, kinds.CHILD_STARTED), (update, kinds.UPDATE_COMPLETED)],
)
def test_it_is_committed_while_the_rest_goes_on(mode: str, flow: object, kind: str) -> None:
    assert kind in _kinds_after_a_minute(flow, mode)


def test_what_nobody_waits_for_is_held() -> None:
    """So that the test above does not pass by committing everything."""
    assert kinds.MARKER_RECORDED not in _kinds_after_a_minute(marker, "exit")
    assert kinds.MARKER_RECORDED in _kinds_after_a_minute(marker, "async")
