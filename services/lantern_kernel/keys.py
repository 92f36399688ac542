"""Idempotency keys: the name of one effect, the same for every request that may cause it (SPEC E1).

`key = hex(SHA-256("runID|stepID|keyAttempt"))`. The attempt in it is the *key attempt*, which grows only when every
request under the current key ended in a documented "not executed" answer (SPEC E2), never merely because of a retry.
Vectors: protos/vectors/keys.json.
"""

from hashlib import sha256


def idempotency_key(scope_id: str, step_id: str, key_attempt: int) -> str:
    """The key, 64 hexadecimal digits. `scope_id` is the run id, or the workflow id under `keyScope: workflow`."""
    assert "|" not in scope_id, "ids never contain the separator"
    assert "|" not in step_id, "ids never contain the separator"
    return sha256(f"{scope_id}|{step_id}|{key_attempt}".encode()).hexdigest()
