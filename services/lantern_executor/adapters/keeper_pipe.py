"""What a worker and its helper process say to each other: one JSON object a line, over two pipes.

A line is far shorter than PIPE_BUF, so that it goes through a pipe whole.
"""

import json
import signal
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

IGNORED_SIGNALS = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
"""Only its parent ends the helper: a signal to the whole group (Ctrl-C, a supervisor's stop) must not leave an executor
that drains without it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """From the worker's event loop, each second: it moves, and this is its session."""

    # Grows by one with each; the helper tells which one it read last.
    beat: int
    # The worker.
    worker_id: str
    # The session that it attached last.
    session_number: int
    # Where the journal listens: the present process first, then those to be tried.
    addresses: tuple[str, ...]
    # After how much silence the journal closes the session, seconds.
    silence_s: float
    # For how long the helper speaks on while the loop says nothing, seconds.
    patience_s: float

    def line(self) -> bytes:
        """As sent."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def of(cls, line: bytes) -> "Order":
        """As received."""
        raw: dict[str, Any] = json.loads(line)
        raw["addresses"] = tuple(raw["addresses"])
        return cls(**raw)


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """From the helper process: it lives, and what the journal has answered."""

    # The last beat that it read.
    beat: int
    # The session of the answer; 0 where there is none.
    session_number: int = 0
    # Whether that was the worker's open session.
    current: bool = False
    # When the ping was sent that was answered, and when its answer came: CLOCK_MONOTONIC of the machine, seconds.
    sent_s: float = 0.0
    answered_s: float = 0.0

    def line(self) -> bytes:
        """As sent."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def of(cls, line: bytes) -> "Report":
        """As received."""
        return cls(**json.loads(line))


class Lines:
    """Puts what comes out of a pipe together into lines."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The lines that are complete with these bytes."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        yield from lines
