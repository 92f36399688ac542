"""Content too large to stand in an event: kept apart as a blob, and named by what it is (SPEC J4)."""

import re
from dataclasses import dataclass
from hashlib import sha256

_SHA256 = re.compile(r"[0-9a-f]{64}")
_TEXT = re.compile(r"([0-9a-f]{64}):([0-9]{1,18})")


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class BlobRef:
    """The name of a blob within its tenant: two of the same content are one."""

    # SHA-256 of the content, 64 lower-case hexadecimal digits.
    sha256: str
    # Bytes of the content.
    size: int

    def __post_init__(self) -> None:
        assert _SHA256.fullmatch(self.sha256), "a digest in lower-case hexadecimal digits"
        assert self.size >= 0, "a size"

    @classmethod
    def of(cls, content: bytes) -> "BlobRef":
        """The name that this content has."""
        return cls(sha256=sha256(content).hexdigest(), size=len(content))

    @classmethod
    def parse(cls, text: str) -> "BlobRef":
        """From what `str` made; raises ValueError where it did not."""
        found = _TEXT.fullmatch(text)
        if found is None:
            raise ValueError(f"{text[:80]!r} names no blob")
        return cls(sha256=found[1], size=int(found[2]))

    def __str__(self) -> str:
        return f"{self.sha256}:{self.size}"


Content = bytes | BlobRef
"""User data (JSON) where it stands, or the name of where it is kept."""
