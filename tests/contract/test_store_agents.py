"""Published agents: versions, what is current, one program kind per name, and who may drive their runs."""

import asyncio
from typing import Any

import pytest
from journal_kit import DIGEST, LIMITS, OTHER_DIGEST, attach, entry, grant, new_run, offer, park, start_new

from lantern_journal.domain.agents import Publication, Published, Wanted
from lantern_journal.domain.leases import AgentOffer
from lantern_journal.domain.run_state import RunState
from lantern_journal.ports import Store
from lantern_kernel import reasons
from lantern_kernel.bounds import DEFINITION_BYTES_MAX
from lantern_kernel.errors import LanternError

ONE, TWO = b'{"nodes": [],\n "edges": []}', b'{"nodes":[],"edges":[]}'
EVERY_GRAPH = AgentOffer(name="*", digest=DIGEST, program_kind="graph")


async def publish(store: Store, definition: bytes = ONE, request_id: str = "p1", **changes: Any) -> Published:
    values: dict[str, Any] = {"tenant_id": "default", "name": "order", "program_kind": "graph"} | changes
    return await store.publish_agent(Publication(request_id=request_id, definition=definition, **values))


async def definition(store: Store, version: int = 0, digest: str = "", name: str = "order") -> bytes:
    wanted = Wanted(tenant_id="default", name=name, version=version, digest=digest)
    return (await store.find_definition(wanted)).content


async def current(store: Store) -> list[int]:
    return [agent.version for agent in await store.list_agents("default", ("", 0), 10) if agent.is_current]


async def test_each_content_is_a_version_that_keeps_its_bytes(store: Store) -> None:
    one, two = await publish(store), await publish(store, TWO, "p2")
    assert (one.agent.version, one.created, two.agent.version, two.created) == (1, True, 2, True)
    assert await definition(store) == TWO
    assert await definition(store, version=1) == ONE
    assert await definition(store, digest=one.agent.digest) == ONE
    assert await current(store) == [2]
    large = b'{"nodes":[],"edges":[],"x":"' + b"x" * (DEFINITION_BYTES_MAX - 30) + b'"}'
    await publish(store, large, "p3")
    assert await definition(store) == large


async def test_what_was_published_before_becomes_current_again(store: Store) -> None:
    await publish(store)
    await publish(store, TWO, "p2")
    again = await publish(store, ONE, "p3")
    assert (again.agent.version, again.created, again.agent.is_current) == (1, False, True)
    assert await current(store) == [1]
    await attach(store, "w1", EVERY_GRAPH)
    assert (await start_new(store, new_run())).run.agent_version == 1


async def test_a_repeated_request_changes_nothing(store: Store) -> None:
    await publish(store)
    await publish(store, TWO, "p2")
    late = await publish(store)
    assert (late.agent.version, late.created, late.agent.is_current) == (1, True, False)
    assert await current(store) == [2]
    with pytest.raises(LanternError) as refused:
        await publish(store, TWO, "p1")
    assert refused.value.reason == reasons.REQUEST_ID_REUSED


async def test_two_who_publish_the_same_at_once_make_one_version(store: Store) -> None:
    both = await asyncio.gather(*(publish(store, ONE, f"p{index}") for index in range(8)))
    assert sorted(published.created for published in both) == [False] * 7 + [True]
    assert {published.agent.version for published in both} == {1}


async def test_a_name_has_one_program_kind(store: Store) -> None:
    await attach(store, "w1", offer("order"))
    with pytest.raises(LanternError) as refused:
        await publish(store)
    assert (refused.value.reason, refused.value.details["program_kind"]) == (reasons.AGENT_KIND_CONFLICT, "code")
    await publish(store, name="refund")
    with pytest.raises(LanternError) as refused:
        await attach(store, "w2", offer("refund"))
    assert (refused.value.reason, refused.value.details["program_kind"]) == (reasons.AGENT_KIND_CONFLICT, "graph")
    assert await store.is_open_session("w2", 1) is False
    await publish(store, tenant_id="other", request_id="p1")


@pytest.mark.parametrize("wanted", [{"version": 2}, {"digest": "f" * 64}, {"name": "another"}])
async def test_what_nobody_published_is_not_found(store: Store, wanted: dict[str, Any]) -> None:
    await publish(store)
    with pytest.raises(LanternError) as refused:
        await definition(store, **wanted)
    assert refused.value.reason == reasons.AGENT_NOT_FOUND


async def test_code_has_no_definition(store: Store) -> None:
    await attach(store, "w1", offer("order"))
    assert await definition(store) == b""


async def test_a_run_pins_the_current_version_and_keeps_it(store: Store) -> None:
    await publish(store)
    target = await attach(store, "w1", EVERY_GRAPH)
    started = await start_new(store, new_run(target=target))
    assert (started.run.state, started.run.agent_version, started.run.epoch) == (RunState.RUNNING, 1, 1)
    assert started.run.agent_digest == (await publish(store)).agent.digest
    await publish(store, TWO, "p2")
    assert (await store.get_run(started.run.run_id)).agent_version == 1
    assert (await start_new(store, new_run("r2", target=target))).run.agent_version == 2


async def test_who_drives_every_graph_drives_no_code(store: Store) -> None:
    await attach(store, "w1", offer("order"))
    target = await attach(store, "w2", EVERY_GRAPH)
    started = await start_new(store, new_run(target=target))
    assert started.run.state is RunState.QUEUED
    assert await store.acquire_lease(grant(started.run.run_id, target), LIMITS) == 0


async def test_who_drives_code_drives_no_graph(store: Store) -> None:
    await publish(store)
    target = await attach(store, "w1", offer("refund"))
    started = await start_new(store, new_run(target=target))
    assert started.run.state is RunState.QUEUED
    assert await store.acquire_lease(grant(started.run.run_id, target), LIMITS) == 0
    every = await attach(store, "w2", EVERY_GRAPH)
    (orphan,) = await store.find_orphans(10, LIMITS)
    assert orphan.program_kind == "graph"
    assert await store.acquire_lease(grant(started.run.run_id, every), LIMITS) == 1


async def test_a_graph_that_finds_no_worker_is_woken_by_one_that_drives_every_graph(store: Store) -> None:
    await publish(store)
    run_id = (await start_new(store, new_run())).run.run_id
    await store.defer_run(run_id, None, b"s" * 16, LIMITS)
    assert (await store.get_run(run_id)).waiting_on == "capacity"
    await attach(store, "w1", offer("refund"))
    assert (await store.get_run(run_id)).state is RunState.WAITING
    await attach(store, "w2", EVERY_GRAPH)
    assert (await store.get_run(run_id)).state is RunState.QUEUED
    await store.defer_run(run_id, None, b"s" * 16, LIMITS)
    assert (await store.get_run(run_id)).state is RunState.QUEUED, "there is a worker that drives it"


async def test_a_graph_that_could_not_be_replayed_waits_for_other_code_to_drive_it(store: Store) -> None:
    await publish(store)
    target = await attach(store, "w1", EVERY_GRAPH)
    run_id = (await start_new(store, new_run(target=target))).run.run_id
    await store.open_run(run_id, 1, target, LIMITS)
    await park(store, run_id, "code_fix", failed=DIGEST)
    await attach(store, "w1", EVERY_GRAPH)
    assert (await store.get_run(run_id)).waiting_on == "code_fix"
    await attach(store, "w2", AgentOffer(name="*", digest=OTHER_DIGEST, program_kind="graph"))
    assert (await store.get_run(run_id)).state is RunState.QUEUED


async def test_an_entry_wakes_a_run_of_a_graph(store: Store) -> None:
    await publish(store)
    target = await attach(store, "w1", EVERY_GRAPH)
    run_id = (await start_new(store, new_run(target=target))).run.run_id
    await store.open_run(run_id, 1, target, LIMITS)
    await park(store, run_id, "signal")
    await store.send(entry(run_id), LIMITS)
    assert await store.acquire_lease(grant(run_id, target, "signal"), LIMITS) == 2
