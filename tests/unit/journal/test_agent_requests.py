"""Goal: what is published is checked first, and each field of what is asked about agents is judged.

Method: acceptable requests spoiled in one field; definitions with faults before a store that must not be asked.
"""

from typing import Any

import pytest

from lantern.api.journal.v1 import agent_service_pb2 as pb
from lantern.api.journal.v1 import worker_service_pb2 as worker_pb
from lantern_journal import validate
from lantern_journal.domain import agents as domain
from lantern_journal.domain.agents import Fault
from lantern_journal.domain.graphs import faults_of_graph
from lantern_journal.validate import agents
from lantern_kernel import reasons
from lantern_kernel.bounds import DEFINITION_BYTES_MAX
from lantern_kernel.errors import LanternError

PUBLISH: dict[str, Any] = {"request_id": "r", "name": "order", "program_kind": "graph", "definition": b"{}"}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"request_id": ""}, "request_id"),
        ({"name": "a b"}, "name"),
        ({"name": "*"}, "name"),
        ({"tenant_id": "a b"}, "tenant_id"),
        ({"program_kind": "code"}, "program_kind"),
        ({"definition": b""}, "definition"),
        ({"definition": b" " * (DEFINITION_BYTES_MAX + 1)}, "definition"),
    ],
)
def test_a_publication_names_the_field_at_fault(changes: dict[str, Any], field: str) -> None:
    agents.publish_agent(pb.PublishAgentRequest(**PUBLISH))
    with pytest.raises(LanternError) as refused:
        agents.publish_agent(pb.PublishAgentRequest(**{**PUBLISH, **changes}))
    assert refused.value.details["field"] == field


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"name": ""}, "name"),
        ({"version": -1}, "version"),
        ({"digest": "A" * 64}, "digest"),
        ({"digest": "a" * 64, "version": 1}, "digest"),
    ],
)
def test_a_question_for_a_definition_names_the_field_at_fault(changes: dict[str, Any], field: str) -> None:
    agents.get_agent_definition(pb.GetAgentDefinitionRequest(name="order", version=3))
    values: dict[str, Any] = {"name": "order", **changes}
    with pytest.raises(LanternError) as refused:
        agents.get_agent_definition(pb.GetAgentDefinitionRequest(**values))
    assert refused.value.details["field"] == field


def test_every_agent_can_be_offered_only_of_a_kind_that_is_published() -> None:
    def attach(kind: str) -> worker_pb.Attach:
        offers = [worker_pb.AgentOffer(name="*", digest="a" * 64, program_kind=kind)]
        return worker_pb.Attach(worker_id="w", address="h:1", capacity=1, agents=offers)

    validate.attach(attach("graph"))
    with pytest.raises(LanternError) as refused:
        validate.attach(attach("code"))
    assert refused.value.details["field"] == "attach.agents[0].name"


def test_the_refusal_of_a_definition_tells_the_first_faults_and_counts_all() -> None:
    faults = [Fault(path=f"/nodes/{n}", code="faulty", message="is wrong") for n in range(7)]
    error = domain.invalid(faults)
    assert error.reason == reasons.DEFINITION_INVALID
    assert error.message.count("is wrong") == domain.FAULTS_TOLD
    assert error.message.endswith("and 2 more")
    assert dict(error.details) == {"field": "definition", "faults": "7", "path": "/nodes/0"}


@pytest.mark.parametrize("definition", [b"{", b"[]", b"{}", b'{"nodes":{},"edges":[]}', b'{"nodes":[],"edges":NaN}'])
def test_what_is_no_graph_is_not_published(definition: bytes) -> None:
    assert faults_of_graph(definition)
