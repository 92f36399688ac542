"""Hand-made event lists: what the journal would hold of small runs, written shortly."""

from typing import Any

from lantern_kernel import kinds, payloads
from lantern_kernel.event import Event

START_US = 1_700_000_000_000_000


class History:
    """Builds a run's events; times are milliseconds after its start."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.epoch = 0

    def add(
        self, kind: str, at_ms: float, *, step: str = "", attempt: int = 0, data: bytes | None = None, **facts: Any
    ) -> "History":
        self.events.append(
            Event(
                seq=len(self.events) + 1,
                kind=kind,
                step_id=step,
                attempt=attempt,
                epoch=self.epoch,
                time_us=START_US + int(at_ms * 1000),
                payload=payloads.pack(facts, data),
                salt=b"\0" * 16,
                digest=b"\0" * 32,
                hash=b"\0" * 32,
            )
        )
        return self

    def run(self, at_ms: float = 0) -> "History":
        return self.add(kinds.RUN_STARTED, at_ms, agent="order", version=1, data=b"{}")

    def grant(self, at_ms: float, reason: str = "start", worker: str = "worker-1") -> "History":
        self.epoch += 1
        return self.add(kinds.LEASE_GRANTED, at_ms, worker=worker, session=1, reason=reason)

    def started(self, step: str, at_ms: float, attempt: int = 1, of: int = 1) -> "History":
        return self.add(kinds.STEP_STARTED, at_ms, step=step, attempt=attempt, name=step, type="function", of=of)

    def completed(self, step: str, at_ms: float, attempt: int = 1) -> "History":
        return self.add(kinds.STEP_COMPLETED, at_ms, step=step, attempt=attempt, data=b"1")


def order_with_everything() -> History:
    """A lost reply that is retried, a crash in a step, a resume, a marker, a timer, a park, the end."""
    history = History().run().grant(1)
    history.started("reserve", 2).completed("reserve", 40)
    history.started("charge", 41, of=3)
    error = {"code": "HTTP_UNREACHABLE", "message": "no answer within 2 s"}
    history.add(
        kinds.STEP_RETRYING, 2041, step="charge", attempt=1, of=3, error=error, delayMs=100, keyAttempt=1,
        outcome="unknown",
    )  # fmt: skip
    history.started("charge", 2141, attempt=2, of=3)
    history.grant(2700, "crash", "worker-2")
    history.started("charge", 2710, attempt=2, of=3).completed("charge", 3000, attempt=2)
    history.add(kinds.MARKER_RECORDED, 3001, step="option", name="option", data=b'"express"')
    history.add(kinds.TIMER_STARTED, 3002, step="pause", dueUs=START_US + 4_000_000)
    history.add(kinds.TIMER_FIRED, 4000, step="pause")
    history.add(kinds.SIGNAL_RECEIVED, 4001, number=1, name="address", data=b"null")
    history.add(kinds.RUN_PARKED, 4002, on="approval")
    history.grant(6000, "approval", "worker-2")
    history.started("ship", 6001).completed("ship", 6500)
    return history.add(kinds.RUN_SUCCEEDED, 6501, data=b'{"ok":true}')
