"""A run that needs a driver."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Orphan:
    """A run with no live lease that is queued, was being driven, or is due."""

    # The run.
    run_id: str
    # Its tenant.
    tenant_id: str
    # The agent that it executes.
    agent_name: str
    # SHA-256 (hex) of the version that it pinned.
    agent_digest: str
    # Why it needs a driver: start, crash, timer, signal or upgrade. Goes into lease_granted.
    reason: str
    # SHA-256 (hex) of the code whose replay of this run failed last; empty where none did.
    failed_digest: str = ""
    # The event level that its driver has to know.
    event_level: int = 1
    # code, graph or llm.
    program_kind: str = "code"
