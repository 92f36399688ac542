"""Randomness, from the operating system."""

import os
import uuid

from lantern_kernel.chain import SALT_BYTES


class SystemSources:
    """See `lantern_journal.ports.Sources`."""

    def salt(self) -> bytes:
        """16 random bytes."""
        return os.urandom(SALT_BYTES)

    def run_id(self, now_us: int) -> str:
        """A UUIDv7 (RFC 9562, 5.7): milliseconds, then their fraction in 12 bits (method 3), then 62 random bits."""
        milliseconds, fraction_us = divmod(now_us, 1000)
        value = (milliseconds & (2**48 - 1)) << 80
        value |= 7 << 76 | (fraction_us * 4096 // 1000) << 64
        value |= 0b10 << 62 | int.from_bytes(os.urandom(8), "big") >> 2
        return str(uuid.UUID(int=value))

    def traceparent(self) -> str:
        """A fresh, sampled W3C trace context."""
        return f"00-{os.urandom(16).hex()}-{os.urandom(8).hex()}-01"
