"""The client of a running Lantern: one journal address, and the executors that start runs."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, TypeVar

import grpc

from lantern.api.executor.v1 import executor_service_pb2 as executor_pb
from lantern.api.executor.v1 import executor_service_pb2_grpc as executor_grpc
from lantern.api.journal.v1 import approval_service_pb2 as approval_pb
from lantern.api.journal.v1 import journal_service_pb2 as pb
from lantern.api.journal.v1 import worker_service_pb2 as worker_pb
from lantern.api.journal.v1 import worker_service_pb2_grpc as worker_grpc
from lantern.client import blobs
from lantern.client.approval import Approval, ApprovalPage, Decision, approval_from_wire, approval_state_to_wire
from lantern.client.connection import Connection, json_of, new_request_id
from lantern.client.errors import UNREACHED, to_error
from lantern.client.run import (
    Run,
    RunFailed,
    RunPage,
    Taken,
    UpdateFailed,
    event_from_wire,
    run_from_wire,
    state_to_wire,
)
from lantern.program import conversion
from lantern.program.waits import agent_name_of
from lantern_kernel import json_bytes, kinds, payloads, reasons
from lantern_kernel.blobs import BlobRef
from lantern_kernel.course import taking_in
from lantern_kernel.errors import InvalidField, LanternError
from lantern_kernel.event import Event
from lantern_kernel.payloads import RunErrorFacts

FOLLOW_DEADLINE_S = 600.0
"""Of one stream of events; the client comes back with the last seq that it has seen."""

AWAY_S = 2.0
"""How long the journal may be away before whoever watches is told."""

RECONNECT_S_MIN, RECONNECT_S_MAX = 0.05, 1.0

OPERATOR = "operator"
"""Who settles a delivery where nobody else is named."""

WORKFLOW_ID_POLICIES = ("reject", "use-existing", "allow-after-close", "terminate-existing")

T = TypeVar("T")


class Client(Connection):
    """Starts runs, follows them, speaks to them.

    Use it inside one event loop, as an async context manager or with `close`. Every method may raise LanternError,
    whose `reason` is a constant of `lantern_kernel.reasons`. Requests are idempotent: a call that failed with unknown
    outcome may be repeated with the same `request_id`.

    Args:
        journal: `host:port` of a journal.
        executors: `host:port` of each executor. A run is started by one of them and driven there at once; where none
            answers, or none is given, it is queued in the journal and an executor is found for it.
        tenant_id: Whose runs.
        patience_s: How long `watch` and `result` go on while the journal cannot be reached.
    """

    async def start(
        self,
        agent: str | Callable[..., Any],
        input: Any = None,  # noqa: A002 - the word that users know it by
        *,
        input_json: bytes | None = None,
        workflow_id: str = "",
        policy: str = "allow-after-close",
        durability: str = "",
        signal: str = "",
        signal_payload: Any = None,
        signal_payload_json: bytes | None = None,
        request_id: str | None = None,
    ) -> Run:
        """Starts a run and returns it; it goes on by itself.

        Args:
            agent: The name of the agent, or a workflow function.
            input: What JSON can say, and dataclasses and the like (docs, workflows).
            input_json: The input as JSON bytes instead, kept exactly.
            workflow_id: Your own name for this work, unique among the open runs of the tenant.
            policy: Where that name is taken: reject, use-existing, allow-after-close, or terminate-existing (the open
                run ends at once, as CANCELLED).
            durability: When what it does is committed: sync (where empty), async or exit (docs, durability).
            signal: The name of a signal that goes with the start, to the run that is made or, with use-existing, found;
                both or neither happen. None where empty.
            signal_payload: What that signal says, what JSON can say.
            signal_payload_json: The same as JSON bytes instead, kept exactly.
            request_id: Names this request: the same id with the same content is the same run. A new one where None.
        """
        body = json_of("input", input, input_json)
        fields: dict[str, Any] = {
            "request_id": request_id or new_request_id(),
            "tenant_id": self._tenant_id,
            "agent_name": agent if isinstance(agent, str) else agent_name_of(agent),
            **(await self._content("input", body)),
            "workflow_id": workflow_id,
            "workflow_id_policy": _policy(policy),
            "durability": durability,
        }
        if signal:
            said = json_of("signal_payload", signal_payload, signal_payload_json)
            fields["signal"] = pb.StartSignal(name=signal, payload=said)
        for address in self._executors_in_turn():
            stub = executor_grpc.ExecutorServiceStub(self._channel(address))
            try:
                started = await self._call(stub.StartRun, executor_pb.StartRunRequest(**fields), address)
            except LanternError as error:
                if error.reason not in UNREACHED:
                    raise
                continue
            return run_from_wire(started.run)
        created = await self._call(self._journal.CreateRun, pb.CreateRunRequest(**fields))
        return run_from_wire(created.run)

    async def get(self, run_id: str, *, contents: bool = True) -> Run:
        """One run; RUN_NOT_FOUND where there is none.

        Input and result above 256 KiB are fetched as well, but for `contents=False`: then `input_blob` and
        `result_blob` name them, and `blob` fetches one.
        """
        run = run_from_wire((await self._call(self._journal.GetRun, pb.GetRunRequest(run_id=run_id))).run)
        if not contents:
            return run
        if run.input_blob is not None:
            run = replace(run, input=await self.blob(run.input_blob, tenant_id=run.tenant_id))
        if run.result_blob is not None:
            run = replace(run, result=await self.blob(run.result_blob, tenant_id=run.tenant_id))
        return run

    async def blob(self, blob: BlobRef, *, tenant_id: str | None = None) -> bytes:
        """The content of a blob that a run or an event names (`lantern_kernel.payloads.unpack(...).blob`)."""
        tenant_id = self._tenant_id if tenant_id is None else tenant_id
        return await blobs.whole(self._blobs, self._journal_address, tenant_id, blob)

    async def list(
        self,
        *,
        states: Sequence[str] = (),
        agent: str = "",
        workflow_id: str = "",
        page_size: int = 100,
        page_token: str = "",
    ) -> RunPage:
        """A page of runs, newest first, without input and result.

        Args:
            states: Only runs in these (lantern.client.run.STATES); empty is all.
            agent: Only runs of this agent; empty is all.
            workflow_id: Only runs with this workflow id; empty is all.
            page_size: At most this many, up to 1,000.
            page_token: Of the previous page; empty starts.
        """
        request = pb.ListRunsRequest(
            page_size=page_size,
            page_token=page_token,
            tenant_id=self._tenant_id,
            states=[state_to_wire(state) for state in states],
            workflow_id=workflow_id,
            agent_name=agent,
        )
        page = await self._call(self._journal.ListRuns, request)
        return RunPage(runs=tuple(run_from_wire(run) for run in page.runs), next_page_token=page.next_page_token)

    async def events(self, run_id: str, *, after_seq: int = 0) -> Sequence[Event]:
        """All events of a run so far, in order of seq."""
        events: list[Event] = []
        token = ""
        while True:
            request = pb.ListEventsRequest(run_id=run_id, after_seq=after_seq, page_token=token)
            page = await self._call(self._journal.ListEvents, request)
            events.extend(event_from_wire(event) for event in page.events)
            token = page.next_page_token
            if not token:
                return events

    async def watch(
        self, run_id: str, *, after_seq: int = 0, on_away: Callable[[LanternError], None] | None = None
    ) -> AsyncGenerator[Event, None]:
        """Yields the events of a run as they are committed, each once, and ends after the terminal one.

        A broken connection is made again and goes on behind the last event; after `patience_s` without the journal its
        error is raised. `on_away` is told that error once, each time that the journal has been away for 2 s.
        """
        seen, pause_s, away_since, told = after_seq, RECONNECT_S_MIN, None, False
        while True:
            try:
                async with aclosing(self._follow(run_id, seen)) as events:
                    async for event in events:
                        seen, pause_s, away_since, told = event.seq, RECONNECT_S_MIN, None, False
                        yield event
                        if event.kind in kinds.TERMINAL:
                            return
                if (await self.get(run_id, contents=False)).is_terminal:
                    # Nothing after `after_seq`: the caller had seen it all.
                    return
                away_since, told = None, False
            except LanternError as error:
                if error.reason not in UNREACHED:
                    raise
                now_s = time.monotonic()
                away_since = now_s if away_since is None else away_since
                if now_s - away_since >= self._patience_s:
                    raise
                if on_away and not told and now_s - away_since >= AWAY_S:
                    told = True
                    on_away(error)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, RECONNECT_S_MAX)

    async def result(self, run_id: str, *, into: Any = None) -> Any:
        """Waits for the end of a run and returns its result; raises RunFailed where it has none.

        Args:
            run_id: The run.
            into: The type to make of the result: an annotation, or the workflow function that says it; by default what
                JSON gives. What does not fit raises InvalidField.
        """
        run = await self.wait(run_id)
        if run.state != "SUCCEEDED":
            raise RunFailed(run)
        return conversion.read_result(run.result_value, into)

    async def wait(self, run_id: str, *, on_away: Callable[[LanternError], None] | None = None) -> Run:
        """Waits for the end of a run, however it ends, and returns it; `on_away` as in `watch`."""
        run = await self.get(run_id, contents=False)
        if run.is_terminal:
            return await self.get(run_id)
        async for _ in self.watch(run_id, on_away=on_away):
            pass
        return await self.get(run_id)

    async def signal(
        self,
        run_id: str,
        name: str,
        payload: Any = None,
        *,
        payload_json: bytes | None = None,
        request_id: str | None = None,
    ) -> int:
        """Sends a signal to a run; returns its number in the run's inbox. RUN_CLOSED where the run has ended."""
        body = json_of("payload", payload, payload_json)
        return (await self._send(run_id, "signal", name, body, request_id)).number

    async def query(self, run_id: str, name: str, payload: Any = None, *, payload_json: bytes | None = None) -> Any:
        """What the run's workflow answers to a query; nothing changes.

        An executor that has the workflow loaded answers: where it drives the run, the live workflow; else one that is
        replayed along the journal, whatever the run's state.

        Raises:
            LanternError: RUN_NOT_FOUND; QUERY_NOT_FOUND; QUERY_FAILED; AGENT_NOT_FOUND where no executor that was
                reached has the workflow; NONDETERMINISM where its code does not replay the run; UNAVAILABLE.
        """
        body = json_of("payload", payload, payload_json)
        request = executor_pb.QueryRunRequest(run_id=run_id, name=name, payload=body)
        failed = LanternError(reasons.UNAVAILABLE, "no executor is known that could answer")
        for address in self._executors_in_turn():
            stub = executor_grpc.ExecutorServiceStub(self._channel(address))
            try:
                answered = await self._call(stub.QueryRun, request, address)
            except LanternError as error:
                if error.reason not in UNREACHED | {reasons.AGENT_NOT_FOUND, reasons.NONDETERMINISM}:
                    raise
                failed = error  # another one may have it, or another version of it
                continue
            return json_bytes.decode_recorded(answered.result)
        raise failed

    async def update(
        self,
        run_id: str,
        name: str,
        payload: Any = None,
        *,
        payload_json: bytes | None = None,
        request_id: str | None = None,
    ) -> Any:
        """Has the run's workflow change something, and waits for its answer, for as long as it takes.

        Raises:
            UpdateFailed: The workflow refused it or failed over it.
            LanternError: RUN_CLOSED, the run has ended, or ends before it answers.
        """
        body = json_of("payload", payload, payload_json)
        update_id = taking_in.update_id((await self._send(run_id, "update", name, body, request_id)).number)
        async for event in self.watch(run_id):
            if event.kind == kinds.UPDATE_COMPLETED and event.step_id == update_id:
                answer = payloads.unpack(event.payload)
                if "error" in answer.facts:
                    raise UpdateFailed(name, RunErrorFacts.from_facts(answer.facts["error"]))
                content = answer.content
                if isinstance(content, BlobRef):
                    content = await self.blob(content)
                return json_bytes.decode_recorded(content or b"null")
        raise LanternError(reasons.RUN_CLOSED, f"run {run_id} ended before it answered the update {name}")

    async def cancel(self, run_id: str, *, request_id: str | None = None) -> Taken:
        """Asks a run to end, and says who won where it was about to end anyway.

        A run that nobody drives and that has nothing to compensate is CANCELLED at once. One that is driven ends soon;
        from now on it can no longer succeed. Where it had ended before, `already_ended` is True and `state` says how.
        """
        return await self._send(run_id, "cancel", "", b"", request_id)

    async def pause(self, run_id: str, *, request_id: str | None = None) -> Taken:
        """Holds a run: steps in flight end, no further one begins, timers wait. RUN_CLOSED where the run has ended."""
        return await self._send(run_id, "pause", "", b"", request_id)

    async def resume(self, run_id: str, *, request_id: str | None = None) -> Taken:
        """Lets a paused run go on, and one that waits on operator, code_fix or budget try again. RUN_CLOSED."""
        return await self._send(run_id, "resume", "", b"", request_id)

    async def reset(self, run_id: str, to_seq: int, *, request_id: str | None = None) -> Run:
        """Sets a run that waits on code_fix back to an event, and queues it; nothing is taken away.

        What stands behind the event is not replayed but done anew, under the keys that it had; what came from others
        (signals, ends of children) is kept. InvalidField where it waits on something else or there is no such event.

        Args:
            run_id: The run.
            to_seq: The last event that is replayed, from 1.
            request_id: Makes a repeat of this call harmless; by default a new one.
        """
        request = pb.ResetRunRequest(run_id=run_id, to_seq=to_seq, request_id=request_id or new_request_id())
        return run_from_wire((await self._call(self._journal.ResetRun, request)).run)

    async def approvals(
        self,
        *,
        states: Sequence[str] = ("PENDING",),
        assignee: str = "",
        run_id: str = "",
        page_size: int = 100,
        page_token: str = "",
    ) -> ApprovalPage:
        """A page of approvals, oldest first, without comments.

        Args:
            states: Only approvals in these (lantern.client.approval.STATES); empty is all.
            assignee: Only those of this assignee; empty is all.
            run_id: Only those of this run; empty is all.
            page_size: At most this many, up to 1,000.
            page_token: Of the previous page; empty starts.
        """
        request = approval_pb.ListApprovalsRequest(
            page_size=page_size,
            page_token=page_token,
            tenant_id=self._tenant_id,
            states=[approval_state_to_wire(state) for state in states],
            assignee=assignee,
            run_id=run_id,
        )
        page = await self._call(self._approvals.ListApprovals, request)
        found = tuple(approval_from_wire(approval) for approval in page.approvals)
        return ApprovalPage(approvals=found, next_page_token=page.next_page_token)

    async def approve(self, run_id: str, approval_id: str, by: str, **said: Any) -> Decision:
        """Approves; see `decide`."""
        return await self.decide(run_id, approval_id, by, approve=True, **said)

    async def deny(self, run_id: str, approval_id: str, by: str, **said: Any) -> Decision:
        """Denies; see `decide`."""
        return await self.decide(run_id, approval_id, by, approve=False, **said)

    async def decide(
        self,
        run_id: str,
        approval_id: str,
        by: str,
        *,
        approve: bool,
        comment: Any = None,
        comment_json: bytes | None = None,
        request_id: str | None = None,
    ) -> Decision:
        """Decides what a run asks for. The first decision wins.

        The same one again gets the recorded one, `already_decided`; another one raises APPROVAL_DECIDED, also where the
        approval has expired. RUN_CLOSED where the run ended before anybody decided.

        Args:
            run_id: The run.
            approval_id: Which approval of it.
            by: Who decides.
            approve: Yes or no.
            comment: What they have to say, what JSON can say.
            comment_json: The same as JSON bytes instead, kept exactly.
            request_id: Names this request; a new one where None.
        """
        said = b"" if comment is None and comment_json is None else json_of("comment", comment, comment_json)
        request = approval_pb.DecideApprovalRequest(
            request_id=request_id or new_request_id(),
            run_id=run_id,
            approval_id=approval_id,
            decision=approval_state_to_wire("APPROVED" if approve else "DENIED"),
            decided_by=by,
            comment=said,
        )
        decided = await self._call(self._approvals.DecideApproval, request)
        return Decision(approval=approval_from_wire(decided.approval), already_decided=decided.already_decided)

    async def delegate(
        self, run_id: str, approval_id: str, assignee: str, by: str, *, request_id: str | None = None
    ) -> Approval:
        """Gives an approval into somebody else's inbox; APPROVAL_DECIDED where it is decided."""
        request = approval_pb.DelegateApprovalRequest(
            request_id=request_id or new_request_id(),
            run_id=run_id,
            approval_id=approval_id,
            assignee=assignee,
            delegated_by=by,
        )
        return approval_from_wire((await self._call(self._approvals.DelegateApproval, request)).approval)

    async def settle(
        self,
        run_id: str,
        key: str,
        *,
        delivered: bool,
        result: Any = None,
        result_json: bytes | None = None,
        operator: str = OPERATOR,
    ) -> None:
        """Says how a claimed delivery ended; a run that waits to hear of it (`claim="ask"`) goes on.

        SIDE_EFFECT_NOT_FOUND where nobody claimed that key, SIDE_EFFECT_SETTLED where another outcome is recorded.

        Args:
            run_id: The run.
            key: The idempotency key of the delivery.
            delivered: Whether it was delivered; where not, its step fails.
            result: What came back, what JSON can say: the step's result.
            result_json: The same as JSON bytes instead, kept exactly.
            operator: Who says so.
        """
        body = json_of("result", result, result_json)
        state = worker_pb.SideEffect.STATE_DELIVERED if delivered else worker_pb.SideEffect.STATE_REFUSED
        fields = await self._content("result", body)
        request = worker_pb.SettleSideEffectRequest(key=key, state=state, run_id=run_id, worker_id=operator, **fields)
        stub = worker_grpc.JournalWorkerServiceStub(self._channel(self._journal_address))
        await self._call(stub.SettleSideEffect, request)

    async def _follow(self, run_id: str, after_seq: int) -> AsyncGenerator[Event, None]:
        request = pb.FollowEventsRequest(run_id=run_id, after_seq=after_seq)
        call = self._journal.FollowEvents(request, timeout=FOLLOW_DEADLINE_S)
        try:
            async for message in call:
                for event in message.events:
                    yield event_from_wire(event)
        except grpc.aio.AioRpcError as failed:
            error = to_error(failed, self._journal_address)
            if error.reason != reasons.DEADLINE_EXCEEDED:
                raise error from None
        finally:
            call.cancel()


def _policy(name: str) -> pb.CreateRunRequest.WorkflowIdPolicy.ValueType:
    if name not in WORKFLOW_ID_POLICIES:
        raise InvalidField("policy", f"{name!r} must be one of {', '.join(WORKFLOW_ID_POLICIES)}")
    wire_name = "WORKFLOW_ID_POLICY_" + name.upper().replace("-", "_")
    return pb.CreateRunRequest.WorkflowIdPolicy.Value(wire_name)
