"""One step: from its first attempt to its one completion."""

from collections.abc import Mapping
from typing import Any, Final, Literal

from lantern_kernel import kinds
from lantern_kernel.event import AppliedEvent
from lantern_kernel.refusal import refused, whole_number

State = Literal["new", "running", "backing_off", "waiting", "completed", "failed"]

TRANSITIONS: Final[Mapping[tuple[State, str], State]] = {
    ("new", kinds.STEP_STARTED): "running",
    # The crash point, done again under a later lease.
    ("running", kinds.STEP_STARTED): "running",
    ("running", kinds.STEP_RETRYING): "backing_off",
    ("running", kinds.STEP_WAITING): "waiting",
    ("running", kinds.STEP_COMPLETED): "completed",
    ("running", kinds.STEP_FAILED): "failed",
    ("backing_off", kinds.STEP_STARTED): "running",
    # The program has stopped waiting for it.
    ("backing_off", kinds.STEP_FAILED): "failed",
    # Somebody has decided, or the run was driven anew.
    ("waiting", kinds.STEP_STARTED): "running",
    ("waiting", kinds.STEP_WAITING): "waiting",
    ("waiting", kinds.STEP_COMPLETED): "completed",
    ("waiting", kinds.STEP_FAILED): "failed",
}


class StepMachine:
    """Where a step stands, by its events alone.

    Attributes:
        state: See the table.
        attempt: The number of the last attempt begun; 0 before the first.
        key_attempt: The key attempt of the last attempt begun or, while backing off, of the next one.
        is_frozen: Whether the key can no longer change: a request under it ended unknown.
        not_before_us: While backing off, when the next attempt is due.
        begun_us: When the first attempt was begun; 0 before.
    """

    __slots__ = ("_epoch", "attempt", "begun_us", "is_frozen", "key_attempt", "not_before_us", "state")

    def __init__(self) -> None:
        self.state: State = "new"
        self.attempt = 0
        self.key_attempt = 1
        self.is_frozen = False
        self.not_before_us = 0
        self.begun_us = 0
        self._epoch = 0

    @property
    def is_ended(self) -> bool:
        """Whether it has its completion."""
        return self.state in {"completed", "failed"}

    def apply(self, event: AppliedEvent, facts: Mapping[str, Any]) -> None:
        """Takes in an event about this step; raises HISTORY_UNREADABLE, unchanged, where it cannot follow."""
        after = TRANSITIONS.get((self.state, event.kind))
        if after is None:
            raise refused(event, f"cannot follow on a step that is {self.state}")
        if event.kind == kinds.STEP_STARTED:
            self._start(event, whole_number(event, facts, "keyAttempt"))
        else:
            if event.attempt != self.attempt:
                raise refused(event, f"is about attempt {event.attempt}, but attempt {self.attempt} was begun")
            if event.kind == kinds.STEP_RETRYING:
                self._retry(event, facts)
        self.state = after

    def _start(self, event: AppliedEvent, key_attempt: int) -> None:
        is_again = self.state in {"running", "waiting"}
        attempt = self.attempt if is_again else self.attempt + 1
        if event.attempt != attempt:
            raise refused(event, f"begins attempt {event.attempt} where attempt {attempt} is next")
        if key_attempt != self.key_attempt:
            raise refused(event, f"has key attempt {key_attempt} where {self.key_attempt} is due")
        if self.state == "running" and event.epoch <= self._epoch:
            raise refused(event, f"begins attempt {attempt} a second time under the same lease")
        self.attempt, self._epoch = attempt, event.epoch
        self.begun_us = self.begun_us or event.time_us
        self.is_frozen = self.is_frozen or is_again

    def _retry(self, event: AppliedEvent, facts: Mapping[str, Any]) -> None:
        key_attempt = whole_number(event, facts, "keyAttempt")
        delay_ms = whole_number(event, facts, "delayMs")
        is_frozen = self.is_frozen or facts.get("outcome") != "not_executed"
        due = self.key_attempt if is_frozen else self.key_attempt + 1
        if key_attempt != due:
            raise refused(event, f"goes on with key attempt {key_attempt} where {due} is due")
        self.key_attempt, self.is_frozen = key_attempt, is_frozen
        self.not_before_us = event.time_us + delay_ms * 1000
