"""JournalService: see its proto for what each RPC promises."""

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

from lantern.api.journal.v1 import journal_service_pb2 as pb
from lantern.api.journal.v1 import journal_service_pb2_grpc
from lantern_journal import validate, wire
from lantern_journal.application.runs import Runs
from lantern_journal.domain.records import RunFilter
from lantern_journal.ports import Store
from lantern_journal.servicer.streams import OpenStreams, number_of, page_token, position_of
from lantern_journal.validate import starts
from lantern_kernel import names
from lantern_kernel.bounds import PAGE_BYTES_MAX
from lantern_kernel.errors import InvalidField, LanternError


class JournalServicer(journal_service_pb2_grpc.JournalServiceServicer):
    """For those who start, read and speak to runs."""

    def __init__(self, runs: Runs, store: Store, streams: OpenStreams) -> None:
        self._runs, self._store, self._streams = runs, store, streams

    async def CreateRun(self, request: pb.CreateRunRequest, context: Any) -> pb.CreateRunResponse:
        """Creates a run."""
        starts.create_run(request)
        return wire.started(await self._runs.start(wire.start_request(request)))

    async def GetRun(self, request: pb.GetRunRequest, context: Any) -> pb.GetRunResponse:
        """Returns one run."""
        names.check_run_id("run_id", request.run_id)
        return pb.GetRunResponse(run=wire.run(await self._store.get_run(request.run_id)))

    async def ListRuns(self, request: pb.ListRunsRequest, context: Any) -> pb.ListRunsResponse:
        """Returns runs by pages."""
        size = validate.list_runs(request)
        position = position_of(request.page_token, 1)
        before = position[0] if position else ""
        if before:
            _check_token(names.check_run_id, before)
        wanted = RunFilter(
            tenant_id=wire.tenant(request.tenant_id),
            states=wire.states(request.states),
            workflow_id=request.workflow_id,
            agent_name=request.agent_name,
        )
        page, has_more = await self._store.list_runs(wanted, before, size, PAGE_BYTES_MAX)
        token = page_token(page[-1].run_id) if has_more else ""
        return pb.ListRunsResponse(runs=map(wire.run, page), next_page_token=token)

    async def ListEvents(self, request: pb.ListEventsRequest, context: Any) -> pb.ListEventsResponse:
        """Returns events by pages."""
        size = validate.list_events(request)
        after = number_of(request.page_token, request.after_seq)
        events, has_more = await self._store.list_events(request.run_id, after, size, PAGE_BYTES_MAX)
        token = page_token(events[-1].seq) if has_more else ""
        return pb.ListEventsResponse(events=map(wire.event, events), next_page_token=token)

    async def FollowEvents(
        self, request: pb.FollowEventsRequest, context: Any
    ) -> AsyncIterator[pb.FollowEventsResponse]:
        """Sends events as they are committed."""
        validate.follow_events(request)
        # Closed at once where the call ends: what follows a run is then no longer kept for it.
        with self._streams.registered():
            async with aclosing(self._runs.follow(request.run_id, request.after_seq)) as pages:
                async for events in pages:
                    yield pb.FollowEventsResponse(events=map(wire.event, events))

    async def SendToRun(self, request: pb.SendToRunRequest, context: Any) -> pb.SendToRunResponse:
        """Puts an entry into a run's inbox."""
        validate.send_to_run(request)
        payload, held = wire.content(
            request.payload, request.payload_blob if request.HasField("payload_blob") else None
        )
        sent = await self._runs.send(
            request.request_id, request.run_id, request.kind, request.name, payload, payload_blob=held
        )
        return wire.sent(sent)

    async def ResetRun(self, request: pb.ResetRunRequest, context: Any) -> pb.ResetRunResponse:
        """Sets a run back to an earlier event."""
        starts.reset_run(request)
        return pb.ResetRunResponse(
            run=wire.run(await self._runs.reset(request.request_id, request.run_id, request.to_seq))
        )

    async def ListAgents(self, request: pb.ListAgentsRequest, context: Any) -> pb.ListAgentsResponse:
        """Returns agents by pages."""
        size = validate.list_agents(request)
        position = position_of(request.page_token, 2)
        after = ("", 0)
        if position:
            if not position[1].isdigit() or len(position[1]) > 9:
                raise InvalidField("page_token", "is none that this service has given")
            _check_token(names.check_user_id, position[0])
            after = (position[0], int(position[1]))
        found = await self._store.list_agents(wire.tenant(request.tenant_id), after, size + 1)
        page = found[:size]
        token = page_token(page[-1].name, page[-1].version) if len(found) > size else ""
        return pb.ListAgentsResponse(agents=map(wire.agent, page), next_page_token=token)


def _check_token(check: Callable[[str, str], str], position: str) -> None:
    try:
        check("page_token", position)
    except LanternError:
        raise InvalidField("page_token", "is none that this service has given") from None
