"""Makes protos/vectors/*.json: what every implementation, in whatever language, must agree with.

Nothing of Lantern is imported: the numbers are computed here a second time, straight from the layouts in SPEC E1 and
J5, so that a fault in the kernel cannot hide in its own vectors. Run it to write the files; the tests compare.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "protos" / "vectors"
RUN_ID = "0190b5f0-7e1a-7c3d-9a2b-0123456789ab"


def make_keys() -> dict[str, Any]:
    """Idempotency keys."""
    cases: list[tuple[str, str, int]] = [
        (RUN_ID, "charge", 1),
        (RUN_ID, "charge", 2),
        (RUN_ID, "notify[3]", 1),
        (RUN_ID, "a.b_c:d/e@f-g", 100),
        (RUN_ID, "x" * 200, 1),
        ("order-1042", "charge", 1),
    ]
    return {
        "about": 'key = hex(SHA-256("scopeId|stepId|keyAttempt")); scopeId is the run id or the workflow id',
        "cases": [
            {
                "scopeId": scope_id,
                "stepId": step_id,
                "keyAttempt": key_attempt,
                "key": hashlib.sha256(b"|".join(p.encode() for p in (scope_id, step_id, str(key_attempt)))).hexdigest(),
            }
            for scope_id, step_id, key_attempt in cases
        ],
    }


def make_chain() -> dict[str, Any]:
    """The hash chain over the events of one run, and lone digests of events that stand far out."""
    rows: list[tuple[int, int, int, str, str, int, bytes]] = [
        # seq, epoch, attempt, kind, step id, time in microseconds, payload
        (1, 1, 0, "run_started", "", 1_760_000_000_000_000, b'{"agent":"order","data":{"id":1042}}'),
        (2, 1, 0, "lease_granted", "", 1_760_000_000_000_000, b"{}"),
        (3, 1, 1, "step_started", "charge", 1_760_000_000_000_250, b'{"name":"charge","keyAttempt":1}'),
        (4, 1, 1, "step_completed", "charge", 1_760_000_000_104_113, b'{"data":"nul \x00 inside"}'),
        (5, 1, 0, "marker_recorded", "option[1]", 1_760_000_000_104_113, '{"data":"Zürich 東京 🏮"}'.encode()),
        (6, 2, 1, "step_started", "notify[3]", 1_760_000_009_000_000, b""),
        (7, 2, 3, "step_failed", "notify[3]", 1_760_000_009_000_001, bytes(range(256))),
        (8, 3, 0, "x_future_kind", "", 1_760_000_009_000_002, b"9007199254740993"),
    ]
    events: list[dict[str, Any]] = []
    previous = hashlib.sha256(b"lantern.journal.v1" + b"\x00" + RUN_ID.encode()).digest()
    genesis = previous
    for seq, epoch, attempt, kind, step_id, time_us, payload in rows:
        event = _digest_of(seq, epoch, attempt, kind, step_id, payload)
        previous = hashlib.sha256(
            previous + bytes.fromhex(event["digest"]) + time_us.to_bytes(8, "big", signed=False)
        ).digest()
        events.append({**event, "timeUs": time_us, "hash": previous.hex()})
    big = 2**63 - 1
    return {
        "about": (
            "payloadDigest = SHA-256(salt || payload); digest = SHA-256(seq u64 | epoch u64 | attempt u32"
            " | len(runId) u16 | len(kind) u16 | len(stepId) u16 | runId | kind | stepId | payloadDigest); h(0) ="
            ' SHA-256("lantern.journal.v1" NUL runId); h(n) = SHA-256(h(n-1) || digest || timeUs u64);'
            " integers big-endian, texts UTF-8, bytes in hex here"
        ),
        "runId": RUN_ID,
        "genesis": genesis.hex(),
        "events": events,
        "lone": [
            _digest_of(big, big, 2**31 - 1, "step_completed", "x" * 256, b"{}"),
            _digest_of(1, 0, 0, "k", "", b"\x00" * 16),
            _digest_of(1, 0, 0, "k", "é", b"\x00" * 16),
        ],
    }


def _digest_of(seq: int, epoch: int, attempt: int, kind: str, step_id: str, payload: bytes) -> dict[str, Any]:
    salt = hashlib.md5(f"salt {seq} {kind}".encode(), usedforsecurity=False).digest()
    payload_digest = hashlib.sha256(salt + payload).digest()
    layout = seq.to_bytes(8, "big") + epoch.to_bytes(8, "big") + attempt.to_bytes(4, "big")
    for text in (RUN_ID, kind, step_id):
        layout += len(text.encode()).to_bytes(2, "big")
    layout += RUN_ID.encode() + kind.encode() + step_id.encode() + payload_digest
    return {
        "seq": seq,
        "epoch": epoch,
        "attempt": attempt,
        "kind": kind,
        "stepId": step_id,
        "salt": salt.hex(),
        "payload": payload.hex(),
        "payloadDigest": payload_digest.hex(),
        "digest": hashlib.sha256(layout).hexdigest(),
    }


def make_payloads() -> dict[str, Any]:
    """Events' payloads: engine facts (JSON text), and user data (hex) or the blob that holds them."""
    blob = {"sha256": hashlib.sha256(b"[1,2]").hexdigest(), "size": 5_242_880}
    named = f'"blob":{{"sha256":"{blob["sha256"]}","size":{blob["size"]}}}'
    as_data = "{" + named + "}"
    cases: list[tuple[str, bytes | None, dict[str, Any] | None, str]] = [
        ("{}", None, None, "{}"),
        ('{"name":"charge","of":3}', None, None, '{"name":"charge","of":3}'),
        ("{}", b'{"a":1}', None, '{"data":{"a":1}}'),
        ('{"name":"charge"}', b" [ 9007199254740993 ] ", None, '{"name":"charge","data": [ 9007199254740993 ] }'),
        ('{"text":"\\"data\\":1"}', b"null", None, '{"text":"\\"data\\":1","data":null}'),
        ("{}", None, blob, "{" + named + "}"),
        ('{"name":"charge","of":3}', None, blob, '{"name":"charge","of":3,' + named + "}"),
        ("{}", as_data.encode(), None, '{"data":' + as_data + "}"),
        ('{"x":' + as_data + "}", None, None, '{"x":' + as_data + "}"),
    ]
    return {
        "about": "event payloads: facts (JSON text), data (hex) or blob, and the payload's text",
        "cases": [
            {"facts": facts, "data": None if data is None else data.hex(), "blob": held, "payload": payload}
            for facts, data, held, payload in cases
        ],
    }


def make_json() -> dict[str, Any]:
    """Which bytes are user data, and where the fault of the others lies. Bytes in hex, for not all are text."""
    accepted: list[bytes] = [
        b"null",
        b"0",
        b"-0.0",
        b"9007199254740993",
        b"9" * 4_000,
        b"1e308",
        b'"\\u0000"',
        b'"\\ud83c\\udfee"',
        '"🏮"'.encode(),
        b"  [1 , 2]\n",
        b'{"a":{"b":[]},"a":1}',
        b'{"":""}',
        b"[" * 64 + b"]" * 64,
        b'"' + b"[" * 100 + b'"',
    ]
    refused: list[tuple[bytes, str, str]] = [
        (b"", "INVALID_JSON", "input"),
        (b"NaN", "INVALID_JSON", "input"),
        (b'{"a":[1,NaN]}', "INVALID_JSON", "input.a[1]"),
        (b'{"a":{"b":Infinity}}', "INVALID_JSON", "input.a.b"),
        (b"[-Infinity]", "INVALID_JSON", "input[0]"),
        (b"[1e999]", "INVALID_JSON", "input[0]"),
        (b'["x","\\ud800"]', "INVALID_JSON", "input[1]"),
        (b'{"a":{"\\udfff":1}}', "INVALID_JSON", "input.a"),
        (b"[" * 65 + b"]" * 65, "INVALID_JSON", "input"),
        (b'{"a":1', "INVALID_JSON", "input"),
        (b"{'a':1}", "INVALID_JSON", "input"),
        (b"[1,]", "INVALID_JSON", "input"),
        (b"1 2", "INVALID_JSON", "input"),
        (b'"\xff"', "INVALID_JSON", "input"),
        (b'"\x00"', "INVALID_JSON", "input"),
        (b"\xef\xbb\xbf1", "INVALID_JSON", "input"),
        ("[1]".encode("utf-16"), "INVALID_JSON", "input"),
        (b"1\x00\x00\x00", "INVALID_JSON", "input"),
        (b"[]" + b" " * (256 * 1024 - 1), "PAYLOAD_TOO_LARGE", "input"),
    ]
    return {
        "about": "bytes (hex) as user data under the field name `input`; refused: reason, and field with the JSON path",
        "accepted": [raw.hex() for raw in accepted],
        "refused": [
            {"bytes": raw.hex(), "reason": reason, "field": field}
            if len(raw) < 100_000
            else {"repeat": {"head": "5b5d", "byte": "20", "times": len(raw) - 2}, "reason": reason, "field": field}
            for raw, reason, field in refused
        ],
    }


def make_feed() -> dict[str, Any]:
    """What a row of the feed over all runs holds."""
    entries: list[tuple[str, int, int, bool]] = [
        # run id, first seq, events, whether the last one ended the run
        (RUN_ID, 1, 2, False),
        ("0190b5f0-7e1a-7c3d-9a2b-fedcba987654", 100_001, 1, True),
        ("ffffffff-ffff-7fff-bfff-ffffffffffff", 2**32 - 1, 2**16 - 1, True),
    ]
    return {
        "about": "per run: UUID, 16 bytes | first seq u32 | events u16 | flags u8 (bit 0: the last one ended the run)",
        "entries": [
            {"runId": run_id, "firstSeq": first_seq, "events": events, "isTerminal": is_terminal}
            for run_id, first_seq, events, is_terminal in entries
        ],
        "packed": b"".join(
            int(run_id.replace("-", ""), 16).to_bytes(16, "big")
            + first_seq.to_bytes(4, "big")
            + events.to_bytes(2, "big")
            + bytes([is_terminal])
            for run_id, first_seq, events, is_terminal in entries
        ).hex(),
    }


def make_all() -> dict[str, dict[str, Any]]:
    """Every file by its name."""
    return {
        "keys.json": make_keys(),
        "chain.json": make_chain(),
        "json.json": make_json(),
        "payloads.json": make_payloads(),
        "feed.json": make_feed(),
    }


def to_text(vectors: dict[str, Any]) -> str:
    """As it stands in the file."""
    return json.dumps(vectors, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for file_name, content in make_all().items():
        (FOLDER / file_name).write_text(to_text(content), encoding="utf-8")
