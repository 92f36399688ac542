"""Goal: the kernel agrees with the vectors that all languages share, and the files are those that their maker makes.

Method: protos/vectors/*.json is compared with generate_vectors (which computes without the kernel) and with the kernel.
"""

import json
from typing import Any

import pytest
from generate_vectors import FOLDER, make_all, to_text

from lantern_journal.domain import feed
from lantern_journal.domain.feed import FeedEntry
from lantern_kernel import chain, json_bytes, payloads
from lantern_kernel.blobs import BlobRef
from lantern_kernel.bounds import PAYLOAD_INLINE_BYTES_MAX
from lantern_kernel.errors import InvalidField
from lantern_kernel.event import Event, NewEvent, find_chain_fault
from lantern_kernel.keys import idempotency_key


def load(name: str) -> Any:
    return json.loads((FOLDER / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", sorted(make_all()))
def test_the_files_are_up_to_date(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == to_text(make_all()[name])


def test_every_file_has_a_maker() -> None:
    assert {path.name for path in FOLDER.glob("*.json")} >= set(make_all())


@pytest.mark.parametrize("case", load("keys.json")["cases"], ids=lambda case: case["stepId"][:20])
def test_keys(case: dict[str, Any]) -> None:
    assert idempotency_key(case["scopeId"], case["stepId"], case["keyAttempt"]) == case["key"]


def to_new_event(row: dict[str, Any]) -> NewEvent:
    return NewEvent(
        kind=row["kind"],
        step_id=row["stepId"],
        attempt=row["attempt"],
        payload=bytes.fromhex(row["payload"]),
        salt=bytes.fromhex(row["salt"]),
    )


def test_event_digests() -> None:
    vectors = load("chain.json")
    rows: list[dict[str, Any]] = vectors["events"] + vectors["lone"]
    for row in rows:
        event = to_new_event(row)
        assert chain.payload_digest(event.salt, event.payload).hex() == row["payloadDigest"]
        assert event.digest(run_id=vectors["runId"], seq=row["seq"], epoch=row["epoch"]).hex() == row["digest"]


def to_event(row: dict[str, Any], **changed: Any) -> Event:
    new = to_new_event(row)
    fields: dict[str, Any] = {
        "seq": row["seq"],
        "kind": new.kind,
        "step_id": new.step_id,
        "attempt": new.attempt,
        "epoch": row["epoch"],
        "time_us": row["timeUs"],
        "payload": new.payload,
        "salt": new.salt,
        "digest": bytes.fromhex(row["digest"]),
        "hash": bytes.fromhex(row["hash"]),
    }
    return Event(**{**fields, **changed})


def test_the_chain() -> None:
    vectors = load("chain.json")
    assert chain.genesis(vectors["runId"]).hex() == vectors["genesis"]
    assert find_chain_fault(vectors["runId"], [to_event(row) for row in vectors["events"]]) is None
    assert find_chain_fault(vectors["runId"].replace("a", "b"), [to_event(row) for row in vectors["events"]])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("seq", 9),
        ("kind", "step_failed"),
        ("step_id", "charge[1]"),
        ("attempt", 2),
        ("epoch", 7),
        ("time_us", 1_760_000_000_104_114),
        ("time_us", 1),
        ("payload", b"{}"),
        ("salt", bytes(16)),
        ("digest", bytes(32)),
        ("hash", bytes(32)),
    ],
)
def test_a_change_of_any_field_breaks_the_chain_where_it_is(field: str, value: Any) -> None:
    vectors = load("chain.json")
    events = [to_event(row, **({field: value} if row["seq"] == 4 else {})) for row in vectors["events"]]
    fault = find_chain_fault(vectors["runId"], events)
    assert fault is not None
    assert "event 4" in fault


@pytest.mark.parametrize("raw", load("json.json")["accepted"], ids=range(len(load("json.json")["accepted"])))
def test_accepted_json(raw: str) -> None:
    assert json_bytes.check(bytes.fromhex(raw), "input") == bytes.fromhex(raw)


@pytest.mark.parametrize("case", load("json.json")["refused"], ids=range(len(load("json.json")["refused"])))
def test_refused_json(case: dict[str, Any]) -> None:
    if "repeat" in case:
        repeat = case["repeat"]
        raw = bytes.fromhex(repeat["head"]) + bytes.fromhex(repeat["byte"]) * repeat["times"]
    else:
        raw = bytes.fromhex(case["bytes"])
    with pytest.raises(InvalidField) as caught:
        json_bytes.check(raw, "input", bytes_max=PAYLOAD_INLINE_BYTES_MAX)
    assert (caught.value.reason, caught.value.details["field"]) == (case["reason"], case["field"])


@pytest.mark.parametrize("case", load("payloads.json")["cases"], ids=lambda case: case["payload"][:20])
def test_payloads(case: dict[str, Any]) -> None:
    held = case["blob"] and BlobRef(sha256=case["blob"]["sha256"], size=case["blob"]["size"])
    data = None if case["data"] is None else bytes.fromhex(case["data"])
    payload = case["payload"].encode()
    assert payloads.pack(json.loads(case["facts"]), held or data) == payload
    assert payloads.unpack(payload) == payloads.Unpacked(facts=json.loads(case["facts"]), data=data, blob=held)
    assert payloads.named_blob(payload) == held


def test_feed_entries() -> None:
    vectors = load("feed.json")
    entries = [
        FeedEntry(*(case[k] for k in ("runId", "firstSeq", "events", "isTerminal"))) for case in vectors["entries"]
    ]
    packed = bytes.fromhex(vectors["packed"])
    assert feed.pack(entries) == packed
    assert list(feed.unpack(packed)) == entries
