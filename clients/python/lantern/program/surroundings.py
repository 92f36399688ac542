"""Where the values come from that `ctx.now`, `ctx.random` and `ctx.uuid` record."""

import random
import time
import uuid
from typing import Protocol


class Surroundings(Protocol):
    """Time and chance; each is asked once per value, never on replay."""

    def now_us(self) -> int:
        """Microseconds since the epoch, UTC."""
        ...

    def random01(self) -> float:
        """From 0 up to, not including, 1."""
        ...

    def uuid(self) -> str:
        """A new UUID."""
        ...


class Machine:
    """This machine's."""

    def now_us(self) -> int:
        """See Surroundings."""
        return time.time_ns() // 1000

    def random01(self) -> float:
        """See Surroundings."""
        return random.random()  # noqa: S311 - for choices, not for secrets

    def uuid(self) -> str:
        """See Surroundings."""
        return str(uuid.uuid4())
