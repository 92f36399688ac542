"""Goal: settings, requests and the arithmetic of appends refuse what is wrong and name it.

Method: values at and beyond each bound.
"""

import pytest

from lantern.api.executor.v1 import executor_service_pb2 as pb
from lantern_executor import validate
from lantern_executor.domain.tail import APPEND_BYTES_MAX, APPEND_EVENTS_MAX, cut, event_size_bytes
from lantern_executor.settings import Settings
from lantern_kernel import kinds, reasons
from lantern_kernel.errors import InvalidField
from lantern_kernel.event import NewEvent

RUN_ID = "0192f0c1-2345-7abc-8def-0123456789ab"
ENOUGH = {"LANTERN_JOURNAL": "127.0.0.1:7001", "LANTERN_MODULES": "shop.orders, mail.py"}


def test_settings_have_defaults() -> None:
    settings = Settings.read(ENOUGH)
    assert settings.modules == ("shop.orders", "mail.py")
    assert (settings.listen, settings.capacity, settings.drain_s) == ("127.0.0.1:0", 1_000, 10.0)


def test_credentials_are_not_shown() -> None:
    settings = Settings.read(ENOUGH | {"LANTERN_OPENAI_API_KEY": "sk-1", "LANTERN_ANTHROPIC_API_KEY": "sk-2"})
    assert (settings.openai_api_key, settings.anthropic_api_key) == ("sk-1", "sk-2")
    assert "sk-" not in repr(settings)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LANTERN_JOURNAL", ""),
        ("LANTERN_JOURNAL", "localhost"),
        ("LANTERN_MODULES", " , "),
        ("LANTERN_LISTEN", "127.0.0.1:70000"),
        ("LANTERN_EXECUTOR_CAPACITY", "0"),
        ("LANTERN_EXECUTOR_CAPACITY", "many"),
        ("LANTERN_DRAIN", "ten"),
        ("LANTERN_DRAIN", "-1s"),
        ("LANTERN_LOG_LEVEL", "LOUD"),
        ("LANTERN_OPENAI_BASE_URL", "localhost:8080"),
        ("LANTERN_ANTHROPIC_BASE_URL", "ftp://models/"),
    ],
)
def test_settings_name_the_variable_at_fault(name: str, value: str) -> None:
    with pytest.raises(InvalidField) as caught:
        Settings.read(ENOUGH | {name: value})
    assert caught.value.details["field"] == name


def _start(**changes: object) -> pb.StartRunRequest:
    return pb.StartRunRequest(**({"request_id": "r1", "agent_name": "flow"} | changes))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("request_", "field", "reason"),
    [
        (_start(request_id=""), "request_id", reasons.INVALID_FIELD),
        (_start(request_id="a|b"), "request_id", reasons.INVALID_FIELD),
        (_start(agent_name="x" * 201), "agent_name", reasons.INVALID_FIELD),
        (_start(tenant_id="a b"), "tenant_id", reasons.INVALID_FIELD),
        (_start(workflow_id="order[1]"), "workflow_id", reasons.INVALID_FIELD),
        (_start(workflow_id_policy=17), "workflow_id_policy", reasons.INVALID_FIELD),
        (_start(traceparent="0" * 300), "traceparent", reasons.INVALID_FIELD),
        (_start(input=b'{"a":[1,NaN]}'), "input.a[1]", reasons.INVALID_JSON),
        (_start(input=b"[" * 100 + b"]" * 100), "input", reasons.INVALID_JSON),
        (_start(input=b'"' + b"x" * 300_000 + b'"'), "input", reasons.PAYLOAD_TOO_LARGE),
        (_start(input=b"\xff"), "input", reasons.INVALID_JSON),
    ],
)
def test_start_names_the_field_at_fault(request_: pb.StartRunRequest, field: str, reason: str) -> None:
    with pytest.raises(InvalidField) as caught:
        validate.check_start(request_)
    assert (caught.value.details["field"], caught.value.reason) == (field, reason)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"run_id": "nonsense"}, "run_id"),
        ({"run_id": RUN_ID.upper()}, "run_id"),
        ({"epoch": 0}, "epoch"),
        ({"epoch": -(2**63)}, "epoch"),
        ({"worker_id": ""}, "worker_id"),
        ({"worker_id": "w" * 201}, "worker_id"),
        ({"agent_name": "a|b"}, "agent_name"),
    ],
)
def test_drive_names_the_field_at_fault(changes: dict[str, object], field: str) -> None:
    good: dict[str, object] = {"run_id": RUN_ID, "epoch": 1, "worker_id": "w1", "agent_name": "flow"}
    validate.check_drive(pb.DriveRequest(**good))  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidField) as caught:
        validate.check_drive(pb.DriveRequest(**(good | changes)))  # pyright: ignore[reportArgumentType]
    assert caught.value.details["field"] == field


def _event(size: int) -> NewEvent:
    return NewEvent(kind=kinds.STEP_COMPLETED, payload=bytes(size), salt=bytes(16))


@pytest.mark.parametrize("sizes", [[], [1], [262_144] * 7, [10] * 2_500, [1, 262_144, 1] * 50])
@pytest.mark.parametrize("with_ending", [True, False])
def test_cut_keeps_order_bounds_and_the_ending_whole(sizes: list[int], with_ending: bool) -> None:
    events = [_event(size) for size in sizes]
    ending = (_event(300), _event(262_144)) if with_ending else ()
    parts = list(cut(events, ending))
    assert [event for part in parts for event in part] == [*events, *ending]
    assert all(parts)
    if with_ending:
        assert tuple(parts[-1][-2:]) == ending
        parts[-1] = parts[-1][:-2]
    for part in parts:
        assert sum(map(event_size_bytes, part)) <= APPEND_BYTES_MAX
        assert len(part) <= APPEND_EVENTS_MAX
