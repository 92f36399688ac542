"""A replay core, and histories written to it event by event."""

from typing import Any

from lantern_kernel import kinds, payloads
from lantern_kernel.event import AppliedEvent
from lantern_kernel.outcomes import Happening, Outcome
from lantern_kernel.replay import Replay

RUN_ID = "0190b5f0-0000-7000-8000-000000000001"


class Written:
    """A replay, and events written to it one after the other."""

    def __init__(self, workflow_id: str = "", resets: tuple[tuple[int, int], ...] = ()) -> None:
        self.replay = Replay(run_id=RUN_ID, workflow_id=workflow_id, resets=resets)
        self.write(kinds.RUN_STARTED)

    def write(
        self, kind: str, step_id: str = "", attempt: int = 0, *, epoch: int = 1, data: bytes | None = None, **facts: Any
    ) -> int:
        seq = self.replay.last_seq + 1
        self.replay.apply(
            AppliedEvent(
                seq=seq,
                kind=kind,
                step_id=step_id,
                attempt=attempt,
                epoch=epoch,
                time_us=seq * 1_000_000,
                payload=payloads.pack(facts, data),
            )
        )
        return seq

    def start(self, step_id: str, attempt: int = 1, *, epoch: int = 1, key: int = 1, **facts: Any) -> int:
        all_facts: dict[str, Any] = {
            "name": step_id,
            "type": "function",
            "source": "old.py:1",
            "keyAttempt": key,
            **facts,
        }
        return self.write(kinds.STEP_STARTED, step_id, attempt, epoch=epoch, **all_facts)

    def complete(self, step_id: str, data: bytes = b"1", attempt: int = 1) -> int:
        return self.write(kinds.STEP_COMPLETED, step_id, attempt, data=data)

    def retrying(self, step_id: str, attempt: int, *, key: int, outcome: str, delay_ms: int = 500) -> int:
        return self.write(
            kinds.STEP_RETRYING, step_id, attempt, of=9, delayMs=delay_ms, keyAttempt=key, outcome=outcome
        )

    def work(self) -> list[Any]:
        self.replay.finish_history()
        return list(self.replay.take_work(1_000))

    def outcomes(self) -> list[Outcome]:
        return [happening for happening in self.happenings() if isinstance(happening, Outcome)]

    def happenings(self) -> list[Happening]:
        found: list[Happening] = []
        while (outcome := self.replay.next_outcome()) is not None:
            found.append(outcome)
        return found
