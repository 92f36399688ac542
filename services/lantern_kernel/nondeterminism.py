"""The error of a program that asks for something else than what is recorded (SPEC R3)."""

from lantern_kernel import reasons
from lantern_kernel.errors import LanternError


class NonDeterminism(LanternError):
    """The first difference between a history and the program that is driven along it.

    Attributes:
        seq: The recorded event that differs.
        recorded: What it records, in words.
        asked: What the program asks for in its place, in words.
        recorded_source: "file:line" of the code that asked for the recorded one; may be empty.
        asked_source: "file:line" of the code now; may be empty.
    """

    def __init__(self, *, seq: int, recorded: str, asked: str, recorded_source: str, asked_source: str) -> None:
        super().__init__(
            reasons.NONDETERMINISM,
            f"event {seq} records {recorded}{_at(recorded_source)}, but the code now asks for"
            f" {asked}{_at(asked_source)}",
            seq=seq,
            recorded=recorded,
            asked=asked,
            recordedSource=recorded_source,
            askedSource=asked_source,
        )
        self.seq = seq
        self.recorded = recorded
        self.asked = asked
        self.recorded_source = recorded_source
        self.asked_source = asked_source

    def facts(self) -> dict[str, str | int]:
        """The facts of nondeterminism_detected."""
        return {
            "seq": self.seq,
            "recorded": self.recorded,
            "asked": self.asked,
            "recordedSource": self.recorded_source,
            "askedSource": self.asked_source,
        }


def _at(source: str) -> str:
    return f" (at {source})" if source else ""
