"""An executor process with a live session."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Worker:
    """Who could take a run up."""

    # Unique per process start.
    worker_id: str
    # The number of its session; a lease is granted to worker and session.
    session_number: int
    # Where its ExecutorService listens, `host:port`.
    address: str
    # How many runs it drives at once.
    capacity: int
    # How many leases it holds now.
    lease_count: int
    # The tenant whose agents it drives.
    tenant_id: str
    # What it can drive: (agent name, digest) pairs.
    agents: frozenset[tuple[str, str]]
    # The event level that it knows.
    event_level: int = 1
    # Of what it can drive every agent: (program kind, digest of the code that does) pairs.
    every: frozenset[tuple[str, str]] = frozenset()

    def digests(self, agent_name: str, program_kind: str) -> frozenset[str]:
        """Which versions of that agent it can drive; for one that it drives as every one of its kind, what does so."""
        by_name = (digest for name, digest in self.agents if name == agent_name)
        return frozenset((*by_name, *(digest for kind, digest in self.every if kind == program_kind)))
