"""Archive files: runs that have ended, as JSON lines, one object a line; and the check that they are whole.

    {"type": "archive", "format": "lantern.archive", "version": 1, "createdUs": ...}    the first line of a file
    {"type": "run", "runId": ..., "eventCount": n, "headHash": hex, "run": {...}, "receipt": null | {...}}
                                                                     "open": true where it is exported before its end
    {"type": "blob", "sha256": hex, "size": n}                                  a payload kept apart, once per run
    {"type": "chunk", "sha256": hex, "data": base64}                            its bytes, in order
    {"type": "event", "seq": ..., "kind", "stepId", "attempt", "epoch", "timeUs", "payload", "salt": base64,
     "digest", "hash": hex}                                                     n of them
    {"type": "inbox", "number", "kind", "name", "createdUs", "payload": base64} what others had to say to the run;
                                                                     "blob" names a payload that is kept apart
    {"type": "end", "runId": ..., "lines": k}                                   lines of this run before this one

The file is compressed with gzip, the header and each run as a member of its own: `zcat` reads all of it, and a run can
be read alone from its place. Times are microseconds since the Unix epoch. Readers ignore fields and line types that
they do not know, as long as the version is one that they do.
"""

import base64
import binascii
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from lantern_kernel import chain, kinds, reasons
from lantern_kernel.errors import LanternError
from lantern_kernel.event import ChainCheck, Event

FORMAT, VERSION = "lantern.archive", 1
HEADER, RUN, BLOB, CHUNK, EVENT, INBOX, END = "archive", "run", "blob", "chunk", "event", "inbox", "end"
"""The types of lines."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckedRun:
    """What a run in a file turned out to be."""

    # The run; empty where the file itself is at fault, before any run.
    run_id: str
    # The run's record, as the API names its fields.
    run: Mapping[str, Any]
    # Events that were found and are in order.
    event_count: int
    # The chain's hash after the last of them.
    head_hash: bytes
    # The first thing that is wrong; None where the run is whole.
    fault: str | None


def header_line(created_us: int) -> bytes:
    """The first line of a file."""
    return _line(type=HEADER, format=FORMAT, version=VERSION, createdUs=created_us)


def run_line(
    run_id: str,
    event_count: int,
    head_hash: bytes,
    run: Mapping[str, Any],
    receipt: Mapping[str, Any] | None,
    *,
    is_open: bool = False,
) -> bytes:
    """The first line of a run; `is_open` for one that is exported before its end."""
    more = {"open": True} if is_open else {}
    return _line(
        type=RUN,
        runId=run_id,
        eventCount=event_count,
        headHash=head_hash.hex(),
        run=dict(run),
        receipt=receipt,
        **more,
    )


def blob_line(digest: str, size: int) -> bytes:
    """A payload that is kept apart; its chunks follow."""
    return _line(type=BLOB, sha256=digest, size=size)


def chunk_line(digest: str, data: bytes) -> bytes:
    """The next bytes of such a payload."""
    return _line(type=CHUNK, sha256=digest, data=_base64(data))


def event_line(event: Event) -> bytes:
    """An event, with its exact bytes."""
    return _line(
        type=EVENT,
        seq=event.seq,
        kind=event.kind,
        stepId=event.step_id,
        attempt=event.attempt,
        epoch=event.epoch,
        timeUs=event.time_us,
        payload=_base64(event.payload),
        salt=_base64(event.salt),
        digest=event.digest.hex(),
        hash=event.hash.hex(),
    )


def inbox_line(number: int, kind: str, name: str, payload: bytes, created_us: int, blob: str) -> bytes:
    """An inbox entry; `blob` names its payload where that is kept apart, else it is empty."""
    content = {"blob": blob} if blob else {"payload": _base64(payload)}
    return _line(type=INBOX, number=number, kind=kind, name=name, createdUs=created_us, **content)


def end_line(run_id: str, lines: int) -> bytes:
    """The last line of a run."""
    return _line(type=END, runId=run_id, lines=lines)


def read_line(line: bytes) -> dict[str, Any]:
    """A line's object; ARCHIVE_FAULTY where it is none."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise _fault("a line is not JSON") from None
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        raise _fault("a line is not an object with a type")
    return value


def read_event(value: Mapping[str, Any]) -> Event:
    """The event of a line's object; ARCHIVE_FAULTY where it is none."""
    try:
        return Event(
            seq=int(value["seq"]),
            kind=str(value["kind"]),
            step_id=str(value["stepId"]),
            attempt=int(value["attempt"]),
            epoch=int(value["epoch"]),
            time_us=int(value["timeUs"]),
            payload=base64.b64decode(value["payload"], validate=True),
            salt=base64.b64decode(value["salt"], validate=True),
            digest=bytes.fromhex(value["digest"]),
            hash=bytes.fromhex(value["hash"]),
        )
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise _fault(f"an event cannot be read: {error!r}") from None


def check_header(lines: Iterator[bytes]) -> None:
    """Takes the first line; ARCHIVE_FAULTY where the file is none that this code can read."""
    first = next(lines, None)
    header = read_line(first) if first is not None else {}
    if header.get("type") != HEADER or header.get("format") != FORMAT:
        raise _fault("this is no archive of Lantern's: its first line does not say so")
    if header.get("version") != VERSION:
        raise _fault(f"format version {header.get('version')!r} is not known; this release reads {VERSION}")


def check_file(lines: Iterable[bytes]) -> Iterator[CheckedRun]:
    """Checks a file from its first line on: each run in turn, holding no more than a line at a time.

    The last one given tells of the file itself where it ends in the middle or cannot be read further.
    """
    rest = iter(lines)
    run_id = ""
    try:
        check_header(rest)
        while (line := next(rest, None)) is not None:
            head = read_line(line)
            if head["type"] != RUN:
                raise _fault(f"a run begins with a {RUN} line, not {head['type']!r}")
            run_id = str(head.get("runId", ""))
            yield check_run(head, rest)
            run_id = ""
    except LanternError as error:
        if error.reason != reasons.ARCHIVE_FAULTY:
            raise
        yield CheckedRun(run_id=run_id, run={}, event_count=0, head_hash=b"", fault=error.message)


def check_run(head: Mapping[str, Any], rest: Iterator[bytes]) -> CheckedRun:
    """Checks one run from its first line's object and the lines after it, up to and with its end line."""
    return _RunCheck(head).take(rest)


class _RunCheck:
    """One run of a file, line by line."""

    def __init__(self, head: Mapping[str, Any]) -> None:
        self._head = head
        self._run_id = str(head.get("runId", ""))
        self._chain = ChainCheck(self._run_id)
        self._lines = 1
        self._inbox = 0
        # Of blobs: the size that was said, the bytes so far, their hash.
        self._blobs: dict[str, tuple[int, int, Any]] = {}
        self._fault: str | None = None

    def take(self, rest: Iterator[bytes]) -> CheckedRun:
        """To the end line, also past a fault, so that the runs behind it are checked too."""
        for line in rest:
            value = read_line(line)
            if value["type"] == END:
                self._note(self._end_fault(value))
                return self._result()
            if value["type"] == RUN:
                raise _fault(f"run {self._run_id} has no end: another begins")
            self._lines += 1
            self._note(self._fault_of(value))
        raise _fault(f"the file ends within run {self._run_id}, after event {self._chain.seq}")

    def _note(self, fault: str | None) -> None:
        self._fault = self._fault or fault

    def _fault_of(self, value: Mapping[str, Any]) -> str | None:
        if self._fault is not None:
            return None
        try:
            match value["type"]:
                case "event":
                    return self._chain.fault_of(read_event(value))
                case "inbox":
                    self._inbox += 1
                    return None if value.get("number") == self._inbox else f"inbox entry {self._inbox} is missing"
                case "blob":
                    self._blobs[value["sha256"]] = (int(value["size"]), 0, sha256())
                case "chunk":
                    return self._chunk_fault(value)
                case _:
                    pass
        except LanternError as error:
            return error.message
        except (KeyError, TypeError, ValueError, binascii.Error) as error:
            return f"a {value['type']} line cannot be read: {error!r}"
        return None

    def _chunk_fault(self, value: Mapping[str, Any]) -> str | None:
        size, so_far, content = self._blobs[value["sha256"]]
        data = base64.b64decode(value["data"], validate=True)
        content.update(data)
        self._blobs[value["sha256"]] = (size, so_far + len(data), content)
        return None

    def _end_fault(self, end: Mapping[str, Any]) -> str | None:
        head, found = self._head, self._chain
        for digest, (size, so_far, content) in self._blobs.items():
            if so_far != size or content.hexdigest() != digest:
                return f"blob {digest}: its bytes are not those that its name says"
        if head.get("eventCount") != found.seq:
            return f"{found.seq} events are found, {head.get('eventCount')} were archived"
        if head.get("headHash") != found.hash.hex():
            return "the last hash is not the one that was recorded"
        if end.get("runId") != self._run_id or end.get("lines") != self._lines:
            return f"{self._lines} lines are found, the end says {end.get('lines')}"
        if found.kind not in kinds.TERMINAL and head.get("open") is not True:
            return f"the last event is {found.kind or 'none'}: the run has not ended"
        return None

    def _result(self) -> CheckedRun:
        run = self._head.get("run")
        return CheckedRun(
            run_id=self._run_id,
            run=run if isinstance(run, dict) else {},
            event_count=self._chain.seq,
            head_hash=self._chain.hash if self._chain.seq else chain.genesis(self._run_id),
            fault=self._fault,
        )


def _line(**value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogatepass") + b"\n"


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _fault(message: str) -> LanternError:
    return LanternError(reasons.ARCHIVE_FAULTY, message)
