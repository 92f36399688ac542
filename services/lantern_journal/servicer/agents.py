"""JournalAgentService: see its proto for what each RPC promises."""

from hashlib import sha256
from typing import Any

from lantern.api.journal.v1 import agent_service_pb2 as pb
from lantern.api.journal.v1 import agent_service_pb2_grpc
from lantern_journal import wire
from lantern_journal.application.agents import Agents
from lantern_journal.domain.agents import Publication, Wanted
from lantern_journal.ports import Store
from lantern_journal.validate import agents as validate


class AgentServicer(agent_service_pb2_grpc.JournalAgentServiceServicer):
    """For those who publish agents, and for those who drive what was published."""

    def __init__(self, agents: Agents, store: Store) -> None:
        self._agents, self._store = agents, store

    async def CheckAgent(self, request: pb.CheckAgentRequest, context: Any) -> pb.CheckAgentResponse:
        """Checks a definition."""
        validate.check_agent(request)
        faults = self._agents.check(request.program_kind, request.definition)
        return pb.CheckAgentResponse(
            faults=[pb.DefinitionFault(path=f.path, code=f.code, message=f.message) for f in faults],
            digest=sha256(request.definition).hexdigest(),
        )

    async def PublishAgent(self, request: pb.PublishAgentRequest, context: Any) -> pb.PublishAgentResponse:
        """Publishes a definition."""
        validate.publish_agent(request)
        published = await self._agents.publish(
            Publication(
                request_id=request.request_id,
                tenant_id=wire.tenant(request.tenant_id),
                name=request.name,
                program_kind=request.program_kind,
                definition=request.definition,
            )
        )
        return pb.PublishAgentResponse(agent=wire.agent(published.agent), created=published.created)

    async def GetAgentDefinition(
        self, request: pb.GetAgentDefinitionRequest, context: Any
    ) -> pb.GetAgentDefinitionResponse:
        """Returns a version with its definition."""
        validate.get_agent_definition(request)
        wanted = Wanted(
            tenant_id=wire.tenant(request.tenant_id),
            name=request.name,
            version=request.version,
            digest=request.digest,
        )
        found = await self._store.find_definition(wanted)
        return pb.GetAgentDefinitionResponse(agent=wire.agent(found.agent), definition=found.content)
