"""A client that holds runs and events and records what it is asked."""

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from lantern.client.approval import Approval, ApprovalPage, Decision
from lantern.client.run import Run, RunPage, Taken, UpdateFailed
from lantern_kernel import reasons
from lantern_kernel.errors import LanternError
from lantern_kernel.event import Event
from lantern_kernel.payloads import RunErrorFacts

RUN_ID = "0192f0c1-2222-7abc-8def-000000000001"


def make_run(
    run_id: str = RUN_ID,
    *,
    state: str = "SUCCEEDED",
    workflow_id: str = "",
    error: RunErrorFacts | None = None,
    waiting_on: str = "",
    result: bytes = b"",
) -> Run:
    ended = state in {"SUCCEEDED", "FAILED", "CANCELLED"}
    return Run(
        run_id=run_id,
        tenant_id="default",
        workflow_id=workflow_id,
        agent_name="order",
        agent_version=1,
        agent_digest="d" * 64,
        state=state,
        waiting_on=waiting_on,
        due_us=None,
        create_us=1_700_000_000_000_000,
        update_us=1_700_000_001_000_000,
        end_us=1_700_000_001_000_000 if ended else None,
        input=b"{}",
        result=result,
        error=error,
        traceparent="",
        epoch=1,
    )


def make_approval(approval_id: str = "ship", **changes: Any) -> Approval:
    asked = Approval(
        run_id=RUN_ID,
        approval_id=approval_id,
        tenant_id="default",
        agent_name="order",
        workflow_id="order-1",
        step_id="ship",
        state="PENDING",
        assignee="ann",
        title="Ship\nit?",
        request_us=1_700_000_000_000_000,
        expire_us=None,
        decide_us=None,
        decided_by="",
        comment=b"",
        requested_seq=5,
    )
    return replace(asked, **changes)


@dataclass
class FakeClient:
    """Stands in for lantern.Client."""

    runs: list[Run] = field(default_factory=list[Run])
    history: list[Event] = field(default_factory=list[Event])
    calls: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])
    error: LanternError | None = None
    # What those who watch are told that the journal is away with.
    away: LanternError | None = None
    page_rows_max: int = 1_000
    # What an update is refused for.
    refusal: RunErrorFacts | None = None
    # What becomes of a cancel, a pause or a resume.
    taken: Taken = field(default_factory=lambda: Taken(number=4, state="RUNNING", already_ended=False))
    # What runs ask for.
    asked: list[Approval] = field(default_factory=list[Approval])
    already_decided: bool = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.calls.append(("close", None))

    async def start(self, agent: str, **fields: Any) -> Run:
        self._call("start", (agent, fields))
        return self.runs[0]

    async def get(self, run_id: str, *, contents: bool = True) -> Run:
        self._call("get", run_id)
        for run in self.runs:
            if run.run_id == run_id:
                return run
        raise LanternError(reasons.RUN_NOT_FOUND, f"no run {run_id}", field="run_id")

    async def list(
        self,
        *,
        states: Sequence[str] = (),
        agent: str = "",
        workflow_id: str = "",
        page_size: int = 100,
        page_token: str = "",
    ) -> RunPage:
        self._call("list", (tuple(states), agent, workflow_id, page_size, page_token))
        fitting = [run for run in self.runs if not workflow_id or run.workflow_id == workflow_id]
        first = int(page_token or 0)
        last = first + min(page_size, self.page_rows_max)
        return RunPage(runs=tuple(fitting[first:last]), next_page_token=str(last) if last < len(fitting) else "")

    async def events(self, run_id: str) -> Sequence[Event]:
        self._call("events", run_id)
        return self.history

    async def watch(
        self, run_id: str, *, on_away: Callable[[LanternError], None] | None = None
    ) -> AsyncGenerator[Event, None]:
        self._call("watch", run_id)
        if self.away and on_away:
            on_away(self.away)
        for event in self.history:
            yield event

    async def wait(self, run_id: str, *, on_away: Callable[[LanternError], None] | None = None) -> Run:
        self._call("wait", run_id)
        if self.away and on_away:
            on_away(self.away)
        return await self.get(run_id)

    async def signal(self, run_id: str, name: str, **fields: Any) -> int:
        self._call("signal", (run_id, name, fields))
        return 3

    async def query(self, run_id: str, name: str, *, payload_json: bytes) -> Any:
        self._call("query", (run_id, name, payload_json))
        return {"at": "charge"}

    async def update(self, run_id: str, name: str, *, payload_json: bytes, request_id: str | None) -> Any:
        self._call("update", (run_id, name, payload_json, request_id))
        if self.refusal is not None:
            raise UpdateFailed(name, self.refusal)
        return [1]

    async def cancel(self, run_id: str, **fields: Any) -> Taken:
        self._call("cancel", (run_id, fields))
        return self.taken

    async def pause(self, run_id: str, **fields: Any) -> Taken:
        self._call("pause", (run_id, fields))
        return self.taken

    async def resume(self, run_id: str, **fields: Any) -> Taken:
        self._call("resume", (run_id, fields))
        return self.taken

    async def reset(self, run_id: str, to_seq: int, **fields: Any) -> Run:
        self._call("reset", (run_id, to_seq))
        return make_run(state="QUEUED")

    async def approvals(self, *, page_size: int = 100, page_token: str = "", **fields: Any) -> ApprovalPage:
        self._call("approvals", (page_size, page_token, fields))
        first = int(page_token or 0)
        last = first + min(page_size, self.page_rows_max)
        token = str(last) if last < len(self.asked) else ""
        return ApprovalPage(approvals=tuple(self.asked[first:last]), next_page_token=token)

    async def decide(self, run_id: str, approval_id: str, by: str, **fields: Any) -> Decision:
        self._call("decide", (run_id, approval_id, by, fields))
        state = "APPROVED" if fields["approve"] else "DENIED"
        known = replace(self.asked[0], approval_id=approval_id, state=state, decided_by=by, decide_us=1)
        return Decision(approval=known, already_decided=self.already_decided)

    async def delegate(self, run_id: str, approval_id: str, assignee: str, by: str, **fields: Any) -> Approval:
        self._call("delegate", (run_id, approval_id, assignee, by, fields))
        return replace(self.asked[0], approval_id=approval_id, assignee=assignee)

    async def settle(self, run_id: str, key: str, **fields: Any) -> None:
        self._call("settle", (run_id, key, fields))

    def _call(self, name: str, what: Any) -> None:
        self.calls.append((name, what))
        if self.error:
            raise self.error
