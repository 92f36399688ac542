"""Goal: what is asked of the journal says what is meant, field by field.

Method: requests made from hand-made values, compared whole.
"""

from recovery_fakes import orphan, worker

from lantern.api.journal.v1 import recovery_service_pb2 as recovery_pb
from lantern.api.journal.v1 import worker_service_pb2 as worker_pb
from lantern_recovery import wire
from lantern_recovery.domain.orphan import Orphan


def test_a_refused_lease_is_given_back_in_the_name_of_its_worker():
    expected = worker_pb.ReleaseLeaseRequest(
        run_id="run-3", epoch=9, worker_id="w2", cause=worker_pb.ReleaseLeaseRequest.CAUSE_REFUSED
    )
    assert wire.release_request(orphan(3), worker("w2"), 9) == expected


def test_a_deferral_has_a_delay_or_none():
    assert wire.defer_request("run-1", 1.25).delay.ToMilliseconds() == 1_250
    assert wire.defer_request("run-1", None) == recovery_pb.DeferRunRequest(run_id="run-1")


def test_an_orphan_names_the_code_that_failed_it():
    message = recovery_pb.Orphan(
        run_id="run-1", tenant_id="t", agent_name="order", agent_digest="d1", reason="upgrade", failed_digest="d0"
    )
    assert wire.orphan(message) == Orphan(
        run_id="run-1", tenant_id="t", agent_name="order", agent_digest="d1", reason="upgrade", failed_digest="d0"
    )
    assert wire.orphan(recovery_pb.Orphan()).failed_digest == ""


def test_event_levels_and_their_absence():
    assert [wire.orphan(recovery_pb.Orphan(event_level=level)).event_level for level in (0, 1, 2)] == [1, 1, 2]
    assert [wire.worker(recovery_pb.Worker(event_level=level)).event_level for level in (0, 1, 2)] == [1, 1, 2]


def test_a_worker_drives_agents_by_name_and_every_one_of_a_kind():
    offers = [("order", "d1", "code"), ("*", "i1", "graph")]
    message = recovery_pb.Worker(
        agents=[recovery_pb.WorkerAgent(name=name, digest=digest, program_kind=kind) for name, digest, kind in offers]
    )
    found = wire.worker(message)
    assert (found.agents, found.every) == ({("order", "d1")}, {("graph", "i1")})
    assert found.digests("any", "graph") == {"i1"}
    assert found.digests("any", "code") == frozenset()
    assert wire.orphan(recovery_pb.Orphan()).program_kind == "code"
