"""Files of histories: what is written is read again, whole; what is damaged is refused, naming the damage."""

import gzip
import json
from pathlib import Path

import pytest

from lantern.testing.histories import History, HistoryFile, history_of, named_blobs, read_histories
from lantern.testing.journal import MemoryJournal
from lantern_kernel import archive, kinds, payloads, reasons
from lantern_kernel.errors import LanternError
from lantern_kernel.event import NewEvent

LARGE = b'"' + b"x" * 600_000 + b'"'


def make(number: int, *, ended: bool) -> History:
    """The last of so many runs, with a large input, driven for two events."""
    journal = MemoryJournal(lambda: 1_700_000_000_000_000)
    made = [
        journal.create("order", "d" * 64, journal.put_blob(LARGE), workflow_id=f"o-{each}", request_id=f"r{each}")
        for each in range(number)
    ]
    run = made[-1]
    journal.grant(run.run_id, "w", "start")
    top = run.events[-1]
    last = kinds.RUN_SUCCEEDED if ended else kinds.STEP_WAITING
    events = [
        NewEvent(kind=kinds.STEP_WAITING, step_id="a", salt=bytes(16)),
        NewEvent(kind=last, payload=payloads.pack({}, b'"\\u0000"'), salt=bytes(16)),
    ]
    journal.append(run.run_id, 1, top.seq + 1, top.digest, events, 0)
    return history_of(run.run_id, run.events, {blob: journal.blobs[blob] for blob in named_blobs(run.events)})


@pytest.mark.parametrize("name", ["runs.jsonl.gz", "runs.jsonl"])
def test_what_is_written_is_read(tmp_path: Path, name: str):
    file = tmp_path / name
    histories = [make(1, ended=True), make(2, ended=False)]
    with HistoryFile(file, 5) as out:
        for history in histories:
            out.add(history)
    assert out.count == 2
    assert list(read_histories(file)) == histories
    assert [each.name for each in tmp_path.iterdir()] == [name]
    second = histories[1]
    assert (second.agent_name, second.agent_digest, second.workflow_id) == ("order", "d" * 64, "o-1")
    assert second.input == LARGE
    assert (histories[0].is_open, second.is_open) == (False, True)


def test_the_archive_commands_take_it_for_whole(tmp_path: Path):
    file = tmp_path / "runs.jsonl"
    with HistoryFile(file, 5) as out:
        out.add(make(1, ended=False))
    (checked,) = archive.check_file(file.read_bytes().splitlines(keepends=True))
    assert (checked.fault, checked.event_count) == (None, 4)


def test_an_archive_of_a_run_that_has_not_ended_is_still_a_fault():
    history = make(1, ended=False)
    lines = [
        archive.header_line(1),
        archive.run_line(history.run_id, 4, history.events[-1].hash, {}, None),
        *map(archive.event_line, history.events),
        archive.end_line(history.run_id, 5),
    ]
    (checked,) = archive.check_file(lines)
    assert checked.fault is not None
    assert "has not ended" in checked.fault


def test_nothing_is_left_of_a_file_that_was_not_finished(tmp_path: Path):

    def broken_off() -> None:
        with HistoryFile(tmp_path / "runs.jsonl", 5) as out:
            out.add(make(1, ended=True))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken_off()
    assert not list(tmp_path.iterdir())


@pytest.fixture
def lines(tmp_path: Path) -> list[bytes]:
    file = tmp_path / "whole.jsonl"
    with HistoryFile(file, 5) as out:
        out.add(make(1, ended=True))
    return file.read_bytes().splitlines(keepends=True)


def damaged(lines: list[bytes], damage: str) -> list[bytes]:
    at = next(number for number, line in enumerate(lines) if b'"type":"event"' in line) + 1
    match damage:
        case "event lost":
            return lines[:at] + lines[at + 1 :]
        case "event changed":
            value = json.loads(lines[at]) | {"stepId": "other"}
            return [*lines[:at], json.dumps(value).encode() + b"\n", *lines[at + 1 :]]
        case "no end":
            return lines[:-1]
        case "start lost":
            return lines[: at - 1] + lines[at:]
        case "other version":
            return [lines[0].replace(b'"version":1', b'"version":9'), *lines[1:]]
        case _:
            return [b"{}\n"]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ("event lost", reasons.HISTORY_UNREADABLE),
        ("event changed", reasons.HISTORY_UNREADABLE),
        ("start lost", reasons.HISTORY_UNREADABLE),
        ("no end", reasons.ARCHIVE_FAULTY),
        ("other version", reasons.ARCHIVE_FAULTY),
        ("no file of ours", reasons.ARCHIVE_FAULTY),
    ],
)
def test_damage_is_refused(tmp_path: Path, lines: list[bytes], damage: str, reason: str):
    file = tmp_path / "damaged.jsonl"
    file.write_bytes(b"".join(damaged(lines, damage)))
    with pytest.raises(LanternError) as refused:
        list(read_histories(file))
    assert refused.value.reason == reason


def test_a_file_that_is_cut_off_is_refused(tmp_path: Path, lines: list[bytes]):
    file = tmp_path / "cut.jsonl.gz"
    file.write_bytes(gzip.compress(b"".join(lines))[:-20])
    with pytest.raises(LanternError) as refused:
        list(read_histories(file))
    assert refused.value.reason == reasons.ARCHIVE_FAULTY
