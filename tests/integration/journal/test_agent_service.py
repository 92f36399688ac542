"""Goal: agents are checked, published and read back over gRPC, on both databases.

Method: a real `python -m lantern_journal` for each test, spoken to as a publisher does.
"""

import pytest
from journal_process import JournalProcess, Worker, refusal

from lantern.api.journal.v1 import agent_service_pb2 as pb
from lantern.api.journal.v1 import agent_service_pb2_grpc as pb_grpc
from lantern.api.journal.v1 import journal_service_pb2 as jp
from lantern.client.agents import Agents
from lantern_kernel import reasons
from lantern_kernel.errors import LanternError

GRAPH = b"""{
  "nodes": [
    {"id": "begin", "type": "trigger", "data": {}},
    {"id": "done", "type": "end", "data": {}}
  ],
  "edges": [{"source": "begin", "target": "done"}]
}"""


async def test_an_agent_is_checked_published_listed_and_read(journal: JournalProcess) -> None:
    agents = pb_grpc.JournalAgentServiceStub(journal.channel())
    faulty = await agents.CheckAgent(pb.CheckAgentRequest(program_kind="graph", definition=b'{"nodes":1}'))
    assert [fault.path for fault in faulty.faults] != []
    request = pb.PublishAgentRequest(request_id="p1", name="greet", program_kind="graph", definition=b'{"nodes":1}')
    assert (await refusal(agents.PublishAgent(request))).reason == reasons.DEFINITION_INVALID
    request.definition = GRAPH
    checked = await agents.CheckAgent(pb.CheckAgentRequest(program_kind="graph", definition=GRAPH))
    assert list(checked.faults) == []
    for created in (True, True):  # the second is a repeat, and gets the first answer
        published = await agents.PublishAgent(request)
        assert (published.agent.version, published.agent.digest, published.created) == (1, checked.digest, created)
    (listed,) = (await journal.runs().ListAgents(jp.ListAgentsRequest())).agents
    assert (listed.name, listed.program_kind, listed.current) == ("greet", "graph", True)
    read = await agents.GetAgentDefinition(pb.GetAgentDefinitionRequest(name="greet"))
    assert read.definition == GRAPH


async def test_a_published_agent_can_be_started_before_there_is_a_worker(journal: JournalProcess) -> None:
    agents = pb_grpc.JournalAgentServiceStub(journal.channel())
    await agents.PublishAgent(
        pb.PublishAgentRequest(request_id="p1", name="greet", program_kind="graph", definition=GRAPH)
    )
    worker = await Worker(journal, "w1").attach()
    request = jp.CreateRunRequest(request_id="r1", agent_name="greet", lease_target=worker.target())
    started = await journal.runs().CreateRun(request)
    assert (started.epoch, started.run.agent_version) == (0, 1)


async def test_the_client_publishes_and_reads_agents(journal: JournalProcess) -> None:
    async with Agents(journal.address) as agents:
        assert [fault.path for fault in await agents.check(b'{"nodes":1,"edges":[]}')] == ["/nodes"]
        published = await agents.publish("greet", GRAPH)
        assert (published.agent.version, published.created, published.agent.current) == (1, True, True)
        assert await agents.definition("greet") == (published.agent, GRAPH)
        assert await agents.list() == (published.agent,)
        with pytest.raises(LanternError) as refused:
            await agents.definition("greet", version=2)
        assert refused.value.reason == reasons.AGENT_NOT_FOUND
