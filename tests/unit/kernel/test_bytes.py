"""Goal: user data passes through payloads and JSON unharmed whatever it holds; what JSON cannot say is refused.

Method: hypothesis over JSON values, over arbitrary text in the engine's facts, and over the bytes that look like a cut.
"""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lantern_kernel import json_bytes, payloads, reasons
from lantern_kernel.blobs import BlobRef
from lantern_kernel.bounds import PAYLOAD_BYTES_MAX, PAYLOAD_INLINE_BYTES_MAX
from lantern_kernel.errors import InvalidField, LanternError
from lantern_kernel.payloads import ParkFacts, RunErrorFacts, Unpacked

texts = st.one_of(
    st.text(),
    st.sampled_from(['"data":', "data", '\\"data":', '{"data":1}', "\x00", ',"data":', '"data', "\\u0064ata"]),
)
# Without lone surrogates, as JSON wants it.
clean = texts.filter(lambda text: json_bytes.LONE_SURROGATE.search(text) is None)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), clean),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(clean, inner, max_size=4)),
    max_leaves=12,
)
facts_strategy = st.dictionaries(clean.filter(lambda name: name not in ("data", "blob")), json_values, max_size=5)


@given(facts_strategy, json_values, st.booleans())
def test_data_comes_back_to_the_byte(facts: dict[str, Any], value: Any, is_spaced: bool) -> None:
    raw = json.dumps(value, indent=1 if is_spaced else None, ensure_ascii=is_spaced).encode()
    packed = payloads.pack(facts, raw)
    assert json.loads(packed) == {**facts, "data": value}
    unpacked = payloads.unpack(packed)
    assert unpacked.data == raw
    assert unpacked.facts == facts
    without = payloads.unpack(payloads.pack(facts))
    assert (without.facts, without.data) == (facts, None)


@given(st.binary(max_size=40), facts_strategy)
def test_data_that_is_no_json_comes_back_too(raw: bytes, facts: dict[str, Any]) -> None:
    assert payloads.unpack(payloads.pack(facts, raw)).data == raw


refs = st.builds(BlobRef, sha256=st.text("0123456789abcdef", min_size=64, max_size=64), size=st.integers(1, 2**40))


@given(facts_strategy, refs)
def test_a_blob_in_the_place_of_data_comes_back(facts: dict[str, Any], blob: BlobRef) -> None:
    packed = payloads.pack(facts, blob)
    assert payloads.named_blob(packed) == blob
    assert payloads.unpack(packed) == Unpacked(facts=facts, data=None, blob=blob)
    assert json.loads(packed) == {**facts, "blob": {"sha256": blob.sha256, "size": blob.size}}


@given(facts_strategy, refs, st.sampled_from([0, 1, 2]))
def test_data_that_looks_like_a_blob_is_none(facts: dict[str, Any], blob: BlobRef, wrapped: int) -> None:
    """Whatever JSON the user's data are, also the very text of a payload that names a blob."""
    raw = [b"%b", b'{"x":1,"y":%b}', b"[%b]"][wrapped] % payloads.pack({}, blob)
    packed = payloads.pack(facts, raw)
    assert payloads.named_blob(packed) is None
    assert payloads.unpack(packed) == Unpacked(facts=facts, data=raw)
    within = payloads.pack({"facts": json.loads(raw), "text": raw.decode()})
    assert payloads.named_blob(within) is None


@given(st.text(st.characters(), max_size=8))
def test_any_message_can_be_recorded(text: str) -> None:
    facts = RunErrorFacts(code="X", message="a\ud800" + text, details={"data": text}).to_facts()
    recorded = payloads.unpack(payloads.pack(facts, b"1"))
    assert recorded.data == b"1"
    assert RunErrorFacts.from_facts(recorded.facts).message.startswith("a?")


TWO_FOLD = payloads.pack({}, b"1")[:-1] + b"," + payloads.pack({}, BlobRef.of(b"x"))[1:]


@pytest.mark.parametrize(
    "payload", [b"", b"[1]", b"{", b'{"data":1', b'"data":1}', b"\xff", b'{"a":1 "data":2}', TWO_FOLD]
)
def test_what_was_not_packed_is_unreadable(payload: bytes) -> None:
    with pytest.raises(LanternError) as caught:
        payloads.unpack(payload)
    assert caught.value.reason == reasons.HISTORY_UNREADABLE


@given(json_values)
def test_json_values_survive(value: Any) -> None:
    raw = json_bytes.encode(value, "x")
    assert json_bytes.decode(raw, "x") == value
    assert json_bytes.decode_recorded(raw) == value
    assert json_bytes.encode(json_bytes.decode(raw, "x"), "x") == raw, "a second pass changes nothing"


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (math.nan, "x"),
        ({"a": [0, -math.inf]}, "x.a[1]"),
        (["\udc00"], "x[0]"),
        ({"\ud800": 1}, "x"),
        ({1: 2}, "x"),
        ({"a": {"b": object()}}, "x.a.b"),
        ([b"bytes"], "x[0]"),
        ({"s": {1, 2}}, "x.s"),
        ([10**4300], "x[0]"),
    ],
)
def test_what_json_cannot_say_is_refused_with_its_path(value: Any, path: str) -> None:
    with pytest.raises(InvalidField) as caught:
        json_bytes.encode(value, "x")
    assert (caught.value.reason, caught.value.details["field"]) == (reasons.INVALID_JSON, path)
    assert caught.value.details["path"] == "$" + path.removeprefix("x")
    assert f"(at ${path.removeprefix('x')})" in caught.value.message


def test_bounds_of_json() -> None:
    deep: list[Any] = []
    for _ in range(63):
        deep = [deep]
    assert json_bytes.decode(json_bytes.encode(deep, "x"), "x") == deep
    with pytest.raises(InvalidField, match="deeper than 64"):
        json_bytes.encode([deep], "x")
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(InvalidField, match="deeper than 64"):
        json_bytes.encode(loop, "x")
    with pytest.raises(InvalidField) as long:
        json_bytes.encode({"k" * 500: [float("nan")]}, "x")
    assert long.value.details["field"] == "x." + "k" * 115 + "..."
    assert json_bytes.encode("x" * (64 * 1024 * 1024 - 2), "x", bytes_max=PAYLOAD_BYTES_MAX)
    with pytest.raises(InvalidField) as caught:
        json_bytes.encode("x" * (64 * 1024 * 1024 - 1), "x", bytes_max=PAYLOAD_BYTES_MAX)
    assert caught.value.details == {"field": "x", "size": "67108865", "limit": "67108864"}
    with pytest.raises(InvalidField, match="262145 bytes are more than the 262144"):
        json_bytes.check(b"1" * 262_145, "x", bytes_max=PAYLOAD_INLINE_BYTES_MAX)
    assert json_bytes.encode(10**4299, "x") == str(10**4299).encode()


@given(st.sampled_from(sorted(payloads.WAITING_ON)), st.none() | st.integers(0, 2**53), st.booleans())
def test_park_facts_survive(waiting_on: str, due_us: int | None, has_error: bool) -> None:
    error = RunErrorFacts(code="C", message="m", step_id="s", details={"a": "b"}) if has_error else None
    parked = ParkFacts(waiting_on=waiting_on, due_us=due_us, error=error)
    assert ParkFacts.unpack(parked.pack()) == parked


def test_error_facts_of_another_hand_are_read_as_far_as_they_go() -> None:
    read = RunErrorFacts.from_facts({"code": 7, "details": ["x"], "more": 1})
    assert read == RunErrorFacts(code="7", message="", step_id="", details={})
