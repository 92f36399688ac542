"""An in-memory journal behind JournalPort, an outside world that counts effects, and a loop whose clock only jumps.

The journal judges as the real one does (epoch, repeat, closed, place, inbox), and can be told to lose answers, to
refuse, or to let a worker die before or after an append is committed. Nothing here opens a socket or really waits.
"""

import asyncio
import itertools
import selectors
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import lantern
from lantern import registry
from lantern_executor.adapters.programs import WorkflowPrograms
from lantern_executor.adapters.steps import LocalStepRunner
from lantern_executor.domain.run import CreatedRun, HandBack, OpenedRun, Parent, Run, StartRequest
from lantern_executor.domain.step import SideEffect, StepContext
from lantern_executor.domain.tail import Append
from lantern_kernel import chain, kinds, payloads, reasons
from lantern_kernel.blobs import BlobRef, Content
from lantern_kernel.errors import LanternError
from lantern_kernel.event import Event, NewEvent
from lantern_kernel.inbox import InboxEntry
from lantern_kernel.payloads import ParkFacts, RunErrorFacts

T = TypeVar("T")

EPOCH_US = 1_700_000_000_000_000
ROUNDS_AT_ONE_TIME_MAX = 20_000
"""Of the loop: who goes round more often without time passing waits by looking again and again."""

PAGE = 3
"""Events a page: small, so that every history takes several."""


class _Jump(selectors.SelectSelector):
    """Instead of waiting, the clock jumps to the next timer; with nothing left that could happen, the test hangs."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self._rounds = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise AssertionError("nothing is left that could ever happen: the code under test hangs")
        self._rounds = 0 if timeout > 0 else self._rounds + 1
        if self._rounds > ROUNDS_AT_ONE_TIME_MAX:
            raise AssertionError(f"the code under test goes round at {self.now_s}")
        self.now_s += max(0.0, timeout)
        return super().select(0)


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop on simulated time."""

    def __init__(self) -> None:
        self.jump = _Jump()
        super().__init__(self.jump)

    def time(self) -> float:
        return self.jump.now_s


def simulate(main: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine on simulated time."""
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        return runner.run(main)


class SimulatedSources:
    """Time of the loop; counted bytes, no two workers the same; no jitter."""

    _counts = itertools.count(1)

    def monotonic_us(self) -> int:
        return round(asyncio.get_running_loop().time() * 1e6)

    def random_bytes(self, count: int) -> bytes:
        return next(self._counts).to_bytes(count, "big")

    def random01(self) -> float:
        return 0.0


@dataclass(eq=False, kw_only=True)
class Row:
    """A run in the journal."""

    run: Run
    events: list[Event] = field(default_factory=list[Event])
    holder: str = ""
    epoch: int = 0
    inbox: list[InboxEntry] = field(default_factory=list[InboxEntry])


class JournalWorld:
    """The journal itself, shared by the workers of a test."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.claims: dict[str, SideEffect] = {}
        self.nonces: dict[str, bytes] = {}  # key: of the claim that won
        self.requests: dict[str, str] = {}
        self.blobs: dict[BlobRef, bytes] = {}
        self.appends = 0
        self.children: dict[str, Parent] = {}  # by run id
        self.cancels: list[tuple[str, str]] = []  # run id, request id

    def now_us(self) -> int:
        return EPOCH_US + round(asyncio.get_running_loop().time() * 1e6)

    def create(self, request: StartRequest, durability: str = "") -> Row:
        run_id = f"00000000-0000-7000-8000-{len(self.rows):012x}"
        run = Run(
            run_id=run_id,
            tenant_id=request.tenant_id,
            workflow_id=request.workflow_id,
            agent_name=request.agent_name,
            agent_version=1,
            agent_digest="d1",
            state="QUEUED",
            waiting_on="",
            due_us=None,
            created_us=self.now_us(),
            updated_us=self.now_us(),
            ended_us=None,
            input=request.input,
            input_blob=request.input_blob,
            result=b"",
            error=None,
            traceparent="",
            last_inbox_number=0,
            epoch=0,
        )
        row = self.rows[run_id] = Row(run=run)
        if request.parent is not None:
            self.children[run_id] = request.parent
        self.requests[request.request_id] = run_id
        facts = {"agent": request.agent_name} | ({"durability": durability} if durability else {})
        payload = payloads.pack(facts, request.input_blob or request.input)
        self.write(row, [_own(kinds.RUN_STARTED, payload)], 0)
        return row

    def grant(self, run_id: str, worker_id: str, reason: str = "crash") -> int:
        """As recovery does: a later lease, whoever holds the present one."""
        row = self.rows[run_id]
        row.epoch += 1
        row.holder = worker_id
        facts = {"worker": worker_id, "session": 1, "reason": reason}
        self.write(row, [_own(kinds.LEASE_GRANTED, payloads.pack(facts))], row.epoch)
        row.run = replace(row.run, state="RUNNING", waiting_on="", epoch=row.epoch)
        return row.epoch

    def send(self, run_id: str, kind: str, name: str = "", *, blob: BlobRef | None = None) -> None:
        """An inbox entry, unannounced."""
        row = self.rows[run_id]
        payload = b'{"from":"outside"}' if blob is None else b""
        number = len(row.inbox) + 1
        row.inbox.append(InboxEntry(number=number, kind=kind, name=name, payload=payload, payload_blob=blob))

    def end_child(self, run_id: str, state: str, data: bytes | None = None) -> None:
        """A child ends: its parent is told, unannounced."""
        row, parent = self.rows[run_id], self.children[run_id]
        row.run = replace(row.run, state=state)
        inbox = self.rows[parent.run_id].inbox
        payload = payloads.pack({"runId": run_id, "state": state}, data)
        inbox.append(InboxEntry(number=len(inbox) + 1, kind="child", name=parent.step_id, payload=payload))

    def append(self, append: Append) -> None:
        row = self.rows[append.run_id]
        if append.epoch < row.epoch:
            raise LanternError(reasons.LEASE_LOST, "a later lease exists")
        at = append.first_seq - 1
        stored = row.events[at : at + len(append.events)]
        if stored and list(map(_content, stored)) == list(map(_content, append.events)):
            return
        if row.run.state in {"SUCCEEDED", "FAILED", "CANCELLED"}:
            raise LanternError(reasons.RUN_CLOSED, "it has ended")
        if row.holder == "":
            raise LanternError(reasons.LEASE_LOST, "nobody drives it")
        if at != len(row.events) or append.previous_digest != row.events[-1].digest:
            raise LanternError(reasons.APPEND_CONFLICT, f"{at} events are named, {len(row.events)} are there")
        last = append.events[-1]
        if last.kind in kinds.ENDS_DRIVE and append.consumed_inbox_number < len(row.inbox):
            raise LanternError(reasons.INBOX_AHEAD, "the inbox holds more")
        self.write(row, append.events, append.epoch)
        self.appends += 1
        self._project(row, last)

    def _project(self, row: Row, last: NewEvent) -> None:
        if last.kind not in kinds.ENDS_DRIVE:
            return
        row.holder = ""
        unpacked = payloads.unpack(last.payload)
        if last.kind == kinds.RUN_PARKED:
            park = ParkFacts.unpack(last.payload)
            row.run = replace(
                row.run, state="WAITING", waiting_on=park.waiting_on, due_us=park.due_us, error=park.error
            )
        elif last.kind == kinds.RUN_SUCCEEDED:
            row.run = replace(row.run, state="SUCCEEDED", result=unpacked.data or b"", result_blob=unpacked.blob)
        else:
            state = "FAILED" if last.kind == kinds.RUN_FAILED else "CANCELLED"
            row.run = replace(row.run, state=state, error=RunErrorFacts.from_facts(unpacked.facts))

    def write(self, row: Row, events: Sequence[NewEvent], epoch: int) -> None:
        for event in events:
            blob = payloads.named_blob(event.payload)
            assert blob is None or blob in self.blobs, "kept before it is named"
            seq = len(row.events) + 1
            digest = event.digest(run_id=row.run.run_id, seq=seq, epoch=epoch)
            previous = row.events[-1].hash if row.events else chain.genesis(row.run.run_id)
            row.events.append(
                Event(
                    seq=seq,
                    kind=event.kind,
                    step_id=event.step_id,
                    attempt=event.attempt,
                    epoch=epoch,
                    time_us=self.now_us(),
                    payload=event.payload,
                    salt=event.salt,
                    digest=digest,
                    hash=chain.link(previous, digest, self.now_us()),
                )
            )


def _content(event: Event | NewEvent) -> tuple[str, str, int, bytes, bytes]:
    return event.kind, event.step_id, event.attempt, event.payload, event.salt


def _own(kind: str, payload: bytes) -> NewEvent:
    return NewEvent(kind=kind, payload=payload, salt=bytes(16))


Hook = Callable[[Append], Awaitable[None]]


async def _nothing(append: Append) -> None:
    await asyncio.sleep(0)


class FakeJournal:
    """JournalPort of one worker over a JournalWorld. `before` and `after` stand around the commit of an append."""

    def __init__(self, world: JournalWorld, worker_id: str = "w1") -> None:
        self.world = world
        self._worker_id = worker_id
        self.before: Hook = _nothing
        self.after: Hook = _nothing
        self.appends: list[Append] = []
        self.released: list[tuple[str, int, HandBack]] = []
        self.opens = 0
        self.downloads: list[BlobRef] = []
        self.inbox_listener: Callable[[Sequence[str]], None] = lambda run_ids: None
        self.return_listener: Callable[[], None] = lambda: None
        self.trust = asyncio.Event()
        self.trust.set()
        self.draining = False

    @property
    def worker_id(self) -> str:
        return self._worker_id

    def trusted(self) -> bool:
        return self.trust.is_set()

    async def wait_trusted(self) -> None:
        await self.trust.wait()

    def on_inbox(self, listener: Callable[[Sequence[str]], None]) -> None:
        self.inbox_listener = listener

    def on_return(self, listener: Callable[[], None]) -> None:
        self.return_listener = listener

    async def set_draining(self) -> None:
        self.draining = True

    async def append(self, append: Append) -> None:
        self.appends.append(append)
        await self.before(append)
        self.world.append(append)
        await self.after(append)

    async def create_run(self, request: StartRequest, *, with_lease: bool) -> CreatedRun:
        await asyncio.sleep(0)
        if request.request_id in self.world.requests:
            run = self.world.rows[self.world.requests[request.request_id]].run
            return CreatedRun(run=run, created=False, epoch=0, events=())
        parent = request.parent
        if parent is not None and self.world.rows[parent.run_id].epoch != parent.epoch:
            raise LanternError(reasons.LEASE_LOST, "the parent is another's")
        row = self.world.create(request)
        epoch = self.world.grant(row.run.run_id, self.worker_id, "start") if with_lease else 0
        return CreatedRun(run=row.run, created=True, epoch=epoch, events=tuple(row.events) if epoch else ())

    async def get_run(self, run_id: str) -> Run:
        await asyncio.sleep(0)
        if run_id not in self.world.rows:
            raise LanternError(reasons.RUN_NOT_FOUND, "no such run")
        return self.world.rows[run_id].run

    async def cancel_run(self, run_id: str, request_id: str) -> None:
        await asyncio.sleep(0)
        if (run_id, request_id) not in self.world.cancels:
            self.world.cancels.append((run_id, request_id))

    async def open_run(self, run_id: str, epoch: int) -> OpenedRun:
        await asyncio.sleep(0)
        self.opens += 1
        row = self._held(run_id, epoch)
        return OpenedRun(
            run=row.run,
            events=tuple(row.events[:PAGE]),
            head_seq=len(row.events),
            inbox=tuple(row.inbox),
            now_us=self.world.now_us(),
        )

    async def list_events(self, run_id: str, after_seq: int) -> Sequence[Event]:
        return self.world.rows[run_id].events[after_seq : after_seq + PAGE]

    async def list_inbox(self, run_id: str, after_number: int) -> Sequence[InboxEntry]:
        return self.world.rows[run_id].inbox[after_number:]

    async def release_lease(self, run_id: str, epoch: int, cause: HandBack) -> None:
        row = self._held(run_id, epoch)
        self.released.append((run_id, epoch, cause))
        row.holder = ""
        row.run = replace(row.run, state="QUEUED")

    async def claim_side_effect(self, context: StepContext, sink: str, nonce: bytes) -> SideEffect:
        self._held(context.run_id, context.epoch)
        known = self.world.claims.get(context.key)
        if known is not None:
            return replace(known, claimed=self.world.nonces.get(context.key) == nonce)
        self.world.claims[context.key] = SideEffect(claimed=False, state="claimed", result=b"")
        self.world.nonces[context.key] = nonce
        return SideEffect(claimed=True, state="claimed", result=b"")

    async def put_blob(self, tenant_id: str, content: bytes) -> BlobRef:
        await asyncio.sleep(0)
        blob = BlobRef.of(content)
        self.world.blobs[blob] = content
        return blob

    async def get_blob(self, tenant_id: str, blob: BlobRef) -> bytes:
        await asyncio.sleep(0)
        self.downloads.append(blob)
        return self.world.blobs[blob]

    async def settle_side_effect(self, context: StepContext, *, delivered: bool, result: Content) -> None:
        known = self.world.claims[context.key]
        if known.state == "claimed":
            state = "delivered" if delivered else "refused"
            inline, blob = (b"", result) if isinstance(result, BlobRef) else (result, None)
            self.world.claims[context.key] = SideEffect(claimed=False, state=state, result=inline, result_blob=blob)

    def _held(self, run_id: str, epoch: int) -> Row:
        row = self.world.rows[run_id]
        if row.epoch != epoch or row.holder != self.worker_id:
            raise LanternError(reasons.LEASE_LOST, "another's")
        return row


class Outside:
    """The outside world: it counts requests, and effects after telling repeats by their key."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str]] = []  # step id, key
        self.effects: dict[str, str] = {}  # key: step id

    def do(self, value: Any) -> Any:
        """What a step function does: one effect per key."""
        info = lantern.step_info()
        self.requests.append((info.step_id, info.key))
        self.effects.setdefault(info.key, info.step_id)
        return value

    async def do_async(self, value: Any) -> Any:
        """The same, without a thread: simulated time knows none."""
        return self.do(value)

    def count(self, step_id: str) -> int:
        return sum(1 for requested, _ in self.requests if requested == step_id)


def programs_of(**functions: Any) -> WorkflowPrograms:
    """The workflows of a test, by agent name."""

    def no_http() -> Any:
        raise AssertionError("unit tests make no requests")

    definitions = {
        name: replace(registry.define(function, name=name), digest="d1") for name, function in functions.items()
    }
    return WorkflowPrograms(definitions, LocalStepRunner(no_http))


def request(agent: str, request_id: str = "r1", payload: bytes = b"null") -> StartRequest:
    return StartRequest(
        request_id=request_id,
        tenant_id="default",
        agent_name=agent,
        input=payload,
        workflow_id="",
        workflow_id_policy=0,
        traceparent="",
    )


def kinds_of(row: Row, *, of_step: str | None = None) -> list[str]:
    """The kinds of a run's events, in order."""
    return [event.kind for event in row.events if of_step is None or event.step_id == of_step]
