"""Goal: the executor takes what it can, once, and lets everything go at the end.

Method: the registry over the in-memory journal on simulated time: starts, drives, capacity, later epochs, lost answers,
callers that go away, drain with steps that end in time and steps that do not.
"""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from executor_fakes import FakeJournal, JournalWorld, SimulatedSources, kinds_of, programs_of, request, simulate

import lantern
from lantern_executor.application.executor import Executor
from lantern_executor.domain.run import CreatedRun, HandBack, OpenedRun, StartRequest
from lantern_kernel import kinds, reasons
from lantern_kernel.errors import LanternError


class Setting:
    """A journal and one executor; its workflow has one step that takes `takes_s`."""

    def __init__(self, *, capacity: int = 10, takes_s: float = 5.0) -> None:
        self.world = JournalWorld()
        self.journal = FakeJournal(self.world)
        self.begun: list[str] = []

        async def step() -> str:
            info = lantern.step_info()
            self.begun.append(f"{info.step_id}/{info.epoch}")
            await asyncio.sleep(takes_s)
            return info.step_id

        async def flow(ctx: lantern.Context) -> list[str]:
            return [await ctx.step("a", step), await ctx.step("b", step)]

        self.executor = Executor(
            journal=self.journal,
            programs=programs_of(flow=flow),
            sources=SimulatedSources(),
            capacity=capacity,
        )

    async def idle(self) -> None:
        while self.executor.active_count:  # noqa: ASYNC110 - simulated time: it costs nothing
            await asyncio.sleep(0.1)

    async def drive(self, run_id: str, epoch: int, *, worker_id: str = "w1", agent: str = "flow") -> None:
        await self.executor.drive(run_id=run_id, epoch=epoch, worker_id=worker_id, agent_name=agent)


def _run(main: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await main()

    simulate(bounded())


async def _refused(doing: Awaitable[None]) -> str:
    with pytest.raises(LanternError) as caught:
        await doing
    return caught.value.reason


def test_start_creates_with_a_lease_and_drives() -> None:
    async def main() -> None:
        setting = Setting()
        created = await setting.executor.start_run(request("flow"))
        assert (created.created, created.epoch) == (True, 1)
        await setting.idle()
        assert setting.world.rows[created.run.run_id].run.state == "SUCCEEDED"
        assert setting.journal.opens == 0

    _run(main)


@pytest.mark.parametrize("why", ["unknown agent", "full", "draining"])
def test_what_cannot_be_driven_here_is_queued(why: str) -> None:
    async def main() -> None:
        setting = Setting(capacity=1)
        agent = "other" if why == "unknown agent" else "flow"
        if why == "full":
            await setting.executor.start_run(request("flow", "first"))
        if why == "draining":
            await setting.executor.drain(1)
        created = await setting.executor.start_run(request(agent))
        assert (created.run.state, created.epoch) == ("QUEUED", 0)

    _run(main)


def test_lost_answer_to_a_start_is_made_good_by_opening() -> None:
    async def main() -> None:
        setting = Setting()
        create = setting.journal.create_run

        async def unheard(request: StartRequest, *, with_lease: bool) -> CreatedRun:
            await create(request, with_lease=with_lease)
            return await create(request, with_lease=with_lease)

        setting.journal.create_run = unheard
        created = await setting.executor.start_run(request("flow"))
        assert not created.created
        await setting.idle()
        assert setting.world.rows[created.run.run_id].run.state == "SUCCEEDED"

    _run(main)


def test_start_goes_on_when_its_caller_goes_away() -> None:
    async def main() -> None:
        setting = Setting()
        calling = asyncio.create_task(setting.executor.start_run(request("flow")))
        await asyncio.sleep(0)
        calling.cancel()
        await asyncio.sleep(1)
        await setting.idle()
        (row,) = setting.world.rows.values()
        assert row.run.state == "SUCCEEDED"

    _run(main)


def test_many_starts_of_one_request_make_one_drive() -> None:
    async def main() -> None:
        setting = Setting()
        answers = await asyncio.gather(*(setting.executor.start_run(request("flow")) for _ in range(5)))
        assert [answer.created for answer in answers].count(True) == 1
        await setting.idle()
        assert setting.begun == ["a/1", "b/1"]

    _run(main)


def test_late_answer_to_a_start_does_not_disturb_the_drive_that_a_repeat_began() -> None:
    async def main() -> None:
        setting = Setting()
        create = setting.journal.create_run

        async def late_if_created(request: StartRequest, *, with_lease: bool) -> CreatedRun:
            answer = await create(request, with_lease=with_lease)
            if answer.created:
                await asyncio.sleep(7)
            return answer

        setting.journal.create_run = late_if_created
        first = asyncio.create_task(setting.executor.start_run(request("flow")))
        await asyncio.sleep(0.1)
        await setting.executor.start_run(request("flow"))
        created = await first
        await setting.idle()
        assert setting.begun == ["a/1", "b/1"]
        assert setting.world.rows[created.run.run_id].run.state == "SUCCEEDED"

    _run(main)


def test_drive_is_idempotent_and_checks_what_it_is_told() -> None:
    async def main() -> None:
        setting = Setting(capacity=1)
        row = setting.world.create(request("flow"))
        run_id = row.run.run_id
        epoch = setting.world.grant(run_id, "w1")
        assert await _refused(setting.drive(run_id, epoch, worker_id="w0")) == reasons.LEASE_LOST
        assert await _refused(setting.drive(run_id, epoch, agent="other")) == reasons.AGENT_NOT_FOUND
        await setting.drive(run_id, epoch)
        await setting.drive(run_id, epoch)
        other = setting.world.create(request("flow", "r2"))
        assert await _refused(setting.drive(other.run.run_id, 1)) == reasons.EXECUTOR_BUSY
        await asyncio.sleep(1)
        assert await _refused(setting.drive(run_id, epoch - 1)) == reasons.LEASE_LOST
        await setting.idle()
        assert setting.begun == ["a/1", "b/1"]
        await setting.drive(run_id, epoch)  # of a finished run: a no-op
        await setting.idle()
        assert kinds_of(row).count(kinds.RUN_SUCCEEDED) == 1

    _run(main)


def test_later_epoch_replaces_the_drive() -> None:
    async def main() -> None:
        setting = Setting(capacity=1)
        created = await setting.executor.start_run(request("flow"))
        run_id = created.run.run_id
        await asyncio.sleep(1)
        epoch = setting.world.grant(run_id, "w1")
        await setting.drive(run_id, epoch)
        await setting.idle()
        assert setting.begun == ["a/1", "a/2", "b/2"]
        assert setting.world.rows[run_id].run.state == "SUCCEEDED"

    _run(main)


def test_later_epoch_that_was_never_granted_changes_nothing() -> None:
    async def main() -> None:
        setting = Setting()
        created = await setting.executor.start_run(request("flow"))
        await asyncio.sleep(1)
        await setting.drive(created.run.run_id, 2**63 - 1)
        await asyncio.sleep(1)
        await setting.drive(created.run.run_id, 7)
        await setting.idle()
        assert setting.begun == ["a/1", "b/1"]
        assert setting.world.rows[created.run.run_id].run.state == "SUCCEEDED"

    _run(main)


@pytest.mark.parametrize("error", [LanternError(reasons.INTERNAL, "a fault of the journal"), ValueError("of ours")])
@pytest.mark.parametrize("takes_s", [1.5, 1_000])  # the older drive ends meanwhile, or goes on
def test_later_epoch_that_cannot_be_opened_is_handed_back(error: Exception, takes_s: float) -> None:
    async def main() -> None:
        setting = Setting(takes_s=takes_s)
        created = await setting.executor.start_run(request("flow"))
        run_id = created.run.run_id
        await asyncio.sleep(1)
        later = setting.world.grant(run_id, "w1")
        open_run = setting.journal.open_run

        async def refused(run_id: str, epoch: int) -> OpenedRun:
            if epoch == later:
                await asyncio.sleep(1)
                raise error
            return await open_run(run_id, epoch)

        setting.journal.open_run = refused
        await setting.drive(run_id, later)
        await asyncio.sleep(10)
        row = setting.world.rows[run_id]
        assert setting.journal.released == [(run_id, later, HandBack.FAULT)]
        assert (row.run.state, row.holder) == ("QUEUED", "")
        assert setting.executor.active_count == 0, "the drive under the older epoch has learnt that its lease is gone"

    _run(main)


@pytest.mark.parametrize("reason", [reasons.LEASE_LOST, reasons.RUN_CLOSED, reasons.RUN_NOT_FOUND])
def test_later_epoch_that_is_not_ours_is_not_handed_back(reason: str) -> None:
    async def main() -> None:
        setting = Setting(takes_s=20)
        created = await setting.executor.start_run(request("flow"))
        await asyncio.sleep(1)

        async def refused(run_id: str, epoch: int) -> OpenedRun:
            raise LanternError(reason, "not yours")

        setting.journal.open_run = refused
        await setting.drive(created.run.run_id, 2)
        await setting.idle()
        assert setting.journal.released == []
        assert setting.world.rows[created.run.run_id].run.state == "SUCCEEDED"

    _run(main)


def test_epoch_after_epoch_leaves_no_drive_behind() -> None:
    async def main() -> None:
        setting = Setting(takes_s=1_000)
        created = await setting.executor.start_run(request("flow"))
        run_id = created.run.run_id
        await asyncio.sleep(1)
        open_run = setting.journal.open_run

        async def slowly(run_id: str, epoch: int) -> OpenedRun:
            await asyncio.sleep(10 if epoch == 2 else 1)
            return await open_run(run_id, epoch)

        setting.journal.open_run = slowly
        await setting.drive(run_id, setting.world.grant(run_id, "w1"))
        await asyncio.sleep(1)
        await setting.drive(run_id, setting.world.grant(run_id, "w1"))
        await asyncio.sleep(20)
        names = [task.get_name() for task in asyncio.all_tasks()]
        assert names.count(f"drive {run_id}") == 1
        assert setting.begun == ["a/1", "a/3"]
        await setting.executor.drain(0)

    _run(main)


def test_inbox_notice_reaches_the_drive() -> None:
    async def main() -> None:
        setting = Setting(takes_s=1_000)
        created = await setting.executor.start_run(request("flow"))
        await asyncio.sleep(1)
        setting.world.send(created.run.run_id, "cancel")
        setting.journal.inbox_listener(["00000000-0000-7000-8000-00000000ffff", created.run.run_id])
        await setting.idle()
        assert setting.world.rows[created.run.run_id].run.state == "CANCELLED"
        assert asyncio.get_running_loop().time() < 5

    _run(main)


@pytest.mark.parametrize("answer_lost", [False, True])
def test_inbox_notice_that_overtakes_the_answer_to_a_start_is_kept(answer_lost: bool) -> None:
    async def main() -> None:
        setting = Setting(takes_s=1_000)
        create = setting.journal.create_run

        async def overtaken(request: StartRequest, *, with_lease: bool) -> CreatedRun:
            created = await create(request, with_lease=with_lease)
            setting.world.send(created.run.run_id, "cancel")
            setting.journal.inbox_listener([created.run.run_id])
            await asyncio.sleep(1)
            return await create(request, with_lease=with_lease) if answer_lost else created

        setting.journal.create_run = overtaken
        created = await setting.executor.start_run(request("flow"))
        await setting.idle()
        assert setting.world.rows[created.run.run_id].run.state == "CANCELLED"
        assert setting.begun == []

    _run(main)


def test_session_that_was_away_before_the_answer_to_a_start_puts_the_lease_in_doubt() -> None:
    async def main() -> None:
        setting = Setting()
        create = setting.journal.create_run

        async def cut_off(request: StartRequest, *, with_lease: bool) -> CreatedRun:
            created = await create(request, with_lease=with_lease)
            setting.world.grant(created.run.run_id, "w2")
            setting.journal.return_listener()
            return created

        setting.journal.create_run = cut_off
        await setting.executor.start_run(request("flow"))
        await setting.idle()
        assert setting.begun == []

    _run(main)


def test_lease_lost_while_cut_off_is_noticed_on_return() -> None:
    async def main() -> None:
        setting = Setting(takes_s=1_000)
        kept = await setting.executor.start_run(request("flow", "kept"))
        lost = await setting.executor.start_run(request("flow", "lost"))
        await asyncio.sleep(1)
        setting.world.grant(lost.run.run_id, "w2")
        setting.journal.return_listener()
        await asyncio.sleep(1)
        assert setting.executor.active_count == 1
        assert setting.journal.opens == 2
        assert kinds_of(setting.world.rows[kept.run.run_id])[-1] == kinds.STEP_STARTED

    _run(main)


def test_drain_lets_steps_in_flight_end_and_hands_the_run_back() -> None:
    async def main() -> None:
        setting = Setting(takes_s=5)
        created = await setting.executor.start_run(request("flow"))
        await asyncio.sleep(1)
        await setting.executor.drain(10)
        row = setting.world.rows[created.run.run_id]
        assert setting.journal.draining
        assert setting.begun == ["a/1"]
        assert setting.journal.released == [(created.run.run_id, 1, HandBack.DRAIN)]
        assert kinds_of(row)[-1] == kinds.STEP_COMPLETED
        assert (row.run.state, row.holder) == ("QUEUED", "")
        assert asyncio.get_running_loop().time() < 7

    _run(main)


def test_drain_hands_back_at_its_end_what_does_not_end() -> None:
    async def main() -> None:
        setting = Setting(takes_s=1_000)
        created = await setting.executor.start_run(request("flow"))
        await asyncio.sleep(1)
        await setting.executor.drain(10)
        row = setting.world.rows[created.run.run_id]
        assert (row.run.state, row.holder) == ("QUEUED", "")
        assert setting.journal.released == [(created.run.run_id, 1, HandBack.DRAIN)]
        assert kinds_of(row)[-1] == kinds.STEP_STARTED
        assert setting.executor.active_count == 0
        assert 11 <= asyncio.get_running_loop().time() < 15

    _run(main)


def test_drain_finishes_a_run_whose_last_step_ends_in_time() -> None:
    async def main() -> None:
        setting = Setting(takes_s=5)
        created = await setting.executor.start_run(request("flow"))
        await asyncio.sleep(7)
        await setting.executor.drain(10)
        assert setting.world.rows[created.run.run_id].run.state == "SUCCEEDED"
        assert setting.journal.released == []

    _run(main)


def test_drain_with_an_unreachable_journal_ends_all_the_same() -> None:
    async def main() -> None:
        setting = Setting(takes_s=1_000)
        await setting.executor.start_run(request("flow"))
        await asyncio.sleep(1)

        async def no_answer() -> None:
            await asyncio.Event().wait()

        async def no_release(run_id: str, epoch: int, cause: HandBack) -> None:
            await asyncio.Event().wait()

        setting.journal.set_draining = no_answer
        setting.journal.release_lease = no_release
        await setting.executor.drain(10)
        assert asyncio.get_running_loop().time() < 30

    _run(main)
