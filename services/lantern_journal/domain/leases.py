"""Who may be granted a run's lease, and whether a session is alive (SPEC L1, L2). All times: microseconds."""

from collections.abc import Sequence
from dataclasses import dataclass

from lantern_kernel import payloads
from lantern_kernel.names import ANY_AGENT


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
    # Whether something was appended under it: as good as opened, where nobody has written that down yet.
    used: bool = False


def is_fresh(session: Session | None, now_us: int, silence_us: int) -> bool:
    """Whether a session is alive: open, and heard from within the silence."""
    return session is not None and not session.closed and session.seen_us > now_us - silence_us


def is_free(lock: Lock | None, holder: Session | None, now_us: int, limits: Limits) -> bool:
    """Whether a run's lease can be granted.

    It can where there is none, it was released, or it has expired; but an opened lease whose session is alive is not
    stolen even then (its renewal is late, no more). An unopened grant has no such shelter, or a lost Drive would strand
    its run for as long as the worker lives. One that was used is taken from an open session only once that is closed.
    """
    if lock is None or not lock.worker_id:
        return True
    if lock.expires_us > now_us:
        return False
    if lock.opened:
        return not is_fresh(holder, now_us, limits.silence_us)
    return not (lock.used and holder is not None and not holder.closed)


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

    # Its name; `ANY_AGENT` is every published one of the program kind.
    name: str
    # SHA-256 (hex) of its definition; of what drives it where that is published.
    digest: str
    # code, graph or llm.
    program_kind: str


def offers_of(offers: Sequence[AgentOffer], name: str, program_kind: str) -> list[AgentOffer]:
    """Those of these offers that are of an agent of that kind: by its name, or of every one."""
    return [o for o in offers if o.name == name or (o.name == ANY_AGENT and o.program_kind == program_kind)]


def can_drive(offered: Sequence[AgentOffer], failed_digest: str) -> bool:
    """Whether one of these offers of a run's agent is other code than that which failed to replay the run."""
    return any(offer.digest != failed_digest for offer in offered)


FAULT_PAUSE_US_FIRST = 1_000_000
FAULT_PAUSE_US_MAX = 60_000_000


def fault_pause_us(faults: int) -> int:
    """How long a run rests after so many faulty drives in a row: a second, doubled up to a minute."""
    return min(FAULT_PAUSE_US_FIRST << min(faults - 1, 10), FAULT_PAUSE_US_MAX)


DIGEST_LENGTH = 64
"""Of a digest in hexadecimal digits."""

FAILED_DIGESTS_MAX = 16
"""Codes that are remembered to have failed on a run."""


def failed_last(failed_digests: str) -> str:
    """The digest of the code whose replay of the run failed last; empty where none did."""
    return failed_digests[:DIGEST_LENGTH]


def failed_too(digest: str, failed_digests: str) -> str:
    """The digests of codes that failed on a run, with one more; the last one first."""
    earlier = [known for known in failed_digests.split() if known != digest]
    return " ".join([digest, *earlier][:FAILED_DIGESTS_MAX])


def is_fixed_by(offered: Sequence[AgentOffer], failed_digests: str) -> bool:
    """Whether one of these offers of a run's agent is code that has not failed on it yet.

    Code that failed before is no fix, though other code failed since: two bad versions would pass the run to and fro.
    """
    return bool({offer.digest for offer in offered} - set(failed_digests.split()))
