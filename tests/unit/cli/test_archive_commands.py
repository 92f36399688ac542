"""`lantern archive`: what it says of whole, damaged and foreign files, and its exit codes.

Method: the real command line over files that are made here, line by line.
"""

import gzip
import json
from pathlib import Path

import pytest
from event_lists import order_with_everything
from typer.testing import CliRunner, Result

from lantern.cli.main import app
from lantern_kernel import archive, chain, kinds
from lantern_kernel.event import Event, NewEvent

RUN, OTHER = "0193e5a0-0000-7000-8000-000000000001", "0193e5a0-0000-7000-8000-000000000002"


def chained(run_id: str) -> list[Event]:
    """The events of a run that has ended, as its chain."""
    link, events = chain.genesis(run_id), list[Event]()
    for seq, event in enumerate(order_with_everything().events, start=1):
        new = NewEvent(
            kind=event.kind, step_id=event.step_id, attempt=event.attempt, payload=event.payload, salt=bytes(16)
        )
        digest = new.digest(run_id=run_id, seq=seq, epoch=1)
        link = chain.link(link, digest, event.time_us)
        events.append(
            Event(
                seq=seq,
                kind=event.kind,
                step_id=event.step_id,
                attempt=event.attempt,
                epoch=1,
                time_us=event.time_us,
                payload=event.payload,
                salt=bytes(16),
                digest=digest,
                hash=link,
            )
        )
    assert events[-1].kind in kinds.TERMINAL
    return events


def run_lines(run_id: str) -> list[bytes]:
    events = chained(run_id)
    facts = {"runId": run_id, "state": "SUCCEEDED", "agentName": "order", "agentVersion": 1, "endedUs": 1}
    lines = [archive.run_line(run_id, len(events), events[-1].hash, facts, None), *map(archive.event_line, events)]
    return [*lines, archive.end_line(run_id, len(lines))]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "runs.jsonl.gz"
    members = ([archive.header_line(1)], run_lines(RUN), run_lines(OTHER))
    made.write_bytes(b"".join(gzip.compress(b"".join(lines)) for lines in members))
    return made


def lantern(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["archive", *map(str, arguments)], env={"NO_COLOR": "1", "TERM": "dumb"})


def rewrite(file: Path, old: bytes, new: bytes) -> None:
    content = gzip.decompress(file.read_bytes())
    assert old in content
    file.write_bytes(gzip.compress(content.replace(old, new, 1)))


def test_whole_runs_are_whole(file: Path) -> None:
    result = lantern("verify", file)
    assert result.exit_code == 0
    assert result.output.splitlines()[-1] == "2 runs, all whole"
    assert lantern("verify", file.parent).exit_code == 0
    (line,) = lantern("verify", file, "--run", OTHER, "--json").output.splitlines()
    value = json.loads(line)
    assert (value["runId"], value["fault"], value["events"]) == (OTHER, None, len(chained(OTHER)))


def test_the_first_fault_is_named_and_the_runs_behind_it_are_checked(file: Path) -> None:
    rewrite(file, b'"seq":2,', b'"seq":3,')
    result = lantern("verify", file)
    assert result.exit_code == 1
    assert f"{RUN}  event 2 is missing: 3 stands in its place" in result.output
    assert result.output.splitlines()[-1] == "2 runs, 1 of them faulty"
    assert lantern("verify", file, "--run", OTHER).exit_code == 0


def test_a_file_that_ends_in_the_middle_is_told(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-40])
    result = lantern("verify", file)
    assert result.exit_code == 1
    assert "cannot be unpacked" in result.output


def test_what_is_no_archive_is_told(tmp_path: Path) -> None:
    for name, content in (("plain.gz", b"text"), ("other.gz", gzip.compress(b'{"type": "note"}\n'))):
        (tmp_path / name).write_bytes(content)
        assert lantern("verify", tmp_path / name).exit_code == 1
    newer = archive.header_line(1).replace(b'"version":1', b'"version":2')
    (tmp_path / "newer.gz").write_bytes(gzip.compress(newer))
    assert "format version 2 is not known" in lantern("verify", tmp_path / "newer.gz").output
    assert lantern("verify", tmp_path / "absent.gz").exit_code != 0


def test_runs_are_listed_and_shown(file: Path) -> None:
    lines = lantern("list", file).output.splitlines()
    assert [line.split()[0] for line in lines] == [RUN, OTHER]
    assert json.loads(lantern("list", file, "--json").output.splitlines()[1])["runId"] == OTHER
    shown = [json.loads(line) for line in lantern("show", file, "--run", OTHER).output.splitlines()]
    assert shown[0]["run"]["runId"] == OTHER
    assert [value["seq"] for value in shown[1:]] == [event.seq for event in chained(OTHER)]


def test_a_run_that_is_not_there_is_told(file: Path) -> None:
    for command in ("verify", "show"):
        result = lantern(command, file, "--run", "0193e5a0-0000-7000-8000-00000000000f")
        assert result.exit_code == 2
