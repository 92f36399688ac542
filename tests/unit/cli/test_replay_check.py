"""`lantern replay-check`: what replays, what would block and where, which exit code.

Method: runs of one version of a workflow, made in the environment, against other versions of it, through the real
command line, from files and from a fake client.
"""

import json
import textwrap
from pathlib import Path

import pytest
from fake_client import FakeClient, make_run
from typer.testing import CliRunner, Result

from lantern import registry
from lantern.cli import runs
from lantern.cli.main import app
from lantern.testing import Environment, ReplayDiffers, check_files
from lantern.testing.histories import read_histories

WORKFLOW = """
    import lantern

    def work(*args):
        return args

    @lantern.workflow(name="{name}")
    async def order(ctx, content):
        first = await ctx.step("reserve", work, content)
        await ctx.sleep(3600)
        {middle}
        await ctx.step("ship", work, first)
        return "done"
"""


class Versions:
    """Modules of one workflow that differ in the middle."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0

    def write(self, middle: str = "pass", name: str = "order") -> str:
        self._count += 1
        # Modules stay imported: no two tests may share a name.
        file = self._folder / f"{self._folder.name.replace('-', '_')}_v{self._count}.py"
        file.write_text(textwrap.dedent(WORKFLOW).format(middle=middle, name=name))
        return str(file)


@pytest.fixture
def versions(tmp_path: Path) -> Versions:
    return Versions(tmp_path)


def history(tmp_path: Path, module: str, *, after_s: float = 0.0, paused: bool = False) -> Path:
    """A file with one run of that module, ended or left where it was after so many seconds."""
    (definition,) = registry.load_module(module)
    with Environment() as env:
        run = env.start(definition.function, {"n": 1}, workflow_id="order-1")
        if after_s:
            env.skip(after_s)
        else:
            run.finish()
        if paused:
            run.pause()
        file = tmp_path / f"{run.state}-{after_s}-{paused}.jsonl.gz"
        run.save(file)
        return file


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["replay-check", *arguments], env={"NO_COLOR": "1", "TERM": "dumb"})


STEP_ADDED = 'await ctx.step("gift", work)'
MARKER_ADDED = 'await ctx.side_effect("gift", work)'


@pytest.mark.parametrize(
    ("middle", "after_s", "exit_code"),
    [
        ("pass", 0.0, 0),
        ("pass", 60.0, 0),
        # The run has not come to where the code differs.
        (STEP_ADDED, 60.0, 0),
        (STEP_ADDED, 0.0, 1),
        (MARKER_ADDED, 0.0, 1),
        ('return "early"', 0.0, 1),
        ('raise ValueError("no")', 0.0, 1),
    ],
)
def test_what_would_block(tmp_path: Path, versions: Versions, middle: str, after_s: float, exit_code: int):
    file = history(tmp_path, versions.write(), after_s=after_s)
    result = invoke("--module", versions.write(middle), str(file))
    assert result.exit_code == exit_code, result.output
    assert "1 runs, " in result.output


def test_both_lines_of_code_are_named(tmp_path: Path, versions: Versions):
    old, new = versions.write(), versions.write(STEP_ADDED)
    result = invoke("--module", new, str(history(tmp_path, old)))
    head, recorded, asked, total = result.output.splitlines()
    assert head.endswith("order  order-1  would block at event 9 of 11")
    assert recorded.split() == ["recorded", "step", "ship", "(function)", f"({Path(old).name}:12)"]
    assert asked.split() == ["code", "asks", "step", "gift", "(function)", f"({Path(new).name}:11)"]
    assert total == "1 runs, 0 replay, 1 would block"


def test_json_has_the_facts(tmp_path: Path, versions: Versions):
    file = history(tmp_path, versions.write())
    result = invoke("--module", versions.write(STEP_ADDED), str(file), "--json")
    (value,) = map(json.loads, result.output.splitlines())
    assert (value["verdict"], value["difference"]["seq"], value["events"]) == ("blocks", 9, 11)


def test_a_paused_run_is_replayed_as_well(tmp_path: Path, versions: Versions):
    file = history(tmp_path, versions.write(), after_s=60.0, paused=True)
    assert invoke("--module", versions.write(), str(file)).exit_code == 0
    other = versions.write()
    Path(other).write_text(Path(other).read_text().replace('"reserve"', '"book"'))
    assert invoke("--module", other, str(file)).exit_code == 1


def test_a_workflow_that_is_gone_is_said(tmp_path: Path, versions: Versions):
    file = history(tmp_path, versions.write())
    result = invoke("--module", versions.write(name="other"), str(file))
    assert result.exit_code == 1
    assert "no workflow 'order' is loaded" in result.output


def test_tests_can_check_files(tmp_path: Path, versions: Versions):
    file = history(tmp_path, versions.write())
    (same,), (other,) = registry.load_module(versions.write()), registry.load_module(versions.write(STEP_ADDED))
    assert check_files(file, workflows=[same.function]) == 1
    with pytest.raises(ReplayDiffers, match=r"event 9 records step ship .*asks for step gift"):
        check_files(file, workflows=[other.function])


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, versions: Versions) -> FakeClient:
    (stored,) = read_histories(history(tmp_path, versions.write()))
    fake = FakeClient(runs=[make_run(stored.run_id, state="WAITING")], history=list(stored.events))
    monkeypatch.setattr(runs, "connect", lambda folder: fake)  # pyright: ignore[reportUnknownLambdaType] - a stand-in
    return fake


@pytest.mark.parametrize(("middle", "exit_code"), [("pass", 0), (STEP_ADDED, 1)])
def test_runs_of_the_journal_are_checked(client: FakeClient, versions: Versions, middle: str, exit_code: int):
    assert invoke("--module", versions.write(middle)).exit_code == exit_code
    (asked,) = [what for call, what in client.calls if call == "list"]
    assert asked[0] == ("QUEUED", "RUNNING", "WAITING")


def test_other_agents_of_the_journal_are_left_alone(client: FakeClient, versions: Versions):
    result = invoke("--module", versions.write(name="other"))
    assert (result.exit_code, result.output) == (0, "0 runs, 0 replay\n")


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ((), "--module"),
        (("--module", "no_such_module_anywhere"), "there is no module"),
        (("--module", "MODULE", "--runs", "colour=red"), "not understood"),
        (("--module", "MODULE", "--runs", "all", "some.jsonl"), "one of the two"),
    ],
)
def test_what_is_not_understood_is_said(versions: Versions, arguments: tuple[str, ...], what: str):
    module = versions.write()
    result = invoke(*(module if each == "MODULE" else each for each in arguments))
    assert result.exit_code == 2
    assert what in result.stderr


def test_a_damaged_file_is_said(tmp_path: Path, versions: Versions):
    file = tmp_path / "none.jsonl"
    file.write_text("nothing\n")
    result = invoke("--module", versions.write(), str(file))
    assert result.exit_code == 2
    assert "ARCHIVE_FAULTY" in result.stderr
    missing = invoke("--module", versions.write(), str(tmp_path / "missing.jsonl"))
    assert missing.exit_code == 2
    assert "missing.jsonl" in missing.stderr
