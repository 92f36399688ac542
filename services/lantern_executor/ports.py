"""What the executor needs from outside, as its application sees it."""

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from lantern_executor.domain.run import CreatedRun, HandBack, Offer, OpenedRun, Run, StartRequest
from lantern_executor.domain.step import SideEffect, StepCall, StepContext
from lantern_executor.domain.tail import Append
from lantern_kernel import program
from lantern_kernel.blobs import BlobRef, Content
from lantern_kernel.event import Event
from lantern_kernel.inbox import InboxEntry


class JournalPort(Protocol):
    """The journal, as one worker speaks to it. Every call may be repeated; errors are LanternError."""

    @property
    def worker_id(self) -> str:
        """Unique per process start."""
        ...

    def trusted(self) -> bool:
        """Whether a step may be begun now: the session is attached and was answered lately (SPEC L3)."""
        ...

    async def wait_trusted(self) -> None:
        """Returns as soon as `trusted` holds."""
        ...

    def on_inbox(self, listener: Callable[[Sequence[str]], None]) -> None:
        """Names who is told of the runs that have new inbox entries."""
        ...

    def on_return(self, listener: Callable[[], None]) -> None:
        """Names who is told that the session is trusted again after it was broken or silent: leases may be lost."""
        ...

    async def set_draining(self) -> None:
        """Tells the journal that this worker takes no further runs."""
        ...

    async def append(self, append: Append) -> None:
        """Returns once it is committed, however often the connection breaks; raises what the journal refused it for."""
        ...

    async def create_run(self, request: StartRequest, *, with_lease: bool) -> CreatedRun:
        """Creates a run, where asked with a lease for this worker."""
        ...

    async def cancel_run(self, run_id: str, request_id: str) -> None:
        """Asks for the end of a run, once per request id; one that has ended is as it is."""
        ...

    async def get_run(self, run_id: str) -> Run:
        """One run; RUN_NOT_FOUND."""
        ...

    async def open_run(self, run_id: str, epoch: int) -> OpenedRun:
        """Takes up a run whose lease was granted to this worker; raises LEASE_LOST where it is another's."""
        ...

    async def list_events(self, run_id: str, after_seq: int) -> Sequence[Event]:
        """The next page of a run's events; empty at the end."""
        ...

    async def list_inbox(self, run_id: str, after_number: int) -> Sequence[InboxEntry]:
        """All entries after a number."""
        ...

    async def release_lease(self, run_id: str, epoch: int, cause: HandBack) -> None:
        """Hands a run back; raises LEASE_LOST where it is another's by now."""
        ...

    async def claim_side_effect(self, context: StepContext, sink: str, nonce: bytes) -> SideEffect:
        """Claims one delivery before it is dispatched (SPEC E4).

        `nonce`, made once per claim, tells a repeat after a lost answer from another's claim.
        """
        ...

    async def settle_side_effect(self, context: StepContext, *, delivered: bool, result: Content) -> None:
        """Records how a claimed delivery ended."""
        ...

    async def put_blob(self, tenant_id: str, content: bytes) -> BlobRef:
        """Keeps content that is too large for an event, so that an append can name it."""
        ...

    async def get_blob(self, tenant_id: str, blob: BlobRef) -> bytes:
        """The content of a blob; BLOB_NOT_FOUND."""
        ...


class Program(program.Program, Protocol):
    """The program of one run, and the code of its steps."""

    def step_call(self, step_id: str) -> StepCall:
        """What to execute for a step that it issued, as often as it is attempted."""
        ...

    def close(self) -> None:
        """Ends it, wherever it stands."""
        ...


@runtime_checkable
class AnswersQueries(Protocol):
    """A program that can be asked about itself."""

    def answer_query(self, name: str, payload: bytes) -> bytes:
        """JSON for JSON; changes nothing. Raises LanternError QUERY_NOT_FOUND or QUERY_FAILED."""
        ...


class ProgramsPort(Protocol):
    """The definitions that this executor has loaded."""

    def offers(self) -> Sequence[Offer]:
        """What can be driven here."""
        ...

    async def prepare(self, run: Run) -> None:
        """Gets at hand what `start` needs for that run; AGENT_NOT_FOUND where its definition is nowhere."""
        ...

    def start(self, run: Run) -> Program:
        """A fresh program for a run that was prepared just now; AGENT_NOT_FOUND where its agent is not loaded."""
        ...


class Sources(Protocol):
    """Time and chance."""

    def monotonic_us(self) -> int:
        """Microseconds of a clock that never falls."""
        ...

    def random_bytes(self, count: int) -> bytes:
        """Unpredictable bytes."""
        ...

    def random01(self) -> float:
        """From 0 up to, not including, 1."""
        ...
