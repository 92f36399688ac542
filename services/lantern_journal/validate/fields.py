"""What fields of many requests have to be: pages, sizes, user data, sessions."""

from collections.abc import Iterable

from lantern.api.journal.v1 import journal_service_pb2 as journal_pb
from lantern.api.journal.v1 import run_pb2
from lantern_kernel import json_bytes, names, reasons
from lantern_kernel.bounds import PAGE_ROWS_MAX, PAYLOAD_BYTES_MAX, PAYLOAD_INLINE_BYTES_MAX, SEQ_MAX
from lantern_kernel.chain import DIGEST_BYTES
from lantern_kernel.errors import InvalidField


def page_size(asked: int, default: int) -> int:
    """How many rows a page has at most: 0 is the default, what is above the bound is the bound."""
    if asked < 0:
        raise InvalidField("page_size", f"{asked} is negative")
    return min(asked or default, PAGE_ROWS_MAX)


def tenant(text: str) -> None:
    """A tenant, where one is named."""
    if text:
        names.check_user_id("tenant_id", text)


def lease_target(path: str, target: journal_pb.LeaseTarget) -> None:
    """A worker's session."""
    names.check_user_id(f"{path}.worker_id", target.worker_id)
    between(f"{path}.session_number", target.session_number, 1, SEQ_MAX)


def between(path: str, value: int, low: int, high: int) -> None:
    """A number within bounds."""
    if not low <= value <= high:
        raise InvalidField(path, f"{value} is not between {low} and {high}")


def one_of(path: str, value: str, allowed: Iterable[str]) -> None:
    """One of some words."""
    if value not in allowed:
        raise InvalidField(path, f"{value[:64]!r} is none of {', '.join(allowed)}")


def size(path: str, raw: bytes, bytes_max: int) -> None:
    """Bytes, at most so many."""
    if len(raw) > bytes_max:
        raise InvalidField(
            path,
            f"{len(raw)} bytes are more than the {bytes_max} allowed",
            reason=reasons.PAYLOAD_TOO_LARGE,
            size=len(raw),
            limit=bytes_max,
        )


def content(path: str, inline: bytes, held: run_pb2.Blob | None) -> None:
    """User data where it stands, or the name of the blob that holds it."""
    if held is None:
        if inline:
            json_bytes.check(inline, path, bytes_max=PAYLOAD_INLINE_BYTES_MAX)
        return
    if inline:
        raise InvalidField(f"{path}_blob", f"stands beside {path}: give one of them")
    blob(f"{path}_blob", held)


def blob(path: str, named: run_pb2.Blob) -> None:
    """The name of a blob."""
    if len(named.sha256) != DIGEST_BYTES:
        raise InvalidField(f"{path}.sha256", f"{len(named.sha256)} bytes, not {DIGEST_BYTES}")
    blob_size(path, named.size)


def blob_size(path: str, size: int) -> None:
    """The size of a blob: neither too small nor too large for one."""
    if size <= PAYLOAD_INLINE_BYTES_MAX:
        raise InvalidField(f"{path}.size", f"{size} bytes are no blob: up to {PAYLOAD_INLINE_BYTES_MAX} stand inline")
    if size > PAYLOAD_BYTES_MAX:
        raise InvalidField(
            path,
            f"{size} bytes are more than the {PAYLOAD_BYTES_MAX} allowed",
            reason=reasons.PAYLOAD_TOO_LARGE,
            size=size,
            limit=PAYLOAD_BYTES_MAX,
        )
