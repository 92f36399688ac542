"""`lantern up`: everything starts, stays up, and leaves nothing behind, however it ends.

Method: the real command on SQLite (and once on a private PostgreSQL); signals are sent for real, process ids are looked
up in /proc.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from up_process import alive, descendants, environment, run_lantern, running_up, until


def nothing_left(pids: set[int]) -> bool:
    return not any(alive(pid) for pid in pids)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_everything(tmp_path: Path, number: int):
    with running_up(tmp_path, "--module", "agents.py") as up:
        pids = descendants(up.process.pid)
        assert set(up.state["pids"].values()) <= pids
        assert set(up.state["pids"]) == {"journal", "recovery", "executor"}
        assert up.end(number) == 0
        until(lambda: nothing_left(pids), "children end", 5)
        assert not (tmp_path / ".lantern/endpoints.json").exists()
        assert "stopping" in up.output()


def test_a_kill_leaves_nothing_behind_and_the_next_up_goes_on(tmp_path: Path):
    with running_up(tmp_path, "--module", "agents.py") as up:
        run_id = up.lantern("runs", "start", "double", "--input", "4", "--wait", "--json")
        assert run_id.returncode == 0, run_id.stderr
        pids = descendants(up.process.pid)
        assert len(pids) >= 3
        up.end(signal.SIGKILL)
    with running_up(tmp_path, "--module", "agents.py") as up:
        assert nothing_left(pids)
        assert "SUCCEEDED" in up.lantern("runs", "list").stdout


@pytest.mark.parametrize("name", ["journal", "recovery", "executor"])
def test_a_service_that_dies_is_started_again_on_its_port(tmp_path: Path, name: str):
    with running_up(tmp_path, "--module", "agents.py") as up:
        before = up.state
        pid = before["pids"][name]
        pids = descendants(up.process.pid)
        os.kill(pid, signal.SIGKILL)
        until(lambda: up.state["pids"][name] != pid, "a new process")
        after = up.state
        assert {k: v for k, v in after.items() if k != "pids"} == {k: v for k, v in before.items() if k != "pids"}
        assert f"{name} killed by signal 9; starting it again in 0.2 s" in up.output()
        until(lambda: f"{name} up again  pid {after['pids'][name]}" in up.output(), "it is said to be up again")
        done = up.lantern("runs", "start", "double", "--input", "4", "--wait", "--json")
        assert done.returncode == 0, done.stderr
        assert up.end(signal.SIGINT) == 0
        until(lambda: nothing_left(pids), "children end", 5)


def test_runs_from_start_to_end(tmp_path: Path):
    with running_up(tmp_path, "--module", "agents.py", "--executors", "2") as up:
        done = up.lantern("runs", "start", "double", "--input", "-", "--workflow-id", "double-1", "--wait", stdin="21")
        assert done.returncode == 0, done.stderr
        assert "84" in done.stdout
        shown = up.lantern("runs", "show", "double-1")
        assert shown.returncode == 0
        assert "once" in shown.stdout
        assert "twice" in shown.stdout
        failed = up.lantern("runs", "start", "fails", "--input", '"no"', "--wait")
        assert failed.returncode == 1
        assert "ValueError" in failed.stdout
        listed = up.lantern("runs", "list", "--state", "failed", "--json")
        assert '"agentName": "fails"' in listed.stdout
        missing = up.lantern("runs", "start", "nobody", "--input", "1")
        assert missing.returncode == 3
        assert missing.stderr.startswith("error: AGENT_NOT_FOUND: ")
        slow = up.lantern("runs", "start", "slow", "--input", "60", "--workflow-id", "slow-1")
        assert slow.returncode == 0
        assert up.lantern("runs", "cancel", "slow-1").returncode == 0
        assert up.lantern("runs", "watch", "slow-1").returncode == 1
        assert "CANCELLED" in up.lantern("runs", "show", "slow-1").stdout


def test_a_killed_executor_costs_one_step(tmp_path: Path):
    with running_up(tmp_path, "--module", "agents.py", "--executors", "2") as up:
        started = up.lantern("runs", "start", "slow", "--input", "3", "--workflow-id", "slow-1")
        assert started.returncode == 0, started.stderr
        until(lambda: "linger" in up.lantern("runs", "show", "slow-1").stdout, "the second step")
        shown = up.lantern("runs", "show", "slow-1", "--json").stdout
        for name in ("executor-1", "executor-2"):
            os.kill(up.state["pids"][name], signal.SIGKILL)
        assert up.lantern("runs", "watch", "slow-1").returncode == 0, shown
        picture = up.lantern("runs", "show", "slow-1").stdout
        assert "crash" in picture
        assert "replayed 1 step" in picture


@pytest.mark.parametrize(("outcome", "code"), [("--delivered", 0), ("--refused", 1)])
def test_an_operator_settles_what_a_crash_left_open(tmp_path: Path, outcome: str, code: int):
    with running_up(tmp_path, "--module", "agents.py") as up:
        started = up.lantern("runs", "start", "mails", "--input", "60", "--workflow-id", "mail-1")
        assert started.returncode == 0, started.stderr
        until(lambda: "mail  " in up.lantern("runs", "show", "mail-1").stdout, "the step begins")
        os.kill(up.state["pids"]["executor"], signal.SIGKILL)
        until(lambda: "WAITING(operator)" in up.lantern("runs", "show", "mail-1").stdout, "the run asks")
        shown = up.lantern("runs", "show", "mail-1").stdout
        assert f"{outcome}\n" in shown
        assert "1 crash" in shown
        settled = up.lantern("runs", "settle", "mail-1", outcome, "--result", '"in the outbox"')
        assert settled.returncode == 0, settled.stderr
        assert up.lantern("runs", "watch", "mail-1").returncode == code
        assert ("in the outbox" in up.lantern("runs", "show", "mail-1").stdout) == (code == 0)


@pytest.mark.parametrize("arguments", [("list",), ("list", "--json"), ("show", "double-1"), ("watch", "double-1")])
def test_output_that_goes_nowhere_is_no_traceback(tmp_path: Path, arguments: tuple[str, ...]):
    with running_up(tmp_path, "--module", "agents.py") as up:
        done = up.lantern("runs", "start", "double", "--input", "4", "--workflow-id", "double-1", "--wait")
        assert done.returncode == 0, done.stderr
        command = [sys.executable, "-m", "lantern.cli.main", "runs", *arguments]
        with Path("/dev/full").open("w") as full:
            ended = subprocess.run(
                command, cwd=tmp_path, env=environment(), stdout=full, stderr=subprocess.PIPE, text=True, check=False
            )
        assert ended.returncode == 1
        assert "cannot write the output: No space left on device" in ended.stderr
        assert len(ended.stderr.splitlines()) == 1
        reading, writing = os.pipe()
        os.close(reading)
        ended = subprocess.run(
            command, cwd=tmp_path, env=environment(), stdout=writing, stderr=subprocess.PIPE, text=True, check=False
        )
        os.close(writing)
        assert (ended.returncode, ended.stderr) == (141, "")


def test_who_watches_is_told_that_the_journal_is_away(tmp_path: Path):
    with running_up(tmp_path, "--module", "agents.py") as up:
        journal = up.state["journal"]
        started = up.lantern("runs", "start", "slow", "--input", "60", "--workflow-id", "slow-1")
        assert started.returncode == 0, started.stderr
        said = tmp_path / "said.txt"
        with said.open("w") as errors:
            watching = subprocess.Popen(
                [sys.executable, "-m", "lantern.cli.main", "runs", "watch", "slow-1"],
                cwd=tmp_path,
                env=environment(),
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        try:
            assert watching.stdout is not None
            assert b"run_started" in watching.stdout.readline()
            up.end(signal.SIGTERM)
            until(said.read_text, "it is told", 10)
            assert said.read_text().startswith(f"the journal does not answer (nothing answers at {journal}); trying")
            assert watching.poll() is None
        finally:
            watching.kill()
            watching.communicate()


def test_a_second_up_in_the_same_folder_is_refused(tmp_path: Path):
    with running_up(tmp_path) as up:
        second = run_lantern(tmp_path, "up")
        assert second.returncode == 4
        assert (
            f"error: UNAVAILABLE: another `lantern up` (process {up.process.pid}) runs from .lantern" in second.stderr
        )
        assert up.process.poll() is None
        assert "no --module was given" in up.output()


def test_a_worker_joins(tmp_path: Path):
    with running_up(tmp_path) as up:
        worker = subprocess.Popen(
            [sys.executable, "-m", "lantern.cli.main", "worker", "--module", "agents.py"],
            cwd=tmp_path,
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            until(lambda: up.lantern("runs", "start", "double", "--input", "1").returncode == 0, "the worker attaches")
            done = up.lantern("runs", "start", "double", "--input", "4", "--wait")
            assert done.returncode == 0, done.stderr
            assert "16" in done.stdout
        finally:
            os.kill(worker.pid, signal.SIGTERM)
            assert worker.wait(20) == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--module", "no_such_module"], "no_such_module"),
        (["--module", "broken.py"], "broken"),
        (["--db", "postgresql://127.0.0.1:1/nothing"], "journal"),
        (["--db", "sqlite:broken.py/x.db"], "journal"),
    ],
)
def test_a_fault_at_start_shows_the_log_and_ends_with_one(tmp_path: Path, arguments: list[str], said: str):
    (tmp_path / "broken.py").write_text("import nothing_of_that_name\n")
    result = run_lantern(tmp_path, "up", *arguments)
    assert result.returncode == 1, result.stdout
    assert "while starting; the end of .lantern/logs/" in result.stdout
    assert said in result.stdout
    assert "Traceback" not in result.stdout
    assert not (tmp_path / ".lantern/endpoints.json").exists()


def test_a_private_postgres_lives_and_ends_with_the_command(tmp_path: Path):
    with running_up(tmp_path, "--module", "agents.py", "--db", "postgres") as up:
        assert up.state["database"].startswith("postgresql://")
        assert "its data go when this command ends" in up.output()
        done = up.lantern("runs", "start", "double", "--input", "4", "--wait")
        assert done.returncode == 0, done.stderr
        port = up.state["database"].rpartition(":")[2].partition("/")[0]
        folders = {p for p in Path("/tmp").glob("lantern-postgres-*") if f"port={port}" in _options(p)}
        assert len(folders) == 1
        up.end(signal.SIGKILL)
        until(lambda: not any(p.exists() for p in folders), "the guard removes it", 20)


def _options(folder: Path) -> str:
    try:
        return (folder / "data/postmaster.opts").read_text()
    except OSError:
        return ""
