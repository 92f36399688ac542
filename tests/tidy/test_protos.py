"""The contract's own rules: idempotent requests, pagination, times, enums (AIP-142, 155, 158, 216).

Method: read the descriptors of the generated stubs.
"""

import importlib
from pathlib import Path

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor

ROOT = Path(__file__).resolve().parents[2]
API = ROOT / "clients/python/lantern/api"

# Requests that change something and need no request_id, with what makes their repetition harmless.
IDEMPOTENT_BY = {
    "SessionRequest": "append place and content; the attach number",
    "KeepSessionRequest": "the session number; hearing twice is hearing",
    "AppendEventsRequest": "append place and content",
    "OpenRunRequest": "epoch",
    "ReleaseLeaseRequest": "epoch",
    "ClaimSideEffectRequest": "key",
    "SettleSideEffectRequest": "key",
    "AcquireLeaseRequest": "an unopened grant expires by itself",
    "DeferRunRequest": "sets a state",
    "RebuildProjectionsRequest": "what is in order stays as it is",
    "CommitFeedConsumerRequest": "compare-and-set",
    "DriveRequest": "epoch",
    "ArchiveRunsRequest": "what is archived stays so",
    "PutBlobRequest": "content",
    "HasBlobsRequest": "asking again spares for another while",
    "CollectBlobsRequest": "deletes what nothing names",
    "RunPassRequest": "a pass is level-triggered",
}
READING = ("Query", "Get", "Check", "List", "Find", "Follow", "Watch")


def files() -> list[FileDescriptor]:
    names = (path.relative_to(API.parents[1]).with_suffix("") for path in sorted(API.rglob("*_pb2.py")))
    return [importlib.import_module(".".join(n.parts)).DESCRIPTOR for n in names]


def requests() -> list[Descriptor]:
    return [
        method.input_type
        for file in files()
        for service in file.services_by_name.values()
        for method in service.methods
    ]


def test_there_are_protos():
    assert len(requests()) > 20


@pytest.mark.parametrize("request_type", requests(), ids=lambda d: d.name)
def test_changing_requests_are_idempotent(request_type: Descriptor):
    if request_type.name.startswith(READING):
        assert "request_id" not in request_type.fields_by_name
        return
    assert ("request_id" in request_type.fields_by_name) != (request_type.name in IDEMPOTENT_BY), request_type.name


@pytest.mark.parametrize("request_type", [d for d in requests() if d.name.startswith("List")], ids=lambda d: d.name)
def test_lists_are_paged(request_type: Descriptor):
    assert {"page_size", "page_token"} <= set(request_type.fields_by_name)
    answer = request_type.file.message_types_by_name[request_type.name.replace("Request", "Response")]
    assert "next_page_token" in answer.fields_by_name
    assert answer.fields[0].is_repeated


@pytest.mark.parametrize("file", files(), ids=lambda f: f.name)
def test_names_of_times_and_enums(file: FileDescriptor):
    for message in file.message_types_by_name.values():
        for field in message.fields:
            if field.message_type and field.message_type.full_name == "google.protobuf.Timestamp":
                assert field.name.endswith("_time"), f"{message.name}.{field.name}"
            if field.type == FieldDescriptor.TYPE_MESSAGE and field.message_type is not None:
                assert field.message_type.full_name != "google.protobuf.Struct", "user data is bytes"
        for enum in message.enum_types:
            assert enum.values[0].name.endswith("_UNSPECIFIED")
            assert not enum.name.endswith("Status")
