"""Agents of a running Lantern: what there is, and publishing those that are data."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import grpc

from lantern.api.journal.v1 import agent_service_pb2 as pb
from lantern.api.journal.v1 import agent_service_pb2_grpc as pb_grpc
from lantern.api.journal.v1 import journal_service_pb2 as journal_pb
from lantern.api.journal.v1 import journal_service_pb2_grpc as journal_grpc
from lantern.client.connection import DEADLINE_S, new_request_id
from lantern.client.errors import to_error
from lantern_kernel.bounds import MESSAGE_RECEIVE_BYTES_MAX, PAGE_ROWS_MAX

GRAPH = "graph"
"""The program kind of agents that are published."""

_OPTIONS: list[tuple[str, int]] = [
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.max_receive_message_length", MESSAGE_RECEIVE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_RECEIVE_BYTES_MAX),
]

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Agent:
    """A version of an agent."""

    # Its name.
    name: str
    # Dense per name, from 1.
    version: int
    # SHA-256 (hex) of its definition.
    digest: str
    # code, graph or llm.
    program_kind: str
    # Whether new runs pin it.
    current: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """Something that is wrong with a definition."""

    # Where: a JSON pointer (RFC 6901); empty for the whole.
    path: str
    # What kind of fault, such as `unknown_node`.
    code: str
    # For people.
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Published:
    """What became of a definition."""

    # The version, which is current now.
    agent: Agent
    # False where that content had been published under that name before.
    created: bool


class Agents:
    """Publishes graphs and shows agents. An async context manager; every method may raise LanternError.

    Args:
        journal: `host:port` of a journal.
        tenant_id: Whose agents.
    """

    def __init__(self, journal: str, *, tenant_id: str = "default") -> None:
        self._address = journal
        self._tenant_id = tenant_id
        self._channel = grpc.aio.insecure_channel(journal, options=_OPTIONS)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()

    async def check(self, definition: bytes) -> tuple[Fault, ...]:
        """All that is wrong with the definition of a graph (JSON); nothing is published."""
        request = pb.CheckAgentRequest(program_kind=GRAPH, definition=definition)
        checked = await self._call(self._agents.CheckAgent, request)
        return tuple(Fault(path=f.path, code=f.code, message=f.message) for f in checked.faults)

    async def publish(self, name: str, definition: bytes, *, request_id: str | None = None) -> Published:
        """Publishes a graph (JSON, kept byte for byte), which new runs of that name pin from now on.

        DEFINITION_INVALID where it has faults, AGENT_KIND_CONFLICT where the name is that of an agent in code.

        Args:
            name: The agent's name.
            definition: The graph.
            request_id: Names this request; a new one where None.
        """
        request = pb.PublishAgentRequest(
            request_id=request_id or new_request_id(),
            tenant_id=self._tenant_id,
            name=name,
            program_kind=GRAPH,
            definition=definition,
        )
        published = await self._call(self._agents.PublishAgent, request)
        return Published(agent=_agent(published.agent), created=published.created)

    async def definition(self, name: str, *, version: int = 0) -> tuple[Agent, bytes]:
        """A version of an agent (0: the current one) with its definition, empty for code. AGENT_NOT_FOUND."""
        request = pb.GetAgentDefinitionRequest(tenant_id=self._tenant_id, name=name, version=version)
        found = await self._call(self._agents.GetAgentDefinition, request)
        return _agent(found.agent), found.definition

    async def list(self) -> tuple[Agent, ...]:
        """All versions of all agents, by name, then version."""
        found: list[Agent] = []
        token = ""
        while True:
            request = journal_pb.ListAgentsRequest(tenant_id=self._tenant_id, page_size=PAGE_ROWS_MAX, page_token=token)
            page = await self._call(self._journal.ListAgents, request)
            found += map(_agent, page.agents)
            token = page.next_page_token
            if not token:
                return tuple(found)

    async def _call(self, method: Callable[..., Awaitable[T]], request: object) -> T:
        try:
            return await method(request, timeout=DEADLINE_S)
        except grpc.aio.AioRpcError as error:
            raise to_error(error, self._address) from None

    @property
    def _agents(self) -> Any:
        return pb_grpc.JournalAgentServiceStub(self._channel)

    @property
    def _journal(self) -> Any:
        return journal_grpc.JournalServiceStub(self._channel)


def _agent(message: journal_pb.Agent) -> Agent:
    return Agent(
        name=message.name,
        version=message.version,
        digest=message.digest,
        program_kind=message.program_kind,
        current=message.current,
    )
