"""One pass: who is asked for what, what becomes of a run that nobody takes, and that no run spoils another.

Method: the use case over fake ports and a clock set by hand.
"""

import asyncio

import pytest
from recovery_fakes import AWAY, FakeExecutors, FakeJournal, FakeSources, orphan, worker

from lantern_kernel import reasons
from lantern_kernel.errors import LanternError
from lantern_recovery.application.sweep import DEFER_S_MAX, GRANT_S, PASS_RUNS_MAX, REFUSALS, PassReport, Sweep


class Bench:
    """A sweep and its fakes."""

    def __init__(self, journal: FakeJournal) -> None:
        self.journal = journal
        self.executors = FakeExecutors()
        self.sources = FakeSources()
        self.sweep = Sweep(journal, self.executors, self.sources)


def counts(report: PassReport) -> tuple[int, int, int, int]:
    return report.found, report.placed, report.lost, report.deferred


async def test_a_run_is_acquired_for_the_worker_that_then_drives_it():
    bench = Bench(FakeJournal(orphans=[orphan()], workers=[worker("w1")]))
    report = await bench.sweep.run_pass()
    assert bench.journal.acquired == [("run-1", "w1")]
    assert bench.executors.driven == [("run-1", "w1", 7)]
    assert counts(report) == (1, 1, 0, 0)
    assert report.again_s is None


async def test_losers_skip_silently():
    bench = Bench(FakeJournal(orphans=[orphan(1), orphan(2)], workers=[worker()], taken={"run-1"}))
    report = await bench.sweep.run_pass()
    assert [run for run, _, _ in bench.executors.driven] == ["run-2"]
    assert bench.journal.deferred == []
    assert counts(report) == (2, 1, 1, 0)


async def test_nobody_offers_the_agent_parks_without_delay():
    bench = Bench(FakeJournal(orphans=[orphan()], workers=[worker(agents=[("other", "d1")])]))
    report = await bench.sweep.run_pass()
    assert bench.journal.deferred == [("run-1", None)]
    assert counts(report) == (1, 0, 0, 1)
    assert report.again_s is None, "the journal wakes it as soon as a worker offers its agent"


@pytest.mark.parametrize(("chance", "delay_s"), [(0.0, 0.5), (0.5, 1.25), (0.999999, 2.0)])
async def test_no_room_defers_with_a_jittered_delay(chance: float, delay_s: float):
    bench = Bench(FakeJournal(orphans=[orphan()], workers=[worker(capacity=1, leases=1)]))
    bench.sources.chance = chance
    report = await bench.sweep.run_pass()
    assert bench.journal.deferred == [("run-1", pytest.approx(delay_s, abs=1e-3))]
    assert report.again_s == pytest.approx(delay_s, abs=1e-3)


@pytest.mark.parametrize(
    "error",
    [
        LanternError(reasons.EXECUTOR_BUSY, "full", retry_after_s=1.0),
        LanternError(reasons.UNAVAILABLE, "gone"),
        LanternError(reasons.DEADLINE_EXCEEDED, "no answer"),
        LanternError(reasons.LEASE_LOST, "another process"),
        LanternError(reasons.AGENT_NOT_FOUND, "not here"),
    ],
)
async def test_an_executor_that_does_not_take_it_defers_the_run(error: LanternError):
    bench = Bench(FakeJournal(orphans=[orphan()], workers=[worker("w1")]))
    bench.executors.refusing = {"w1": error}
    report = await bench.sweep.run_pass()
    assert bench.journal.deferred == [("run-1", 1.25)]
    assert counts(report) == (1, 0, 0, 1)


async def test_a_run_that_all_live_code_has_failed_is_left_to_the_journal_to_park():
    bench = Bench(FakeJournal(orphans=[orphan(failed="d1")], workers=[worker("w1")]))
    report = await bench.sweep.run_pass()
    assert bench.journal.deferred == [("run-1", None)]
    assert (bench.journal.acquired, bench.executors.driven) == ([], [])
    assert counts(report) == (1, 0, 0, 1)


@pytest.mark.parametrize("reason", sorted(REFUSALS))
async def test_a_definite_refusal_frees_the_run_at_once(reason: str):
    bench = Bench(FakeJournal(orphans=[orphan()], workers=[worker("w1")]))
    bench.executors.refusing = {"w1": LanternError(reason, "no")}
    report = await bench.sweep.run_pass()
    assert bench.journal.given_back == [("run-1", "w1", 7)]
    assert bench.journal.calls == ["give back", "defer"]
    assert bench.journal.deferred == [("run-1", 1.25)]
    assert report.again_s == pytest.approx(1.25)
    bench.sources.now_s += 1.25
    assert (await bench.sweep.run_pass()).again_s is None, "there is no grant left whose end would have to be awaited"


@pytest.mark.parametrize(
    "reason",
    [
        reasons.UNAVAILABLE,
        reasons.DEADLINE_EXCEEDED,
        reasons.UNKNOWN_OUTCOME,
        reasons.INTERNAL,
        reasons.MESSAGE_TOO_LARGE,
        reasons.UNIMPLEMENTED,
    ],
)
async def test_after_an_answer_that_leaves_it_open_nothing_is_given_back(reason: str):
    bench = Bench(FakeJournal(orphans=[orphan()], workers=[worker("w1")]))
    bench.executors.refusing = {"w1": LanternError(reason, "perhaps")}
    await bench.sweep.run_pass()
    assert bench.journal.given_back == []
    assert bench.journal.deferred == [("run-1", 1.25)]


@pytest.mark.parametrize(
    ("error", "again_s"),
    [(AWAY, GRANT_S), (LanternError(reasons.LEASE_LOST, "a later lease"), None)],
)
async def test_a_lease_that_could_not_be_given_back_expires_unless_it_is_gone(
    error: LanternError, again_s: float | None
):
    bench = Bench(FakeJournal(orphans=[orphan()], workers=[worker("w1")], give_back_error=error))
    bench.executors.refusing = {"w1": LanternError(reasons.EXECUTOR_BUSY, "full")}
    await bench.sweep.run_pass()
    assert bench.journal.deferred == [("run-1", 1.25)]
    bench.sources.now_s += 1.25
    again = (await bench.sweep.run_pass()).again_s
    assert again == (None if again_s is None else pytest.approx(again_s))


async def test_a_refused_run_that_has_ended_is_left_alone():
    ended = LanternError(reasons.RUN_CLOSED, "ended")
    bench = Bench(FakeJournal(orphans=[orphan()], workers=[worker("w1")], give_back_error=ended))
    bench.executors.refusing = {"w1": LanternError(reasons.EXECUTOR_BUSY, "full")}
    assert counts(await bench.sweep.run_pass()) == (1, 0, 1, 0)
    assert bench.journal.deferred == []


async def test_a_run_that_a_busy_worker_refused_meets_the_others_first():
    bench = Bench(FakeJournal(orphans=[orphan(1)], workers=[worker("w1"), worker("w2", leases=9)]))
    bench.sources.chance = 0.999999
    bench.executors.refusing = {"w1": LanternError(reasons.EXECUTOR_BUSY, "full", retry_after_s=1.0)}
    await bench.sweep.run_pass()
    (_, delay_s) = bench.journal.deferred[0]
    assert delay_s is not None
    bench.sources.now_s += delay_s + 0.5
    bench.journal.orphans = [orphan(1)]
    await bench.sweep.run_pass()
    assert bench.executors.driven == [("run-1", "w2", 7)]


async def test_a_busy_worker_is_asked_again_soon_after_it_said():
    bench = Bench(FakeJournal(orphans=[orphan(1)], workers=[worker("w1")]))
    bench.executors.refusing = {"w1": LanternError(reasons.EXECUTOR_BUSY, "full", retry_after_s=1.0)}
    await bench.sweep.run_pass()
    bench.executors.refusing = {}
    bench.sources.now_s += 1.0 + DEFER_S_MAX
    bench.journal.orphans = [orphan(1)]
    await bench.sweep.run_pass()
    assert bench.executors.driven == [("run-1", "w1", 7)]


async def test_a_worker_that_refused_is_left_in_peace_for_a_while():
    bench = Bench(FakeJournal(orphans=[orphan(1)], workers=[worker("w1"), worker("w2", leases=9)]))
    bench.executors.refusing = {"w1": AWAY}
    await bench.sweep.run_pass()
    bench.journal.orphans = [orphan(2)]
    await bench.sweep.run_pass()
    assert bench.journal.acquired[-1] == ("run-2", "w2")
    bench.sources.now_s += GRANT_S
    bench.journal.orphans = [orphan(3)]
    await bench.sweep.run_pass()
    assert bench.journal.acquired[-1] == ("run-3", "w1")


async def test_a_run_whose_grant_nobody_used_is_looked_for_when_that_has_expired():
    bench = Bench(FakeJournal(orphans=[orphan()], workers=[worker("w1")]))
    bench.executors.refusing = {"w1": AWAY}
    assert (await bench.sweep.run_pass()).again_s == pytest.approx(1.25)
    bench.sources.now_s += 1.25
    empty = await bench.sweep.run_pass()
    assert (empty.found, empty.again_s) == (0, pytest.approx(GRANT_S))
    bench.sources.now_s += GRANT_S
    assert (await bench.sweep.run_pass()).again_s is None


async def test_a_refusal_for_one_run_does_not_spoil_the_others():
    journal = FakeJournal(orphans=[orphan(n) for n in range(1, 5)], workers=[worker("w1"), worker("w2")])
    journal.acquire_errors = {"run-2": AWAY, "run-3": LanternError(reasons.RUN_CLOSED, "ended")}
    bench = Bench(journal)
    report = await bench.sweep.run_pass()
    assert counts(report) == (4, 2, 1, 1)
    assert report.again_s is not None


async def test_a_fault_of_ours_with_one_run_does_not_spoil_the_others():
    journal = FakeJournal(orphans=[orphan(n) for n in range(1, 4)], workers=[worker("w1")])
    journal.acquire_errors = {"run-1": ValueError("not foreseen")}
    bench = Bench(journal)
    report = await bench.sweep.run_pass()
    assert counts(report) == (3, 2, 0, 1)
    assert report.again_s == pytest.approx(1.25)


async def test_an_error_of_the_deferral_itself_is_survived():
    bench = Bench(FakeJournal(orphans=[orphan()], workers=[], defer_error=AWAY))
    assert counts(await bench.sweep.run_pass()) == (1, 0, 0, 1)


async def test_a_journal_that_is_away_is_the_callers_to_know():
    bench = Bench(FakeJournal(list_errors=[AWAY]))
    with pytest.raises(LanternError, match="UNAVAILABLE"):
        await bench.sweep.run_pass()
    assert counts(await bench.sweep.run_pass()) == (0, 0, 0, 0)


async def test_a_pass_takes_twenty_and_drives_no_more_at_once():
    bench = Bench(FakeJournal(orphans=[orphan(n) for n in range(50)], workers=[worker(capacity=1000)]))
    report = await bench.sweep.run_pass()
    assert report.found == PASS_RUNS_MAX == 20
    assert report.more_at_once
    assert bench.executors.at_once_max <= 20
    assert [run for run, _, _ in bench.executors.driven] == [f"run-{n}" for n in range(20)]


@pytest.mark.parametrize(("found", "placed", "more"), [(20, 1, True), (20, 0, False), (19, 19, False), (0, 0, False)])
def test_another_pass_follows_only_a_full_one_that_got_somewhere(found: int, placed: int, more: bool):
    report = PassReport(found=found, placed=placed, lost=0, deferred=found - placed, again_s=None)
    assert report.more_at_once is more


async def test_passes_never_overlap():
    bench = Bench(FakeJournal(orphans=[orphan(n) for n in range(60)], workers=[worker(capacity=1000)]))
    await asyncio.gather(*(bench.sweep.run_pass() for _ in range(3)))
    assert bench.journal.passes_inside_max == 1
    assert len({run for run, _, _ in bench.executors.driven}) == 60


async def test_connections_to_workers_that_are_gone_are_dropped():
    bench = Bench(FakeJournal(orphans=[orphan()], workers=[worker("w1"), worker("w2")]))
    await bench.sweep.run_pass()
    assert bench.executors.kept == [{worker("w1").address, worker("w2").address}]
