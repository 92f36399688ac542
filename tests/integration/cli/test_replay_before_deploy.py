"""Runs of a live journal against other code before it is deployed: from the journal, and from an exported file.

Method: `lantern up` on SQLite with one version of a workflow, its run parked on a timer; a second version beside it.
A history that a real journal wrote, whose large input is a blob, is what is replayed.
"""

import json
import textwrap
from pathlib import Path

import pytest
from up_process import Up, run_lantern, running_up, until

WORKFLOW = """
    import lantern

    def size(order):
        return len(order["text"])

    @lantern.workflow(name="measure")
    async def measure(ctx, order):
        first = await ctx.step("{step}", size, order)
        await ctx.sleep(3600)
        {after}
        return first
"""


def write(folder: Path, name: str, *, step: str = "size", after: str = "pass") -> str:
    (folder / name).write_text(textwrap.dedent(WORKFLOW).format(step=step, after=after))
    return name


@pytest.fixture
def up(tmp_path: Path):
    with running_up(tmp_path, "--module", write(tmp_path, "version1.py")) as running:
        yield running


def test_the_next_version_is_checked_against_runs_in_flight(up: Up, tmp_path: Path):
    (tmp_path / "order.json").write_text(json.dumps({"text": "x" * 300_000}))
    started = up.lantern("runs", "start", "measure", "--input", "@order.json", "--workflow-id", "m-1")
    assert started.returncode == 0, started.stderr
    until(lambda: "WAITING(timer)" in up.lantern("runs", "show", "m-1").stdout, "the run is parked")

    further = write(tmp_path, "version2.py", after='await ctx.step("again", size, order)')
    other = write(tmp_path, "version3.py", step="length")
    fine = up.lantern("replay-check", "--module", further)
    assert (fine.returncode, fine.stdout) == (0, "1 runs, 1 replay\n"), fine.stderr
    blocks = up.lantern("replay-check", "--module", other, "--runs", "workflow=m-1")
    assert blocks.returncode == 1
    assert "would block at event 3" in blocks.stdout
    assert "step size (function)  (version1.py:9)" in blocks.stdout
    assert "step length (function)  (version3.py:9)" in blocks.stdout

    exported = up.lantern("runs", "export", "m-1", "--out", "runs.jsonl.gz")
    assert exported.returncode == 0, exported.stderr
    # Without any service.
    assert run_lantern(tmp_path, "archive", "verify", "runs.jsonl.gz").returncode == 0
    assert run_lantern(tmp_path, "replay-check", "--module", further, "runs.jsonl.gz").returncode == 0
    assert run_lantern(tmp_path, "replay-check", "--module", other, "runs.jsonl.gz").returncode == 1
