"""Which executor takes which run: tenant, agent, digest, load, room.

Method: hand-made orphans and workers; the plan is a value.
"""

from dataclasses import replace

import pytest
from recovery_fakes import orphan, worker

from lantern_recovery.domain.matching import Untaken, match
from lantern_recovery.domain.worker import Worker


def taker(planned: object) -> object:
    return planned.worker_id if isinstance(planned, Worker) else planned


def test_the_same_digest_is_preferred_to_a_smaller_load():
    plan = match([orphan()], [worker("idle", agents=[("order", "d2")]), worker("same", leases=50)])
    assert taker(plan[0].taker) == "same"


def test_another_digest_of_the_name_is_better_than_none():
    plan = match([orphan()], [worker("other", agents=[("order", "d2")])])
    assert taker(plan[0].taker) == "other"


def test_another_digest_takes_over_where_the_same_has_no_room():
    plan = match([orphan()], [worker("same", capacity=5, leases=5), worker("other", agents=[("order", "d2")])])
    assert taker(plan[0].taker) == "other"


def test_the_smallest_share_in_use_wins_not_the_fewest_leases():
    plan = match([orphan()], [worker("small", capacity=10, leases=5), worker("large", capacity=1000, leases=20)])
    assert taker(plan[0].taker) == "large"


def test_runs_of_one_pass_are_spread():
    plan = match([orphan(n) for n in range(6)], [worker("a"), worker("b"), worker("c")])
    assert sorted(str(taker(m.taker)) for m in plan) == ["a", "a", "b", "b", "c", "c"]


def test_order_is_kept_so_the_oldest_gets_the_last_room():
    plan = match([orphan(1), orphan(2)], [worker("a", capacity=1)])
    assert [taker(m.taker) for m in plan] == ["a", Untaken.NO_ROOM]


def test_at_most_half_of_a_capacity_is_resumed_in_one_pass():
    plan = match([orphan(n) for n in range(10)], [worker("a", capacity=10)])
    assert [taker(m.taker) for m in plan].count("a") == 5


@pytest.mark.parametrize(
    "workers",
    [
        [],
        [worker(agents=[("other", "d1")])],
        [worker(agents=[])],
        [worker(tenant="acme")],
    ],
)
def test_nobody_offers_it(workers: list[Worker]):
    assert match([orphan()], workers)[0].taker is Untaken.NOT_OFFERED


@pytest.mark.parametrize(("leases", "capacity"), [(3, 3), (9, 3), (1, 1)])
def test_full_is_no_room_even_when_over_full(leases: int, capacity: int):
    assert match([orphan()], [worker(leases=leases, capacity=capacity)])[0].taker is Untaken.NO_ROOM


def test_an_avoided_worker_has_no_room_but_still_offers():
    assert match([orphan()], [worker("a")], frozenset({"a"}))[0].taker is Untaken.NO_ROOM


def test_code_that_failed_a_run_does_not_get_it_though_it_is_the_pinned_one():
    workers = [worker("failed"), worker("fixed", agents=[("order", "d2")], leases=99)]
    assert taker(match([orphan(failed="d1")], workers)[0].taker) == "fixed"


def test_code_that_failed_a_run_gets_others():
    plan = match([orphan(1, failed="d1"), orphan(2), orphan(3, failed="d2")], [worker("w1")])
    assert [taker(m.taker) for m in plan] == [Untaken.ONLY_FAILED, "w1", "w1"]


@pytest.mark.parametrize(
    ("workers", "expected"),
    [
        ([worker("failed")], Untaken.ONLY_FAILED),
        ([worker("failed", capacity=1, leases=1)], Untaken.ONLY_FAILED),
        ([worker("failed"), worker("fixed", agents=[("order", "d2")], capacity=1, leases=1)], Untaken.NO_ROOM),
        ([worker("failed"), worker("else", agents=[("other", "d2")])], Untaken.ONLY_FAILED),
        ([worker("failed"), worker("foreign", agents=[("order", "d2")], tenant="acme")], Untaken.ONLY_FAILED),
        ([worker("else", agents=[("other", "d1")])], Untaken.NOT_OFFERED),
        ([], Untaken.NOT_OFFERED),
    ],
)
def test_who_could_take_a_run_that_some_code_has_failed(workers: list[Worker], expected: Untaken):
    assert match([orphan(failed="d1")], workers)[0].taker is expected


def test_a_worker_below_the_event_level_of_a_run_does_not_get_it_though_it_is_the_best_otherwise():
    workers = [worker("old"), worker("new", agents=[("order", "d2")], leases=99, level=3)]
    assert taker(match([orphan(level=2)], workers)[0].taker) == "new"


@pytest.mark.parametrize(
    ("workers", "expected"),
    [
        ([worker("old")], Untaken.NOT_OFFERED),
        ([worker("old"), worker("full", agents=[("order", "d2")], level=2, capacity=1, leases=1)], Untaken.NO_ROOM),
        ([worker("old", agents=[("order", "d2")]), worker("failed", level=2)], Untaken.ONLY_FAILED),
        ([worker("old"), worker("else", agents=[("other", "d1")], level=2)], Untaken.NOT_OFFERED),
    ],
)
def test_who_could_take_a_run_of_a_higher_event_level(workers: list[Worker], expected: Untaken):
    assert match([orphan(level=2, failed="d1")], workers)[0].taker is expected


def test_nothing_to_do_is_an_empty_plan():
    assert match([], [worker()]) == []


def graph_worker(name: str, digest: str = "i1", leases: int = 0) -> Worker:
    return replace(worker(name, agents=[], leases=leases), every=frozenset({("graph", digest)}))


def test_who_drives_every_agent_of_a_kind_takes_those_of_that_kind_alone():
    plan = match([orphan(1), replace(orphan(2), program_kind="graph")], [graph_worker("graphs")])
    assert [taker(m.taker) for m in plan] == [Untaken.NOT_OFFERED, "graphs"]


def test_what_drives_every_graph_and_failed_on_one_does_not_take_that_one_again():
    failed = replace(orphan(), program_kind="graph", failed_digest="i1")
    assert taker(match([failed], [graph_worker("old")])[0].taker) is Untaken.ONLY_FAILED
    assert taker(match([failed], [graph_worker("old"), graph_worker("new", "i2", leases=9)])[0].taker) == "new"
