"""Histories of runs in files: what `lantern runs export` writes, and what is replayed against other code.

The files are archive files (lantern_kernel.archive), so `lantern archive verify`, `list` and `show` read them as well;
a run that had not ended says so in its first line.
"""

import base64
import binascii
import gzip
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Self

from lantern_kernel import archive, kinds, payloads, reasons
from lantern_kernel.blobs import BlobRef
from lantern_kernel.bounds import BLOB_CHUNK_BYTES_MAX
from lantern_kernel.errors import LanternError
from lantern_kernel.event import Event, find_chain_fault


@dataclass(frozen=True, kw_only=True, slots=True)
class History:
    """One run's events, and the large contents that they name."""

    # The run.
    run_id: str
    # From the first, dense.
    events: tuple[Event, ...]
    # What they name, as far as it is at hand.
    blobs: Mapping[BlobRef, bytes] = field(default_factory=dict[BlobRef, bytes])

    @property
    def agent_name(self) -> str:
        """What the run executes."""
        return str(self._start.facts.get("agent", ""))

    @property
    def agent_digest(self) -> str:
        """The version that it pinned."""
        return str(self._start.facts.get("digest", ""))

    @property
    def workflow_id(self) -> str:
        """The user's own name for the work; may be empty."""
        return str(self._start.facts.get("workflowId", ""))

    @property
    def input(self) -> bytes:
        """JSON; BLOB_NOT_FOUND where its blob is not at hand."""
        return self.content(self._start.content or b"null")

    @property
    def is_open(self) -> bool:
        """Whether the run has not ended."""
        return self.events[-1].kind not in kinds.TERMINAL

    def content(self, content: bytes | BlobRef) -> bytes:
        """The bytes of what stands in an event, or of the blob that it names; BLOB_NOT_FOUND."""
        if not isinstance(content, BlobRef):
            return content
        if content not in self.blobs:
            raise LanternError(reasons.BLOB_NOT_FOUND, f"blob {content} is not in the file of run {self.run_id}")
        return self.blobs[content]

    @property
    def _start(self) -> payloads.Unpacked:
        return payloads.unpack(self.events[0].payload)


def history_of(run_id: str, events: Sequence[Event], blobs: Mapping[BlobRef, bytes]) -> History:
    """A history, checked: it begins with run_started and its events form a chain; HISTORY_UNREADABLE."""
    if not events or events[0].kind != kinds.RUN_STARTED:
        raise LanternError(reasons.HISTORY_UNREADABLE, f"the history of run {run_id} does not begin with its start")
    fault = find_chain_fault(run_id, events)
    if fault is not None:
        raise LanternError(reasons.HISTORY_UNREADABLE, f"the history of run {run_id} is not whole: {fault}")
    return History(run_id=run_id, events=tuple(events), blobs=blobs)


def named_blobs(events: Iterable[Event]) -> list[BlobRef]:
    """What events name, each once, in order."""
    found = (payloads.named_blob(event.payload) for event in events)
    return list(dict.fromkeys(blob for blob in found if blob is not None))


class HistoryFile:
    """A file of histories that is being written, whole or not at all; a context manager.

    Args:
        file: Compressed where its name ends in .gz.
        created_us: When, microseconds since the epoch.

    Attributes:
        count: How many histories are in it.
    """

    def __init__(self, file: Path, created_us: int) -> None:
        self.count = 0
        self._file = file
        self._temporary = file.with_name(f"{file.name}.part")
        self._created_us = created_us
        self._pack = gzip.compress if file.suffix == ".gz" else bytes
        self._out: BinaryIO | None = None

    def __enter__(self) -> Self:
        self._out = self._temporary.open("wb")
        self._out.write(self._pack(archive.header_line(self._created_us)))
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        assert self._out is not None, "it was entered"
        self._out.close()
        if kind is None:
            self._temporary.replace(self._file)
        else:
            with suppress(FileNotFoundError):
                self._temporary.unlink()

    def add(self, history: History) -> None:
        """Adds one, as a member of its own, so that it can be read alone from its place."""
        assert self._out is not None, "it was entered"
        self._out.write(self._pack(b"".join(_lines_of(history))))
        self.count += 1


def _lines_of(history: History) -> list[bytes]:
    first, last = history.events[0], history.events[-1]
    facts: dict[str, Any] = {
        "agentName": history.agent_name,
        "agentVersion": payloads.unpack(first.payload).facts.get("version", 1),
        "agentDigest": history.agent_digest,
        "workflowId": history.workflow_id,
        "createdUs": first.time_us,
    }
    if not history.is_open:
        facts["endedUs"] = last.time_us
    head = archive.run_line(history.run_id, len(history.events), last.hash, facts, None, is_open=history.is_open)
    lines = [head]
    for blob, content in history.blobs.items():
        lines.append(archive.blob_line(blob.sha256, blob.size))
        starts = range(0, len(content), BLOB_CHUNK_BYTES_MAX)
        lines.extend(archive.chunk_line(blob.sha256, content[at : at + BLOB_CHUNK_BYTES_MAX]) for at in starts)
    lines.extend(map(archive.event_line, history.events))
    return [*lines, archive.end_line(history.run_id, len(lines))]


def read_histories(file: Path) -> Iterator[History]:
    """The histories of a file, one after the other, each checked.

    Raises:
        LanternError: ARCHIVE_FAULTY, it is no such file or ends in the middle; HISTORY_UNREADABLE, a history in it is
            not whole.
        OSError: It cannot be read.
    """
    lines = _lines(file)
    archive.check_header(lines)
    for line in lines:
        head = archive.read_line(line)
        if head["type"] != archive.RUN:
            raise _fault(f"a run begins with a {archive.RUN} line, not {head['type']!r}")
        yield _read_run(str(head.get("runId", "")), lines)


def _read_run(run_id: str, lines: Iterator[bytes]) -> History:
    events: list[Event] = []
    parts: dict[str, list[bytes]] = {}
    for line in lines:
        value = archive.read_line(line)
        try:
            match value["type"]:
                case archive.EVENT:
                    events.append(archive.read_event(value))
                case archive.BLOB:
                    parts[value["sha256"]] = []
                case archive.CHUNK:
                    parts[value["sha256"]].append(base64.b64decode(value["data"], validate=True))
                case archive.END:
                    contents = [b"".join(chunks) for chunks in parts.values()]
                    return history_of(run_id, events, {BlobRef.of(content): content for content in contents})
                case archive.RUN:
                    raise _fault(f"run {run_id} has no end: another begins")
                case _:
                    pass  # the inbox, and what later releases add
        except (KeyError, TypeError, ValueError, binascii.Error) as error:
            raise _fault(f"a {value['type']} line cannot be read: {error!r}") from None
    raise _fault(f"the file ends within run {run_id}")


def _lines(file: Path) -> Iterator[bytes]:
    with file.open("rb") as raw:
        is_packed = raw.read(2) == b"\x1f\x8b"
    try:
        with gzip.open(file) if is_packed else file.open("rb") as unpacked:
            yield from unpacked
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise _fault(f"{file} cannot be unpacked: {error}") from None


def _fault(message: str) -> LanternError:
    return LanternError(reasons.ARCHIVE_FAULTY, message)
