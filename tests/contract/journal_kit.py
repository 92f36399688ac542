"""What the contract tests of the journal's store say often."""

from dataclasses import replace

from lantern_journal.adapters.sources import SystemSources
from lantern_journal.domain.appends import Head, Row, rows_of
from lantern_journal.domain.leases import AgentOffer, Limits
from lantern_journal.domain.records import (
    Attach,
    Grant,
    LeaseTarget,
    NewEntry,
    NewRun,
    StartedRun,
    WorkflowIdPolicy,
)
from lantern_journal.domain.run_state import change_of
from lantern_journal.ports import Store
from lantern_kernel import payloads, reasons
from lantern_kernel.errors import LanternError
from lantern_kernel.event import NewEvent
from lantern_kernel.payloads import ParkFacts, RunErrorFacts

SOURCES = SystemSources()
LIMITS = Limits(lease_us=600_000_000, grant_us=5_000_000, silence_us=10_000_000)
DIGEST = "a" * 64
OTHER_DIGEST = "b" * 64
EPOCH_START_US = 1_700_000_000_000_000


def limits(**changes: int) -> Limits:
    """The usual limits but for some: 0 makes what is granted expired, or nobody fresh, without any waiting."""
    return replace(LIMITS, **changes)


def offer(name: str = "order", digest: str = DIGEST) -> AgentOffer:
    return AgentOffer(name=name, digest=digest, program_kind="code")


async def attach(
    store: Store, worker_id: str = "w1", *offers: AgentOffer, draining: bool = False, level: int = 1
) -> LeaseTarget:
    attached = await store.attach(
        Attach(
            worker_id=worker_id,
            address="127.0.0.1:1",
            capacity=10,
            offers=offers or (offer(),),
            tenant_id="default",
            draining=draining,
            event_level=level,
        )
    )
    return LeaseTarget(worker_id=worker_id, session_number=attached.number)


def new_run(request_id: str = "r1", *, target: LeaseTarget | None = None, **changes: object) -> NewRun:
    made = NewRun(
        run_id=SOURCES.run_id(EPOCH_START_US),
        request_id=request_id,
        request_digest=b"d" * 32,
        tenant_id="default",
        agent_name="order",
        input=b'{"order":1}',
        workflow_id="",
        policy=WorkflowIdPolicy.ALLOW_AFTER_CLOSE,
        traceparent=SOURCES.traceparent(),
        target=target,
        salts=(SOURCES.salt(), SOURCES.salt()),
        end_salt=SOURCES.salt(),
    )
    return replace(made, **changes)  # pyright: ignore[reportArgumentType]


async def start_new(store: Store, new: NewRun, under: Limits = LIMITS) -> StartedRun:
    """Starts one run; its refusal is raised."""
    (outcome,) = await store.start_runs([new], under)
    if isinstance(outcome, LanternError):
        raise outcome
    return outcome


async def start(store: Store, request_id: str = "r1", *, target: LeaseTarget | None = None) -> StartedRun:
    return await start_new(store, new_run(request_id, target=target), LIMITS)


async def driven(store: Store, request_id: str = "r1", worker_id: str = "w1") -> tuple[StartedRun, LeaseTarget]:
    """A run that was created with its lease, and whose worker."""
    target = await attach(store, worker_id)
    started = await start(store, request_id, target=target)
    await store.open_run(started.run.run_id, 1, target, LIMITS)
    return started, target


async def head(store: Store, run_id: str) -> Head:
    return (await store.heads([run_id]))[run_id]


def event(kind: str = "step_started", payload: bytes = b"{}", step_id: str = "s", attempt: int = 1) -> NewEvent:
    return NewEvent(kind=kind, step_id=step_id, attempt=attempt, payload=payload, salt=SOURCES.salt())


async def write(store: Store, run_id: str, *events: NewEvent, on: Head | None = None, consumed: int = 0) -> Head:
    """Appends on top of the head (or an old one) as a driver of the run's epoch."""
    top = on or await head(store, run_id)
    rows: list[Row] = []
    after = rows_of(run_id, top, top.epoch, top.time_us + 1, events, rows)
    change = change_of(run_id, top.seq + 1, events, consumed, after.time_us)
    await store.insert_group(rows, [change] if change else [])
    return after


async def park(
    store: Store, run_id: str, on: str, due_us: int | None = None, consumed: int = 0, failed: str = ""
) -> Head:
    """Parks a run; `failed` is the digest of the code that could not replay it."""
    error = RunErrorFacts(code=reasons.NONDETERMINISM, message="other code", details={"digest": failed})
    payload = ParkFacts(waiting_on=on, due_us=due_us, error=error if failed else None).pack()
    return await write(store, run_id, event("run_parked", payload, "", 0), consumed=consumed)


def succeeded(result: bytes = b"[1]") -> NewEvent:
    return event("run_succeeded", payloads.pack({}, result), "", 0)


def grant(run_id: str, target: LeaseTarget, reason: str = "crash") -> Grant:
    return Grant(run_id=run_id, target=target, reason=reason, salt=SOURCES.salt())


def entry(run_id: str, request_id: str = "e1", kind: str = "signal", payload: bytes = b"1") -> NewEntry:
    return NewEntry(
        request_id=request_id,
        run_id=run_id,
        kind=kind,
        name="paid" if kind == "signal" else "",
        payload=payload,
        salts=(SOURCES.salt(), SOURCES.salt()),
    )
