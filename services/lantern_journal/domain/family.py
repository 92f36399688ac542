"""Runs that belong to others, as values."""

from dataclasses import dataclass
from hashlib import sha256

from lantern_kernel.chain import SALT_BYTES


@dataclass(frozen=True, kw_only=True, slots=True)
class Parent:
    """The run that starts another one as its child."""

    # The run.
    run_id: str
    # The step that it is in the parent, under which the parent is told how it ended.
    step_id: str
    # The lease under which the parent is driven.
    epoch: int
    # Whether the child outlives the parent.
    abandon: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Aftermath:
    """What a transaction did to runs besides those that it was about, to be told once it is committed."""

    # Runs that are queued by it.
    queued: tuple[str, ...] = ()
    # Runs to which the journal itself has appended.
    moved: tuple[str, ...] = ()
    # Entries that it put into the inboxes of driven runs: worker, run, number.
    entries: tuple[tuple[str, str, int], ...] = ()

    def __bool__(self) -> bool:
        """Whether there is anything to tell."""
        return bool(self.queued or self.moved or self.entries)

    def __add__(self, other: "Aftermath") -> "Aftermath":
        """Both."""
        return Aftermath(
            queued=self.queued + other.queued, moved=self.moved + other.moved, entries=self.entries + other.entries
        )


NOTHING = Aftermath()


@dataclass(frozen=True, kw_only=True, slots=True)
class Reset:
    """An operator's word that a run which waits for other code is to go on from an earlier event."""

    # Unique per logical request within the run.
    request_id: str
    # The run.
    run_id: str
    # The last event that is replayed; of those behind it only what came from the inbox is.
    to_seq: int
    # For history_reset.
    salt: bytes


def successor_id(run_id: str, time_us: int, salt: bytes) -> str:
    """The id of the run that goes on in a run's place, a UUIDv7 of the time of its end.

    Its random bits are made from the salt of that event, whose writer made it: so it follows from the journal.
    """
    milliseconds, fraction_us = divmod(time_us, 1000)
    made = sha256(b"lantern.successor\0" + salt + run_id.encode()).digest()
    value = (milliseconds & (2**48 - 1)) << 80 | 7 << 76 | (fraction_us * 4096 // 1000) << 64
    text = f"{value | 0b10 << 62 | int.from_bytes(made[:8], 'big') >> 2:032x}"
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def derived_salts(salt: bytes, run_id: str) -> tuple[bytes, bytes]:
    """Salts for what the journal itself writes to a relative of a run: as unguessable as that of the run's end."""
    made = sha256(b"lantern.family\0" + salt + run_id.encode()).digest()
    return made[:SALT_BYTES], made[SALT_BYTES : 2 * SALT_BYTES]
