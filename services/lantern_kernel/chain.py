"""The hash chain over a run's events: byte layout, final (SPEC J5). Vectors: protos/vectors/chain.json.

    payload_digest = SHA-256(salt || payload)                         salt: 16 bytes, made by the writer
    digest         = SHA-256(seq u64 | epoch u64 | attempt u32 | len(run_id) u16 | len(kind) u16 | len(step_id) u16
                             | run_id | kind | step_id | payload_digest)
    h(0)           = SHA-256("lantern.journal.v1" NUL run_id)
    h(n)           = SHA-256(h(n-1) || digest(n) || time_us u64)

Integers are unsigned and big-endian, texts UTF-8. The digest leaves out time and the previous hash, so that the writer
can compute it before the journal has answered and name it in its next append; the chain puts both back in.
"""

import struct
from hashlib import sha256

SALT_BYTES = 16
DIGEST_BYTES = 32

_FIXED = struct.Struct(">QQIHHH")
_TIME = struct.Struct(">Q")


def payload_digest(salt: bytes, payload: bytes) -> bytes:
    """The 32 bytes that stand for a payload; they outlive its redaction."""
    assert len(salt) == SALT_BYTES, "a salt has 16 bytes"
    return sha256(salt + payload).digest()


def event_digest(
    run_id: str, seq: int, kind: str, step_id: str, attempt: int, epoch: int, payload_digest: bytes
) -> bytes:
    """The 32 bytes that name an event, without its time and its predecessor."""
    run, kind_bytes, step = run_id.encode(), kind.encode(), step_id.encode()
    fixed = _FIXED.pack(seq, epoch, attempt, len(run), len(kind_bytes), len(step))
    return sha256(b"".join((fixed, run, kind_bytes, step, payload_digest))).digest()


def genesis(run_id: str) -> bytes:
    """h(0), the hash before the first event of a run; also what its first append names as the previous digest."""
    return sha256(b"lantern.journal.v1\0" + run_id.encode()).digest()


def link(previous_hash: bytes, digest: bytes, time_us: int) -> bytes:
    """h(n) from h(n-1), the event's digest and its time in microseconds."""
    return sha256(previous_hash + digest + _TIME.pack(time_us)).digest()
