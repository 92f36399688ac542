"""Who may be granted a run's lease, and whether a session is alive (SPEC L1, L2). All times: microseconds."""

from collections.abc import Sequence
from dataclasses import dataclass

from lantern_kernel import payloads


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """The durations of leases and sessions, microseconds."""

    # A lease lasts this long unless renewed.
    lease_us: int
    # A lease whose run was not opened lasts this long.
    grant_us: int
    # A session is dead after this much silence.
    silence_us: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Session:
    """What is known of a worker's session."""

    # The worker.
    worker_id: str
    # +1 for each attach.
    number: int
    # When it was last heard from.
    seen_us: int
    # Its stream broke for longer than the grace, or it fell silent.
    closed: bool
    # It is granted nothing any more.
    draining: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Lock:
    """The row of `run_locks` of a run."""

    # The holder; empty where it was released.
    worker_id: str
    # The fencing token.
    epoch: int
    # Until when.
    expires_us: int
    # Whether the holder has shown that it drives the run.
    opened: bool


def is_fresh(session: Session | None, now_us: int, silence_us: int) -> bool:
    """Whether a session is alive: open, and heard from within the silence."""
    return session is not None and not session.closed and session.seen_us > now_us - silence_us


def is_free(lock: Lock | None, holder: Session | None, now_us: int, limits: Limits) -> bool:
    """Whether a run's lease can be granted.

    It can where there is none, it was released, or it has expired; but an opened lease whose session is alive is not
    stolen even then (its renewal is late, no more). An unopened grant has no such shelter, or a lost Drive would strand
    its run for as long as the worker lives.
    """
    if lock is None or not lock.worker_id:
        return True
    if lock.expires_us > now_us:
        return False
    return not (lock.opened and is_fresh(holder, now_us, limits.silence_us))


def may_receive(session: Session | None, number: int, now_us: int, silence_us: int) -> bool:
    """Whether a lease may be granted to this session of a worker."""
    return (
        session is not None
        and session.number == number
        and not session.draining
        and is_fresh(session, now_us, silence_us)
    )


def grant_payload(worker_id: str, session_number: int, reason: str) -> bytes:
    """The payload of lease_granted."""
    return payloads.pack({"worker": worker_id, "session": session_number, "reason": reason})


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentOffer:
    """An agent that a worker can drive."""

    # Its name.
    name: str
    # SHA-256 (hex) of its definition.
    digest: str
    # code, graph or llm.
    program_kind: str


def offer_of(offers: Sequence[AgentOffer], name: str) -> AgentOffer | None:
    """The first offer of that name."""
    return next((offer for offer in offers if offer.name == name), None)


def wakes_on_offer(waiting_on: str, pinned_digest: str, offered: Sequence[AgentOffer], name: str) -> bool:
    """Whether a session that offers these agents wakes a waiting run of agent `name` (SPEC L4).

    WAITING(capacity) is woken by any version of its agent; WAITING(code_fix) by code other than the one that failed.
    """
    digests = {offer.digest for offer in offered if offer.name == name}
    return bool(digests) if waiting_on == "capacity" else bool(digests - {pinned_digest})
