"""Goal: nonsense in any field of any request is refused with the reason and the path of that field.

Method: each case takes an acceptable request, spoils one field, and names the path that must come back.
"""

from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf import duration_pb2

from lantern.api.journal.v1 import blob_service_pb2 as bp
from lantern.api.journal.v1 import journal_service_pb2 as jp
from lantern.api.journal.v1 import recovery_service_pb2 as rp
from lantern.api.journal.v1 import run_pb2
from lantern.api.journal.v1 import worker_service_pb2 as wp
from lantern_journal import validate, wire
from lantern_journal.servicer.streams import number_of, page_token, position_of
from lantern_journal.validate import fields, starts
from lantern_kernel import payloads, reasons
from lantern_kernel.blobs import BlobRef
from lantern_kernel.errors import LanternError

RUN = "01890000-0000-7000-8000-000000000001"
TOO_BIG = b'"' + b"x" * 262_144 + b'"'
TOP = 2**63 - 1
TOO_LARGE = reasons.PAYLOAD_TOO_LARGE


def made(message: Callable[..., Any], changes: dict[str, Any], **defaults: Any) -> Any:
    return message(**{**defaults, **changes})


def target(**changes: Any) -> jp.LeaseTarget:
    return made(jp.LeaseTarget, changes, worker_id="w1", session_number=1)


def claim_of(nonce: bytes) -> wp.ClaimSideEffectRequest:
    return wp.ClaimSideEffectRequest(key="k", run_id=RUN, step_id="s", epoch=1, sink="mail", worker_id="w", nonce=nonce)


def release_because(cause: Any) -> wp.ReleaseLeaseRequest:
    return wp.ReleaseLeaseRequest(run_id=RUN, epoch=1, worker_id="w", cause=cause)


def create(**changes: Any) -> jp.CreateRunRequest:
    return made(jp.CreateRunRequest, changes, request_id="r", agent_name="order")


def event(**changes: Any) -> wp.NewEvent:
    return made(wp.NewEvent, changes, kind="step_started", payload=b"{}", salt=b"s" * 16)


def append(*events: wp.NewEvent, **changes: Any) -> wp.Append:
    values: dict[str, Any] = {"run_id": RUN, "epoch": 1, "first_seq": 1, "previous_digest": b"d" * 32}
    return wp.Append(**{**values, **changes}, events=events or (event(),))


def attach(**changes: Any) -> wp.Attach:
    offers = [wp.AgentOffer(name="order", digest="a" * 64, program_kind="code")]
    return made(wp.Attach, changes, worker_id="w1", address="h:1", capacity=1, agents=offers)


def offer(**changes: Any) -> wp.AgentOffer:
    return made(wp.AgentOffer, changes, name="order", digest="a" * 64, program_kind="code")


def blob(**changes: Any) -> run_pb2.Blob:
    return made(run_pb2.Blob, changes, sha256=b"h" * 32, size=300_000)


def blob_named(size: int) -> bytes:
    return payloads.pack({"n": 1}, BlobRef(sha256="a" * 64, size=size))


def declared(**changes: Any) -> bp.PutBlobRequest:
    return bp.PutBlobRequest(declaration=made(bp.BlobDeclaration, changes, blob=blob()))


def first_part(request: bp.PutBlobRequest) -> None:
    validate.put_blob(request, is_first=True)


def next_part(request: bp.PutBlobRequest) -> None:
    validate.put_blob(request, is_first=False)


def settle_as(**changes: Any) -> wp.SettleSideEffectRequest:
    state = wp.SideEffect.STATE_DELIVERED
    return made(wp.SettleSideEffectRequest, changes, key="k", state=state, run_id=RUN, worker_id="w")


def judged(request: wp.Append) -> None:
    validate.append("appends[3]", wire.append(request))


def spoiled(kind: str, payload: bytes) -> wp.Append:
    return append(event(kind=kind, payload=payload))


GOOD: list[tuple[Callable[[Any], object], Any]] = [
    (starts.create_run, create()),
    (starts.create_run, create(input=b'{"a":[1]}', workflow_id="order-1042", lease_target=target())),
    (starts.create_run, create(traceparent="00-" + "a" * 32 + "-" + "b" * 16 + "-01")),
    (judged, append()),
    (judged, append(event(payload=blob_named(2**26)))),
    (judged, append(event(kind="run_succeeded", payload=blob_named(262_145)))),
    (starts.create_run, create(input_blob=blob())),
    (validate.settle, settle_as(result_blob=blob())),
    (first_part, declared()),
    (next_part, bp.PutBlobRequest(data=b"1" * 262_144)),
    (validate.get_blob, bp.GetBlobRequest(blob=blob(), offset=300_000)),
    (judged, append(event(), event(kind="run_parked", payload=b'{"on":"timer","dueUs":1}'))),
    (judged, append(event(kind="run_succeeded", payload=b'{"data":null}'))),
    (judged, append(event(payload=b"x" * (272 * 1024)))),
    (judged, append(event(kind="not_known_yet", payload=b"\x00\xff", step_id="a[1]#2"))),
    (judged, append(epoch=TOP, first_seq=TOP - 1)),
    (validate.attach, attach(agents=[])),
    (validate.attach, attach(event_level=2)),
]

BAD: list[tuple[Callable[[Any], object], Any, str, str]] = [
    (starts.create_run, create(request_id=""), "request_id", ""),
    (starts.create_run, create(request_id="a|b"), "request_id", ""),
    (starts.create_run, create(request_id="x" * 201), "request_id", ""),
    (starts.create_run, create(request_id="nul\0"), "request_id", ""),
    (starts.create_run, create(tenant_id="no good"), "tenant_id", ""),
    (starts.create_run, create(agent_name=""), "agent_name", ""),
    (starts.create_run, create(workflow_id="a[1]"), "workflow_id", ""),
    (starts.create_run, create(workflow_id_policy=77), "workflow_id_policy", ""),
    (starts.create_run, create(traceparent="00-zz"), "traceparent", ""),
    (starts.create_run, create(traceparent="00-" + "0" * 32 + "-" + "b" * 16 + "-01"), "traceparent", ""),
    (starts.create_run, create(input=b"{"), "input", reasons.INVALID_JSON),
    (starts.create_run, create(input=b'{"a":[NaN]}'), "input.a[0]", reasons.INVALID_JSON),
    (starts.create_run, create(input=b'"\\ud800"'), "input", reasons.INVALID_JSON),
    (starts.create_run, create(input=b"[" * 65 + b"]" * 65), "input", reasons.INVALID_JSON),
    (starts.create_run, create(input=TOO_BIG), "input", reasons.PAYLOAD_TOO_LARGE),
    (starts.create_run, create(lease_target=target(worker_id="")), "lease_target.worker_id", ""),
    (starts.create_run, create(lease_target=target(session_number=0)), "lease_target.session_number", ""),
    (validate.list_runs, jp.ListRunsRequest(page_size=-1), "page_size", ""),
    (validate.list_runs, jp.ListRunsRequest(states=[1, 0]), "states[1]", ""),  # pyright: ignore[reportArgumentType]
    (validate.list_runs, jp.ListRunsRequest(states=[99]), "states[0]", ""),  # pyright: ignore[reportArgumentType]
    (validate.list_runs, jp.ListRunsRequest(workflow_id="|"), "workflow_id", ""),
    (validate.list_runs, jp.ListRunsRequest(agent_name="|"), "agent_name", ""),
    (validate.list_runs, jp.ListRunsRequest(tenant_id="|"), "tenant_id", ""),
    (validate.list_events, jp.ListEventsRequest(run_id="x"), "run_id", ""),
    (validate.list_events, jp.ListEventsRequest(run_id=RUN.replace("-", "")), "run_id", ""),
    (validate.list_events, jp.ListEventsRequest(run_id=RUN, after_seq=-1), "after_seq", ""),
    (validate.list_events, jp.ListEventsRequest(run_id=RUN, page_size=-5), "page_size", ""),
    (validate.follow_events, jp.FollowEventsRequest(run_id=""), "run_id", ""),
    (validate.follow_events, jp.FollowEventsRequest(run_id=RUN, after_seq=-1), "after_seq", ""),
    (validate.list_agents, jp.ListAgentsRequest(page_size=-1), "page_size", ""),
    (validate.send_to_run, jp.SendToRunRequest(request_id="", run_id=RUN, kind="cancel"), "request_id", ""),
    (validate.send_to_run, jp.SendToRunRequest(request_id="r", run_id="?", kind="cancel"), "run_id", ""),
    (validate.send_to_run, jp.SendToRunRequest(request_id="r", run_id=RUN, kind="shout"), "kind", ""),
    (validate.send_to_run, jp.SendToRunRequest(request_id="r", run_id=RUN, kind="signal"), "name", ""),
    (validate.send_to_run, jp.SendToRunRequest(request_id="r", run_id=RUN, kind="cancel", name="x"), "name", ""),
    (
        validate.send_to_run,
        jp.SendToRunRequest(request_id="r", run_id=RUN, kind="cancel", payload=b"{]"),
        "payload",
        reasons.INVALID_JSON,
    ),
    (validate.attach, attach(worker_id="a b"), "attach.worker_id", ""),
    (validate.attach, attach(address=""), "attach.address", ""),
    (validate.attach, attach(address="host"), "attach.address", ""),
    (validate.attach, attach(address="h" * 400 + ":1"), "attach.address", ""),
    (validate.attach, attach(capacity=0), "attach.capacity", ""),
    (validate.attach, attach(capacity=-1), "attach.capacity", ""),
    (validate.attach, attach(event_level=-1), "attach.event_level", ""),
    (validate.attach, attach(event_level=1_000_001), "attach.event_level", ""),
    (validate.attach, attach(tenant_id="|"), "attach.tenant_id", ""),
    (validate.attach, attach(agents=[offer(name="")]), "attach.agents[0].name", ""),
    (validate.attach, attach(agents=[offer(), offer(name="b", digest="A" * 64)]), "attach.agents[1].digest", ""),
    (validate.attach, attach(agents=[offer(program_kind="magic")]), "attach.agents[0].program_kind", ""),
    (validate.attach, attach(agents=[offer(), offer()]), "attach.agents[1]", ""),
    (validate.attach, attach(agents=[offer(name=f"a{i}") for i in range(1001)]), "attach.agents", ""),
    (judged, append(run_id="01890000-0000-4000-8000-000000000001"), "appends[3].run_id", ""),
    (judged, append(epoch=0), "appends[3].epoch", ""),
    (judged, append(epoch=-1), "appends[3].epoch", ""),
    (judged, append(first_seq=0), "appends[3].first_seq", ""),
    (judged, append(first_seq=-(2**63)), "appends[3].first_seq", ""),
    (judged, append(first_seq=TOP), "appends[3].first_seq", ""),
    (judged, append(previous_digest=b"d" * 31), "appends[3].previous_digest", ""),
    (judged, append(previous_digest=b""), "appends[3].previous_digest", ""),
    (judged, append(consumed_inbox_number=-1), "appends[3].consumed_inbox_number", ""),
    (judged, append(*[event()] * 1001), "appends[3].events", ""),
    (judged, wp.Append(run_id=RUN, epoch=1, first_seq=1, previous_digest=b"d" * 32), "appends[3].events", ""),
    (judged, append(event(), event(kind="")), "appends[3].events[1].kind", ""),
    (judged, append(event(kind="Step Started")), "appends[3].events[0].kind", ""),
    (judged, append(event(kind="run_started")), "appends[3].events[0].kind", ""),
    (judged, append(event(kind="lease_granted")), "appends[3].events[0].kind", ""),
    (judged, append(event(kind="run_cancelled"), event()), "appends[3].events[0].kind", ""),
    (judged, append(event(step_id="a|b")), "appends[3].events[0].step_id", ""),
    (judged, append(event(step_id="nul\0")), "appends[3].events[0].step_id", ""),
    (judged, append(event(attempt=-1)), "appends[3].events[0].attempt", ""),
    (judged, append(event(salt=b"s" * 15)), "appends[3].events[0].salt", ""),
    (
        judged,
        append(event(), event(), event(payload=b"x" * (272 * 1024 + 1))),
        "appends[3].events[2].payload",
        reasons.PAYLOAD_TOO_LARGE,
    ),
    (judged, spoiled("run_parked", b"\xff"), "appends[3].events[0].payload", ""),
    (judged, spoiled("run_parked", b'{"on":"godot"}'), "appends[3].events[0].payload.on", ""),
    (judged, spoiled("run_parked", b'{"on":"timer"}'), "appends[3].events[0].payload.dueUs", ""),
    (judged, spoiled("run_parked", b'{"on":"timer","dueUs":-1}'), "appends[3].events[0].payload.dueUs", ""),
    (judged, spoiled("run_parked", b'{"on":"signal","dueUs":true}'), "appends[3].events[0].payload.dueUs", ""),
    (
        judged,
        spoiled("run_parked", b'{"on":"signal","dueUs":99999999999999999999}'),
        "appends[3].events[0].payload.dueUs",
        "",
    ),
    (judged, spoiled("run_parked", b'{"on":"code_fix","error":"bad"}'), "appends[3].events[0].payload.error", ""),
    (judged, spoiled("run_parked", b"[" * 100_000), "appends[3].events[0].payload", ""),
    (judged, spoiled("run_succeeded", b"{}"), "appends[3].events[0].payload", ""),
    (judged, spoiled("run_succeeded", b'{"data":NaN}'), "appends[3].events[0].payload.data", reasons.INVALID_JSON),
    (judged, spoiled("run_failed", b'{"message":"?"}'), "appends[3].events[0].payload", ""),
    (
        judged,
        spoiled("run_failed", b'{"code":"C","message":"\\ud800"}'),
        "appends[3].events[0].payload.message",
        reasons.INVALID_JSON,
    ),
    (judged, append(event(payload=blob_named(1))), "appends[3].events[0].payload.blob.size", ""),
    (judged, append(event(payload=blob_named(2**26 + 1))), "appends[3].events[0].payload.blob", TOO_LARGE),
    (starts.create_run, create(input=b"1", input_blob=blob()), "input_blob", ""),
    (starts.create_run, create(input_blob=blob(size=262_144)), "input_blob.size", ""),
    (starts.create_run, create(input_blob=blob(size=2**26 + 1)), "input_blob", TOO_LARGE),
    (starts.create_run, create(input_blob=blob(sha256=b"s")), "input_blob.sha256", ""),
    (validate.settle, settle_as(result_blob=blob(size=-1)), "result_blob.size", ""),
    (first_part, bp.PutBlobRequest(data=b"1"), "declaration", ""),
    (first_part, declared(tenant_id="a b"), "tenant_id", ""),
    (first_part, declared(blob=blob(size=0)), "declaration.blob.size", ""),
    (next_part, declared(), "declaration", ""),
    (next_part, bp.PutBlobRequest(data=b"1" * 262_145), "data", TOO_LARGE),
    (validate.get_blob, bp.GetBlobRequest(blob=blob(), offset=300_001), "offset", ""),
    (validate.get_blob, bp.GetBlobRequest(), "blob.sha256", ""),
    (validate.has_blobs, bp.HasBlobsRequest(blobs=[blob(), blob(size=3)]), "blobs[1].size", ""),
    (validate.has_blobs, bp.HasBlobsRequest(blobs=[blob()] * 1001), "blobs", ""),
    (validate.attach, attach(address="\x00host:1"), "attach.address", ""),
    (judged, spoiled("signal_received", b'{"name":"x"}'), "appends[3].events[0].payload.number", ""),
    (judged, spoiled("cancel_requested", b'{"number":0}'), "appends[3].events[0].payload.number", ""),
    (validate.open_run, wp.OpenRunRequest(run_id=RUN, epoch=0, lease_target=target()), "epoch", ""),
    (validate.open_run, wp.OpenRunRequest(run_id="", epoch=1, lease_target=target()), "run_id", ""),
    (validate.open_run, wp.OpenRunRequest(run_id=RUN, epoch=1), "lease_target.worker_id", ""),
    (validate.list_inbox, wp.ListInboxRequest(run_id=RUN, after_number=-1), "after_number", ""),
    (validate.list_inbox, wp.ListInboxRequest(run_id=RUN, page_size=-1), "page_size", ""),
    (validate.release_lease, wp.ReleaseLeaseRequest(run_id=RUN, epoch=-1, worker_id="w"), "epoch", ""),
    (validate.release_lease, wp.ReleaseLeaseRequest(run_id=RUN, epoch=1), "worker_id", ""),
    (validate.release_lease, release_because(4), "cause", ""),
    (validate.release_lease, release_because(-1), "cause", ""),
    (validate.claim, wp.ClaimSideEffectRequest(key="|"), "key", ""),
    (validate.claim, wp.ClaimSideEffectRequest(key="k", run_id=RUN, step_id=""), "step_id", ""),
    (validate.claim, wp.ClaimSideEffectRequest(key="k", run_id=RUN, step_id="s", epoch=0), "epoch", ""),
    (validate.claim, wp.ClaimSideEffectRequest(key="k", run_id=RUN, step_id="s", epoch=1), "sink", ""),
    (validate.claim, claim_of(b""), "nonce", ""),
    (validate.claim, claim_of(b"n" * 15), "nonce", ""),
    (validate.claim, claim_of(b"n" * 17), "nonce", ""),
    (validate.settle, wp.SettleSideEffectRequest(key="k", run_id=RUN, worker_id="w"), "state", ""),
    (validate.settle, wp.SettleSideEffectRequest(key="k", state="STATE_CLAIMED", worker_id="w"), "state", ""),
    (
        validate.settle,
        wp.SettleSideEffectRequest(key="k", state="STATE_REFUSED", result=TOO_BIG),
        "result",
        reasons.PAYLOAD_TOO_LARGE,
    ),
    (validate.find_orphans, rp.FindOrphansRequest(page_size=-1), "page_size", ""),
    (validate.acquire_lease, rp.AcquireLeaseRequest(run_id=RUN, lease_target=target(), reason="whim"), "reason", ""),
    (validate.acquire_lease, rp.AcquireLeaseRequest(run_id=RUN, reason="crash"), "lease_target.worker_id", ""),
    (validate.defer_run, rp.DeferRunRequest(run_id=RUN, delay=duration_pb2.Duration(seconds=-1)), "delay", ""),
    (validate.defer_run, rp.DeferRunRequest(run_id=RUN, delay=duration_pb2.Duration(seconds=10**9)), "delay", ""),
    (lambda token: number_of(token, 0), "???", "page_token", ""),
    (lambda token: number_of(token, 0), page_token("-1"), "page_token", ""),
    (lambda token: number_of(token, 0), page_token("9" * 30), "page_token", ""),
    (lambda token: position_of(token, 2), page_token("one"), "page_token", ""),
]


@pytest.mark.parametrize(("check", "request_"), GOOD)
def test_what_is_right_goes_through(check: Callable[[Any], object], request_: Any) -> None:
    check(request_)


@pytest.mark.parametrize(("check", "request_", "field", "reason"), BAD)
def test_what_is_wrong_names_its_field(check: Callable[[Any], object], request_: Any, field: str, reason: str) -> None:
    with pytest.raises(LanternError) as refused:
        check(request_)
    assert refused.value.details.get("field") == field
    assert refused.value.reason == (reason or reasons.INVALID_FIELD)


@pytest.mark.parametrize(("asked", "default", "size"), [(0, 100, 100), (1, 100, 1), (5000, 100, 1000), (0, 20, 20)])
def test_page_sizes(asked: int, default: int, size: int) -> None:
    assert fields.page_size(asked, default) == size


def test_a_session_begins_with_an_attach_and_only_then() -> None:
    with pytest.raises(LanternError, match=reasons.SESSION_NOT_ATTACHED):
        validate.session_message(wp.SessionRequest(ping=1), is_first=True)
    with pytest.raises(LanternError, match=reasons.INVALID_FIELD):
        validate.session_message(wp.SessionRequest(attach=attach()), is_first=False)


def test_delays() -> None:
    assert validate.defer_run(rp.DeferRunRequest(run_id=RUN)) is None
    assert validate.defer_run(rp.DeferRunRequest(run_id=RUN, delay=duration_pb2.Duration(nanos=5000))) == 5


def test_tokens_come_back() -> None:
    assert number_of(page_token(7), 0) == 7
    assert number_of("", 3) == 3
    assert position_of(page_token("order", 2), 2) == ["order", "2"]


def child(run_id: str = RUN, step_id: str = "pay[1]", epoch: int = 1) -> jp.CreateRunRequest:
    return create(parent=jp.Parent(run_id=run_id, step_id=step_id, epoch=epoch), durability="async")


def test_children_and_durabilities() -> None:
    starts.create_run(child())
    use_existing = jp.CreateRunRequest.WORKFLOW_ID_POLICY_USE_EXISTING
    for bad, field in [
        (child(run_id="x"), "parent.run_id"),
        (child(step_id="a|b"), "parent.step_id"),
        (child(epoch=0), "parent.epoch"),
        (create(durability="never"), "durability"),
        (create(parent=child().parent, workflow_id_policy=use_existing), "workflow_id_policy"),
    ]:
        with pytest.raises(LanternError) as refused:
            starts.create_run(bad)
        assert refused.value.details["field"] == field
