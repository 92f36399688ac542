"""When passes are made: at start, by interval, at once after a full one, soon after a failed one; and the watch.

Method: loops over fake pauses, which record how long they were asked to wait and end the loop.
"""

import pytest
from recovery_fakes import AWAY, Enough, FakeExecutors, FakeJournal, FakePause, FakeSources, orphan, worker

from lantern_recovery.adapters.process import Bell
from lantern_recovery.application.loop import RETRY_S_MAX, RETRY_S_MIN, SweepLoop, Watch
from lantern_recovery.application.sweep import Sweep


async def run_loop(journal: FakeJournal, waits: int = 1, interval_s: float = 30.0) -> FakePause:
    pause = FakePause(limit=waits)
    with pytest.raises(Enough):
        await SweepLoop(Sweep(journal, FakeExecutors(), FakeSources()), pause, interval_s).run()
    return pause


async def test_a_pass_runs_at_start_then_the_interval_is_waited_for():
    journal = FakeJournal()
    pause = await run_loop(journal, waits=3)
    assert pause.timeouts == [30.0, 30.0, 30.0]
    assert journal.listed == 3


async def test_full_passes_follow_each_other_at_once():
    journal = FakeJournal(orphans=[orphan(n) for n in range(45)], workers=[worker(capacity=1000)])
    pause = await run_loop(journal)
    assert journal.listed == 3
    assert pause.timeouts == [30.0]
    assert len(journal.acquired) == 45


async def test_a_full_pass_that_placed_nothing_waits():
    journal = FakeJournal(orphans=[orphan(n) for n in range(45)], workers=[worker(capacity=1, leases=1)])
    pause = await run_loop(journal)
    assert journal.listed == 1
    assert pause.timeouts == [1.25]


async def test_what_was_deferred_is_looked_at_again_soon_but_never_later_than_the_interval():
    journal = FakeJournal(orphans=[orphan()], workers=[worker(capacity=1, leases=1)])
    assert (await run_loop(journal)).timeouts == [1.25]
    journal.orphans = [orphan()]
    assert (await run_loop(journal, interval_s=0.1)).timeouts == [0.1]


async def test_errors_and_our_own_faults_are_survived_with_growing_pauses():
    journal = FakeJournal(list_errors=[AWAY, ValueError("a fault of ours"), *[AWAY] * 8])
    pause = await run_loop(journal, waits=11)
    assert pause.timeouts[:3] == [RETRY_S_MIN, RETRY_S_MIN * 2, RETRY_S_MIN * 4]
    assert pause.timeouts[9] == RETRY_S_MAX
    assert pause.timeouts[10] == 30.0


async def test_every_announcement_and_every_new_connection_ring():
    journal = FakeJournal(watches=[["connected", "queued", "due"], ["connected"], []])
    ring, own = FakePause(), FakePause(limit=3)
    with pytest.raises(Enough):
        await Watch(journal, ring, own, FakeSources()).run()
    assert ring.rings == 4
    assert own.timeouts == [pytest.approx(RETRY_S_MIN * f) for f in (0.75, 0.75, 1.5)]


async def test_rings_between_waits_count_as_one():
    bell = Bell()
    bell.ring()
    bell.ring()
    await bell.wait(60.0)
    await bell.wait(0.0)
